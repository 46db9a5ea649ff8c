package identity_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func chainOf(t *testing.T, c tls.Certificate) []*x509.Certificate {
	t.Helper()
	var out []*x509.Certificate
	for _, der := range c.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, cert)
	}
	return out
}

func TestVerifyChain(t *testing.T) {
	home, peer, stranger := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "peer.example", "B1"), identitytest.New(t, "stranger.example", "C1")
	trust := home.Trust(t, peer)
	good := peer.AIC(t)
	got, err := trust.VerifyChain(chainOf(t, peer.Certificate(t, good)), x509.ExtKeyUsageClientAuth)
	if err != nil || got.AIC != good || got.Domain != "peer.example" {
		t.Fatal(got, err)
	}
	impostor := *peer // signs the peer's AICs with the stranger's CA
	impostor.Authority = stranger.Authority
	for name, chain := range map[string][]*x509.Certificate{
		"AIC of a domain that is not known":        chainOf(t, stranger.Certificate(t, stranger.AIC(t))),
		"AIC of a known domain under another's CA": chainOf(t, impostor.Certificate(t, good)),
		"leaf without its issuing CA":              chainOf(t, peer.Certificate(t, good))[:1],
		"three certificates":                       append(chainOf(t, peer.Certificate(t, good)), chainOf(t, peer.Certificate(t, good))[1]),
		"a CA's certificate":                       chainOf(t, peer.Certificate(t, good))[1:],
		"no certificate":                           nil,
	} {
		if _, err := trust.VerifyChain(chain, x509.ExtKeyUsageClientAuth); err == nil {
			t.Errorf("%s is accepted", name)
		} else if c := frame.CodeOf(err); c != frame.TrustDenied && c != frame.IdentityMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCertificateNamesOneAIC(t *testing.T) {
	d := identitytest.New(t, "home.example", "A1")
	leaf := chainOf(t, d.Certificate(t, d.AIC(t)))[0]
	if id, err := identity.AICOf(leaf); err != nil || id == "" {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*x509.Certificate){
		"CN of another": func(c *x509.Certificate) { c.Subject.CommonName = string(d.Gateway) },
		"no URI":        func(c *x509.Certificate) { c.URIs = nil },
		"two URIs":      func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) },
		"port": func(c *x509.Certificate) {
			u := *c.URIs[0]
			u.Host += ":1"
			c.URIs = c.URIs[:0]
			c.URIs = append(c.URIs, &u)
		},
		"path": func(c *x509.Certificate) {
			u := *c.URIs[0]
			u.Path = "/x"
			c.URIs = c.URIs[:0]
			c.URIs = append(c.URIs, &u)
		},
		"other scheme": func(c *x509.Certificate) {
			u := *c.URIs[0]
			u.Scheme = "agent"
			c.URIs = c.URIs[:0]
			c.URIs = append(c.URIs, &u)
		},
	} {
		c := *leaf
		c.URIs = slices.Clone(leaf.URIs)
		change(&c)
		if _, err := identity.AICOf(&c); frame.CodeOf(err) != frame.IdentityMismatch {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWeakKeysAreRefused(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, csr := range map[string]func() ([]byte, error){
		"RSA 1024": func() ([]byte, error) { return identity.NewCSR(weak) },
		"P-224":    func() ([]byte, error) { return identity.NewCSR(small) },
	} {
		der, err := csr()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := identity.ParseCSR(der); frame.CodeOf(err) != frame.ReqInvalid || !strings.Contains(err.Error(), "P-256") {
			t.Errorf("%s: %v", name, err)
		}
	}
	good, _ := identity.NewCSR(identitytest.NewKey(t))
	if _, err := identity.ParseCSR(good); err != nil {
		t.Error(err)
	}
	good[len(good)-1] ^= 1
	if _, err := identity.ParseCSR(good); err == nil {
		t.Error("a request that its key did not sign is accepted")
	}
}

func TestCase58OverlappingPrefix(t *testing.T) {
	home, a := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "a.example", "B1")
	thief := identitytest.New(t, "thief.example", "B1") // claims a.example's prefix
	trust := home.Trust(t, a)
	if _, err := trust.Configure(thief.Raw, [32]byte{}); frame.CodeOf(err) != frame.TrustDenied || !strings.Contains(err.Error(), "a.example") {
		t.Errorf("configured bundle with a taken prefix: %v", err)
	}
	if _, err := trust.Introduce(thief.Raw, "a.example", []string{"*.example"}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("introduced bundle with a taken prefix: %v", err)
	}
	own := identitytest.New(t, "thief.example", "A1") // claims our own prefix
	if _, err := trust.Configure(own.Raw, [32]byte{}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("bundle with the own prefix: %v", err)
	}
	if got := trust.DomainOf(string(a.Gateway)); got != "a.example" {
		t.Errorf("the accepted bundle did not stay: %q", got)
	}
	// Two introducers that differ: neither is believed.
	one, other := identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	if changed, err := trust.Introduce(one.Raw, "a.example", []string{"*.example"}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if _, err := trust.Introduce(other.Raw, "b.example", []string{"*.example"}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a second description of far.example: %v", err)
	}
	if trust.Domain("far.example") != nil {
		t.Error("one of two that differ is still believed")
	}
	if _, err := trust.Introduce(one.Raw, "a.example", []string{"*.example"}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a disputed domain came back: %v", err)
	}
	if _, err := trust.Configure(one.Raw, [32]byte{}); err != nil {
		t.Errorf("the operator's word must settle the dispute: %v", err)
	}
}

func TestIntroduction(t *testing.T) {
	home, hub, far := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "far.example", "F1")
	trust := home.Trust(t, hub)
	for _, patterns := range [][]string{nil, {"*"}, {"*.org"}, {"far.example.org"}} {
		if _, err := trust.Introduce(far.Raw, "hub.example", patterns); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("patterns %q: %v", patterns, err)
		}
	}
	if _, err := trust.Introduce(far.Raw, "hub.example", []string{"far.example"}); err != nil {
		t.Fatal(err)
	}
	if _, ok := trust.Keys(identity.UseDigest)(far.Sign[identity.UseDigest].KeyID()); !ok {
		t.Error("keys of an introduced domain are not found")
	}
	if _, ok := trust.Keys(identity.UseSAT)(far.Sign[identity.UseDigest].KeyID()); ok {
		t.Error("a key counts for a use that its bundle does not name")
	}
	if changed, err := trust.Introduce(home.Raw, "hub.example", []string{"*.example"}); changed || err != nil {
		t.Errorf("the own domain was introduced: %v %v", changed, err)
	}
	next := *far.Bundle
	next.Seq = 2
	if changed, err := trust.Introduce(far.SignBundle(t, &next), "hub.example", []string{"*.example"}); !changed || err != nil {
		t.Errorf("successor: %v %v", changed, err)
	}
	if changed, _ := trust.Introduce(far.Raw, "hub.example", []string{"*.example"}); changed {
		t.Error("an older bundle replaced a newer one")
	}
	may := func(string) []string { return []string{"*.example"} }
	if gone := trust.Reconsider(may); len(gone) != 0 {
		t.Errorf("gone without a reason: %v", gone)
	}
	trust.Forget("hub.example")
	if gone := trust.Reconsider(func(string) []string { return nil }); !slices.Equal(gone, []string{"far.example"}) {
		t.Errorf("gone: %v", gone)
	}
	if trust.Domain("far.example") != nil || trust.Domain("hub.example") != nil {
		t.Error("what an introducer brought must go with its own trust")
	}
}

