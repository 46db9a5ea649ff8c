package app

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// gateway is a whole gatewayd in this process, with a socket of its own to dial from.
type gateway struct {
	t    testing.TB
	cfg  *config.Gateway
	app  *app
	dir  string
	stop func()
	ep   *endpoint.Endpoint
}

// newGateway makes a domain and starts its gateway on a free port of the loopback.
func newGateway(t testing.TB, domain string) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: t.TempDir()}
	if _, err := Init(InitOptions{Dir: g.dir, Domain: domain, Listen: freeAddr(t), Lab: true}); err != nil {
		t.Fatal(err)
	}
	g.start()
	var err error
	if g.ep, err = endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.ep.Close(ctx)
		g.stop()
	})
	return g
}

// freeAddr is a UDP address of the loopback that nobody used a moment ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

func (g *gateway) start() {
	g.t.Helper()
	cfg, err := config.LoadGateway(filepath.Join(g.dir, "gatewayd.yaml"))
	if err != nil {
		g.t.Fatal(err)
	}
	cfg.Limits.EnrolRate, cfg.Limits.HandshakeRate, cfg.Limits.AgentRequestRate = 1000, 1000, 1e6 // one address makes every connection
	g.cfg = cfg
	ctx, cancel := context.WithCancel(context.Background())
	var cleanup daemon.Cleanup
	running, err := Start(ctx, cfg, slog.New(slog.NewTextHandler(logWriter{g.t}, &slog.HandlerOptions{Level: slog.LevelWarn})), &cleanup)
	if err != nil {
		cancel()
		g.t.Fatal(errors.Join(err, cleanup.Run()))
	}
	g.app = running.(*app)
	stopped := false
	g.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := cleanup.Run(); err != nil {
			g.t.Error(err)
		}
	}
}

type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

const pharmacyACS = `{"protocolVersion":"02.02","name":"Corner pharmacy","description":"Sells medicine.","version":"1.0.0",
"provider":{"organization":"Pharmacy"},"securitySchemes":{"mtls":{"type":"mutualTLS"}},"endPoints":[],
"capabilities":{"streaming":false,"notification":false,"messageQueue":[]},"defaultInputModes":["application/json"],
"defaultOutputModes":["application/json"],"skills":[
{"id":"medicine.sell","name":"Sell medicine","description":"Throat lozenges, sore throat remedies.","version":"1.0.0","tags":["medicine"]},
{"id":"medicine.advise","name":"Advise","description":"Which remedy helps.","version":"1.0.0","tags":["medicine"]}]}`

func (g *gateway) token(scope ...string) arp.Token {
	g.t.Helper()
	a, err := g.app.CreateToken(g.t.Context(), admin.TokenRequest{Scope: scope})
	if err != nil {
		g.t.Fatal(err)
	}
	t, err := arp.ParseToken(a.Token)
	if err != nil {
		g.t.Fatal(err)
	}
	return t
}

// enrol presents what it is given and returns the answer, or the refusal as an error.
func (g *gateway) enrol(token arp.Token, key crypto.Signer, csr []byte, draft string) (*arp.Enrolled, error) {
	g.t.Helper()
	return g.enrolAs(token, key, arp.Enrol{CSR: csr, Draft: []byte(draft), Visibility: 2})
}

func (g *gateway) enrolAs(token arp.Token, key crypto.Signer, m arp.Enrol) (*arp.Enrolled, error) {
	g.t.Helper()
	cert, err := identity.SelfSigned(key)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer cancel()
	c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: identity.VerifyPinned([32]byte(token.GatewayPK), time.Now),
	})
	if err != nil {
		return nil, err
	}
	defer c.Close(frame.OK, "")
	s, err := c.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return nil, err
	}
	m.Secret = token.Secret
	if err := s.WriteMessage(5*time.Second, &m); err != nil {
		return nil, err
	}
	t, payload, err := s.ReadFrame(10 * time.Second)
	if err != nil {
		return nil, err
	}
	if t == frame.Answer {
		var a arp.Answer
		if err := frame.Unmarshal(payload, &a); err != nil {
			g.t.Fatal(err)
		}
		text := a.Msg
		for _, d := range a.Detail {
			text += "\n" + d.Path
		}
		return nil, frame.Errorf(a.Code, "%s", text)
	}
	out := new(arp.Enrolled)
	return out, frame.Unmarshal(payload, out)
}

