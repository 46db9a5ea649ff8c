package app

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/aaap"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// newRemoteDomain is a domain of two hosts: an AMC alone, and a gateway that has joined it.
func newRemoteDomain(t *testing.T) (center, g *gateway) {
	t.Helper()
	center = &gateway{t: t, dir: t.TempDir()}
	if _, err := Init(InitOptions{Dir: center.dir, Domain: "clinic.example", Listen: freeAddr(t), Lab: true, Roles: []string{config.RoleAMC}}); err != nil {
		t.Fatal(err)
	}
	center.start()
	center.dialler()
	token, err := center.app.CreateToken(t.Context(), admin.TokenRequest{For: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	g = &gateway{t: t, dir: t.TempDir()}
	if _, err := Join(t.Context(), JoinOptions{Dir: g.dir, Token: token.Token, Listen: freeAddr(t), Lab: true}); err != nil {
		t.Fatal(err)
	}
	g.start()
	g.dialler()
	eventually(t, "the gateway attached to its AMC", func() bool { ok, _ := g.app.remote.Attached(); return ok })
	return center, g
}

// dialler opens a socket to dial from, and has everything closed at the end.
func (g *gateway) dialler() {
	g.t.Helper()
	var err error
	if g.ep, err = endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent}); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g.ep.Close(ctx)
		g.stop()
	})
}