// A bundle names keys without proving that it holds them: it must not speak with another domain's, or silence it.
func TestKeysAreNobodyElses(t *testing.T) {
	home, hub, victim := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "victim.example", "V1")
	evil := identitytest.New(t, "evil.example", "E1")
	theft := *evil.Bundle
	stolen := victim.Bundle.Keys[0]
	stolen.Owner = string(evil.Gateway)
	theft.Keys = append(slices.Clone(evil.Bundle.Keys), stolen)
	trust := home.Trust(t, hub, victim)
	if _, err := trust.Introduce(evil.SignBundle(t, &theft), "hub.example", []string{"*.example"}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a bundle with another's key: %v", err)
	}
	if key, _ := trust.Keys(identity.UseDigest)(victim.Sign[identity.UseDigest].KeyID()); key.Domain != "victim.example" {
		t.Errorf("the key speaks for %q now", key.Domain)
	}
}

func TestOperatorsCopyMayBeOlder(t *testing.T) {
	home, peer := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "peer.example", "B1")
	trust := home.Trust(t, peer)
	next := *peer.Bundle
	next.Seq = 2
	if changed, err := trust.Renew(peer.SignBundle(t, &next)); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if a, err := trust.Configure(peer.Raw, [32]byte{}); err != nil || a.Seq != 2 {
		t.Errorf("reload with the older copy: %v", err)
	}
	again := identitytest.New(t, "peer.example", "B2") // the peer was made anew
	if a, err := trust.Configure(again.Raw, [32]byte{}); err != nil || a.Prefixes[0] != again.Bundle.Prefixes[0] {
		t.Errorf("the operator's new bundle: %v", err)
	}
}

