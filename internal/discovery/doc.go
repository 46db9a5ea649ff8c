// Package discovery finds the gateways of a domain by DNS: SVCB records at _dmsc-agw.DOMAIN, and where there are none SRV records at
// _dmsc-agw._udp.DOMAIN.
//
// The contract: DNS says where to dial and nothing else. Whoever is met there counts by its certificate alone, so a forged answer costs a
// failed dial. A [Resolver] asks at most two name servers, each for 2 s at most, over UDP with EDNS 1232 and over TCP where an answer was cut;
// a packet with another id, question or source is not an answer, and of an answer nothing counts that was not asked for. That a domain has
// no records (NXDOMAIN, no such type) is [frame.NotFound] and asked again after 60 s; that nobody could say (SERVFAIL, silence, garbage, a loop
// of aliases) is any other code and asked again after 5 s. In both cases the last good answer stands in for 24 h: a zone that is broken shall
// not part domains that know each other. Good answers count as long as their TTL, at least 30 s and at most 1 h.
//
// A Resolver is safe for concurrent use; those who ask for one domain at a time wait for one lookup. It keeps 1024 domains, in memory only.
// Source: PROTOCOL documents, "Finding gateways by DNS"; RFC 9460 (SVCB), RFC 2782 (SRV), RFC 2308 (negative answers), RFC 6891 (EDNS),
// RFC 8767 (stale answers).
package discovery