// enrolBy enrols an agent at g with a token that the AMC has made.
func enrolBy(t *testing.T, center, g *gateway) (*arp.Enrolled, error) {
	t.Helper()
	a, err := center.app.CreateToken(t.Context(), admin.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := arp.ParseToken(a.Token)
	if err != nil {
		t.Fatal(err)
	}
	key := identitytest.NewKey(t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	g.key = key
	return g.enrol(token, key, csr, pharmacyACS)
}

func TestRemoteAMC(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	done, err := enrolBy(t, center, g)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(done.Chain, g.key)
	if err != nil {
		t.Fatal(err)
	}
	m := &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}
	s, err := g.attach(cert, m)
	if err != nil {
		t.Fatal(err)
	}
	if there, here := center.app.Status(), g.app.Status(); len(there.Gateways) != 1 || there.Gateways[0] != here.Gateway || there.AMC != "here" || here.AMC != "attached" {
		t.Errorf("the AMC's status: %q, %q; the gateway's: %q", there.AMC, there.Gateways, here.AMC)
	}
	if n := center.app.registry.Len(); n != 0 {
		t.Errorf("the AMC's own directory has %d entries", n)
	}
	center.setStanding(done.AIC, "suspended")
	listed := map[string]string{}
	for _, row := range center.rows() {
		listed[row.AIC] = fmt.Sprint(row.State, " ", row.Attached)
	}
	if listed[done.AIC] != "suspended false" || listed[g.app.Status().Gateway] != "good true" {
		t.Errorf("the AMC lists %v", listed)
	}
	eventually(t, "the agent suspended at its gateway", func() bool { return g.stateOf(t, done.AIC) == directory.Suspended })
	<-s.Conn().Context().Done()
	center.setStanding(done.AIC, "good")
	eventually(t, "the agent active again", func() bool { return g.stateOf(t, done.AIC) == directory.Active })
	if _, err := g.attach(cert, m); err != nil {
		t.Errorf("after it was resumed: %v", err)
	}
	if err := g.app.SetStanding(t.Context(), admin.StandingRequest{AIC: done.AIC, State: "revoked"}); frame.CodeOf(err) != frame.State {
		t.Errorf("a gateway without the role decides: %v", err)
	}
	here, err := center.app.CreateToken(t.Context(), admin.TokenRequest{For: "gateway"}) // its pin is the AMC's own
	if err != nil {
		t.Fatal(err)
	}
	atAMC, err := arp.ParseToken(here.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := center.enrol(atAMC, g.key, []byte{1}, pharmacyACS); err == nil || !strings.Contains(err.Error(), "at a gateway") {
		t.Errorf("an agent enrols at the AMC: %v", err)
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	if st, err := center.app.amc.Agent(done.AIC); err != nil || st.State != identity.Revoked {
		t.Errorf("after a withdrawal at the gateway the AMC says %v, %v", st.State, err)
	}
}

// While the AMC is down, agents that are enrolled attach as ever, registrations and renewals fail with a clear error, and a
// withdrawal is made up for when it is back.
func TestCase40AMCDown(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	done, err := enrolBy(t, center, g)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(done.Chain, g.key)
	if err != nil {
		t.Fatal(err)
	}
	leaving, err := enrolBy(t, center, g)
	if err != nil {
		t.Fatal(err)
	}
	token, err := center.app.CreateToken(t.Context(), admin.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	center.stop()
	eventually(t, "the AMC missed", func() bool { ok, _ := g.app.remote.Attached(); return !ok })
	if s := g.app.Status().AMC; !strings.HasPrefix(s, "not attached") && s != "connecting" {
		t.Errorf("status says of the AMC: %q", s)
	}
	if _, err := g.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		t.Errorf("an enrolled agent attaches: %v", err)
	}
	key := identitytest.NewKey(t)
	csr, _ := identity.NewCSR(key)
	parsed, err := arp.ParseToken(token.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.enrol(parsed, key, csr, pharmacyACS); frame.CodeOf(err) != frame.UpstreamFailed || !strings.Contains(err.Error(), "AMC") {
		t.Errorf("a registration: %v", err)
	}
	if n := g.app.registry.Len(); n != 2 {
		t.Errorf("%d entries after a registration that failed", n)
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: leaving.AIC}); err != nil {
		t.Errorf("a withdrawal: %v", err)
	}
	if err := g.app.statuses.Fresh(done.AIC); err != nil {
		t.Errorf("at home the last list counts for hours: %v", err)
	}
	center.start()
	eventually(t, "the AMC back", func() bool { ok, _ := g.app.remote.Attached(); return ok })
	g.app.payOwed(t.Context())
	if st, err := center.app.amc.Agent(leaving.AIC); err != nil || st.State != identity.Revoked {
		t.Errorf("the withdrawal is not made up for: %v, %v", st.State, err)
	}
	if _, err := g.enrol(parsed, key, csr, pharmacyACS); err != nil {
		t.Errorf("the same registration afterwards: %v", err)
	}
}

// The keys of a gateway are published by its AMC's bundle; its certificate comes from there, after its end too.
func TestGatewayOfARemoteAMCIsRenewed(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	before := g.app.home.current().Leaf
	if err := g.app.renewRemote(t.Context(), identity.HalfLife(before).Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	second := g.app.home.current().Leaf
	if second.SerialNumber.Cmp(before.SerialNumber) == 0 {
		t.Error("the certificate is the same")
	}
	if err := g.app.renewRemote(t.Context(), second.NotAfter.Add(time.Hour)); err != nil { // with nothing but the key
		t.Errorf("after its end: %v", err)
	}
	keys := len(g.app.trust.Own().Keys)
	if err := g.app.RotateKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(g.app.trust.Own().Keys); n != keys+len(gatewayUses) {
		t.Errorf("%d keys are published, %d before, %d were to be replaced", n, keys, len(gatewayUses))
	}
	if a, b := g.app.trust.Own().Seq, center.app.trust.Own().Seq; a != b {
		t.Errorf("the gateway holds bundle %d, its AMC %d", a, b)
	}
	g.stop()
	g.start()
	eventually(t, "attached after a restart", func() bool { ok, _ := g.app.remote.Attached(); return ok })
}

// A suspended gateway loses its AMC until it is resumed; a revoked one for good, and the domain's bundle names it no more.
func TestRevokedGatewayIsCutOff(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	id := string(g.app.home.gateway)
	attached := func() bool { return len(center.app.members.Members()) == 1 }
	conn, err := center.ep.Dial(t.Context(), center.app.ep.Addr().String(), frame.ALPNControl, "", endpoint.Credentials{
		Certificate: g.app.home.current(), Verify: func(tls.ConnectionState) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(frame.OK, "")
	ask := func() frame.Code {
		s, err := conn.Open(t.Context(), frame.StreamRegistration)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.WriteMessage(time.Second, &arp.Deregister{AIC: "2.999.1.1.NOBODY"}); err != nil {
			t.Fatal(err)
		}
		s.CloseWrite()
		var a arp.Answer
		if err := s.ReadMessage(5*time.Second, &a); err != nil {
			t.Fatal(err)
		}
		return a.Code
	}
	if code := ask(); code != frame.NotFound {
		t.Errorf("a gateway in good standing: %v", code)
	}
	center.setStanding(id, "suspended")
	eventually(t, "the suspended gateway gone", func() bool { return !attached() })
	if code := ask(); code != frame.CertStatus {
		t.Errorf("a suspended gateway on a connection of before: %v", code)
	}
	center.setStanding(id, "good")
	eventually(t, "the gateway back", attached)
	center.setStanding(id, "revoked")
	eventually(t, "the revoked gateway gone", func() bool { return !attached() })
	eventually(t, "the bundle without it", func() bool { return !center.app.trust.Own().IsGateway(id) })
}

// A gateway cannot have another's key published as its own: the next bundle would be one that nobody takes.
func TestGatewayShowsNobodyElsesKeys(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	peer := identitytest.New(t, "peer.example", "P1")
	if _, err := center.app.trust.Configure(peer.Raw, [32]byte{}); err != nil {
		t.Fatal(err)
	}
	var status identity.BundleKey
	for _, k := range center.app.trust.Own().Keys {
		if k.Owner == string(center.app.home.issuer) && k.Use == identity.UseStatus {
			status = k
		}
	}
	for what, k := range map[string]identity.BundleKey{"of a peer": peer.Bundle.Keys[0], "of the AMC": status} {
		_, err := g.app.remote.PutKeys(t.Context(), []arp.GatewayKey{{Use: uint8(k.Use), Public: k.Public, NotBefore: k.NotBefore, NotAfter: k.NotAfter}})
		if frame.CodeOf(err) != frame.Binding {
			t.Errorf("a key %s: %v", what, err)
		}
	}
	if err := center.app.RotateKeys(t.Context()); err != nil {
		t.Errorf("the AMC's next bundle: %v", err)
	}
}

// A key that nobody has published yet is a gateway's only if the key itself says so: for this gateway, and for this use.
func TestGatewayProvesItsKeys(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	id := string(g.app.home.gateway)
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := frame.NewSigner(private)
	digest := identity.NewBundleKey(s, g.app.home.gateway, identity.UseDigest, time.Now(), time.Hour)
	show := func(by *arp.KeyProof, use identity.Use) error {
		t.Helper()
		k := arp.GatewayKey{Use: uint8(use), Public: digest.Public, NotBefore: digest.NotBefore, NotAfter: digest.NotAfter}
		if by != nil {
			var err error
			if k.Proof, err = by.Sign(s); err != nil {
				t.Fatal(err)
			}
		}
		_, err := g.app.remote.PutKeys(t.Context(), []arp.GatewayKey{k})
		return err
	}
	for name, err := range map[string]error{
		"without a proof":        show(nil, identity.UseDigest),
		"of another gateway":     show(&arp.KeyProof{Owner: string(center.app.home.gateway), Use: uint8(identity.UseDigest)}, identity.UseDigest),
		"as the joining one's":   show(&arp.KeyProof{SPKI: make([]byte, 32), Use: uint8(identity.UseDigest)}, identity.UseDigest),
		"proved for another use": show(&arp.KeyProof{Owner: id, Use: uint8(identity.UseDigest)}, identity.UseSAT),
	} {
		if frame.CodeOf(err) != frame.Binding {
			t.Errorf("a key %s: %v", name, err)
		}
	}
	if err := show(&arp.KeyProof{Owner: id, Use: uint8(identity.UseDigest)}, identity.UseDigest); err != nil {
		t.Errorf("a key that is proved: %v", err)
	}
	if err := show(nil, identity.UseDigest); err != nil {
		t.Errorf("the same again, when the bundle names it: %v", err)
	}
}

// A whole rotation of a gateway's keys passes its AMC: the next ones are proved, and the replaced ones, which nobody can prove any more, stay.
func TestRotationOfProvenKeys(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	own := func() (n int) {
		for _, k := range center.app.trust.Own().Keys {
			if k.Owner == string(g.app.home.gateway) {
				n++
			}
		}
		return n
	}
	before := own()
	for i, step := range []struct {
		after time.Duration
		force bool
	}{{0, true}, {time.Hour, false}, {time.Hour, true}, {2 * time.Hour, false}} {
		if err := g.app.turnRemote(t.Context(), time.Now().Add(step.after), step.force); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if want := before * (2 + i/2); own() != want {
			t.Errorf("after step %d the bundle has %d keys of the gateway, want %d", i, own(), want)
		}
	}
}

// A gateway that joins proves its keys as that of its certificate request.
func TestJoinNeedsProvenKeys(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	made, err := center.app.CreateToken(t.Context(), admin.TokenRequest{For: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := arp.ParseToken(made.Token)
	if err != nil {
		t.Fatal(err)
	}
	_, of, err := joinDraft(t.TempDir(), []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	key, own, err := joinDraft(t.TempDir(), []string{"127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, draft := range map[string]arp.GatewayDraft{
		"of another one": of,
		"without proof":  {Keys: []arp.GatewayKey{{Use: own.Keys[0].Use, Public: own.Keys[0].Public, NotBefore: own.Keys[0].NotBefore, NotAfter: own.Keys[0].NotAfter, Proof: []byte{}}}},
	} {
		if _, _, _, err := aaap.Join(t.Context(), g.ep, token, key, draft); frame.CodeOf(err) != frame.Binding {
			t.Errorf("it joins with keys %s: %v", name, err)
		}
	}
	if _, _, _, err := aaap.Join(t.Context(), g.ep, token, key, own); err != nil {
		t.Errorf("the token is used up by what was refused: %v", err)
	}
}

// A gateway speaks to the AMC that it has joined, and takes no other gateway of its domain for it.
func TestAnotherGatewayIsNotTheAMC(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	if amc := g.cfg.AMC.AIC; amc != string(center.app.home.gateway) {
		t.Errorf("joined %q", amc)
	}
	other := identity.Peer{AIC: g.app.home.gateway, Bundle: g.app.trust.Own()}
	c := aaap.NewClient(aaap.ClientConfig{Issuer: string(center.app.home.issuer), AMC: g.cfg.AMC.AIC, Trust: g.app.trust})
	if err := c.Role(other); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("another gateway: %v", err)
	}
	other.AIC = center.app.home.gateway
	if err := c.Role(other); err != nil {
		t.Errorf("the AMC: %v", err)
	}
}

func TestJoinRefusals(t *testing.T) {
	t.Parallel()
	center, _ := newRemoteDomain(t)
	agents := center.app
	token, err := agents.CreateToken(t.Context(), admin.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Join(t.Context(), JoinOptions{Dir: dir, Token: token.Token, Listen: "127.0.0.1:0"}); err == nil {
		t.Error("a gateway joins with an agent's token, at a gateway")
	}
	gatewayToken, err := agents.CreateToken(t.Context(), admin.TokenRequest{For: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), JoinOptions{Dir: dir, Token: gatewayToken.Token, Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), JoinOptions{Dir: dir, Token: gatewayToken.Token, Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "gatewayd.yaml")) {
		t.Errorf("over a gateway that is there: %v", err)
	}
	if _, err := Join(t.Context(), JoinOptions{Dir: t.TempDir(), Token: gatewayToken.Token, Listen: "127.0.0.1:0"}); frame.CodeOf(err) != frame.TokenReplayed {
		t.Errorf("a second gateway with the same token: %v", err)
	}
}

// Whoever knows the AIC of a gateway, which every bundle names, and has some key, gets no certificate for it: what comes after the
// end of a certificate, or pretends to, counts under the key that the gateway has.
func TestStrangerGetsNoGatewaysCertificate(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	key := identitytest.NewKey(t)
	self, err := identity.SelfSigned(key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := center.ep.Dial(t.Context(), center.app.ep.Addr().String(), frame.ALPNControl, "", endpoint.Credentials{
		Certificate: self, Verify: func(tls.ConnectionState) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(frame.OK, "")
	s, err := conn.Open(t.Context(), frame.StreamRegistration)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WriteMessage(time.Second, &arp.Renew{AIC: string(g.app.home.gateway), CSR: csr}); err != nil {
		t.Fatal(err)
	}
	s.CloseWrite()
	typ, payload, err := s.ReadFrame(5 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var a arp.Answer
	if typ != frame.Answer || frame.Unmarshal(payload, &a) != nil || a.Code != frame.Binding {
		t.Errorf("a stranger is answered with %v, %v %s", typ, a.Code, a.Msg)
	}
}

// An AMC alone has no peers: a row for one is refused before it is written, and one that somebody wrote by hand when it is read.
func TestAMCAloneTakesNoPeers(t *testing.T) {
	t.Parallel()
	center := &gateway{t: t, dir: t.TempDir()}
	if _, err := Init(InitOptions{Dir: center.dir, Domain: "clinic.example", Listen: freeAddr(t), Lab: true, Roles: []string{config.RoleAMC}}); err != nil {
		t.Fatal(err)
	}
	center.start()
	t.Cleanup(center.stop)
	if err := center.app.ReloadPeers(t.Context()); err != nil {
		t.Error("without rows:", err)
	}
	d := identitytest.New(t, "peer.example", "B")
	if _, err := AddPeer(center.cfg, PeerOptions{Bundle: bundleFile(t, d.Raw), Role: "peer"}); !errors.Is(err, errNoPeers) {
		t.Error("peer add:", err)
	}
	if rows, err := filepath.Glob(filepath.Join(center.cfg.PeersDir, "*")); err != nil || len(rows) > 0 {
		t.Error("written:", rows, err)
	}
	if err := os.MkdirAll(center.cfg.PeersDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := bundleFile(t, d.Raw)
	row := "domain: peer.example\nrole: peer\nbundle: " + b + "\naddresses: [\"127.0.0.1:1\"]\n"
	if err := os.WriteFile(filepath.Join(center.cfg.PeersDir, "peer.example.yaml"), []byte(row), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := center.app.ReloadPeers(t.Context()); !errors.Is(err, errNoPeers) {
		t.Error("reload:", err)
	}
}

// A gateway that changes its keys, or connects, without end is told to wait, and what it has goes on.
func TestAMCBoundsTheHurryOfAGateway(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	var keys []arp.GatewayKey
	for _, k := range g.app.trust.Own().Keys {
		if k.Owner == string(g.app.home.gateway) {
			keys = append(keys, arp.GatewayKey{Use: uint8(k.Use), Public: k.Public, NotBefore: k.NotBefore, NotAfter: k.NotAfter})
		}
	}
	var err error
	done := 0
	for ; done < 100 && err == nil; done++ {
		_, err = g.app.remote.PutKeys(t.Context(), keys)
	}
	if done < 10 || frame.CodeOf(err) != frame.RateLimited || !strings.Contains(err.Error(), "try again in") {
		t.Errorf("after %d changes of keys: %v", done, err)
	}
	if ok, why := g.app.remote.Attached(); !ok {
		t.Errorf("it is not attached any more: %v", why)
	}
	refused := 0
	for range 40 {
		c, err := g.ep.Dial(t.Context(), center.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
			Certificate: g.app.home.current(), Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, g.app.remote.Role),
		})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.Context().Done():
			if frame.CodeOf(c.Err()) == frame.RateLimited {
				refused++
			}
		case <-time.After(50 * time.Millisecond):
			c.Close(frame.OK, "")
		}
	}
	if refused == 0 {
		t.Error("40 connections at once are served")
	}
}

// A change of keys that was under way when its gateway was revoked does not bring the keys back.
func TestRevokedGatewaysKeysStayOut(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	id := g.app.home.gateway
	var keys []identity.BundleKey
	for _, k := range center.app.trust.Own().Keys {
		if k.Owner == string(id) {
			keys = append(keys, k)
		}
	}
	center.setStanding(string(id), "revoked")
	eventually(t, "its keys out of the bundle", func() bool { return !center.app.trust.Own().IsGateway(string(id)) })
	if _, err := center.app.publishKeys(t.Context(), id, keys); frame.CodeOf(err) != frame.CertStatus {
		t.Errorf("its change of keys: %v", err)
	}
	if center.app.trust.Own().IsGateway(string(id)) {
		t.Error("the bundle names it again")
	}
}
