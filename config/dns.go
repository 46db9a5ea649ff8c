package config

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"agentgw/internal/identity"
)

// Discovery says whom to ask for the gateways of a domain.
type Discovery struct {
	Servers []string `yaml:"servers"` // ip or ip:port, at most two; default: the system's (/etc/resolv.conf)
	DNSSEC  string   `yaml:"dnssec"`  // off, prefer, require; default off
}

// DNS is the part of gatewayd.yaml about finding gateways and being found.
type DNS struct {
	Servers   []string `yaml:"servers"`   // as of [Discovery]
	DNSSEC    string   `yaml:"dnssec"`    // as of [Discovery]
	Listen    []string `yaml:"listen"`    // ip:port of the own name server, UDP and TCP; default none: it is off
	Zone      string   `yaml:"zone"`      // that it answers for: the domain, or a name below it; default the domain
	Host      string   `yaml:"host"`      // this gateway's name in the records; default the first name of advertise, else gateway.ZONE
	Port      uint16   `yaml:"port"`      // default that of advertise
	Addresses []string `yaml:"addresses"` // of host, where it lies in the zone; default the addresses of advertise and listen
	Names     []string `yaml:"names"`     // of the zone's name servers (NS); default host
	TTL       Duration `yaml:"ttl"`       // of the records, 30s to 1h; default 5m
}

// Discovery is how this gateway finds others.
func (d DNS) Discovery() Discovery { return Discovery{d.Servers, d.DNSSEC} }

// DNSSECModes are what is made of a resolver's word that it has validated.
var DNSSECModes = []string{"off", "prefer", "require"}

const maxDNSServers = 2

func (d *Discovery) finish(p *problems) {
	if d.DNSSEC == "" {
		d.DNSSEC = "off"
	}
	if !slices.Contains(DNSSECModes, d.DNSSEC) {
		p.add("dns.dnssec", "%q is none of %v", d.DNSSEC, DNSSECModes)
	}
	if len(d.Servers) > maxDNSServers {
		p.add("dns.servers", "%d servers: at most %d are asked", len(d.Servers), maxDNSServers)
	}
	servers := slices.Clone(d.Servers)
	for i, s := range servers {
		at, err := serverAddr(s)
		if err != nil {
			p.add("dns.servers", "%v", err)
			continue
		}
		if servers[i] = at.String(); d.DNSSEC == "require" && !at.Addr().IsLoopback() {
			p.add("dns.dnssec", "require takes the word of a validating resolver on this machine only, and %s is not on the loopback", s)
		}
	}
	d.Servers = servers
}

// serverAddr reads a name server, whose port may be left out.
func serverAddr(s string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), 53), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 {
		return at, fmt.Errorf("%q is neither an IP address nor ip:port: a name would need a name server itself", s)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// finishDNS fills the defaults in and validates; listen and advertise have been looked at.
func (g *Gateway) finishDNS(p *problems) {
	d := &g.DNS
	how := d.Discovery()
	how.finish(p)
	d.Servers, d.DNSSEC = how.Servers, how.DNSSEC
	if d.TTL == 0 {
		d.TTL = Duration(5 * time.Minute)
	}
	if d.Zone == "" {
		d.Zone = g.Domain
	}
	if len(d.Listen) == 0 { // nothing else counts then, but a mistake in it is one
		d.check(p, g.Domain)
		return
	}
	if !g.HasRole(RoleGateway) {
		p.add("dns.listen", "an AMC alone is in no record: the gateways of the domain serve them")
	}
	d.defaultHost(g)
	d.check(p, g.Domain)
	if within(d.Host, d.Zone) && len(d.Addresses) == 0 {
		p.add("dns.addresses", "%s lies in the zone, and neither advertise nor listen tells an address of it: name them here", d.Host)
	}
	for _, n := range d.Names {
		if n != d.Host && within(n, d.Zone) {
			p.add("dns.names", "the address of %s is not known: name the server as dns.host, or by a name outside of %s", n, d.Zone)
		}
	}
}

// defaultHost takes the gateway's name, port and addresses from where it listens and what it tells agents to dial.
func (d *DNS) defaultHost(g *Gateway) {
	addresses := len(d.Addresses) == 0
	for _, a := range append(slices.Clone(g.Advertise), g.Listen) {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			continue // reported under its own key
		}
		if d.Port == 0 {
			if at, err := net.LookupPort("udp", port); err == nil {
				d.Port = uint16(at)
			}
		}
		if ip, err := netip.ParseAddr(host); err != nil {
			if d.Host == "" && identity.ValidDomain(host) {
				d.Host = host
			}
		} else if addresses && !ip.IsUnspecified() && !slices.Contains(d.Addresses, ip.Unmap().String()) {
			d.Addresses = append(d.Addresses, ip.Unmap().String())
		}
	}
	if d.Host == "" {
		d.Host = "gateway." + d.Zone
	}
	if len(d.Names) == 0 {
		d.Names = []string{d.Host}
	}
}

func (d *DNS) check(p *problems, domain string) {
	for _, l := range d.Listen {
		if _, err := netip.ParseAddrPort(l); err != nil {
			p.add("dns.listen", "%q is not ip:port, such as 0.0.0.0:53", l)
		}
	}
	if !within(d.Zone, domain) || len(d.Zone) > 253 {
		p.add("dns.zone", "%q is neither %s nor a name below it", d.Zone, domain)
	}
	if d.Host != "" && !identity.ValidDomain(d.Host) {
		p.add("dns.host", "%q is no lower-case DNS name", d.Host)
	}
	for _, n := range d.Names {
		if !identity.ValidDomain(n) {
			p.add("dns.names", "%q is no lower-case DNS name", n)
		}
	}
	for _, a := range d.Addresses {
		if ip, err := netip.ParseAddr(a); err != nil || ip.Zone() != "" || ip.IsUnspecified() || ip.IsMulticast() {
			p.add("dns.addresses", "%q is no IP address of a machine", a)
		}
	}
	if ttl := time.Duration(d.TTL); ttl < 30*time.Second || ttl > time.Hour {
		p.add("dns.ttl", "%v is not 30s to 1h", ttl)
	}
}

// within says whether a name is a zone's apex or below it.
func within(name, zone string) bool { return name == zone || strings.HasSuffix(name, "."+zone) }

// dnsScheme begins the gateway of an agent that is looked for in DNS.
const dnsScheme = "dns:"

// GatewayDomain is the domain in whose DNS records an agent's gateway is looked for: `dns:DOMAIN`, or "" for its own where none is named. The
// second result is false where an address is configured.
func GatewayDomain(gateway string) (domain string, ok bool) {
	if gateway == "" {
		return "", true
	}
	return strings.CutPrefix(gateway, dnsScheme)
}

// checkGateway says whether an agent's gateway is host:port, `dns:DOMAIN` or nothing.
func checkGateway(v string) error {
	domain, ok := GatewayDomain(v)
	switch {
	case !ok:
		return CheckHostPort(v)
	case v != "" && !identity.ValidDomain(domain):
		return fmt.Errorf("%q is not dns: and a lower-case DNS name, such as dns:hospital.example", v)
	}
	return nil
}
