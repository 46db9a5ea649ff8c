package app

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
	"agentgw/internal/pki"
)

// attach dials with a credential and attaches; it returns the stream for more, or the refusal.
func (g *gateway) attach(cert tls.Certificate, m *arp.Attach) (*endpoint.Stream, error) {
	g.t.Helper()
	s, _, err := g.attached(cert, m)
	return s, err
}

// attached is attach, with the answer.
func (g *gateway) attached(cert tls.Certificate, m *arp.Attach) (s *endpoint.Stream, a *arp.Attached, err error) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer cancel()
	c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			c.Close(frame.OK, "")
		}
	}()
	if s, err = c.Open(ctx, frame.StreamControl); err != nil {
		return nil, nil, err
	}
	if m.Trust == nil { // else BUNDLE and STATUS come before anything else
		m.Trust = []arp.TrustHeld{{Issuer: g.app.trust.Own().Issuer, BundleSeq: 1 << 62, StatusSeq: 1 << 62}}
	}
	if err := s.WriteMessage(5*time.Second, m); err != nil {
		return nil, nil, err
	}
	a = new(arp.Attached)
	if err := s.ReadMessage(5*time.Second, a); err != nil {
		return nil, nil, err
	}
	if a.Code != frame.OK {
		return nil, nil, frame.Errorf(a.Code, "not attached")
	}
	return s, a, nil
}

