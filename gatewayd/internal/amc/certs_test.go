package amc

import (
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// standingOf says what OCSP would of a certificate: "" for one that is not known.
func (c *center) standingOf(serial *big.Int) string {
	s, known := c.CertStatus(serial)
	if !known {
		return ""
	}
	return s.State.String()
}

// Every certificate is known by its serial from its issue to its end, over restarts too, and stands as its agent does.
func TestCertificatesAreKnownBySerial(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, id := c.enrolled("E1")
	next, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(next.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	want := func(step, state string, bad int) {
		t.Helper()
		for range 2 { // as it runs, and after a restart
			if got := c.standingOf(leaf.SerialNumber); got != state {
				t.Errorf("%s: %q, want %q", step, got, state)
			}
			if n := len(c.BadCerts()); n != bad {
				t.Errorf("%s: %d certificates for CRLs, want %d", step, n, bad)
			}
			c.open()
		}
	}
	want("issued", identity.Good.String(), 0)
	if err := c.Suspend(t.Context(), string(id), ""); err != nil {
		t.Fatal(err)
	}
	want("suspended", identity.Suspended.String(), 2)
	if err := c.Resume(t.Context(), string(id), ""); err != nil {
		t.Fatal(err)
	}
	want("resumed", identity.Good.String(), 0)
	if err := c.Revoke(t.Context(), string(id), identity.ReasonKeyCompromise, ""); err != nil {
		t.Fatal(err)
	}
	want("revoked", identity.Revoked.String(), 2)
	if s, _ := c.CertStatus(leaf.SerialNumber); s.Reason != identity.ReasonKeyCompromise || !s.Since.Equal(c.now) {
		t.Errorf("revoked as %+v", s)
	}
	for _, serial := range []*big.Int{big.NewInt(1), new(big.Int), big.NewInt(-1), new(big.Int).Lsh(big.NewInt(1), 130)} {
		if got := c.standingOf(serial); got != "" {
			t.Errorf("serial %d is %q", serial, got)
		}
	}
	c.now = c.now.Add(25 * time.Hour)
	if n := len(c.BadCerts()); n != 0 {
		t.Errorf("%d certificates that have ended are in CRLs", n)
	}
	if err := c.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.standingOf(leaf.SerialNumber); got != "" {
		t.Errorf("a certificate that has ended is %q", got)
	}
}

// The gateway's own certificate, which its own process signs, stands in the records as any other.
func TestOwnCertificateIsKept(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a := newApplicant(t)
	chain, err := c.cfg.Signer.Sign(t.Context(), pki.Profile{Kind: pki.Gateway, AIC: c.domain.Gateway}, a.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Keep(t.Context(), c.domain.Gateway, leaf); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.standingOf(leaf.SerialNumber); got != identity.Good.String() {
		t.Errorf("it is %q", got)
	}
	if err := c.Suspend(t.Context(), string(c.domain.Gateway), ""); err != nil {
		t.Fatal(err)
	}
	c.open()
	if bad := c.BadCerts(); len(bad) != 1 || bad[0].Serial.Cmp(leaf.SerialNumber) != 0 {
		t.Errorf("after its suspension: %+v", bad)
	}
}
