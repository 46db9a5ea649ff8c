// Package frame is the encoding that every agentgw protocol shares: frames of type, length and payload on QUIC streams,
// payloads of deterministic CBOR, and signed objects (COSE_Sign1) inside them.
//
// The contract:
//
//   - A frame is `type varint ‖ length varint ‖ payload` with QUIC varints (RFC 9000, section 16). Its length is checked
//     against the limit of its type before anything is allocated for it.
//   - A payload is one CBOR map with integer keys in core deterministic encoding (RFC 8949, section 4.2.1). [Check] accepts
//     exactly that and nothing else: shortest integers, sorted unique keys, no floats, no null, no tags, bounded depth.
//   - A signed object travels as a byte string and is verified over the bytes received; [Open] refuses every other spelling
//     of the same object, so that a hash of the bytes may serve as an address.
//   - Codes are one space for stream resets, connection closes, nacks and answers.
//
// The package is pure: it reads from an io.Reader that it is handed and keeps no state of its own. Byte counts are octets.
// Source: PROTOCOL documents of cdsp and a2a, sections "Encoding" and "Registry".
package frame