// A domain that has replaced the key of its bundles is not disputed because one of its introducers is behind.
func TestRotationIsNoDispute(t *testing.T) {
	home, one, two := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "one.example", "B1"), identitytest.New(t, "two.example", "C1")
	far := identitytest.New(t, "far.example", "F1")
	older := *far.Bundle
	next := frame.NewSigner(ed25519.NewKeyFromSeed(make([]byte, 32)))
	older.Keys = append(older.Keys, identity.NewBundleKey(next, far.Issuer, identity.UseBundle, time.Now(), time.Hour))
	first := far.SignBundle(t, &older)
	younger := older
	younger.Seq++
	second, err := younger.Sign(next)
	if err != nil {
		t.Fatal(err)
	}
	patterns := []string{"*.example"}
	for what, order := range map[string][2][]byte{"the younger second": {first, second}, "the older second": {second, first}} {
		trust := home.Trust(t, one, two)
		trust.Introduce(order[0], "one.example", patterns)
		if _, err := trust.Introduce(order[1], "two.example", patterns); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if b := trust.Domain("far.example"); b == nil || b.Seq != younger.Seq {
			t.Errorf("%s: %+v is believed", what, b)
		}
		trust = home.Trust(t, one, two)
		trust.Hold(order[0], "one.example", patterns)
		if _, held, err := trust.Hold(order[1], "two.example", patterns); err != nil || !held {
			t.Errorf("%s, held: %v", what, err)
		}
		if p := trust.Pending(); len(p) != 1 || p[0].Seq != younger.Seq {
			t.Errorf("%s: %+v waits", what, p)
		}
	}
}

// A gateway that was down while an introduced domain replaced the key of its bundles knows the domain again, and an introducer that
// is behind does not take it back.
func TestPinnedDomainRotatesWhileWeAreDown(t *testing.T) {
	home, hub, far := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "far.example", "F1")
	next := frame.NewSigner(ed25519.NewKeyFromSeed(make([]byte, 32)))
	older, patterns := *far.Bundle, []string{"*.example"}
	older.Keys = append(older.Keys, identity.NewBundleKey(next, far.Issuer, identity.UseBundle, time.Now(), time.Hour))
	first := far.SignBundle(t, &older)
	younger := older
	younger.Seq++
	second, err := younger.Sign(next)
	if err != nil {
		t.Fatal(err)
	}
	impostor := identitytest.New(t, "far.example", "F2").Raw
	signer := func(raw []byte) [32]byte {
		a, err := identity.ParseBundle(raw)
		if err != nil {
			t.Fatal(err)
		}
		return a.Fingerprint
	}

	trust := home.Trust(t, hub)
	trust.Pin(far.Name, signer(first), first)
	if trust.Domain(far.Name) != nil {
		t.Error("believed before anybody introduced it again")
	}
	if _, err := trust.Introduce(impostor, hub.Name, patterns); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a signer that the last bundle does not name: %v", err)
	}
	if changed, held, err := trust.Hold(second, hub.Name, patterns); !changed || held || err != nil {
		t.Errorf("the next bundle under the next key: %v, held %v, %v", changed, held, err)
	}

	trust = home.Trust(t, hub)
	trust.Pin(far.Name, signer(second), second)
	if changed, err := trust.Introduce(first, hub.Name, patterns); !changed || err != nil {
		t.Errorf("by an introducer that is behind: %v, %v", changed, err)
	}
	if a := trust.Domain(far.Name); a == nil || a.Seq != younger.Seq || len(a.By) != 1 || a.Source != identity.Introduced {
		t.Errorf("%+v is believed", a)
	}
}

