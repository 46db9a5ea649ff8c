package aaap

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// siblings are two AMCs of a domain, as the first one knows them.
func siblings(t *testing.T) (first, second *identitytest.Domain, trust *identity.Trust) {
	t.Helper()
	first, second = identitytest.New(t, "home.example", "A1"), identitytest.New(t, "home.example", "A2")
	first.Names(t, second)
	trust = first.Trust(t)
	if _, err := trust.Vouch(second.Raw); err != nil {
		t.Fatal(err)
	}
	return first, second, trust
}

func open(t *testing.T, faces ...endpoint.Face) *endpoint.Endpoint {
	t.Helper()
	ep, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", HandshakeRate: 1e6, HandshakeBurst: 1e6, Faces: faces})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ep.Close(context.Background()) })
	return ep
}

// face serves the protocol between gateways and AMCs under a certificate, whoever dials.
func face(cert tls.Certificate, serve func(context.Context, *endpoint.Conn)) endpoint.Face {
	return endpoint.Face{ALPN: frame.ALPNControl, Serve: serve, Credentials: func(string) (endpoint.Credentials, error) {
		return endpoint.Credentials{Certificate: cert, Verify: func(tls.ConnectionState) error { return nil }}, nil
	}}
}

// Another AMC has one place, whatever it calls itself: it can keep no gateway of this one out.
func TestAnotherAMCTakesNoPlaceOfGateways(t *testing.T) {
	first, second, trust := siblings(t)
	ep := open(t, face(second.Certificate(t, second.Gateway), func(ctx context.Context, c *endpoint.Conn) { c.Serve(ctx, nil) }))
	conn, err := ep.Dial(t.Context(), ep.Addr().String(), frame.ALPNControl, "", endpoint.Credentials{
		Certificate: first.Certificate(t, first.Gateway), Verify: func(tls.ConnectionState) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerConfig{Trust: trust})
	for range 2 * maxGateways {
		s.enter(s.newMember(string(second.AIC(t)), conn))
	}
	if n := len(s.links); n != 1 {
		t.Errorf("the other AMC has %d places", n)
	}
	if one, other := s.paceOf(string(second.AIC(t))), s.paceOf(string(second.AIC(t))); one != other {
		t.Error("the other AMC may connect anew as often as it has AICs")
	}
	for range maxGateways {
		if !s.enter(s.newMember(string(first.AIC(t)), conn)) {
			t.Fatal("a gateway finds no place")
		}
	}
	if s.enter(s.newMember(string(first.AIC(t)), conn)) {
		t.Error("gateways are not bounded")
	}
}

// What another AMC pushes goes on to every agent and gateway here: it sets the pace for nobody.
func TestAnotherAMCsPushesAreBounded(t *testing.T) {
	first, second, trust := siblings(t)
	amc := open(t, face(second.Certificate(t, second.Gateway), func(ctx context.Context, c *endpoint.Conn) {
		c.Serve(ctx, endpoint.Handlers{frame.StreamControl: func(_ context.Context, st *endpoint.Stream) {
			var m arp.Attach
			if st.ReadMessage(readTime, &m) != nil {
				return
			}
			for err := st.WriteMessage(writeTime, &arp.Attached{}); err == nil; {
				err = st.WriteMessage(writeTime, &arp.Status{List: []byte{1}})
			}
		}})
	}))
	var pushed atomic.Int32
	cert := first.Certificate(t, first.Gateway)
	c := NewClient(ClientConfig{
		Address: amc.Addr().String(), Gateway: string(first.Gateway), Issuer: string(second.Issuer), Certificate: func() tls.Certificate { return cert },
		Trust: trust, Statuses: identity.NewStatuses(trust, time.Now), Status: func(context.Context, []byte) { pushed.Add(1) }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c.Run(ctx, open(t))
	if n := pushed.Load(); n < pushBurst || n > pushBurst+4 {
		t.Errorf("%d lists were taken in two seconds", n)
	}
}
