// Package wire is the messages of the agent-to-agent session protocol, ALPN dmsc-a2a/1 (a2a/PROTOCOL.md, "Frames").
//
// The contract: a message is a struct whose CBOR keys are those of the specification; [Append] writes one as a whole frame,
// [ReadControl] and [ReadData] read the next one that the stream allows. What they return has passed every check that needs no
// knowledge beyond the message itself (lengths, ranges, required keys); whether it fits the session is for packages session and
// a2a to say. Unknown keys below 128 are ignored, so that a later version may add some; bytes behind the map are refused.
//
// The package is pure and keeps no state; a value may be used by one goroutine at a time. Lengths are octets, durations on the
// wire are milliseconds. Errors are *frame.Error with the code that the peer gets: 03 too large, 04 malformed, 05 a frame that
// has no place on this stream, 07 another version, 0A an unknown critical key.
package wire
