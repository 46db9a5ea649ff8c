// Package a2a is the semantic session between two agents over QUIC, ALPN dmsc-a2a/1 (seed 002, section 5.5; a2a/PROTOCOL.md):
// the shell that carries out what package session decides.
//
// The contract:
//
//   - A session outlives its connection by 60 s: one that was opened with a [Route] is resumed on another connection, after a re-key
//     ([Agent.KeyChanged]) under the new key with a new SAT, and what is under way is repeated without being done twice.
//     [Session.Update] narrows what a session allows, or extends it with a new SAT.
//   - An [Agent] is one local agent identity (AIC). It initiates sessions with [Agent.Open] or [Agent.Initiate], and answers those
//     that its gateway offered it: [Agent.Offer] remembers an offer, a [Host] puts the agents of one socket behind one
//     [endpoint.Face]. Nobody without an outstanding offer or a session finishes a TLS handshake.
//   - [Session.Deliver] sends one AgentContext and waits for its result. What arrives goes to the [Handler], exactly once a
//     msg_id as far as the [Outcomes] remember: a msg_id is persisted before its delivery, its outcome before the answer leaves.
//   - [Session.Close] and [Agent.Close] return after every goroutine of theirs has ended.
//
// All types are safe for concurrent use. Sizes are octets. Errors carry a frame.Code: what the peer said, or 44 for a deadline
// that passed, 48 for a connection that was lost, 0D for a handshake that was refused. To a peer of another domain goes the code
// alone; what exactly was wrong is logged here.
package a2a
