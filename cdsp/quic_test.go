package cdsp

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// quicGateway is a node with a real endpoint on the loopback interface.
type quicGateway struct {
	domain *identitytest.Domain
	node   *Node
	ep     *endpoint.Endpoint
	ended  chan error // of the sessions that this end accepted
}

func startQUIC(t *testing.T, d, other *identitytest.Domain) *quicGateway {
	t.Helper()
	trust := d.Trust(t, other)
	now := uint64(time.Now().UnixMilli())
	g := &quicGateway{domain: d, ended: make(chan error, 8)}
	g.node = New(Config{Gateway: string(d.Gateway), Domain: d.Name, OEpoch: now, Signer: d.Sign[identity.UseDigest].Always(),
		Keys: trust.Keys(identity.UseDigest)})
	verify := trust.Verify(x509.ExtKeyUsageClientAuth, func(identity.Peer) error { return nil })
	cert := d.Certificate(t, d.Gateway)
	ep, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Faces: []endpoint.Face{{
		ALPN: frame.ALPNGateway,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: cert, Verify: verify}, nil
		},
		Serve: func(ctx context.Context, c *endpoint.Conn) { g.ended <- g.serve(ctx, c, other, false).Err() },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	g.ep = ep
	t.Cleanup(start(t, g.node))
	setup(t, g.node, wire.RolePeer, other.Name, "of-"+d.Name)
	return g
}

// serve attaches a connection and serves it until its session has ended.
func (g *quicGateway) serve(ctx context.Context, c *endpoint.Conn, other *identitytest.Domain, dialled bool) *Session {
	l := NewQUICLink(c, string(other.Gateway), dialled, time.Time{})
	handlers := endpoint.Handlers{}
	l.Handle(handlers)
	s := g.node.Attach(ctx, l, other.Name, dialled)
	c.Serve(ctx, handlers)
	<-s.Done()
	return s
}

func (g *quicGateway) dial(t *testing.T, to *quicGateway) *endpoint.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	trust := g.domain.Trust(t, to.domain)
	c, err := g.ep.Dial(ctx, to.ep.Addr().String(), frame.ALPNGateway, "", endpoint.Credentials{
		Certificate: g.domain.Certificate(t, g.domain.Gateway),
		Verify:      trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// within waits for f to hold of a node's snapshot.
func within(t *testing.T, n *Node, what string, f func(*Snapshot) bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		changed := n.Changed()
		if f(n.Snapshot()) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: %+v", what, n.Snapshot().Neighbours)
		}
	}
}

func TestDigestsOverQUIC(t *testing.T) {
	d1, d2 := identitytest.New(t, "one.example", "A1"), identitytest.New(t, "two.example", "B2")
	one, two := startQUIC(t, d1, d2), startQUIC(t, d2, d1)
	defer closeEndpoints(t, one, two)
	session := make(chan *Session, 1)
	c := one.dial(t, two)
	go func() { session <- one.serve(t.Context(), c, d2, true) }()
	knowsAcked := func(n *Node, label string) {
		within(t, n, label, func(sn *Snapshot) bool {
			st := sn.Neighbours[0]
			for _, e := range sn.Entries {
				if e.Item.Label == label && !e.Own {
					return st.Acked && st.Synced
				}
			}
			return false
		})
	}
	knowsAcked(one.node, "of-two.example")
	knowsAcked(two.node, "of-one.example")
	setup(t, two.node, wire.RolePeer, "one.example", "later")
	knowsAcked(one.node, "later")

	// A RESYNC abandons a digest stream for another on the same connection.
	two.node.BundleAccepted()
	one.node.post(t.Context(), func() {
		one.node.step(setRows(two.domain.Name, false))
		one.node.step(setRows(two.domain.Name, true))
	})
	setup(t, two.node, wire.RolePeer, "one.example", "after the resync")
	knowsAcked(one.node, "after the resync")

	// A second control stream is not of this protocol.
	s, err := c.Open(t.Context(), frame.StreamControl)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset(frame.OK)
	if code := frame.CodeOf((<-session).Err()); code != frame.UnexpectedFrame {
		t.Errorf("the dialler's session ends with %v", code)
	}
	if err := <-two.ended; frame.CodeOf(err) != frame.UnexpectedFrame {
		t.Errorf("the other side's session ends with %v", err)
	}
}

func closeEndpoints(t *testing.T, gateways ...*quicGateway) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, g := range gateways {
		if err := g.ep.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func setRows(domain string, transit bool) replica.SetNeighbours {
	return replica.SetNeighbours{Rows: []Neighbour{{Domain: domain, Role: wire.RolePeer, ImportTransit: transit, Level: wire.LevelCoarse}}}
}
