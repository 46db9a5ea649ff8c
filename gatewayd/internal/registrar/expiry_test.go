package registrar

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"log/slog"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/arp"
	"agentgw/directory/registry"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
	"agentgw/internal/pki"
)

// oneEntry is a directory of one agent.
type oneEntry struct{ directory.Entry }

func (d oneEntry) Get(id string) (directory.Entry, bool) { return d.Entry, id == d.AIC }
func (oneEntry) Reserve(context.Context, string) error   { return nil }
func (oneEntry) Register(_ context.Context, e directory.Entry, _ *acs.ACS, _ func(directory.Tx) error) (directory.Entry, error) {
	return e, nil
}
func (oneEntry) Update(_ context.Context, e directory.Entry, _ *acs.ACS) (directory.Entry, error) {
	return e, nil
}
func (oneEntry) Withdraw(context.Context, string, string) error { return nil }
func (oneEntry) Owe(context.Context, string, string) error      { return nil }
func (oneEntry) Paid(context.Context, string) error             { return nil }
func (oneEntry) Adopt(_ context.Context, e directory.Entry, _ *acs.ACS) (directory.Entry, error) {
	return e, nil
}
func (oneEntry) MovedTo(string) registry.Home                       { return registry.Home{} }
func (oneEntry) Moved(context.Context, string, registry.Home) error { return nil }
func (oneEntry) Adopted() []string                                  { return nil }
func (oneEntry) SetAlive(string, bool)                              {}
func (oneEntry) SetCapacity(string, uint8)                          {}

// An agent that renews in time has its new connection before the old one ends, and keeps it; one that does not is closed a
// little after its certificate has ended.
func TestCase39CertificateExpiresWhileConnected(t *testing.T) {
	const life, slack = 2500 * time.Millisecond, 500 * time.Millisecond // a second more than it needs: a busy machine takes its time
	d := identitytest.New(t, "home.example", "A")
	id, key := d.AIC(t), identitytest.NewKey(t)
	spki, err := identity.SPKIHash(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	trust := d.Trust(t)
	entry := directory.Entry{AIC: string(id), State: directory.Active, Version: 1, Provenance: directory.Provenance{SPKI: spki, Grant: hex.EncodeToString(make([]byte, 16))}}
	own := d.Certificate(t, d.Gateway)
	r := New(Config{
		Domain: d.Name, Gateway: d.Gateway, Certificate: func() tls.Certificate { return own }, Directory: oneEntry{entry}, Trust: trust,
		Statuses: identity.NewStatuses(trust, time.Now), Log: slog.New(slog.DiscardHandler),
	})
	r.slack = slack
	server, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", HandshakeRate: 1000, HandshakeBurst: 1000, Faces: []endpoint.Face{r.Face()}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		client.Close(ctx)
		server.Close(ctx)
	})
	grant := &arp.Grant{JTI: make([]byte, 16), GW: string(d.Gateway), SPKI: spki[:], Scope: []string{"agw.discover"}, Exp: uint64(time.Now().Add(time.Hour).Unix()), AIC: string(id)}
	signed, err := grant.Sign(d.Sign[identity.UseGrant])
	if err != nil {
		t.Fatal(err)
	}
	attach := func(life time.Duration) *endpoint.Conn {
		t.Helper()
		chain, err := d.Authority.Issue(pki.Profile{Kind: pki.Agent, AIC: id, Life: life}, key.Public(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cert, err := identity.TLSCertificate(chain, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Dial(t.Context(), server.Addr().String(), frame.ALPNControl, "", endpoint.Credentials{
			Certificate: cert, Verify: trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Open(t.Context(), frame.StreamControl)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.WriteMessage(time.Second, &arp.Attach{AIC: string(id), BootID: make([]byte, 16), Grant: signed, Now: uint64(time.Now().Unix())}); err != nil {
			t.Fatal(err)
		}
		var a arp.Attached
		if err := s.ReadMessage(time.Second, &a); err != nil || a.Code != frame.OK {
			t.Fatal(a.Code, err)
		}
		return c
	}
	began := time.Now()
	old := attach(life)
	select {
	case <-old.Context().Done():
	case <-time.After(life + slack + 2*time.Second):
		t.Fatal("the connection outlives its certificate")
	}
	// A certificate's times are whole seconds: it may end up to one early.
	if took := time.Since(began); took < life-time.Second || frame.CodeOf(old.Err()) != frame.CertStatus {
		t.Errorf("closed after %v with %v", took, old.Err())
	}

	first := attach(life)
	second := attach(time.Hour) // renewed, over a new connection, while the first one lives
	if first.Err() != nil {
		t.Errorf("the old connection ends before the new one is there: %v", first.Err())
	}
	<-first.Context().Done()
	if second.Err() != nil {
		t.Errorf("the renewed connection ended with the old one: %v", second.Err())
	}
	if n := r.Attached(); n != 1 {
		t.Errorf("%d agents are attached", n)
	}
}
