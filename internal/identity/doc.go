// Package identity is who somebody is and who may speak for whom: keys, certificates whose subject is an Agent Identity Code
// (AIC), trust bundles of domains, and the verification of a peer by its AIC.
//
// The contract:
//
//   - A certificate names one AIC, as CN and as the one URI SAN `acps://<AIC>`; the two agree or the certificate is void.
//   - The domain of an AIC is the domain whose accepted bundle owns the AIC's prefix. Bundles are never merged: a chain is
//     verified under the roots of that one bundle, so a domain's CA cannot speak for another domain's AICs.
//   - Prefixes of accepted bundles are disjoint. A bundle that claims a prefix of another is refused (0D).
//   - A signing key counts only for the owner and the use that its bundle names.
//
// [Trust] is safe for concurrent use: readers take an immutable view. Times are handed in or are wall clock seconds.
// Source: cdsp/PROTOCOL.md, "Identifiers and trust" and "PKI profile"; seed 002, sections 4.2 and 4.6.
package identity