func (g *gateway) mustEnrol(scope ...string) (*arp.Enrolled, tls.Certificate) {
	g.t.Helper()
	key := identitytest.NewKey(g.t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		g.t.Fatal(err)
	}
	done, err := g.enrol(g.token(scope...), key, csr, pharmacyACS)
	if err != nil {
		g.t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(done.Chain, key)
	if err != nil {
		g.t.Fatal(err)
	}
	return done, cert
}

func TestEnrol(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, cert := g.mustEnrol("agw.discover", "acps.skill.invoke:medicine.sell")
	if len(done.Caps) != 1 || !strings.HasSuffix(done.Caps[0], "/medicine.sell") {
		t.Errorf("capabilities %v", done.Caps)
	}
	if len(done.Removed) != 1 || done.Removed[0].Code != frame.ScopeDenied || strings.Contains(string(done.ACS), "medicine.advise") {
		t.Errorf("a skill outside the grant was published: removed %v", done.Removed)
	}
	id, err := identity.AICOf(cert.Leaf)
	if err != nil || string(id) != done.AIC {
		t.Errorf("certificate of %s, enrolled as %s, %v", id, done.AIC, err)
	}
	grant, err := arp.OpenGrant(done.Grant, g.app.trust.Keys(identity.UseGrant), func(string) string { return g.app.trust.Own().Issuer }, time.Now())
	if err != nil || grant.AIC != done.AIC || !slices.Equal(grant.Skills, []string{"medicine.sell"}) {
		t.Errorf("grant %+v %v", grant, err)
	}
	rows := g.app.Agents()
	if len(rows) != 1 || rows[0].AIC != done.AIC || rows[0].Attached {
		t.Errorf("directory %+v", rows)
	}
}

func TestEnrolmentRefusals(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	key := identitytest.NewKey(t)
	csr, _ := identity.NewCSR(key)
	other := identitytest.NewKey(t)
	otherCSR, _ := identity.NewCSR(other)
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weakCSR, err := identity.NewCSR(weak)
	if err != nil {
		t.Fatal(err)
	}
	used := g.token()
	if _, err := g.enrol(used, other, otherCSR, pharmacyACS); err != nil {
		t.Fatal(err)
	}
	expired := g.token()
	expireToken(t, g, expired)
	wrong := g.token()
	wrong.Secret = make([]byte, 32)
	for name, c := range map[string]struct {
		token arp.Token
		csr   []byte
		draft string
		code  frame.Code
		says  string
	}{
		"wrong token":           {wrong, csr, pharmacyACS, frame.TokenInvalid, "ask the operator"},
		"expired token":         {expired, csr, pharmacyACS, frame.TokenExpired, "ask the operator"},
		"token used twice":      {used, csr, pharmacyACS, frame.TokenReplayed, "ask the operator"},
		"weak key":              {g.token(), weakCSR, pharmacyACS, frame.ReqInvalid, "P-256"},
		"another key's request": {g.token(), otherCSR, pharmacyACS, frame.Binding, "another key"},
		"no CSR":                {g.token(), []byte{1}, pharmacyACS, frame.ReqInvalid, "certificate request"},
		"ACS without a name":    {g.token(), csr, strings.Replace(pharmacyACS, `"name":"Corner pharmacy",`, "", 1), frame.ReqInvalid, "name"},
		"skill without an id":   {g.token(), csr, strings.Replace(pharmacyACS, `"id":"medicine.sell",`, "", 1), frame.ReqInvalid, "skills[0]"},
		"no JSON":               {g.token(), csr, "{", frame.ReqInvalid, "ACS"},
	} {
		_, err := g.enrol(c.token, key, c.csr, c.draft)
		if frame.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v and %q", name, err, c.code, c.says)
		}
	}
	for name, m := range map[string]arp.Enrol{
		"listed without domains":      {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 1},
		"public with domains":         {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 2, Allow: []string{"a.example"}},
		"listed with what is no name": {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 1, Allow: []string{"No Name"}},
		"unknown visibility":          {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 9},
		"endless scope":               {CSR: csr, Draft: []byte(pharmacyACS), Visibility: 2, Scope: make([]string, 33)},
		"unknown kind of draft":       {CSR: csr, Draft: []byte(pharmacyACS), DraftKind: 7},
	} {
		if _, err := g.enrolAs(g.token(), key, m); frame.CodeOf(err) != frame.ReqInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(g.app.Agents()); n != 1 {
		t.Errorf("%d agents are registered, one was admitted", n)
	}
}

// expireToken makes a token of the past.
func expireToken(t *testing.T, g *gateway, tok arp.Token) {
	t.Helper()
	err := g.app.store.UseToken(t.Context(), sha(tok.Secret), func(record []byte) ([]byte, error) {
		var m map[int]any
		if err := frame.Unmarshal(record, &m); err != nil {
			return nil, err
		}
		m[1] = uint64(time.Now().Add(-time.Minute).Unix())
		return frame.Marshal(m)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A lost answer: the same key with the same token completes the same registration.
func TestEnrolmentIsCompleted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	key := identitytest.NewKey(t)
	csr, _ := identity.NewCSR(key)
	token := g.token()
	first, err := g.enrol(token, key, csr, pharmacyACS)
	if err != nil {
		t.Fatal(err)
	}
	g.stop()
	g.start()
	again, err := g.enrol(token, key, csr, pharmacyACS)
	if err != nil {
		t.Fatal(err)
	}
	if again.AIC != first.AIC || len(g.app.Agents()) != 1 {
		t.Errorf("enrolled as %s, then as %s; %d agents", first.AIC, again.AIC, len(g.app.Agents()))
	}
}

// attach dials with a credential and attaches; it returns the stream for more, or the refusal.
func (g *gateway) attach(cert tls.Certificate, m *arp.Attach) (*endpoint.Stream, error) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
	defer cancel()
	c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
	})
	if err != nil {
		return nil, err
	}
	s, err := c.Open(ctx, frame.StreamControl)
	if err != nil {
		return nil, err
	}
	if err := s.WriteMessage(5*time.Second, m); err != nil {
		return nil, err
	}
	var a arp.Attached
	if err := s.ReadMessage(5*time.Second, &a); err != nil {
		return nil, err
	}
	if a.Code != frame.OK {
		return nil, frame.Errorf(a.Code, "not attached")
	}
	return s, nil
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
	if rows := g.app.Agents(); !rows[0].Attached {
		t.Error("the agent is not marked as attached")
	}
	if err := s.WriteMessage(5*time.Second, &arp.Keepalive{TSMS: 42, Pad: arp.KeepalivePad}); err != nil {
		t.Fatal(err)
	}
	var k arp.Keepalive
	if err := s.ReadMessage(5*time.Second, &k); err != nil || k.EchoTSMS != 42 {
		t.Errorf("keepalive %+v %v", k, err)
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
	if _, err := g.renew(again, done.AIC, strangeCSR); frame.CodeOf(err) != frame.Binding {
		t.Errorf("for another key: %v", err)
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.renew(self, done.AIC, csr); frame.CodeOf(err) != frame.Revoked {
		t.Errorf("withdrawn: %v", err)
	}
}

// age makes an entry as if it had last changed some time ago.
func (g *gateway) age(id string, d time.Duration) {
	g.t.Helper()
	e, err := g.app.registry.Get(id)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.app.registry.Update(g.t.Context(), e, time.Now().Add(-d)); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) addPeer(other *gateway, o PeerOptions) {
	g.t.Helper()
	o.Bundle, o.Replace = filepath.Join(other.dir, "state", fileBundle), true
	if _, err := AddPeer(g.cfg, o); err != nil {
		g.t.Fatal(err)
	}
	if err := g.app.ReloadPeers(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// eventually polls for what other goroutines bring about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func (g *gateway) peerState(domain string) admin.PeerRow {
	for _, p := range g.app.Peers() {
		if p.Domain == domain {
			return p
		}
	}
	return admin.PeerRow{}
}

// An agent that holds connections without attaching gives them back, and cannot hold many.
func TestIdleAgentConnections(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	_, cert := g.mustEnrol()
	dial := func() *endpoint.Conn {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
			Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var open []*endpoint.Conn
	for range 8 {
		open = append(open, dial())
	}
	codes := map[frame.Code]int{}
	for _, c := range open {
		select {
		case <-c.Context().Done():
			codes[frame.CodeOf(c.Err())]++
		case <-time.After(8 * time.Second):
			t.Fatal("a connection that never attached is still open")
		}
	}
	if codes[frame.Collision] != 4 || codes[frame.HelloTimeout] != 4 {
		t.Errorf("8 idle connections ended with %v, want 4 refused at once and 4 after 5 s", codes)
	}
}

func TestPeersExchangeDigests(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	done, _ := two.mustEnrol()
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	eventually(t, "digests of two.example at one.example", func() bool {
		return slices.ContainsFunc(one.app.Digests(), func(d admin.DigestRow) bool { return d.Domain == "two.example" && d.Label == "medicine" })
	})
	answer, err := one.app.Resolve(t.Context(), semreq.Ask{Query: semreq.Query{Text: "sore throat remedies"}})
	if err != nil || answer.Status == "OK" {
		t.Errorf("an agent that is not attached was offered: %+v %v", answer, err)
	}
	if err := two.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the withdrawal at one.example", func() bool {
		return !slices.ContainsFunc(one.app.Digests(), func(d admin.DigestRow) bool { return d.Domain == "two.example" && d.Label == "medicine" })
	})
	// A restart: new epoch, the peer comes back by itself.
	two.stop()
	eventually(t, "one.example sees two.example gone", func() bool { return one.peerState("two.example").State != "up" })
	two.start()
	eventually(t, "up again and acknowledged", func() bool {
		p := one.peerState("two.example")
		return p.State == "up" && p.Acked
	})
}

func TestCase01ClientCertificateRejected(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}}) // two.example knows nothing of one.example
	eventually(t, "the refusal counted as a failed dial", func() bool {
		p := one.peerState("two.example")
		return p.State != "up" && strings.Contains(p.Error, "refused")
	})
	if n := len(two.app.Peers()); n != 0 {
		t.Errorf("two.example shows %d peers", n)
	}
}

