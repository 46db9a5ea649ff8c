// Package identitytest makes whole domains in memory for tests: authority, bundle, gateway and agents, with deterministic
// signing keys.
package identitytest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// Domain is one Agent Autonomous Domain.
type Domain struct {
	Name      string
	ARSP      string
	Authority *pki.CA
	Gateway   aic.AIC
	Issuer    aic.AIC
	Bundle    *identity.Bundle
	Raw       []byte // signed bundle
	Sign      map[identity.Use]frame.Signer
	salt      []byte
	serial    int
}

// New makes a domain that owns the prefix 2.999.1.1.1.<arsp>.
func New(t testing.TB, name, arsp string) *Domain {
	t.Helper()
	now := time.Now()
	authority, err := pki.New(pki.Options{Domain: name})
	if err != nil {
		t.Fatal(err)
	}
	d := &Domain{Name: name, ARSP: arsp, Authority: authority, Sign: map[identity.Use]frame.Signer{}, salt: []byte{0x12, 0x34}}
	d.Gateway, d.Issuer = d.AIC(t), d.AIC(t)
	d.Bundle = &identity.Bundle{
		Domain: name, Seq: 1, Issued: uint64(now.Unix()), RefreshS: 300, Roots: [][]byte{authority.Root().Raw},
		Prefixes: []string{d.Gateway.ARSPKey()}, SketchKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Issuer: string(d.Issuer),
	}
	for _, use := range []identity.Use{identity.UseDigest, identity.UseSAT, identity.UseRAT, identity.UseStatus, identity.UseBundle, identity.UseGrant} {
		seed := sha256.Sum256([]byte(fmt.Sprint(name, arsp, use)))
		d.Sign[use] = frame.NewSigner(ed25519.NewKeyFromSeed(seed[:]))
		owner := d.Gateway
		if use == identity.UseBundle || use == identity.UseGrant || use == identity.UseStatus {
			owner = d.Issuer
		}
		d.Bundle.Keys = append(d.Bundle.Keys, identity.NewBundleKey(d.Sign[use], owner, use, now, time.Hour))
	}
	d.Raw = d.SignBundle(t, d.Bundle)
	return d
}

// SignBundle signs a bundle with the domain's use-5 key.
func (d *Domain) SignBundle(t testing.TB, b *identity.Bundle) []byte {
	t.Helper()
	raw, err := b.Sign(d.Sign[identity.UseBundle])
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Names makes the domain's next bundle: it names these as the other issuers of the domain.
func (d *Domain) Names(t testing.TB, others ...*Domain) {
	t.Helper()
	next := *d.Bundle
	next.Seq++
	next.Siblings = nil
	for _, o := range others {
		signer := sha256.Sum256(o.Sign[identity.UseBundle].Public())
		next.Siblings = append(next.Siblings, identity.Sibling{Issuer: string(o.Issuer), Signer: signer[:]})
	}
	d.Bundle, d.Raw = &next, d.SignBundle(t, &next)
}

// Status signs a status list of the domain that counts for a quarter of an hour from now.
func (d *Domain) Status(t testing.TB, seq uint64, now time.Time, entries ...identity.StatusEntry) []byte {
	t.Helper()
	l := identity.StatusList{
		Domain: d.Name, Issuer: string(d.Issuer), Seq: seq, Issued: uint64(now.Unix()), Next: uint64(now.Add(identity.MaxStatusLife).Unix()), Entries: entries,
	}
	raw, err := l.Sign(d.Sign[identity.UseStatus])
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// AIC makes the next identity code of the domain.
func (d *Domain) AIC(t testing.TB) aic.AIC {
	t.Helper()
	d.serial++
	id, err := aic.New("2.999.1.1", d.ARSP, "1", "1", fmt.Sprintf("%d", d.serial), d.salt)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Certificate issues a credential for an AIC over a new key.
func (d *Domain) Certificate(t testing.TB, id aic.AIC) tls.Certificate {
	t.Helper()
	return d.CertificateOver(t, id, NewKey(t))
}

// CertificateOver issues a credential for an AIC over a key.
func (d *Domain) CertificateOver(t testing.TB, id aic.AIC, key *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	chain, err := d.Authority.Issue(pki.Profile{Kind: pki.Agent, AIC: id, Life: time.Hour}, key.Public(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// NewKey makes a leaf key.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := identity.NewLeafKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Trust is what a gateway of this domain believes that has the other domains configured as peers.
func (d *Domain) Trust(t testing.TB, peers ...*Domain) *identity.Trust {
	t.Helper()
	trust, err := identity.NewTrust(d.Raw, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if _, err := trust.Configure(p.Raw, [32]byte{}); err != nil {
			t.Fatal(err)
		}
	}
	return trust
}
