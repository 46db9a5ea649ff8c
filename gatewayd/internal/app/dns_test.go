package app

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/discovery/discoverytest"
)

// freeBoth is an address of the loopback whose UDP and TCP ports nobody used a moment ago.
func freeBoth(t *testing.T) string {
	t.Helper()
	for range 20 {
		addr := freeAddr(t)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free for UDP and TCP")
	return ""
}

// await waits for a gateway to have a neighbour up.
func (g *gateway) await(domain string) admin.PeerRow {
	g.t.Helper()
	var rows []admin.PeerRow
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		rows = g.app.Peers()
		if i := slices.IndexFunc(rows, func(r admin.PeerRow) bool { return r.Domain == domain && r.State == "up" }); i >= 0 {
			return rows[i]
		}
	}
	g.t.Fatalf("%s is not up: %+v", domain, rows)
	return admin.PeerRow{}
}

// Two gateways, of which one answers for its domain, and the other knows of it nothing but the bundle and the domain.
func TestGatewaysFindEachOtherByDNS(t *testing.T) {
	at := freeBoth(t)
	home := newGatewayWith(t, "hospital.example", func(c *config.Gateway) {
		c.DNS = config.DNS{Listen: []string{at}, Zone: c.Domain, Host: "gateway." + c.Domain, Addresses: []string{"127.0.0.1"}, Names: []string{"gateway." + c.Domain}, TTL: config.Duration(time.Minute)}
	})
	asks := func(c *config.Gateway) { c.DNS.Servers = []string{at} }
	far := newGatewayWith(t, "pharmacy.example", asks)
	home.addPeer(far, PeerOptions{Role: "peer"})
	far.addPeer(home, PeerOptions{Role: "peer", Discover: true})
	far.await("hospital.example")
	home.await("pharmacy.example")

	r, err := far.app.DNS(t.Context(), admin.DNSRequest{Domain: "hospital.example"})
	if err != nil || r.Source != "SVCB" || len(r.Gateways) != 1 || r.Gateways[0].Host != "gateway.hospital.example" || r.TTLS != 60 || r.DNSSEC != "unknown" || r.Error != "" || r.Serves != nil {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = home.app.DNS(t.Context(), admin.DNSRequest{})
	if err != nil || r.Serves == nil || r.Serves.Answered == 0 || !slices.ContainsFunc(r.Serves.Records, func(s string) bool {
		return strings.HasPrefix(s, `_dmsc-agw.hospital.example. 60 IN SVCB 1 gateway.hospital.example. alpn="dmsc-agw/1,dmsc-ctl/1" port="`)
	}) {
		t.Errorf("%+v, %v", r, err)
	}
	if e, err := far.app.ExplainPeer(t.Context(), admin.ExplainRequest{Domain: "hospital.example"}); err != nil || !e.Row.Discover {
		t.Errorf("%+v, %v", e, err)
	}
	if r, err := far.app.DNS(t.Context(), admin.DNSRequest{Domain: "nothing.hospital.example"}); err != nil || !strings.Contains(r.Error, "NOT_FOUND") || len(r.Gateways) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := far.app.DNS(t.Context(), admin.DNSRequest{Domain: "No Domain"}); err == nil {
		t.Error("that is no domain")
	}
}

// Row 42: whom a poisoned answer leads to fails by its certificate, and while DNS is broken what is configured, and what was found last, is dialled.
func TestCase42WrongHostFailsAndKnownAddressesAreUsed(t *testing.T) {
	home, wrong := newGateway(t, "hospital.example"), newGateway(t, "evil.example")
	records := func(g *gateway) dns.HandlerFunc {
		_, port, _ := net.SplitHostPort(g.cfg.Listen)
		return discoverytest.Records(t, `_dmsc-agw.hospital.example. 300 IN SVCB 1 gateway.hospital.example. alpn="dmsc-agw/1" port=`+port, `gateway.hospital.example. 300 IN A 127.0.0.1`)
	}
	server := discoverytest.New(t, records(wrong))
	far := newGatewayWith(t, "pharmacy.example", func(c *config.Gateway) { c.DNS.Servers = []string{server.Addr} })
	home.addPeer(far, PeerOptions{Role: "peer"})
	wrong.addPeer(far, PeerOptions{Role: "peer"}) // it would have it

	// poisoned, and nothing else is known
	far.addPeer(home, PeerOptions{Role: "peer", Discover: true})
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		row := far.peerState("hospital.example")
		if row.State == "up" {
			t.Fatalf("%+v", row)
		}
		if strings.Contains(row.Error, "TRUST_DENIED") {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the wrong host is not refused: %+v", row)
		}
	}
	for _, w := range wrong.app.Peers() {
		if w.State == "up" {
			t.Errorf("%+v", w)
		}
	}

	// poisoned, beside an address that is configured: nothing that was learned takes that away
	far.addPeer(home, PeerOptions{Role: "peer", Discover: true, Addresses: []string{home.cfg.Listen}, Replace: true})
	up := far.await("hospital.example")
	if up.Gateway != string(home.app.home.gateway) {
		t.Errorf("%+v", up)
	}

	broken := map[string]dns.HandlerFunc{"SERVFAIL": discoverytest.Fails(dns.RcodeServerFailure), "empty": discoverytest.Records(t)}
	fresh := func() *admin.DNSReport {
		t.Helper()
		r, err := far.app.DNS(t.Context(), admin.DNSRequest{Domain: "hospital.example", Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, h := range broken {
		// known once, then broken, and the peer starts anew: what was found last is dialled, where nothing is configured
		server.Set(records(home))
		if r := fresh(); r.Error != "" || r.Stale {
			t.Fatalf("%+v", r)
		}
		far.addPeer(home, PeerOptions{Role: "peer", Discover: true, Replace: true})
		far.await("hospital.example")
		server.Set(h)
		if r := fresh(); !r.Stale || r.Error == "" || len(r.Gateways) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		home.stop()
		home.start()
		home.await("pharmacy.example")
		far.await("hospital.example")
	}
}
