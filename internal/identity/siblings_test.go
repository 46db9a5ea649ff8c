package identity_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"testing"
	"time"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// twoIssuers are a domain's AMCs; the first names the second.
func twoIssuers(t *testing.T) (lead, sibling *identitytest.Domain) {
	lead, sibling = identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	lead.Names(t, sibling)
	return lead, sibling
}

func TestSiblingCountsWhileItsDomainsBundleNamesIt(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t)
	if _, err := trust.Vouch(sibling.Raw); frame.CodeOf(err) != frame.TrustDenied {
		t.Fatalf("before its domain is trusted: %v", err)
	}
	trust.Configure(lead.Raw, [32]byte{})
	if got := trust.Missing("far.example"); len(got) != 1 || got[0] != string(sibling.Issuer) {
		t.Fatalf("missing %v", got)
	}
	if changed, err := trust.Vouch(sibling.Raw); !changed || err != nil {
		t.Fatal(changed, err)
	}
	agent := sibling.AIC(t)
	p, err := trust.VerifyChain(chainOf(t, sibling.Certificate(t, agent)), x509.ExtKeyUsageClientAuth)
	if err != nil || p.Domain != "far.example" || p.Bundle.Source != identity.Vouched || trust.Domain("far.example").Issuer != string(lead.Issuer) {
		t.Fatalf("an agent of the second issuer: %+v %v", p, err)
	}
	if len(trust.Missing("far.example")) != 0 || len(trust.Issuers("far.example")) != 2 {
		t.Error("the domain has not two issuers")
	}
	if changed, err := trust.Vouch(sibling.Raw); changed || err != nil {
		t.Errorf("the same again: %v %v", changed, err)
	}
	lead.Names(t) // nobody
	if changed, err := trust.Renew(lead.Raw); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if trust.Of(string(agent)) != nil {
		t.Error("the issuer counts although its domain names it no more")
	}
	if _, err := trust.Vouch(sibling.Raw); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("after it was named no more: %v", err)
	}
}

func TestSiblingSpeaksForItsOwnPrefixesOnly(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	for name, change := range map[string]func(*identity.Bundle){
		"a prefix of the domain's first issuer": func(b *identity.Bundle) { b.Prefixes = append(b.Prefixes, lead.Bundle.Prefixes[0]) },
		"a prefix of ours":                      func(b *identity.Bundle) { b.Prefixes = append(b.Prefixes, home.Bundle.Prefixes[0]) },
		"a key of the domain's first issuer": func(b *identity.Bundle) {
			k := lead.Bundle.Keys[0]
			k.Owner = b.Issuer
			b.Keys = append(b.Keys, k)
		},
	} {
		bad := *sibling.Bundle
		change(&bad)
		if _, err := trust.Vouch(sibling.SignBundle(t, &bad)); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := trust.Vouch(sibling.Raw); err != nil {
		t.Fatal(err)
	}
	// Each issuer's list is about its own agents.
	statuses := identity.NewStatuses(trust, time.Now)
	mine, theirs := string(sibling.AIC(t)), string(lead.AIC(t))
	bad := func(id string) identity.StatusEntry {
		return identity.StatusEntry{Subject: id, State: identity.Revoked, Since: 1}
	}
	if _, err := statuses.Apply(sibling.Status(t, 1, time.Now(), bad(theirs))); frame.CodeOf(err) != frame.Malformed {
		t.Errorf("a list about the other issuer's agents: %v", err)
	}
	if _, err := statuses.Apply(sibling.Status(t, 1, time.Now(), bad(mine))); err != nil {
		t.Fatal(err)
	}
	if statuses.Of(mine) != identity.Revoked || statuses.Of(theirs) != identity.Good {
		t.Errorf("%v %v", statuses.Of(mine), statuses.Of(theirs))
	}
	if statuses.Fresh(mine) != nil || frame.CodeOf(statuses.Fresh(theirs)) != frame.CertStatus {
		t.Error("the freshness of one issuer's list is taken for the other's")
	}
}

func TestSiblingUnderAnotherKeyIsRefused(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t, lead)
	impostor := *sibling
	impostor.Sign = map[identity.Use]frame.Signer{}
	for use, s := range sibling.Sign {
		impostor.Sign[use] = s
	}
	seed := sha256.Sum256([]byte("impostor"))
	impostor.Sign[identity.UseBundle] = frame.NewSigner(ed25519.NewKeyFromSeed(seed[:]))
	b := *sibling.Bundle
	b.Seq = 9
	b.Keys = append(b.Keys[:len(b.Keys):len(b.Keys)], identity.NewBundleKey(impostor.Sign[identity.UseBundle], sibling.Issuer, identity.UseBundle, time.Now(), time.Hour))
	forged := impostor.SignBundle(t, &b)
	if _, err := trust.Vouch(forged); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("first: %v", err)
	}
	if _, err := trust.Vouch(sibling.Raw); err != nil {
		t.Fatal(err)
	}
	if _, err := trust.Vouch(forged); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("later: %v", err)
	}
	// The issuer itself may replace its key: its bundle names the next one first.
	b.Seq = 2
	if changed, err := trust.Vouch(sibling.SignBundle(t, &b)); !changed || err != nil {
		t.Fatal(changed, err)
	}
	b.Seq = 3
	if changed, err := trust.Vouch(impostor.SignBundle(t, &b)); !changed || err != nil {
		t.Errorf("under the key that the one before names: %v %v", changed, err)
	}
}

