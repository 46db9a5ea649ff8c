package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"agentgw/internal/discovery/discoverytest"
	"agentgw/internal/frame"
)

const alpn = frame.ALPNGateway

var zone = []string{
	`_dmsc-agw.a.example. 300 IN SVCB 2 agw2.a.example. alpn="dmsc-agw/1,dmsc-ctl/1" port=4434`,
	`_dmsc-agw.a.example. 300 IN SVCB 1 agw1.a.example. alpn="dmsc-agw/1,dmsc-ctl/1" port=4433 key65400="unknown keys are ignored"`,
	`_dmsc-agw.a.example. 300 IN SVCB 1 web.a.example. alpn="h2" port=443`,
	`_dmsc-agw.a.example. 300 IN SVCB 1 odd.a.example. mandatory=alpn,key65400 alpn="dmsc-agw/1" key65400="x"`,
	`_dmsc-agw._udp.a.example. 300 IN SRV 1 1 1 not-asked.a.example.`,
	`agw1.a.example. 120 IN A 192.0.2.1`, `agw1.a.example. 300 IN AAAA 2001:db8::1`, `agw2.a.example. 300 IN A 192.0.2.2`,
	`web.a.example. 300 IN A 192.0.2.9`,

	`_dmsc-agw._udp.srv.example. 300 IN SRV 10 5 4433 agw.a.example.`, `_dmsc-agw._udp.srv.example. 300 IN SRV 5 5 4432 agw1.a.example.`,
	`agw.a.example. 300 IN CNAME agw2.a.example.`,

	`_dmsc-agw.alias.example. 300 IN SVCB 0 _dmsc-agw.a.example.`,
	`_dmsc-agw.cname.example. 300 IN CNAME _dmsc-agw.alias.example.`,
	`_dmsc-agw.loop.example. 300 IN SVCB 0 _dmsc-agw.loop2.example.`, `_dmsc-agw.loop2.example. 300 IN SVCB 0 _dmsc-agw.loop.example.`,
	`_dmsc-agw._udp.loop.example. 300 IN SRV 1 1 1 agw1.a.example.`,
	`_dmsc-agw.circle.example. 300 IN CNAME _dmsc-agw.circle2.example.`, `_dmsc-agw.circle2.example. 300 IN CNAME _dmsc-agw.circle.example.`,
	`_dmsc-agw.gone.example. 300 IN SVCB 0 .`, `_dmsc-agw._udp.gone.example. 300 IN SRV 1 1 1 agw1.a.example.`,
	`_dmsc-agw.web.example. 300 IN SVCB 1 web.a.example. alpn="h2" port=443`, `_dmsc-agw._udp.web.example. 300 IN SRV 1 1 1 agw1.a.example.`,
	`_dmsc-agw._udp.none.example. 300 IN SRV 0 0 0 .`,
	`_dmsc-agw.own.example. 300 IN SVCB 1 . alpn="dmsc-agw/1"`, `_dmsc-agw.own.example. 300 IN AAAA 2001:db8::2`,
	`_dmsc-agw.nowhere.example. 300 IN SVCB 1 nowhere.a.example. alpn="dmsc-agw/1" ipv4hint=192.0.2.77`,
}

func resolver(t *testing.T, servers ...*discoverytest.Server) *Resolver {
	t.Helper()
	cfg := Config{ALPN: alpn}
	for _, s := range servers {
		cfg.Servers = append(cfg.Servers, s.Addr)
	}
	return started(t, cfg)
}

func started(t *testing.T, cfg Config) *Resolver {
	t.Helper()
	r := New(cfg)
	t.Cleanup(r.Close)
	return r
}

