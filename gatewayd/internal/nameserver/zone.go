package nameserver

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"agentgw/internal/discovery"
	"agentgw/internal/frame"
)

// Member is a gateway that the records name.
type Member struct {
	Host      string // a DNS name without the last dot
	Port      uint16
	Addresses []netip.Addr // of Host: told where it lies in the zone
}

func (m Member) equal(o Member) bool {
	return m.Host == o.Host && m.Port == o.Port && slices.Equal(m.Addresses, o.Addresses)
}

func (m Member) clone() Member {
	m.Addresses = slices.Clone(m.Addresses)
	return m
}

// Apex says whose records they are, and what is the same whoever is live.
type Apex struct {
	Domain  string        // whose gateways the members are
	Zone    string        // Domain, or a name below it that is delegated to this server
	Servers []string      // names of the zone's name servers (NS), the first is the primary one
	TTL     time.Duration // of the records
	// Hosts are names in the zone that have addresses whoever is live, such as this server's own.
	Hosts map[string][]netip.Addr
}

// negativeTTL is how long others remember that there is nothing, in seconds.
const negativeTTL = 60

// zone is the records of one set of members. It is not changed once made.
type zone struct {
	apex    string // with the last dot, as all names here
	members []Member
	soa     *dns.SOA
	names   map[string]map[uint16][]dns.RR // what exists, in lower case; a name above another exists, with no records of its own
}

// newZone makes the records. A member twice is one; one whose host is no name is left out.
func newZone(a Apex, members []Member, serial uint32) *zone {
	z := &zone{apex: dns.CanonicalName(a.Zone), members: make([]Member, 0, len(members)), names: map[string]map[uint16][]dns.RR{}}
	ttl := uint32(a.TTL / time.Second)
	head := func(name string, t uint16, ttl uint32) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
	}
	z.soa = &dns.SOA{
		Hdr: head(z.apex, dns.TypeSOA, negativeTTL), Ns: dns.CanonicalName(a.Servers[0]), Mbox: "hostmaster." + z.apex, Serial: serial,
		Refresh: 3600, Retry: 600, Expire: 86400, Minttl: negativeTTL,
	}
	z.add(z.soa)
	for _, s := range a.Servers {
		z.add(&dns.NS{Hdr: head(z.apex, dns.TypeNS, ttl), Ns: dns.CanonicalName(s)})
	}
	addresses := func(host string, list []netip.Addr) {
		for _, ip := range list {
			if ip = ip.Unmap(); ip.Is4() {
				z.add(&dns.A{Hdr: head(host, dns.TypeA, ttl), A: ip.AsSlice()})
			} else {
				z.add(&dns.AAAA{Hdr: head(host, dns.TypeAAAA, ttl), AAAA: ip.AsSlice()})
			}
		}
	}
	for host, list := range a.Hosts {
		addresses(dns.CanonicalName(host), list)
	}
	svcb, srv := z.owner(discovery.SVCBName(a.Domain), discovery.SVCBName(a.Zone)), z.owner(discovery.SRVName(a.Domain), discovery.SRVName(a.Zone))
	for _, m := range members {
		z.members = append(z.members, m.clone())
		host := dns.CanonicalName(m.Host)
		if _, ok := dns.IsDomainName(host); !ok || host == "." || m.Port == 0 {
			continue
		}
		z.add(&dns.SVCB{Hdr: head(svcb, dns.TypeSVCB, ttl), Priority: 1, Target: host, Value: []dns.SVCBKeyValue{
			&dns.SVCBAlpn{Alpn: []string{frame.ALPNGateway, frame.ALPNControl}}, &dns.SVCBPort{Port: m.Port},
		}})
		z.add(&dns.SRV{Hdr: head(srv, dns.TypeSRV, ttl), Priority: 1, Weight: 1, Port: m.Port, Target: host})
		addresses(host, m.Addresses)
	}
	return z
}

// owner is the name of a domain's records; where the zone is delegated further down, the one in the zone that the domain's is made an alias of.
func (z *zone) owner(ofDomain, inZone string) string {
	if name := dns.CanonicalName(ofDomain); z.holds(name) {
		return name
	}
	return dns.CanonicalName(inZone)
}

// holds says whether a name in lower case is in the zone.
func (z *zone) holds(name string) bool { return name == z.apex || strings.HasSuffix(name, "."+z.apex) }

// add puts a record in, once, and the names between it and the apex.
func (z *zone) add(rr dns.RR) {
	name := rr.Header().Name
	if !z.holds(name) {
		return
	}
	for above := name; z.names[above] == nil; above = above[strings.IndexByte(above, '.')+1:] {
		z.names[above] = map[uint16][]dns.RR{}
		if above == z.apex {
			break
		}
	}
	set := z.names[name]
	if !slices.ContainsFunc(set[rr.Header().Rrtype], func(o dns.RR) bool { return dns.IsDuplicate(o, rr) }) {
		set[rr.Header().Rrtype] = append(set[rr.Header().Rrtype], rr)
	}
}

// records are all of the zone, in the form of zone files, sorted.
func (z *zone) records() (out []string) {
	for _, set := range z.names {
		for _, list := range set {
			for _, rr := range list {
				out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
			}
		}
	}
	slices.Sort(out)
	return out
}
