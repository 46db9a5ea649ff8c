// Package wire is the bytes of the Capability Digest Synchronisation Protocol: the control frames and the digest stream of
// `dmsc-agw/1`, the entries in them, and the signed batches of digest items that the entries refer to.
//
// The contract: [Parse] reads the payload of one frame and says what is malformed; the layer above decides what that costs
// the peer. [Append] writes a whole frame. What parses, encodes again to bytes that parse to the same message; unknown keys
// below 128 are read past, and lost when a message is written again. A batch is verified over the bytes received and
// addressed by their hash ([BatchHash]); the bytes are never made anew. Entries of one frame are parsed one by one
// ([ParseEntry]), so that one malformed entry does not cost its neighbours anything.
//
// The package is pure and keeps no state; its values are safe for concurrent reading. Durations are milliseconds where the
// name ends in MS, times are unix seconds, epochs unix milliseconds, sizes octets. Errors are [frame.Error] values.
// Source: cdsp/PROTOCOL.md; draft "DMSC", section 5.2.
package wire