func TestCase59RoleByALPN(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	two.addPeer(one, PeerOptions{Role: "peer"})
	done, agent := two.mustEnrol()
	dial := func(g *gateway, alpn string, cert tls.Certificate) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := g.ep.Dial(ctx, g.cfg.Listen, alpn, "", endpoint.Credentials{
			Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
		})
		if err != nil {
			return err
		}
		defer c.Close(frame.OK, "")
		s, err := c.Open(ctx, frame.StreamControl)
		if err != nil {
			return err
		}
		_, _, err = s.ReadFrame(5 * time.Second) // the refusal comes after the dial has returned
		return err
	}
	if err := dial(two, frame.ALPNGateway, agent); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("an agent's certificate on the gateways' protocol, inbound: %v", err)
	}
	if err := dial(two, frame.ALPNControl, one.app.home.current()); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a peer's gateway on the agents' protocol: %v", err)
	}
	if err := dial(two, frame.ALPNGateway, one.app.home.current()); frame.CodeOf(err) == frame.TrustDenied {
		t.Errorf("the peer's gateway on its own protocol: %v", err)
	}
	// Dialled: an agent that answers at the peer's address.
	impostor, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Faces: []endpoint.Face{{
		ALPN: frame.ALPNGateway,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: agent, Verify: func(tls.ConnectionState) error { return nil }}, nil
		},
		Serve: func(_ context.Context, c *endpoint.Conn) { <-c.Context().Done() },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer impostor.Close(t.Context())
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{impostor.Addr().String()}})
	eventually(t, "the impostor refused", func() bool {
		p := one.peerState("two.example")
		return p.State != "up" && strings.Contains(p.Error, done.AIC)
	})
}