func TestIntroducersCannotFillTheMemory(t *testing.T) {
	home, hub := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1")
	trust := home.Trust(t, hub)
	one, other := identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	trust.Introduce(one.Raw, "hub.example", []string{"*.example"})
	if _, err := trust.Introduce(other.Raw, "hub.example", []string{"*.example"}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("an introducer that contradicts itself: %v", err)
	}
	if trust.Domain("far.example") == nil {
		t.Error("one introducer alone has made a dispute")
	}
}

// A dispute keeps the pin: in doubt nobody is believed, and a restart does not turn the doubt into a race.
func TestDisputeKeepsThePin(t *testing.T) {
	home := identitytest.New(t, "home.example", "A1")
	far, impostor := identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	trust, patterns := home.Trust(t), []string{"*.example"}
	if _, err := trust.Introduce(far.Raw, "a.example", patterns); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"b.example", "b.example"} {
		if _, err := trust.Introduce(impostor.Raw, by, patterns); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("another key by another introducer: %v", err)
		}
	}
	if _, err := trust.Introduce(far.Raw, "a.example", patterns); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("the first key, disputed: %v", err)
	}
}

// What was first accepted is remembered over a restart: an introducer cannot swap a domain's key while we are away.
func TestIntroducedDomainIsPinned(t *testing.T) {
	home, hub, far := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "far.example", "F1")
	impostor := identitytest.New(t, "far.example", "F2")
	first, err := identity.ParseBundle(far.Raw)
	if err != nil {
		t.Fatal(err)
	}
	trust := home.Trust(t, hub)
	trust.Pin("far.example", first.Fingerprint, nil)
	if _, err := trust.Introduce(impostor.Raw, "hub.example", []string{"*.example"}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("another key for a pinned domain: %v", err)
	}
	if changed, err := trust.Introduce(far.Raw, "hub.example", []string{"*.example"}); !changed || err != nil {
		t.Errorf("the pinned key: %v %v", changed, err)
	}
}

func TestBundleRefuses(t *testing.T) {
	d, other := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "other.example", "B1")
	for name, change := range map[string]func(*identity.Bundle){
		"no roots":                  func(b *identity.Bundle) { b.Roots = [][]byte{} },
		"domain in upper case":      func(b *identity.Bundle) { b.Domain = "Home.example" },
		"issuer of another domain":  func(b *identity.Bundle) { b.Issuer = string(other.Issuer) },
		"key owned by another":      func(b *identity.Bundle) { b.Keys[0].Owner = string(other.Gateway) },
		"kid that is not its key's": func(b *identity.Bundle) { b.Keys[0].KeyID = b.Keys[1].KeyID },
		"no prefix":                 func(b *identity.Bundle) { b.Prefixes = []string{} },
		"root that is no CA":        func(b *identity.Bundle) { b.Roots = [][]byte{d.Certificate(t, d.Gateway).Certificate[0]} },
		"signed by a key not named": func(b *identity.Bundle) { b.Keys = b.Keys[:3] },
		"sketch key of 3 bytes":     func(b *identity.Bundle) { b.SketchKeys = [][]byte{{1, 2, 3}} },
	} {
		b := *d.Bundle
		b.Keys = slices.Clone(d.Bundle.Keys)
		change(&b)
		if _, err := identity.ParseBundle(d.SignBundle(t, &b)); frame.CodeOf(err) != frame.TrustDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	flipped := slices.Clone(d.Raw)
	flipped[len(flipped)-1] ^= 1
	if _, err := identity.ParseBundle(flipped); err == nil {
		t.Error("a tampered bundle is accepted")
	}
}

