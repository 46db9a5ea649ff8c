// Package replica is the Capability Digest Synchronisation Protocol as a pure machine: the tables of one gateway, one
// session with each neighbour, and the rules by which digests are accepted, chosen and passed on.
//
// The contract: the owner calls [Replica.Step] with what happened, [Replica.Tick] when [Replica.Next] is reached, and takes
// what is to be done from [Replica.Ready] after each. Time is handed in and must not go backwards; random numbers come from
// [Config]; signatures are Ed25519 and so deterministic. The same events at the same times give the same effects.
//
// A Replica is not safe for concurrent use: one goroutine owns it. It never blocks, logs or reads a clock. Everything that
// a neighbour can grow is bounded by [Limits]. Peers are answered with codes; an error from Step is about our own input.
//
// Tables are in memory. What neighbours told may be written down by the owner and handed in again at the next start, see [Learned]; what they were told is
// forgotten with the Replica. So a neighbour is told everything once in the life of this side's Replica, and what changed since when it
// comes back within 300 s. Versions are (oepoch, oseq): the owner
// must hand in an OEpoch larger than any used before by this gateway, and have persisted it.
//
// Source: cdsp/PROTOCOL.md; draft "DMSC", section 5.2.
package replica
