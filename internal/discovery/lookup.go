package discovery

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"agentgw/internal/frame"
)

// Owner names of a domain's records.
const (
	svcbPrefix = "_dmsc-agw."
	srvPrefix  = "_dmsc-agw._udp."
)

// SVCBName is the owner of a domain's SVCB records, SRVName that of its SRV records; both without the last dot.
func SVCBName(domain string) string { return svcbPrefix + domain }

// SRVName is the owner of a domain's SRV records.
func SRVName(domain string) string { return srvPrefix + domain }

// asker asks one question. An error means that nobody could say.
type asker func(ctx context.Context, name string, qtype uint16) (*reply, error)

// lookup is the questions about one domain.
type lookup struct {
	ask   asker
	alpn  string
	admit func(netip.Addr) error

	mu        sync.Mutex // guards the rest: hosts are asked for at once
	aliases   int
	ttl       uint32
	validated Validated
}

// found is one gateway with the addresses that its record gives away before its host is asked for.
type found struct {
	Gateway
	hints []netip.Addr
}

// domain asks for the records, then for the addresses of the hosts that they name.
func (l *lookup) domain(ctx context.Context, domain string) (*Answer, error) {
	l.ttl = uint32(maxTTL / time.Second)
	source := "SVCB"
	list, exists, err := l.svcb(ctx, domain)
	if err == nil && !exists {
		source = "SRV"
		list, err = l.srv(ctx, domain)
	}
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, frame.Errorf(frame.NotFound, "DNS names no gateway of %s: neither SVCB %s with alpn %s nor SRV %s is there; its operator publishes them, or its addresses are configured",
			domain, SVCBName(domain), l.alpn, SRVName(domain))
	}
	order(list, rand.IntN)
	gateways, err := l.hosts(ctx, domain, list[:min(len(list), maxGateways)])
	if err != nil {
		return nil, err
	}
	return &Answer{
		Domain: domain, Gateways: gateways, Source: source, DNSSEC: l.validated,
		TTL: min(max(time.Duration(l.ttl)*time.Second, minTTL), maxTTL),
	}, nil
}

// query asks for a name, and on where an alias leads, eight times in all. records is empty where there are none.
func (l *lookup) query(ctx context.Context, name string, qtype uint16) (*reply, error) {
	for {
		r, err := l.ask(ctx, name, qtype)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		l.aliases += r.aliases
		over := l.aliases > maxAliases
		l.ttl, l.validated = min(l.ttl, r.ttl), l.validated.with(r.validated)
		l.mu.Unlock()
		if over {
			return nil, errAliases(name)
		}
		if !r.further {
			return r, nil
		}
		name = r.name
	}
}

func errAliases(name string) error {
	return frame.Errorf(frame.Loop, "more than %d aliases lead to %s, or they go in a circle: the operator of that zone has to mend it", maxAliases, strings.TrimSuffix(name, "."))
}

// svcb reads the SVCB records. exists is false where there are none at all: then SRV records count.
func (l *lookup) svcb(ctx context.Context, domain string) (list []found, exists bool, err error) {
	name := SVCBName(domain) + "."
	for {
		r, err := l.query(ctx, name, dns.TypeSVCB)
		if err != nil {
			return nil, false, err
		}
		if len(r.records) == 0 {
			return nil, false, nil
		}
		next := alias(r.records, rand.IntN)
		switch next {
		case "":
			for _, rr := range r.records {
				if f, ok := l.service(rr.(*dns.SVCB)); ok { // [readReply] keeps no other type
					list = append(list, f)
				}
			}
			return list, true, nil
		case ".": // RFC 9460, section 2.5.1: the service is not there
			return nil, true, nil
		}
		l.mu.Lock()
		l.aliases++
		over := l.aliases > maxAliases
		l.mu.Unlock()
		if over {
			return nil, false, errAliases(name)
		}
		name = next
	}
}

// alias is where a set in AliasMode leads, "" for one in ServiceMode. RFC 9460, section 2.4.2: of several one at random; a set of both kinds
// is one in AliasMode.
func alias(records []dns.RR, intn func(int) int) string {
	var targets []string
	for _, rr := range records {
		if s, ok := rr.(*dns.SVCB); ok && s.Priority == 0 {
			targets = append(targets, s.Target)
		}
	}
	if len(targets) == 0 {
		return ""
	}
	return targets[intn(len(targets))]
}

// service reads one record in ServiceMode; false where it is not for us.
func (l *lookup) service(s *dns.SVCB) (f found, ok bool) {
	f.Gateway = Gateway{Host: s.Target, Port: DefaultPort, Priority: s.Priority}
	if f.Host == "." { // RFC 9460, section 2.5.2
		f.Host = s.Hdr.Name
	}
	for _, kv := range s.Value {
		switch v := kv.(type) {
		case *dns.SVCBAlpn:
			ok = slices.Contains(v.Alpn, l.alpn)
		case *dns.SVCBPort:
			f.Port = v.Port
		case *dns.SVCBIPv4Hint:
			for _, ip := range v.Hint {
				f.hint(ip)
			}
		case *dns.SVCBIPv6Hint:
			for _, ip := range v.Hint {
				f.hint(ip)
			}
		case *dns.SVCBMandatory: // RFC 9460, section 8: who does not know one of them leaves the record alone
			for _, key := range v.Code {
				if key > dns.SVCB_IPV6HINT || key == dns.SVCB_ECHCONFIG {
					return f, false
				}
			}
		}
	}
	return f, ok && f.Port != 0
}

