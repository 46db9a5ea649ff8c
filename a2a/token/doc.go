// Package token is the two tokens of the control plane: the request authorization token (RAT), with which an origin gateway says
// for whom it asks, and the session authorization token (SAT), with which a target's gateway says who may open a session, under
// which key, for which capability and until when (a2a/PROTOCOL.md, "Tokens").
//
// The contract: Mint signs claims as COSE_Sign1 over a CWT claims set (RFC 8392) with the one Ed25519 key handed in; Verify
// parses, finds the key, checks the signature and that the signer may say what the token says: a kid counts only for its owner,
// and an owner only for AICs of its own domain. Checks that need more than the token (time, the peer's key, the request) are
// methods with what they need as arguments, so that a caller keeps the order of the specification.
//
// A token is never an authentication credential by itself, is never logged (log its cti), and never travels on another ALPN.
// The package is pure: `now` is an argument. Times are unix seconds; a leeway of [Leeway] covers clocks that disagree. Errors are
// *frame.Error: 60 TOKEN_INVALID, 61 TOKEN_EXPIRED, 63 BINDING, 64 AUDIENCE, 66 SCOPE, 0C IDENTITY_MISMATCH, 24 and 2B for
// signatures and keys.
package token
