package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// newSecondAMC is another AMC, with its own gateway, of a domain that is there.
func newSecondAMC(t *testing.T, domain string, tune func(*config.Gateway)) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: t.TempDir(), tune: tune}
	if _, err := Init(InitOptions{Dir: g.dir, Domain: domain, Listen: freeAddr(t), Lab: true, ARSP: "second"}); err != nil {
		t.Fatal(err)
	}
	g.start()
	g.dialler()
	return g
}

func (g *gateway) addSibling(other *gateway) {
	g.t.Helper()
	o := SiblingOptions{Bundle: filepath.Join(other.dir, "state", fileBundle), Address: other.cfg.Listen}
	if _, err := AddSibling(g.cfg, o); err != nil {
		g.t.Fatal(err)
	}
	if err := g.app.ReloadPeers(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) issuerIs(other *gateway, source identity.Source) bool {
	b := g.app.trust.Issuer(string(other.app.home.issuer))
	return b != nil && b.Source == source
}

// Two AMCs of one domain, each with its own gateway: a peer domain that trusts the first believes the second by its word.
func TestTwoAMCsOfOneDomain(t *testing.T) {
	t.Parallel()
	quick := func(c *config.Gateway) { c.AMC.Refresh = config.Duration(time.Second) }
	one, two, far := newGatewayWith(t, "clinic.example", quick), newSecondAMC(t, "clinic.example", quick), newGatewayWith(t, "lab.example", quick)
	far.addPeer(one, PeerOptions{Role: "peer", Addresses: []string{one.cfg.Listen}})
	one.addPeer(far, PeerOptions{Role: "peer"})
	two.addPeer(far, PeerOptions{Role: "peer", Addresses: []string{far.cfg.Listen}})
	eventually(t, "the first gateway and the peer joined", func() bool { return one.peerState("lab.example").State == "up" })
	eventually(t, "the second gateway refused", func() bool { return two.peerState("lab.example").Error != "" })

	one.addSibling(two)
	two.addSibling(one)
	attached := func(g *gateway) bool {
		s := g.app.Status().Siblings
		return len(s) == 1 && s[0].State == "attached"
	}
	eventually(t, "each AMC attached to the other", func() bool { return attached(one) && attached(two) })
	eventually(t, "the second AMC believed by the peer", func() bool { return far.issuerIs(two, identity.Vouched) })
	eventually(t, "the second gateway and the peer joined", func() bool { return two.peerState("lab.example").State == "up" })

	// Each issues for its own prefix, and its status list is about its own agents; the other gateways hear of it.
	agent, cert := two.mustEnrol()
	if id, _ := aic.Parse(agent.AIC); !two.app.trust.Own().Owns(agent.AIC) || one.app.trust.Own().Owns(agent.AIC) || !strings.Contains(id.ARSPKey(), "SECOND") {
		t.Errorf("the second AMC's agent is %s", agent.AIC)
	}
	if _, err := one.attach(cert, &arp.Attach{AIC: agent.AIC, BootID: make([]byte, 16), Grant: agent.Grant}); frame.CodeOf(err) == frame.OK {
		t.Error("an agent of the second AMC attaches at a gateway of the first")
	}
	edge := newGateway(t, "edge.example") // to which the peer introduces the domain
	edge.addPeer(far, PeerOptions{Role: "provider", Addresses: []string{far.cfg.Listen}, Introduces: []string{"clinic.example"}, FirstUse: "auto"})
	far.addPeer(edge, PeerOptions{Role: "customer", Transit: true})
	eventually(t, "both AMCs believed where the domain is introduced", func() bool {
		return edge.issuerIs(one, identity.Introduced) && edge.issuerIs(two, identity.Vouched)
	})
	two.setStanding(agent.AIC, "revoked")
	for _, g := range []*gateway{one, far, edge} {
		eventually(t, "the revocation known at "+string(g.app.home.gateway), func() bool { return g.app.statuses.Of(agent.AIC) == identity.Revoked })
	}

	if e := far.explain("clinic.example"); len(e.Further) != 1 || e.Further[0].Issuer != string(two.app.home.issuer) || e.Further[0].Status.State != "fresh" {
		t.Errorf("peer explain says of the other AMCs: %+v", e.Further)
	}

	// The second AMC replaces its signing keys: the first's bundle follows, and nobody loses sight of it.
	before := two.app.trust.Own().Fingerprint
	if err := two.app.RotateKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	signs := func() [32]byte { return sha(two.app.home.signer(identity.UseBundle)().Public()) }
	eventually(t, "the next key in use", func() bool { return signs() != before })
	if err := two.app.RotateKeys(t.Context()); err != nil { // the next change of the bundle is signed with it
		t.Fatal(err)
	}
	eventually(t, "the second AMC's next key named by the first", func() bool {
		now := two.app.trust.Own().Fingerprint
		names := one.app.trust.Own().Siblings
		return now != before && len(names) == 1 && bytes.Equal(names[0].Signer, now[:])
	})
	if !far.issuerIs(two, identity.Vouched) {
		t.Error("the peer has lost the second AMC")
	}

	// The peer knows it over a restart, with nobody there to ask.
	one.stop()
	far.stop()
	far.start()
	if !far.issuerIs(two, identity.Vouched) {
		t.Error("after a restart the peer does not believe the second AMC")
	}
	one.start()
	if !one.issuerIs(two, identity.Vouched) {
		t.Error("after a restart the first AMC does not believe the second")
	}
	eventually(t, "attached again", func() bool { return attached(one) })
	eventually(t, "all joined again", func() bool {
		return one.peerState("lab.example").State == "up" && two.peerState("lab.example").State == "up"
	})

	// The first AMC names it no more.
	issuer := string(two.app.home.issuer)
	if _, err := RemoveSibling(one.cfg, issuer); err != nil {
		t.Fatal(err)
	}
	if err := one.app.ReloadPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second AMC believed by the peer no more", func() bool { return far.app.trust.Issuer(issuer) == nil })
	eventually(t, "its gateway cut off", func() bool { return two.peerState("lab.example").State != "up" })
	if one.app.trust.Issuer(issuer) != nil || len(one.app.trust.Own().Siblings) != 0 || len(one.app.Status().Siblings) != 0 {
		t.Error("the first AMC still names it")
	}
	far.stop()
	far.start()
	if far.app.trust.Issuer(issuer) != nil {
		t.Error("the peer remembers it over a restart")
	}
}

// A gateway without the AMC role hears of the domain's other AMCs from its own.
func TestJoinedGatewayKnowsTheOtherAMCs(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	other := newSecondAMC(t, "clinic.example", nil)
	center.addSibling(other)
	eventually(t, "the other AMC known at the gateway", func() bool { return g.issuerIs(other, identity.Vouched) })
	other.addSibling(center)
	agent, _ := other.mustEnrol()
	other.setStanding(agent.AIC, "suspended")
	eventually(t, "its status list at the gateway", func() bool { return g.app.statuses.Of(agent.AIC) == identity.Suspended })
	center.stop()
	g.stop()
	g.start()
	if !g.issuerIs(other, identity.Vouched) {
		t.Error("after a restart without its AMC the gateway does not know the other one")
	}
	if _, err := AddSibling(g.cfg, SiblingOptions{Bundle: filepath.Join(other.dir, "state", fileBundle), Address: other.cfg.Listen}); err == nil {
		t.Error("a gateway that is no AMC names another one")
	}
}

// What another AMC may ask of this one is nothing: each decides for its own.
func TestAnotherAMCAsksNothing(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "clinic.example"), newSecondAMC(t, "clinic.example", nil)
	one.addSibling(two)
	cert := two.app.home.current()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := two.ep.Dial(ctx, one.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: cert, Verify: identity.VerifyPinned(must(identity.SPKIHash(one.app.home.current().Leaf.PublicKey)), time.Now),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(frame.OK, "")
	for name, m := range map[string]frame.Message{
		"a grant":                  &arp.AuthzRequest{ReqID: make([]byte, 16), GW: string(two.app.home.gateway), SPKI: make([]byte, 32), Vendor: "1", Ontology: "1"},
		"the end of an agent":      &arp.Deregister{AIC: string(one.app.home.gateway)},
		"its keys in our bundle":   &arp.ACSPut{AIC: string(two.app.home.gateway), Kind: arp.DraftGateway},
		"a certificate for itself": &arp.Renew{AIC: string(two.app.home.gateway)},
	} {
		s, err := conn.Open(ctx, frame.StreamRegistration)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.WriteMessage(time.Second, m); err != nil {
			t.Fatal(err)
		}
		s.CloseWrite()
		var a arp.Answer
		if err := s.ReadMessage(5*time.Second, &a); err != nil || frame.CodeOf(a.Err()) != frame.PolicyDenied {
			t.Errorf("%s: %v %v", name, err, a.Err())
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestSiblingThatCannotBe(t *testing.T) {
	t.Parallel()
	one, far := newGateway(t, "clinic.example"), newGateway(t, "lab.example")
	same := &gateway{t: t, dir: t.TempDir()}
	if _, err := Init(InitOptions{Dir: same.dir, Domain: "clinic.example", Listen: freeAddr(t), Lab: true}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, address, fingerprint, says string }{
		"of another domain":         {far.dir, "127.0.0.1:1", "", "peer add"},
		"itself":                    {one.dir, "127.0.0.1:1", "", "own"},
		"under the same prefix":     {same.dir, "127.0.0.1:1", "", "--arsp"},
		"at no address":             {same.dir, "nowhere", "", "--address"},
		"under a wrong fingerprint": {same.dir, "127.0.0.1:1", "sha256:" + strings.Repeat("0", 64), "signed by"},
	} {
		_, err := AddSibling(one.cfg, SiblingOptions{Bundle: filepath.Join(c.dir, "state", fileBundle), Address: c.address, Fingerprint: c.fingerprint})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := RemoveSibling(one.cfg, "../../etc/passwd"); err == nil {
		t.Error("a path is taken for an AMC")
	}
}

// A crash after the bundle of another AMC was kept that is signed with its next key, and before the own bundle names that key.
func TestAnotherAMCsNextKeyOverACrash(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "clinic.example"), newSecondAMC(t, "clinic.example", nil)
	one.addSibling(two)
	two.stop() // nothing is pushed
	b := two.app.trust.Own().Bundle
	old, next := two.app.home.signer(identity.UseBundle)(), must(newSigner(filepath.Join(t.TempDir(), "next.key")))
	b.Keys = append(b.Keys, identity.NewBundleKey(next, two.app.home.issuer, identity.UseBundle, time.Now(), time.Hour))
	for _, s := range []frame.Signer{old, next} {
		b.Seq++
		raw := must(b.Sign(s))
		if changed, err := one.app.trust.Vouch(raw); !changed || err != nil {
			t.Fatal(changed, err)
		}
		one.app.keepIssuer(must(identity.ParseBundle(raw)))
	}
	one.stop()
	one.start()
	if held := one.app.trust.Issuer(b.Issuer); held == nil || held.Seq != b.Seq {
		t.Fatalf("after the crash the other AMC is not believed, or rolled back: %v", held != nil)
	}
	if names := one.app.trust.Own().Siblings; len(names) != 1 || frame.KeyID(names[0].Signer) != next.KeyID() {
		t.Error("the own bundle does not name its key")
	}
}

// Two reloads at once leave what the files say: whoever has read them first does not have the last word.
func TestReloadsAtOnceFollowTheFiles(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "clinic.example"), newSecondAMC(t, "clinic.example", nil)
	two.stop()
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				one.app.ReloadPeers(ctx)
			}
		})
	}
	defer others.Wait()
	defer stop()
	for range 20 {
		one.addSibling(two)
		if _, err := RemoveSibling(one.cfg, string(two.app.home.issuer)); err != nil {
			t.Fatal(err)
		}
		if err := one.app.ReloadPeers(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // for one that has read the files before
		if n := one.app.named(); len(n) != 0 {
			t.Fatalf("it is named although its file is gone")
		}
	}
}

