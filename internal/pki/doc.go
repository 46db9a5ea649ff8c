// Package pki is the certification authority of a domain: a root that signs issuing CAs and nothing else, an issuing CA that
// signs credentials, and what tells others of them (CRL, OCSP, the CA's certificate).
//
// The contract:
//
//   - What is signed is checked twice against its [Profile] by code that did not make it ([Check]): the exact bytes to be signed
//     before the CA's key touches them, and the certificate before it is released. A breach names the rule ([RuleError]).
//   - A credential ends no later than the issuing CA that signed it, an issuing CA no later than its root.
//   - Keys and certificates of a folder belong together at every instant: a crash within a change leaves a pair that works, and
//     the next [OpenDir] or [CA.Rotate] finishes the change.
//   - The root's key may be elsewhere. Then the folder holds requests for the root's owner to sign ([SignIssuing]) and takes
//     their answers ([InstallIssuing], [InstallRoot], [InstallRootCRL]).
//
// Processes that change one folder at once wait for each other. [CA], [Responder] and [Site] are safe for concurrent use; their
// readers take immutable views. Nothing here starts a goroutine or dials. Times are handed in, or come from [Options.Now]. Only
// http.go serves HTTP.
//
// Source: cdsp/PROTOCOL.md, "PKI profile"; RFC 5280 (certificates, CRLs), RFC 6960 (OCSP); seed 002, sections 4.2 and 5.1.
package pki
