package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/members"
	"agentgw/gatewayd/internal/nameserver"
	"agentgw/internal/daemon"
	"agentgw/internal/discovery"
	"agentgw/internal/frame"
	"agentgw/internal/safehttp"
)

// newResolver makes what finds the gateways of other domains. It dials nothing, so what other zones say leads no further than a fetch would.
func (a *app) newResolver() *discovery.Resolver {
	mode, _ := discovery.ParseDNSSEC(a.cfg.DNS.DNSSEC) // the configuration was checked
	return discovery.New(discovery.Config{
		ALPN: frame.ALPNGateway, Servers: a.cfg.DNS.Servers, DNSSEC: mode,
		Admit: func(ip netip.Addr) error { return safehttp.CheckAddr(ip, a.cfg.AllowPrivate || a.cfg.Lab) },
	})
}

// findGateways implements [peering.Config.Find].
func (a *app) findGateways(ctx context.Context, domain string) ([]string, error) {
	found, err := a.resolver.Find(ctx, domain)
	if err != nil {
		return nil, err
	}
	return found.Addresses(), found.Err
}

// serveNames opens the sockets of the name server, where the configuration wants one.
func (a *app) serveNames(ctx context.Context, cleanup *daemon.Cleanup) error {
	d := a.cfg.DNS
	if len(d.Listen) == 0 {
		return nil
	}
	self := nameserver.Member{Host: d.Host, Port: d.Port}
	if self.Port == 0 { // the system has chosen it
		self.Port = a.ep.Addr().Port()
	}
	for _, text := range d.Addresses {
		ip, err := netip.ParseAddr(text)
		if err != nil { // the configuration was checked
			return err
		}
		self.Addresses = append(self.Addresses, ip)
	}
	a.names = nameserver.New(nameserver.Config{
		Apex: nameserver.Apex{
			Domain: a.cfg.Domain, Zone: d.Zone, Servers: d.Names, TTL: time.Duration(d.TTL), Hosts: map[string][]netip.Addr{self.Host: self.Addresses},
		},
		Members: func() []nameserver.Member { return a.liveGateways(self) }, Log: a.log,
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	cleanup.Add("stop the name server", drainTime, func(context.Context) error {
		stop()
		serving.Wait()
		return nil
	})
	for _, addr := range d.Listen {
		packets, listener, err := nameserver.Listen(addr)
		if err != nil {
			return err
		}
		serving.Go(func() {
			if err := a.names.Serve(ctx, packets, listener); err != nil {
				a.log.Error("name server: nobody finds this domain there until the next start", "listen", addr, "err", err)
			}
		})
		a.log.Info("name server", "listen", packets.LocalAddr().String(), "zone", d.Zone)
	}
	return nil
}

// liveGateways are the gateways of the domain that this one is connected to, itself first. What the gossip says alone is not enough: it has no
// identities.
func (a *app) liveGateways(self nameserver.Member) []nameserver.Member {
	drained := a.drain.since.Load() != nil
	if a.cluster == nil && !drained {
		return []nameserver.Member{self}
	}
	var live []nameserver.Member
	if a.cluster == nil { // nobody is to come here, and nobody else is there
		return live
	}
	if !a.leaving.Load() && !drained {
		live = append(live, self)
	}
	for _, m := range a.cluster.Alive() {
		if m.Self || m.Lame || !a.peers.Connected(m.Gateway) {
			continue
		}
		if named, ok := nameOf(m, a.cfg.DNS.Zone); ok {
			live = append(live, named)
		}
	}
	if len(live) == 0 && !drained {
		live = append(live, self)
	}
	return live
}

// nameOf is a gateway as records name it: by the name that it advertises, else by one in the zone for its addresses.
func nameOf(m members.Member, zone string) (nameserver.Member, bool) {
	id := sha256.Sum256([]byte(m.Gateway))
	out := nameserver.Member{Host: fmt.Sprintf("gateway-%x.%s", id[:6], zone)}
	for _, text := range m.Addresses {
		host, port, err := net.SplitHostPort(text)
		n, e := strconv.ParseUint(port, 10, 16)
		if err != nil || e != nil || n == 0 {
			continue
		}
		ip, err := netip.ParseAddr(host)
		switch {
		case err != nil: // a name, whose addresses are its own affair
			return nameserver.Member{Host: host, Port: uint16(n)}, true
		case ip.IsUnspecified(), out.Port != 0 && out.Port != uint16(n):
		default:
			out.Port, out.Addresses = uint16(n), append(out.Addresses, ip)
		}
	}
	return out, out.Port != 0
}

// DNS implements admin.Gateway: what DNS says of a domain, and what is served here.
func (a *app) DNS(ctx context.Context, r admin.DNSRequest) (*admin.DNSReport, error) {
	domain := or(r.Domain, a.cfg.Domain)
	if r.Fresh {
		a.resolver.Forget(domain)
	}
	out := &admin.DNSReport{Domain: domain, DNSSEC: discovery.Unknown.String(), Gateways: []admin.DNSGateway{}}
	found, err := a.resolver.Find(ctx, domain)
	switch frame.CodeOf(err) {
	case frame.ReqInvalid, frame.Cancelled:
		return nil, err
	}
	if found != nil {
		out.Source, out.TTLS, out.DNSSEC, out.At = found.Source, int64(found.TTL.Seconds()), found.DNSSEC.String(), &found.At
		err, out.Stale = found.Err, found.Err != nil
		for _, g := range found.Gateways {
			row := admin.DNSGateway{Host: g.Host, Port: g.Port, Priority: g.Priority, Weight: g.Weight, Hints: g.Hints, Addresses: []string{}}
			for _, ip := range g.Addresses {
				row.Addresses = append(row.Addresses, ip.String())
			}
			out.Gateways = append(out.Gateways, row)
		}
	}
	if err != nil {
		out.Error = err.Error()
	}
	if a.names != nil {
		s := a.names.Stats()
		out.Serves = &admin.DNSServed{
			Zone: a.cfg.DNS.Zone, Listen: a.cfg.DNS.Listen, Records: a.names.Records(), Answered: s.Answered, Cut: s.Cut, Dropped: s.Dropped,
		}
	}
	return out, nil
}