func TestAttach(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	good := &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	s, err := g.attach(cert, good)
	if err != nil {
		t.Fatal(err)
	}
	if rows := g.rows(); !rows[0].Attached {
		t.Error("the agent is not marked as attached")
	}
	if err := s.WriteMessage(5*time.Second, &arp.Keepalive{TSMS: 42, Pad: arp.KeepalivePad}); err != nil {
		t.Fatal(err)
	}
	var k arp.Keepalive
	if err := s.ReadMessage(5*time.Second, &k); err != nil || k.EchoTSMS != 42 || k.Version != 1 {
		t.Errorf("keepalive %+v %v", k, err)
	}
	// What the operator changes the agent hears of: its next update is of the version that there is.
	if err := g.app.Deprecate(t.Context(), admin.DeprecateRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteMessage(5*time.Second, &arp.Keepalive{TSMS: 43, Pad: arp.KeepalivePad}); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadMessage(5*time.Second, &k); err != nil || k.Version != 2 {
		t.Errorf("keepalive after a change %+v %v", k, err)
	}
	// A second connection of the same agent, restarted, takes the place of the first.
	restarted := *good
	restarted.BootID = []byte("another process!")
	if _, err := g.attach(cert, &restarted); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.ReadFrame(5 * time.Second); frame.CodeOf(err) != frame.Collision {
		t.Errorf("the older connection ended with %v", err)
	}
	other, otherCert := g.mustEnrol()
	for name, m := range map[string]*arp.Attach{
		"as another agent":         {AIC: done.AIC, BootID: make([]byte, 16), Grant: other.Grant},
		"with another one's grant": {AIC: other.AIC, BootID: make([]byte, 16), Grant: done.Grant},
	} {
		if _, err := g.attach(otherCert, m); frame.CodeOf(err) != frame.IdentityMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.attach(cert, good); err == nil {
		t.Error("a withdrawn agent attaches")
	}
}

// TestTheLessBusyAgentComesFirst: what agents say of their free places when they attach and afterwards breaks ties and changes no score; an
// agent that is gone is listed as such.
func TestTheLessBusyAgentComesFirst(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	one, oneCert := g.mustEnrol()
	two, twoCert := g.mustEnrol()
	s, err := g.attach(oneCert, &arp.Attach{AIC: one.AIC, BootID: make([]byte, 16), Grant: one.Grant, Capacity: 200})
	if err != nil {
		t.Fatal(err)
	}
	other, err := g.attach(twoCert, &arp.Attach{AIC: two.AIC, BootID: make([]byte, 16), Grant: two.Grant, Capacity: 100})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(offline bool) *admin.Match {
		t.Helper()
		m, err := g.app.Match(t.Context(), admin.MatchRequest{Offline: offline, Ask: semreq.Ask{Query: semreq.Query{Text: "which remedy helps"}}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	of := func(aic string) string { return directory.CapID(aic, "medicine.advise") }
	first := ask(false).Candidates
	if len(first) < 2 || first[0].Capability != of(one.AIC) || first[1].Capability != of(two.AIC) || first[0].Score != first[1].Score {
		t.Errorf("at attachment: %+v", first)
	}
	if err := s.WriteMessage(5*time.Second, &arp.Keepalive{TSMS: 42, Capacity: 7, Pad: arp.KeepalivePad}); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadMessage(5*time.Second, new(arp.Keepalive)); err != nil {
		t.Fatal(err)
	}
	second := ask(false).Candidates
	if len(second) < 2 || second[0].Capability != of(two.AIC) || second[0].Score != first[0].Score || second[1].Score != first[1].Score {
		t.Errorf("after a keepalive: %+v", second)
	}
	other.CloseWrite()
	for range 500 {
		if !g.app.registry.Alive(two.AIC) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	m := ask(false)
	if len(m.Candidates) == 0 || m.Candidates[0].Capability != of(one.AIC) || len(m.Refused) == 0 || m.Refused[0].Capability != of(two.AIC) || m.Refused[0].Why != "its agent is offline" {
		t.Errorf("with one offline: %+v, held back %+v", m.Candidates, m.Refused)
	}
	m = ask(true)
	if len(m.Candidates) < 2 || m.Candidates[0].Offline || !m.Candidates[1].Offline || m.Candidates[0].Score != m.Candidates[1].Score {
		t.Errorf("offline ones too: %+v", m.Candidates)
	}
	for _, row := range g.rows() {
		if row.Attached != (row.AIC == one.AIC) {
			t.Errorf("agents list: %+v", row)
		}
	}
}

// What an agent asks on its connection while it changes to another is answered; a withdrawal ends them all.
func TestLingeringConnectionServes(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	m := &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	var streams []*endpoint.Stream
	for range 3 {
		s, err := g.attach(cert, m)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	for i, s := range streams {
		req, err := semreq.Ask{Query: semreq.Query{Text: "medicine"}}.Request()
		if err != nil {
			t.Fatal(err)
		}
		q, err := s.Conn().Open(t.Context(), frame.StreamRequest)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.WriteMessage(5*time.Second, req); err != nil {
			t.Fatal(err)
		}
		q.CloseWrite()
		if err := q.ReadMessage(5*time.Second, new(semreq.Response)); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		select {
		case <-s.Conn().Context().Done():
		case <-time.After(5 * time.Second):
			t.Errorf("connection %d outlives the withdrawal", i)
		}
	}
}

// renew asks for the next certificate over a connection with the given certificate.
func (g *gateway) renew(cert tls.Certificate, aic string, csr []byte) (*arp.Credential, error) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer cancel()
	c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
	})
	if err != nil {
		return nil, err
	}
	defer c.Close(frame.OK, "")
	s, err := c.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return nil, err
	}
	if err := s.WriteMessage(5*time.Second, &arp.Renew{AIC: aic, CSR: csr}); err != nil {
		return nil, err
	}
	t, payload, err := s.ReadFrame(5 * time.Second)
	if err != nil {
		return nil, err
	}
	if t == frame.Answer {
		var a arp.Answer
		if err := frame.Unmarshal(payload, &a); err != nil {
			g.t.Fatal(err)
		}
		return nil, a.Err()
	}
	out := new(arp.Credential)
	return out, frame.Unmarshal(payload, out)
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol()
	key := cert.PrivateKey.(crypto.Signer)
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.renew(cert, done.AIC, csr); frame.CodeOf(err) != frame.RateLimited {
		t.Errorf("at once after the enrolment: %v", err)
	}
	g.age(done.AIC, time.Hour)
	next, err := g.renew(cert, done.AIC, csr)
	if err != nil {
		t.Fatal(err)
	}
	again, err := identity.TLSCertificate(next.Chain, key)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := identity.AICOf(again.Leaf); err != nil || string(id) != done.AIC || again.Leaf.SerialNumber.Cmp(cert.Leaf.SerialNumber) == 0 {
		t.Errorf("renewed as %s, %v", id, err)
	}
	if _, err := g.attach(again, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		t.Errorf("attach with the renewed certificate: %v", err)
	}
	// The certificate has expired: what is left is the key.
	self, err := identity.SelfSigned(key)
	if err != nil {
		t.Fatal(err)
	}
	g.age(done.AIC, 20*24*time.Hour)
	if _, err := g.renew(self, done.AIC, csr); err != nil {
		t.Errorf("20 days late, with the key: %v", err)
	}
	g.age(done.AIC, 40*24*time.Hour)
	if _, err := g.renew(self, done.AIC, csr); frame.CodeOf(err) != frame.Expired {
		t.Errorf("40 days late: %v", err)
	}
	g.age(done.AIC, time.Hour)
	stranger := identitytest.NewKey(t)
	strange, _ := identity.SelfSigned(stranger)
	strangeCSR, _ := identity.NewCSR(stranger)
	if _, err := g.renew(strange, done.AIC, strangeCSR); frame.CodeOf(err) != frame.Binding {
		t.Errorf("with another key: %v", err)
	}
	if _, err := g.renew(self, done.AIC, strangeCSR); frame.CodeOf(err) != frame.Binding {
		t.Errorf("for another key, when the certificate is over: %v", err)
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.renew(self, done.AIC, csr); frame.CodeOf(err) != frame.Revoked {
		t.Errorf("withdrawn: %v", err)
	}
}

// age makes an entry, and the agent's certificate in the records of the AMC, as if they had last changed some time ago.
func (g *gateway) age(id string, d time.Duration) {
	g.t.Helper()
	e, err := g.app.registry.Get(id)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.app.registry.Update(g.t.Context(), e, nil, time.Now().Add(-d)); err != nil {
		g.t.Fatal(err)
	}
	name := "amc/agent/" + id
	if err := g.app.store.Transact(g.t.Context(), func(tx directory.Tx) error {
		raw, err := tx.Get(name)
		if err != nil {
			return err
		}
		var record map[int]any
		if err := frame.Unmarshal(raw, &record); err != nil {
			return err
		}
		for _, c := range record[12].([]any) {
			c.([]any)[1] = uint64(time.Now().Add(pki.DefaultLimits().Agent - d).Unix())
		}
		raw, err = frame.Marshal(record)
		tx.Set(name, raw)
		return err
	}); err != nil {
		g.t.Fatal(err)
	}
}