func (f *found) hint(ip []byte) {
	if a, ok := netip.AddrFromSlice(ip); ok && len(f.hints) < 2*maxAddresses {
		f.hints = append(f.hints, a.Unmap())
	}
}

// srv reads the SRV records. They have no alpn: a gateway speaks both protocols.
func (l *lookup) srv(ctx context.Context, domain string) (list []found, err error) {
	r, err := l.query(ctx, SRVName(domain)+".", dns.TypeSRV)
	if err != nil {
		return nil, err
	}
	for _, rr := range r.records {
		if s := rr.(*dns.SRV); s.Target != "." && s.Port != 0 { // RFC 2782: a target of "." is a service that is not there
			list = append(list, found{Gateway: Gateway{Host: s.Target, Port: s.Port, Priority: s.Priority, Weight: s.Weight}})
		}
	}
	return list, nil
}

// order sorts by priority. Equals come in random order, each the more probably before the others the more it weighs (RFC 2782); without
// weights all are alike.
func order(list []found, intn func(int) int) {
	slices.SortStableFunc(list, func(a, b found) int { return cmp.Compare(a.Priority, b.Priority) })
	for i := range list {
		j, sum := i, 0
		for ; j < len(list) && list[j].Priority == list[i].Priority; j++ {
			sum += int(list[j].Weight) + 1 // one for each, so that a weight of 0 has a chance too
		}
		at := intn(sum)
		for k := i; k < j; k++ {
			if at -= int(list[k].Weight) + 1; at < 0 {
				list[i], list[k] = list[k], list[i]
				break
			}
		}
	}
}

// hosts asks for the addresses of all hosts at once. A host that cannot be asked for has its hints; a gateway without an address is left out.
func (l *lookup) hosts(ctx context.Context, domain string, list []found) (out []Gateway, err error) {
	errs := make([]error, len(list))
	var asked sync.WaitGroup
	for i := range list {
		asked.Go(func() { errs[i] = l.host(ctx, &list[i]) })
	}
	asked.Wait()
	for i, f := range list {
		if err == nil {
			err = errs[i]
		}
		if f.Host = strings.ToLower(strings.TrimSuffix(f.Host, ".")); len(f.Addresses) > 0 {
			out = append(out, f.Gateway)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, frame.Errorf(frame.UpstreamFailed, "DNS names %d gateways of %s, and none has an address to dial: %w", len(list), domain, err)
}

// host fills in the addresses of one host: those of IPv4 first, since a way over IPv6 that is not there costs a dial its whole time.
func (l *lookup) host(ctx context.Context, f *found) error {
	var v4, v6 []netip.Addr
	var err4, err6 error
	var asked sync.WaitGroup
	asked.Go(func() { v4, err4 = l.addresses(ctx, f.Host, dns.TypeA) })
	asked.Go(func() { v6, err6 = l.addresses(ctx, f.Host, dns.TypeAAAA) })
	asked.Wait()
	all, failed := append(v4, v6...), cmp.Or(err4, err6)
	if len(all) == 0 && failed != nil {
		all, f.Hints = f.hints, len(f.hints) > 0
	}
	for _, ip := range all {
		if l.admit != nil {
			if err := l.admit(ip); err != nil {
				failed = err
				continue
			}
		}
		f.Addresses = append(f.Addresses, ip)
	}
	if len(f.Addresses) == 0 && failed == nil {
		failed = frame.Errorf(frame.NotFound, "%s has neither A nor AAAA records", strings.TrimSuffix(f.Host, "."))
	}
	return failed
}

func (l *lookup) addresses(ctx context.Context, host string, qtype uint16) (out []netip.Addr, err error) {
	one := &lookup{ask: l.ask, ttl: uint32(maxTTL / time.Second), validated: Yes} // its aliases are its own
	r, err := one.query(ctx, host, qtype)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.validated = l.validated.with(one.validated)
	if len(r.records) > 0 { // that it has no addresses of a family says nothing of how long it has those of the other
		l.ttl = min(l.ttl, one.ttl)
	}
	l.mu.Unlock()
	for _, rr := range r.records[:min(len(r.records), maxAddresses)] {
		var ip netip.Addr
		switch v := rr.(type) {
		case *dns.A:
			ip, _ = netip.AddrFromSlice(v.A)
		case *dns.AAAA:
			ip, _ = netip.AddrFromSlice(v.AAAA)
		}
		if ip.IsValid() {
			out = append(out, ip.Unmap())
		}
	}
	return out, nil
}
