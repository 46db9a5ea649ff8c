// Package nameserver answers with authority for the zone of a domain's own gateways: SVCB and SRV records of exactly the members that are
// live when the question comes, A and AAAA of their hosts where these lie in the zone, SOA and NS.
//
// The contract: it reads nothing from the network but questions, and tells anybody the same. There is no recursion, no zone transfer and no
// ANY; what is outside of the zone is REFUSED. An answer over UDP has at most 1232 octets, or what the asker said if that is less; what does not
// fit is cut (TC) and had over TCP. Nobody can have much sent to a third party: one network (/24, /56) gets 50 answers a second over
// UDP, and beyond that every second question an empty one with TC, which is no larger than the question, and the others none. Connections are bounded in number and time.
//
// What a zone answers (answer.go) is pure; a [Server] is safe for concurrent use and ends with the context of Serve.
// Source: PROTOCOL documents, "Finding gateways by DNS"; RFC 1035, RFC 2308 (negative answers), RFC 6891 (EDNS), RFC 8482 (ANY), RFC 9460 (SVCB).
package nameserver
