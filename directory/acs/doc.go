// Package acs is the Agent Capability Specification v02.02: what an agent says of itself. It reads, validates and re-encodes the
// JSON document, and makes the authoritative ACS out of an agent's draft.
//
// The contract:
//
//   - [Parse] checks syntax and bounds (UTF-8, no duplicate member, depth, size, numbers that survive canonicalisation). The
//     [ACS] that it returns is a read-only view of the document; members that this package does not know stay in the document
//     and come out of [ACS.Encode] again.
//   - [ACS.Validate] names every violation with its JSON path and says what to do about it.
//   - [ACS.Warnings] names what is valid and probably a mistake: classes that the embedded taxonomy has not.
//   - [Authoritative] sets what only a gateway may set (aic, active, lastModifiedTime) and removes skills that were not granted.
//   - [Hash] is SHA-256 over the JSON Canonicalization Scheme (RFC 8785), so that it survives any re-encoding.
//
// Lengths called characters are code points, the others octets. The package is pure; an ACS may be read by several goroutines.
// Source: ACPs ACS v02.02 as told in FORMATS, sections 3 and 6; seed 002, section 5.2 (authoritative ACS).
package acs
