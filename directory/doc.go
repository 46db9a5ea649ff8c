// Package directory is the vocabulary of a gateway's directory: the entry that it keeps for each agent (the authoritative ACS
// and an envelope that the agent cannot write), the states of its life, Capability Identifiers, what the matcher ranks and what
// it answers.
//
// The packages below do the work: aic and acs read the two published formats, match ranks, store keeps, registry joins them.
// This one only holds values, so that cdsp, semreq and the daemons can speak of them without knowing a store.
//
// The contract: values are plain data and are not changed once handed over; a slice in a value belongs to whoever made it.
// AICs are plain strings in canonical (upper-case) form. Times have whole milliseconds in storage and UTC everywhere. Confidence
// is per ten thousand. Errors are for people; none carries a protocol code.
//
// The package is pure and safe for concurrent use. Source: FORMATS, section 6; seed 002, sections on the Agent Gateway.
package directory