// Another AMC that has replaced its key while nothing came from it is shown as refused, with what its operator has to do.
func TestAnotherAMCWhoseKeyWasMissed(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "clinic.example"), newSecondAMC(t, "clinic.example", nil)
	one.addSibling(two)
	two.addSibling(one)
	eventually(t, "attached", func() bool { return one.siblingState() == "attached" })
	b := two.app.trust.Own().Bundle
	next := must(newSigner(filepath.Join(t.TempDir(), "next.key")))
	b.Keys = append(b.Keys, identity.NewBundleKey(next, two.app.home.issuer, identity.UseBundle, time.Now(), time.Hour))
	b.Seq += 2
	two.app.members.Announce(&arp.Bundle{Bundle: must(b.Sign(next))}, true)
	eventually(t, "its bundle shown as refused", func() bool {
		return strings.Contains(one.siblingState(), "refused") && strings.Contains(one.siblingState(), "gatewayd sibling remove")
	})
	b.Seq++
	two.app.members.Announce(&arp.Bundle{Bundle: must(b.Sign(two.app.home.signer(identity.UseBundle)()))}, true)
	eventually(t, "its bundle taken again", func() bool { return one.siblingState() == "attached" })
}

func (g *gateway) siblingState() string {
	if s := g.app.Status().Siblings; len(s) == 1 {
		return s[0].State
	}
	return ""
}

// More AMCs than a bundle can name would be no bundle at all: no key could be replaced any more.
func TestTooManyAMCsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	cfg := &config.Gateway{Domain: "clinic.example", SiblingsDir: t.TempDir(), Roles: []string{config.RoleAMC}}
	for i := range identity.MaxSiblings + 1 {
		if _, err := readSiblings(cfg); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		d := identitytest.New(t, cfg.Domain, fmt.Sprintf("S%d", i))
		b := must(identity.ParseBundle(d.Raw))
		base := filepath.Join(cfg.SiblingsDir, b.Issuer)
		text := fmt.Sprintf("address: \"127.0.0.1:1\"\nbundle: %s.bundle\nfingerprint: %s\n", b.Issuer, identity.FingerprintText(b.Fingerprint))
		if err := errors.Join(os.WriteFile(base+".bundle", d.Raw, 0o600), os.WriteFile(base+".yaml", []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readSiblings(cfg); err == nil {
		t.Error("one too many")
	}
}