func TestFind(t *testing.T) {
	s := discoverytest.New(t, discoverytest.Records(t, zone...))
	for domain, want := range map[string]struct {
		addresses []string
		source    string
		ttl       time.Duration
		code      frame.Code
	}{
		"a.example":       {[]string{"192.0.2.1:4433", "[2001:db8::1]:4433", "192.0.2.2:4434"}, "SVCB", 120 * time.Second, 0},
		"alias.example":   {[]string{"192.0.2.1:4433", "[2001:db8::1]:4433", "192.0.2.2:4434"}, "SVCB", 120 * time.Second, 0},
		"cname.example":   {[]string{"192.0.2.1:4433", "[2001:db8::1]:4433", "192.0.2.2:4434"}, "SVCB", 120 * time.Second, 0},
		"srv.example":     {[]string{"192.0.2.1:4432", "[2001:db8::1]:4432", "192.0.2.2:4433"}, "SRV", 120 * time.Second, 0},
		"own.example":     {[]string{"[2001:db8::2]:4433"}, "SVCB", 300 * time.Second, 0},
		"loop.example":    {code: frame.Loop},
		"circle.example":  {code: frame.Loop},
		"gone.example":    {code: frame.NotFound},
		"web.example":     {code: frame.NotFound},
		"none.example":    {code: frame.NotFound},
		"nothing.example": {code: frame.NotFound},
		"nowhere.example": {code: frame.UpstreamFailed}, // that it has no address is an answer: its hint counts no more
		"No.Domain":       {code: frame.ReqInvalid},
		strings.Repeat("long-label.", 22) + "example": {code: frame.ReqInvalid},
	} {
		a, err := resolver(t, s).Find(t.Context(), domain)
		if err != nil || want.code != 0 {
			if frame.CodeOf(err) != want.code {
				t.Errorf("%s: %v, want %v", domain, err, want.code)
			}
			continue
		}
		if d := cmp.Diff(want.addresses, a.Addresses()); d != "" || a.Source != want.source || a.TTL != want.ttl || a.Err != nil || a.DNSSEC != Unknown {
			t.Errorf("%s: %+v %s", domain, a, d)
		}
	}
}

func TestHintsWhereTheHostCannotBeAskedFor(t *testing.T) {
	records := discoverytest.Records(t, zone...)
	s := discoverytest.New(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeA || q.Question[0].Qtype == dns.TypeAAAA {
			discoverytest.Fails(dns.RcodeServerFailure)(w, q)
			return
		}
		records(w, q)
	})
	a, err := resolver(t, s).Find(t.Context(), "nowhere.example")
	if err != nil || !slices.Equal(a.Addresses(), []string{"192.0.2.77:4433"}) || !a.Gateways[0].Hints {
		t.Errorf("%+v, %v", a, err)
	}
}

// Whether nobody could say or there is nothing is not the same: only where there is nothing SRV records are asked for.
func TestFailureIsNotAbsence(t *testing.T) {
	records := discoverytest.Records(t, zone...)
	for name, h := range map[string]dns.HandlerFunc{
		"SERVFAIL": discoverytest.Fails(dns.RcodeServerFailure), "REFUSED": discoverytest.Fails(dns.RcodeRefused),
		"garbage": func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg)
			m.SetReply(q)
			raw, _ := m.Pack()
			raw[7] = 200 // so many answers
			w.Write(raw)
		},
		"referral": func(w dns.ResponseWriter, q *dns.Msg) { w.WriteMsg(new(dns.Msg).SetReply(q)) },
	} {
		s := discoverytest.New(t, func(w dns.ResponseWriter, q *dns.Msg) {
			if q.Question[0].Qtype == dns.TypeSVCB {
				h(w, q)
				return
			}
			records(w, q)
		})
		if a, err := resolver(t, s).Find(t.Context(), "srv.example"); frame.CodeOf(err) != frame.UpstreamFailed || !strings.Contains(err.Error(), s.Addr) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

func TestSecondServer(t *testing.T) {
	bad, good := discoverytest.New(t, discoverytest.Fails(dns.RcodeServerFailure)), discoverytest.New(t, discoverytest.Records(t, zone...))
	if a, err := resolver(t, bad, good).Find(t.Context(), "a.example"); err != nil || len(a.Gateways) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	silent := discoverytest.New(t, func(dns.ResponseWriter, *dns.Msg) {})
	began := time.Now()
	if a, err := resolver(t, silent, good).Find(t.Context(), "none.example"); frame.CodeOf(err) != frame.NotFound || time.Since(began) < queryTime {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestTruncatedIsAskedOverTCP(t *testing.T) {
	records := discoverytest.Records(t, zone...)
	var mu sync.Mutex // guards over
	var over []string
	s := discoverytest.New(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Qtype == dns.TypeSVCB {
			mu.Lock()
			over = append(over, w.RemoteAddr().Network())
			mu.Unlock()
			if opt := q.IsEdns0(); opt == nil || opt.UDPSize() != udpSize {
				t.Errorf("EDNS %v", opt)
			}
			if w.RemoteAddr().Network() == "udp" {
				m := new(dns.Msg).SetReply(q)
				m.Truncated = true
				w.WriteMsg(m)
				return
			}
		}
		records(w, q)
	})
	a, err := resolver(t, s).Find(t.Context(), "a.example")
	mu.Lock()
	defer mu.Unlock()
	if err != nil || len(a.Gateways) != 2 || !slices.Equal(over, []string{"udp", "tcp"}) {
		t.Errorf("%+v, %v, over %v", a, err, over)
	}
}

// poison sends forged packets ahead of each answer: such as an attacker would who does not see the question, and one that the name server
// itself adds beside what was asked.
func poison(t *testing.T, records dns.HandlerFunc) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		forge := func(change func(*dns.Msg)) {
			m := discoverytest.Reply(q, rrs(t, q.Question[0].Name+` 300 IN SVCB 1 web.a.example. alpn="dmsc-agw/1"`, q.Question[0].Name+` 300 IN A 203.0.113.66`))
			change(m)
			w.WriteMsg(m)
		}
		forge(func(m *dns.Msg) { m.Id++ })
		forge(func(m *dns.Msg) { m.Question[0].Name = "_dmsc-agw.b.example." })
		forge(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT })
		forge(func(m *dns.Msg) { m.Response = false })
		forge(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify })
		w.Write([]byte{1, 2, 3})
		records(&extra{w, t}, q)
	}
}

