// Package cdsp runs the Capability Digest Synchronisation Protocol: the goroutines, streams and deadlines around the pure
// machine of package replica.
//
// The contract: make a [Node] with [New], start [Node.Run], hand it the policy rows ([Node.SetNeighbours]) and the own
// digests ([Node.SetOwn]), and [Node.Attach] every connection to a gateway whose TLS identity is verified. Who dials whom,
// and when again, is the caller's business; the node answers with a [Session] that says when it is up and why it ended. What
// is known is read from [Node.Snapshot], and [Node.Changed] says when to look again.
//
// Concurrency: all methods may be called from any goroutine. One goroutine, Run's, owns the machine; some more serve each
// session. Run returns after every session has ended. Queues are bounded: a neighbour that does not read is cut off with
// SEND_STALLED (11), a neighbour that writes too fast waits.
//
// What neighbours tell can be kept over restarts: [Config] Keep writes it down beside the machine, which never waits for that, and Kept hands it in again.
//
// Durations are time.Duration; sizes octets. Errors that end a session are [frame.Error] values with the code of either
// side. Source: cdsp/PROTOCOL.md; draft "DMSC", section 5.2.
package cdsp