func TestRecalledSiblingCountsWhenItsDomainIsTrusted(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	unnamed := identitytest.New(t, "far.example", "F3")
	trust := home.Trust(t)
	trust.Recall([][]byte{sibling.Raw, unnamed.Raw, []byte("no bundle")})
	if trust.Of(string(sibling.Issuer)) != nil {
		t.Fatal("it counts although its domain is not trusted")
	}
	trust.Configure(lead.Raw, [32]byte{})
	if trust.Of(string(sibling.Issuer)) == nil || trust.Of(string(unnamed.Issuer)) != nil {
		t.Error("those that the domain's bundle names do not count, or others do")
	}
	trust.Forget("far.example")
	if trust.Of(string(sibling.Issuer)) != nil || len(trust.All()) != 1 {
		t.Error("it stays although its domain is trusted no more")
	}
}

func TestOwnSiblingIsAtHome(t *testing.T) {
	home, second := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "home.example", "A2")
	trust := home.Trust(t)
	home.Names(t, second)
	if changed, err := trust.RenewOwn(home.Raw); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if changed, err := trust.Vouch(second.Raw); !changed || err != nil {
		t.Fatal(changed, err)
	}
	b := trust.Of(string(second.Gateway))
	if b == nil || !trust.Home(b) || trust.Own().Issuer != string(home.Issuer) || trust.All()[0] != trust.Own() {
		t.Fatalf("%+v", b)
	}
	if err := identity.NewStatuses(trust, time.Now).Fresh(string(second.Gateway)); err != nil {
		t.Errorf("an issuer of the own domain whose first list is not here: %v", err)
	}
	if _, err := trust.RenewOwn(second.Raw); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("another issuer's bundle as the own one: %v", err)
	}
}

func TestSiblingsOfIntroducedDomains(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	lead, sibling := twoIssuers(t)
	trust := home.Trust(t)
	if changed, err := trust.Introduce(lead.Raw, "hub.example", anyExample); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if changed, err := trust.Introduce(sibling.Raw, "other.example", anyExample); !changed || err != nil {
		t.Errorf("the second issuer, by another introducer: %v %v", changed, err)
	}
	if len(trust.Disputed("far.example")) != 0 || len(trust.Issuers("far.example")) != 2 {
		t.Error("two issuers of one domain are taken for a dispute")
	}
	stranger := identitytest.New(t, "far.example", "F9")
	if _, err := trust.Introduce(stranger.Raw, "other.example", anyExample); frame.CodeOf(err) != frame.TrustDenied || len(trust.Disputed("far.example")) == 0 {
		t.Errorf("an issuer that the domain does not name: %v", err)
	}
	// While the operator has not approved the domain its second issuer waits with it.
	trust = home.Trust(t)
	trust.Hold(lead.Raw, "hub.example", anyExample)
	if changed, held, err := trust.Hold(sibling.Raw, "hub.example", anyExample); changed || held || err != nil {
		t.Errorf("held: %v %v %v", changed, held, err)
	}
	if trust.Of(string(sibling.Issuer)) != nil {
		t.Fatal("it counts unapproved")
	}
	if _, err := trust.Approve("far.example", mustParse(t, lead.Raw).Fingerprint); err != nil {
		t.Fatal(err)
	}
	if trust.Of(string(sibling.Issuer)) == nil {
		t.Error("it does not count although its domain is approved")
	}
}

func TestBundleWithBadSiblingsIsRefused(t *testing.T) {
	d, other := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "home.example", "A2")
	fp := make([]byte, 32)
	for name, list := range map[string][]identity.Sibling{
		"no AIC":             {{Issuer: "nobody", Signer: fp}},
		"a short signer":     {{Issuer: string(other.Issuer), Signer: fp[:31]}},
		"under its own":      {{Issuer: string(d.AIC(t)), Signer: fp}},
		"one that is double": {{Issuer: string(other.Issuer), Signer: fp}, {Issuer: string(other.Issuer), Signer: fp}},
		"too many": func() (out []identity.Sibling) {
			for range 8 {
				out = append(out, identity.Sibling{Issuer: string(other.AIC(t)), Signer: fp})
			}
			return out
		}(),
	} {
		b := *d.Bundle
		b.Siblings = list
		if _, err := identity.ParseBundle(d.SignBundle(t, &b)); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}