type extra struct {
	dns.ResponseWriter
	t *testing.T
}

func (w *extra) WriteMsg(m *dns.Msg) error {
	m.Answer = append(m.Answer, rrs(w.t, `_dmsc-agw.b.example. 300 IN SVCB 1 web.a.example. alpn="dmsc-agw/1"`, `agw2.a.example. 300 IN TXT "no address"`)...)
	m.Extra = append(m.Extra, rrs(w.t, `agw1.a.example. 300 IN A 203.0.113.66`, `agw2.a.example. 300 IN A 203.0.113.66`)...)
	m.Ns = append(m.Ns, rrs(w.t, `a.example. 300 IN NS evil.example.`)...)
	return w.ResponseWriter.WriteMsg(m)
}

func rrs(t *testing.T, lines ...string) (out []dns.RR) {
	t.Helper()
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rr)
	}
	return out
}

// What was not asked for, and who was not asked, say nothing.
func TestCase42PoisonedAnswers(t *testing.T) {
	s := discoverytest.New(t, poison(t, discoverytest.Records(t, zone...)))
	a, err := resolver(t, s).Find(t.Context(), "a.example")
	if err != nil || !slices.Equal(a.Addresses(), []string{"192.0.2.1:4433", "[2001:db8::1]:4433", "192.0.2.2:4434"}) {
		t.Errorf("%+v, %v", a, err)
	}
	flood := discoverytest.New(t, func(w dns.ResponseWriter, q *dns.Msg) {
		for range 2 * maxStrays {
			m := new(dns.Msg).SetReply(q)
			m.Id++
			w.WriteMsg(m)
		}
	})
	if _, err := resolver(t, flood).Find(t.Context(), "a.example"); frame.CodeOf(err) != frame.UpstreamFailed || !strings.Contains(err.Error(), "forging") {
		t.Errorf("a flood: %v", err)
	}
}

func TestAdmit(t *testing.T) {
	s := discoverytest.New(t, discoverytest.Records(t, zone...))
	refuse := errors.New("not there")
	r := started(t, Config{ALPN: alpn, Servers: []string{s.Addr}, Admit: func(ip netip.Addr) error {
		if ip.Is6() || ip == netip.MustParseAddr("192.0.2.2") {
			return refuse
		}
		return nil
	}})
	if a, err := r.Find(t.Context(), "a.example"); err != nil || !slices.Equal(a.Addresses(), []string{"192.0.2.1:4433"}) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := r.Find(t.Context(), "own.example"); !errors.Is(err, refuse) {
		t.Errorf("none is admitted: %v", err)
	}
}

