// Package endpoint is one UDP socket with one QUIC transport for everything that a daemon says and hears: it listens for the
// ALPN protocols of its faces, dials, and hands out connections and framed streams. It is the only package that knows
// quic-go beside the files named quic.go.
//
// The contract:
//
//   - TLS 1.3 with a certificate on both sides, always; who the peer may be is decided by [Credentials.Verify] during the
//     handshake, separately for each ALPN protocol and each direction. No session tickets, no 0-RTT.
//   - A dial that returned is not a connection that the peer accepted: TLS 1.3 lets the client finish first. A caller counts
//     the peer as there only when its first frame has arrived.
//   - Every read and write of a [Stream] takes a deadline. On any error path both directions are cancelled ([Stream.Reset]),
//     or the peer's stream credit would leak.
//   - A stream that the peer opened holds its credit until its handler returns, and the last one of a connection until the next one's
//     does: that is the admission control.
//   - [Endpoint.Close] drains: it closes [Conn.Draining], waits for the handlers as long as its context allows, then closes
//     each connection with SHUTDOWN and returns after every goroutine has ended.
//
// All types are safe for concurrent use except [Stream], whose reads belong to one goroutine and whose writes to one.
// Source: PROTOCOL documents, "QUIC profile".
package endpoint