func TestPinnedPeer(t *testing.T) {
	d := identitytest.New(t, "home.example", "A1")
	cert := d.Certificate(t, d.Gateway)
	spki, _ := identity.SPKIHash(cert.Leaf.PublicKey)
	cs := tls.ConnectionState{PeerCertificates: chainOf(t, cert)}
	if err := identity.VerifyPinned(spki, time.Now)(cs); err != nil {
		t.Error(err)
	}
	later := func() time.Time { return time.Now().Add(2 * time.Hour) }
	if err := identity.VerifyPinned(spki, later)(cs); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("expired: %v", err)
	}
	spki[0] ^= 1
	if err := identity.VerifyPinned(spki, time.Now)(cs); frame.CodeOf(err) != frame.IdentityMismatch {
		t.Errorf("another key: %v", err)
	}
}

func TestKeyFiles(t *testing.T) {
	d := identitytest.New(t, "home.example", "A1")
	dir := t.TempDir()
	key := identitytest.NewKey(t)
	cert := d.CertificateOver(t, d.Gateway, key)
	if err := identity.SaveKey(filepath.Join(dir, "k"), key); err != nil {
		t.Fatal(err)
	}
	if err := identity.SaveChain(filepath.Join(dir, "c"), cert.Certificate); err != nil {
		t.Fatal(err)
	}
	k, err := identity.LoadKey(filepath.Join(dir, "k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "k"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := identity.LoadKey(filepath.Join(dir, "k")); err == nil {
		t.Error("a key that everybody may read is loaded")
	}
	c, err := identity.LoadChain(filepath.Join(dir, "c"))
	if err != nil || len(c) != 2 {
		t.Fatal(len(c), err)
	}
	if _, err := identity.TLSCertificate(c, k); err != nil {
		t.Error(err)
	}
	if _, err := identity.TLSCertificate(c, identitytest.NewKey(t)); err == nil {
		t.Error("a certificate and another's key are joined")
	}
	if self, err := identity.SelfSigned(key); err != nil || !identity.IsSelfSigned(chainOf(t, self)) || identity.IsSelfSigned(chainOf(t, cert)) {
		t.Error("self-signed is told apart wrongly", err)
	}
}

func FuzzBundle(f *testing.F) {
	d := identitytest.New(f, "home.example", "A1")
	f.Add(d.Raw)
	f.Fuzz(func(t *testing.T, in []byte) {
		if a, err := identity.ParseBundle(in); err == nil && a.Domain == "" {
			t.Fatal("accepted without a domain")
		}
	})
}

// A peer may have moved to the next key that its bundle names: the operator's copy under the first one does not undo that.
func TestOperatorsCopyDoesNotUndoARotation(t *testing.T) {
	home, peer := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "peer.example", "B1")
	second := frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)))
	one := *peer.Bundle
	one.Keys = append(slices.Clone(one.Keys), identity.NewBundleKey(second, peer.Issuer, identity.UseBundle, time.Now(), time.Hour))
	first := peer.SignBundle(t, &one)
	trust := home.Trust(t)
	if _, err := trust.Configure(first, [32]byte{}); err != nil {
		t.Fatal(err)
	}
	two := one
	two.Seq++
	next, err := two.Sign(second)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := trust.Renew(next); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if a, err := trust.Configure(first, [32]byte{}); err != nil || a.Seq != two.Seq || trust.Domain("peer.example").Seq != two.Seq {
		t.Errorf("the same copy again: %v, sequence %d", err, trust.Domain("peer.example").Seq)
	}
}