func TestDNSSEC(t *testing.T) {
	records := func(ad bool) *discoverytest.Server {
		base := discoverytest.Records(t, zone...)
		return discoverytest.New(t, func(w dns.ResponseWriter, q *dns.Msg) { base(&authentic{w, ad && q.AuthenticatedData}, q) })
	}
	yes, no := records(true), records(false)
	for _, c := range []struct {
		mode   DNSSEC
		server *discoverytest.Server
		want   Validated
		code   frame.Code
	}{
		{Off, yes, Unknown, 0}, {Prefer, yes, Yes, 0}, {Prefer, no, No, 0}, {Require, yes, Yes, 0}, {Require, no, 0, frame.TrustDenied},
	} {
		a, err := started(t, Config{ALPN: alpn, Servers: []string{c.server.Addr}, DNSSEC: c.mode}).Find(t.Context(), "a.example")
		if frame.CodeOf(err) != c.code || err == nil && a.DNSSEC != c.want {
			t.Errorf("%d: %+v, %v; want %v %v", c.mode, a, err, c.want, c.code)
		}
	}
	// the bit of a server elsewhere is anybody's; and that there is nothing must be validated too
	if v := validated(Require, "192.0.2.53:53", true); v != Unknown {
		t.Errorf("a server that is not on the loopback: %v", v)
	}
	if _, err := started(t, Config{ALPN: alpn, Servers: []string{no.Addr}, DNSSEC: Require}).Find(t.Context(), "nothing.example"); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("absence: %v", err)
	}
	for text, ok := range map[string]bool{"": true, "off": true, "prefer": true, "require": true, "yes": false} {
		if _, got := ParseDNSSEC(text); got != ok {
			t.Errorf("%q: %v", text, got)
		}
	}
}

type authentic struct {
	dns.ResponseWriter
	ad bool
}

func (w *authentic) WriteMsg(m *dns.Msg) error {
	m.AuthenticatedData = w.ad
	return w.ResponseWriter.WriteMsg(m)
}

func TestSystemServers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if _, err := started(t, Config{ALPN: alpn, ResolvConf: file}).Find(t.Context(), "a.example"); err == nil || !strings.Contains(err.Error(), "dns.servers") {
		t.Errorf("no file: %v", err)
	}
	for text, says := range map[string]string{"search example\n": "dns.servers", "nameserver 127.0.0.254\n": "127.0.0.254:53"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := started(t, Config{ALPN: alpn, ResolvConf: file}).Find(t.Context(), "a.example"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Of equals each comes first as often as it weighs, and a lower priority never does.
func TestOrder(t *testing.T) {
	first := map[string]int{}
	for n := range 600 {
		list := []found{
			{Gateway: Gateway{Host: "backup", Priority: 2, Weight: 100}}, {Gateway: Gateway{Host: "light", Priority: 1, Weight: 0}},
			{Gateway: Gateway{Host: "heavy", Priority: 1, Weight: 4}},
		}
		order(list, func(sum int) int { return n % sum })
		if list[2].Host != "backup" {
			t.Fatalf("%+v", list)
		}
		first[list[0].Host]++
	}
	if first["light"] != 100 || first["heavy"] != 500 {
		t.Errorf("%v", first)
	}
}

func TestBoundsOfALookup(t *testing.T) {
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf(`_dmsc-agw.many.example. 5 IN SVCB %d h.many.example. alpn="dmsc-agw/1"`, i+1), fmt.Sprintf(`h.many.example. 5 IN A 192.0.2.%d`, i+1))
	}
	s := discoverytest.New(t, discoverytest.Records(t, lines...))
	a, err := resolver(t, s).Find(t.Context(), "many.example")
	if err != nil || len(a.Gateways) != maxGateways || len(a.Gateways[0].Addresses) != maxAddresses || a.Gateways[0].Priority != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := resolver(t, discoverytest.New(t, func(dns.ResponseWriter, *dns.Msg) {})).Find(ctx, "a.example"); frame.CodeOf(err) != frame.Cancelled {
		t.Errorf("%v", err)
	}
}
