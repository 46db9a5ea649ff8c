package identity_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func TestSiblingTakesNothingFromAnIntroducedDomain(t *testing.T) {
	home, victim := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "victim.example", "V1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	if _, err := trust.Introduce(victim.Raw, "hub.example", anyExample); err != nil {
		t.Fatal(err)
	}
	greedy := *sibling.Bundle
	greedy.Prefixes = append(greedy.Prefixes[:1:1], victim.Bundle.Prefixes[0])
	if _, err := trust.Vouch(sibling.SignBundle(t, &greedy)); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a peer's further issuer with another domain's prefix: %v", err)
	}
	if trust.Domain("victim.example") == nil {
		t.Error("a peer has driven out an introduced domain by what its further issuer claims")
	}
}

// An introducer's word reaches neither the further issuers of the own domain nor those of one that is configured.
func TestFurtherIssuersThatNobodyMayIntroduce(t *testing.T) {
	home, second := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "home.example", "A2")
	home.Names(t, second)
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	for _, d := range []*identitytest.Domain{second, sibling} {
		if changed, err := trust.Introduce(d.Raw, "hub.example", anyExample); changed || trust.Issuer(string(d.Issuer)) != nil {
			t.Errorf("%s: %v %v", d.Name, changed, err)
		}
		if changed, err := trust.Vouch(d.Raw); !changed || err != nil {
			t.Errorf("%s by itself: %v %v", d.Name, changed, err)
		}
	}
}

// signerOf is a key that a name stands for.
func signerOf(name string) frame.Signer {
	seed := sha256.Sum256([]byte(name))
	return frame.NewSigner(ed25519.NewKeyFromSeed(seed[:]))
}

