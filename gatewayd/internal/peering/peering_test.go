package peering

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/relay"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// side is the peering of one gateway, running on loopback.
type side struct {
	*Peering
	d    *identitytest.Domain
	addr string
	pins map[string]bool // what was kept last; written by the test's own calls only
}

func newSide(t *testing.T, d *identitytest.Domain, served func(*side, context.Context, *endpoint.Conn), change ...func(*Config)) *side {
	t.Helper()
	cert := d.Certificate(t, d.Gateway)
	s := &side{d: d, pins: map[string]bool{}}
	cfg := Config{
		Gateway: string(d.Gateway), Domain: d.Name, Certificate: func() tls.Certificate { return cert }, Trust: d.Trust(t),
		Signer:  d.Sign[identity.UseDigest].Always(),
		KeepPin: func(domain string, last *identity.Accepted) { s.pins[domain] = last != nil },
		Answer:  func(context.Context, relay.Neighbour, *semreq.Request) *semreq.Response { return nil },
		Log:     slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	s.Peering = New(cfg)
	face := s.Face()
	if served != nil {
		inner := face.Serve
		face.Serve = func(ctx context.Context, c *endpoint.Conn) {
			go served(s, ctx, c)
			inner(ctx, c)
		}
	}
	ep, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", HandshakeRate: 1e6, HandshakeBurst: 1e6, Faces: []endpoint.Face{face}})
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ep.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, ep, 1)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		ep.Close(context.Background())
	})
	return s
}

func (s *side) peer(t *testing.T, d *identitytest.Domain, addresses ...string) {
	t.Helper()
	if err := s.SetRows(t.Context(), []Row{row(d, addresses...)}); err != nil {
		t.Fatal(err)
	}
}

func row(d *identitytest.Domain, addresses ...string) Row {
	return Row{Domain: d.Name, Role: "peer", Disclose: wire.LevelFull, Bundle: d.Raw, MayQuery: []string{"*"}, Introduces: []string{"*.example"}, Addresses: addresses}
}

// A peer that takes a link and drops it at once is dialled ever more rarely, like one that refuses it.
func TestLinksThatDoNotLastAreDialledRarely(t *testing.T) {
	a, b := identitytest.New(t, "a.example", "A1"), identitytest.New(t, "b.example", "B1")
	dials := atomic.Int32{}
	pb := newSide(t, b, func(s *side, ctx context.Context, c *endpoint.Conn) {
		dials.Add(1)
		for ctx.Err() == nil && s.linkTo(string(a.Gateway)) == nil {
			time.Sleep(time.Millisecond)
		}
		c.Close(frame.Malformed, "")
	})
	pa := newSide(t, a, nil)
	pb.peer(t, a)
	pa.peer(t, b, pb.addr)
	time.Sleep(2 * time.Second)
	if n := dials.Load(); n < 2 || n > 6 { // at the earliest after 0, 0.25, 0.75, 1.75 s
		t.Errorf("%d dials in 2 s", n)
	}
}

// A dispute unmakes nothing that was kept: after a restart the domain is still pinned to the key that came first.
func TestDisputeKeepsThePin(t *testing.T) {
	hub := identitytest.New(t, "hub.example", "B1")
	other := identitytest.New(t, "other.example", "C1")
	far, impostor := identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	home := newSide(t, identitytest.New(t, "home.example", "A1"), nil)
	if err := home.SetRows(t.Context(), []Row{row(hub), row(other)}); err != nil {
		t.Fatal(err)
	}
	if err := home.onBundle(t.Context(), string(hub.Gateway), hub.Name, far.Raw); err != nil || !home.pins["far.example"] {
		t.Fatal("first introduction:", err)
	}
	if err := home.onBundle(t.Context(), string(other.Gateway), other.Name, impostor.Raw); frame.CodeOf(err) != frame.TrustDenied {
		t.Error("second introducer, another key:", err)
	}
	if !home.pins["far.example"] {
		t.Error("the pin is forgotten")
	}
	if home.DomainOf(string(far.Gateway)) != "" || home.DomainOf(string(impostor.Gateway)) != "" {
		t.Error("a disputed bundle is believed")
	}
}

// Rows are taken whole or not at all: a bundle in the wrong row gives nobody trust.
func TestWrongRowChangesNothing(t *testing.T) {
	good, wrong := identitytest.New(t, "good.example", "B1"), identitytest.New(t, "wrong.example", "C1")
	home := newSide(t, identitytest.New(t, "home.example", "A1"), nil)
	bad := row(wrong)
	bad.Domain = "else.example"
	if err := home.SetRows(t.Context(), []Row{row(good), bad}); frame.CodeOf(err) != frame.TrustDenied {
		t.Error("a bundle of another domain:", err)
	}
	bad = row(wrong)
	bad.Fingerprint[0] = 1
	if err := home.SetRows(t.Context(), []Row{row(good), bad}); frame.CodeOf(err) != frame.TrustDenied {
		t.Error("a bundle under another fingerprint:", err)
	}
	for _, d := range []*identitytest.Domain{good, wrong} {
		if home.DomainOf(string(d.Gateway)) != "" {
			t.Errorf("%s is trusted", d.Name)
		}
	}
}
