// Package aci is the contexts that agents exchange: TaskContext, which its master alone keeps, and AgentContext, which travels
// (seed 000, section 5; a2a/PROTOCOL.md, "ACI"). It parses and writes their JSON with the exact member names of the seed, holds
// their rules, isolates what an invoked agent may change, and makes the first-layer evaluation of what came back.
//
// The contract: Parse functions accept at most [MaxSize] bytes nested at most [MaxDepth] deep, UTF-8, without repeated members;
// required members must be there, a `null` counts as absent. Members that this version does not know are kept and written again.
// A status word that this version does not know is kept, and treated as the weakest of its kind. Whatever Parse returns is valid.
//
// The package is pure; a value belongs to one goroutine at a time. Sizes are octets. Errors are *frame.Error: 04 MALFORMED for
// what breaks the schema, 10 LIMIT_EXCEEDED for what is too large, 66 SCOPE for what an agent had no right to change.
package aci
