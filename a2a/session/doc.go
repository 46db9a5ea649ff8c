// Package session is the semantic session between two agents as a machine: when it opens, what it counts, how it ends
// (seed 002, section 5.5; a2a/PROTOCOL.md, "Session"), and what a target remembers of the sessions that its gateway offered it.
//
// The contract: [Session.Step] takes one event and the time and answers with effects, values that the caller carries out in their
// order. Nothing else changes a session. An event from the peer that has no place in the state is an error with a code, and the
// state stays; the same from our own code is a panic, but for events that may cross a close, which do nothing.
// [Session.NextDeadline] says when a [Tick] is due.
//
// The package is pure: no clock, no lock, no I/O. A value belongs to one goroutine at a time. Sizes are octets.
package session