// manyIssuers are the bundles of a domain with n further issuers, its own first; they have one root, to be made quickly.
func manyIssuers(t *testing.T, pattern *identitytest.Domain, domain string, n int) (raws [][]byte) {
	t.Helper()
	bundle := func(arsp string) (identity.Bundle, frame.Signer) {
		id, err := aic.New("2.999.1.1", arsp, "1", "1", "1", []byte{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		s := signerOf(domain + arsp)
		return identity.Bundle{
			Domain: domain, Seq: 1, Issued: 1, RefreshS: 300, Roots: pattern.Bundle.Roots, Prefixes: []string{id.ARSPKey()}, Issuer: string(id),
			Keys: []identity.BundleKey{identity.NewBundleKey(s, id, identity.UseBundle, time.Now(), time.Hour)},
		}, s
	}
	sign := func(b identity.Bundle, s frame.Signer) []byte {
		raw, err := b.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	arsp := "Z" + fmt.Sprintf("%X", sha256.Sum256([]byte(domain)))[:4]
	lead, by := bundle(arsp + "0")
	for i := range n {
		b, s := bundle(fmt.Sprint(arsp, i+1))
		signer := sha256.Sum256(s.Public())
		lead.Siblings = append(lead.Siblings, identity.Sibling{Issuer: b.Issuer, Signer: signer[:]})
		raws = append(raws, sign(b, s))
	}
	return append([][]byte{sign(lead, by)}, raws...)
}

// However many issuers are introduced, those of the own domain and of configured peers have their places, and what waits no more
// takes none.
func TestIntroducedIssuersTakeNoPlaceOfOthers(t *testing.T) {
	home, second := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "home.example", "A2")
	home.Names(t, second)
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	flood := func(from int) (refused error) {
		for i := range 150 {
			for _, raw := range manyIssuers(t, home, fmt.Sprintf("d%d.example", from+i), identity.MaxSiblings) {
				if _, _, err := trust.Hold(raw, "hub.example", anyExample); err != nil {
					refused = err
				}
			}
		}
		return refused
	}
	if err := flood(0); frame.CodeOf(err) != frame.LimitExceeded {
		t.Fatalf("they are not bounded: %v", err)
	}
	for _, d := range []*identitytest.Domain{second, sibling} {
		if changed, err := trust.Vouch(d.Raw); !changed || err != nil {
			t.Errorf("%s: %v %v", d.Name, changed, err)
		}
	}
	trust.Reconsider(func(string) []string { return nil })
	few := manyIssuers(t, home, "late.example", 1)
	for _, raw := range few {
		if _, err := trust.Introduce(raw, "hub.example", anyExample); err != nil {
			t.Errorf("after the introductions have gone: %v", err)
		}
	}
}

// What waits with its domain is not rolled back.
func TestWaitingIssuerIsNotRolledBack(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	old := sibling.Raw
	sibling.Names(t)
	trust := home.Trust(t)
	trust.Pin("far.example", mustParse(t, lead.Raw).Fingerprint, lead.Raw)
	trust.Recall([][]byte{sibling.Raw})
	if _, err := trust.Introduce(old, "hub.example", anyExample); err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Introduce(lead.Raw, "hub.example", anyExample); err != nil {
		t.Fatal(err)
	}
	if b := trust.Issuer(string(sibling.Issuer)); b == nil || b.Seq != 2 {
		t.Errorf("the older bundle is believed, or none: %v", b != nil)
	}
}

// Introducers hear of a further issuer at different times, and where one was told of the second AMC first its word is no dispute: the
// two issuers know each other.
func TestIssuerThatIsNotNamedYetIsNoDispute(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	first, second := identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	before := first.Raw
	second.Names(t, first)
	for name, introduce := range map[string]func(*identity.Trust, []byte, string) error{
		"believed": func(t *identity.Trust, raw []byte, by string) error {
			_, err := t.Introduce(raw, by, anyExample)
			return err
		},
		"waiting": func(t *identity.Trust, raw []byte, by string) error {
			_, _, err := t.Hold(raw, by, anyExample)
			return err
		},
	} {
		trust := home.Trust(t)
		if err := introduce(trust, before, "hub.example"); err != nil {
			t.Fatal(err)
		}
		if err := introduce(trust, second.Raw, "other.example"); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("%s: %v", name, err)
		}
		if who := trust.Disputed("far.example"); who != nil {
			t.Errorf("%s: disputed by %v", name, who)
		}
	}
}

// The trusted issuer names another key for a further one: what was under the key of before goes, unless it leads there.
func TestIssuerNamedUnderAnotherKeyIsBelievedUnderThatOnly(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	if _, err := trust.Vouch(sibling.Raw); err != nil {
		t.Fatal(err)
	}
	next := signerOf("the next key")
	coming := *sibling.Bundle
	coming.Seq++
	coming.Keys = append(coming.Keys[:len(coming.Keys):len(coming.Keys)], identity.NewBundleKey(next, sibling.Issuer, identity.UseBundle, time.Now(), time.Hour))
	if _, err := trust.Vouch(sibling.SignBundle(t, &coming)); err != nil {
		t.Fatal(err)
	}
	now := *sibling
	now.Sign = map[identity.Use]frame.Signer{identity.UseBundle: next}
	lead.Names(t, &now)
	if _, err := trust.Renew(lead.Raw); err != nil {
		t.Fatal(err)
	}
	if trust.Issuer(string(sibling.Issuer)) == nil {
		t.Fatal("an issuer that replaces its key is gone")
	}
	now.Sign = map[identity.Use]frame.Signer{identity.UseBundle: signerOf("after the old one was stolen")}
	lead.Names(t, &now)
	if _, err := trust.Renew(lead.Raw); err != nil {
		t.Fatal(err)
	}
	if trust.Issuer(string(sibling.Issuer)) != nil {
		t.Error("an issuer is believed under a key that its domain has replaced")
	}
}

// A further issuer that claims what the trusted one's next bundle brings is in nobody's way.
func TestFurtherIssuerDoesNotHoldUpTheTrustedOne(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	key := identity.NewBundleKey(signerOf("the trusted issuer's next key"), lead.Gateway, identity.UseSAT, time.Now(), time.Hour)
	squats := *sibling.Bundle
	stolen := key
	stolen.Owner = string(sibling.Gateway)
	squats.Keys = append(squats.Keys[:len(squats.Keys):len(squats.Keys)], stolen)
	if _, err := trust.Vouch(sibling.SignBundle(t, &squats)); err != nil {
		t.Fatal(err)
	}
	lead.Bundle.Keys = append(lead.Bundle.Keys, key)
	lead.Names(t, sibling)
	if changed, err := trust.Renew(lead.Raw); !changed || err != nil {
		t.Errorf("the trusted issuer's bundle: %v %v", changed, err)
	}
	if trust.Issuer(string(sibling.Issuer)) != nil {
		t.Error("both are believed")
	}
}

// A bundle that is refused has displaced nobody.
func TestRefusedSiblingDrivesNobodyOut(t *testing.T) {
	home, second := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "home.example", "A2")
	home.Names(t, second)
	peers := []*identitytest.Domain{identitytest.New(t, "a.example", "V1"), identitytest.New(t, "b.example", "V2"), identitytest.New(t, "c.example", "V3")}
	trust := home.Trust(t, peers[1])
	for _, d := range []*identitytest.Domain{peers[0], peers[2]} {
		if _, err := trust.Introduce(d.Raw, "hub.example", anyExample); err != nil {
			t.Fatal(err)
		}
	}
	greedy := *second.Bundle
	for _, d := range peers {
		greedy.Prefixes = append(greedy.Prefixes[:len(greedy.Prefixes):len(greedy.Prefixes)], d.Bundle.Prefixes[0])
	}
	if _, err := trust.Vouch(second.SignBundle(t, &greedy)); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("it claims a configured domain's prefix: %v", err)
	}
	for _, d := range peers {
		if trust.Domain(d.Name) == nil {
			t.Errorf("%s was driven out", d.Name)
		}
	}
}