func TestStartErrorsSayWhat(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "one.example")
	second := *g.cfg
	var cleanup daemon.Cleanup
	_, err := Start(t.Context(), &second, slog.New(slog.DiscardHandler), &cleanup)
	if err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("a second gateway on the same state: %v", err)
	}
	cleanup.Run()
	for _, file := range []string{fileBundle, fileGatewayKey, fileGatewayChain, fileIssuingKey} {
		dir := t.TempDir()
		if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "state", file)); err != nil {
			t.Fatal(err)
		}
		if _, err := loadHome(filepath.Join(dir, "state"), nil, time.Now()); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("without %s: %v", file, err)
		}
	}
	if _, err := Init(InitOptions{Dir: g.dir, Domain: "y.example"}); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("init over a domain that is there: %v", err)
	}
	if _, err := Init(InitOptions{Dir: t.TempDir(), Domain: "No Domain"}); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("init of no domain: %v", err)
	}
}

func TestARSPOfDomain(t *testing.T) {
	seen := map[string]string{}
	for i := range 2000 {
		d := fmt.Sprintf("d%d.example", i)
		a := arspOf(d)
		if len(a) < 1 || len(a) > 6 || a[0] == '0' {
			t.Fatalf("%s: %q", d, a)
		}
		if other, ok := seen[a]; ok {
			t.Errorf("%s and %s share %s", d, other, a)
		}
		seen[a] = d
	}
}

func TestOwnCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	h, err := loadHome(state, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before := h.current().Leaf.SerialNumber
	if err := h.renew(state, nil, time.Now().Add(identity.GatewayLife*2/3)); err != nil {
		t.Fatal(err)
	}
	if h.current().Leaf.SerialNumber.Cmp(before) == 0 {
		t.Error("the certificate is the same after two thirds of its life")
	}
}

func sha(b []byte) [32]byte { return sha256.Sum256(b) }
