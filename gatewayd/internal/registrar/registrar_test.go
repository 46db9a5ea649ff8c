package registrar

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// A stranger's certificate is told by its names after the handshake; one that only its own key signed, under another's name, does not
// get past it.
func TestStrangersNameThemselves(t *testing.T) {
	d := identitytest.New(t, "home.example", "A")
	trust := d.Trust(t)
	r := New(Config{Domain: d.Name, Gateway: d.Gateway, Directory: oneEntry{}, Trust: trust, Statuses: identity.NewStatuses(trust, time.Now), Log: slog.New(slog.DiscardHandler)})
	key := identitytest.NewKey(t)
	self, err := identity.SelfSigned(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verify(state(t, self.Certificate[0])); err != nil || !namesItself(self.Leaf) {
		t.Errorf("a stranger: %v", err)
	}
	agent := d.Certificate(t, d.AIC(t))
	if namesItself(agent.Leaf) || namesItself(d.Certificate(t, d.Gateway).Leaf) {
		t.Error("a certificate of the domain's authority passes for a stranger's")
	}
	if err := r.verify(state(t, posing(t, key, agent.Leaf))); err == nil {
		t.Error("a stranger with the names of an agent is admitted")
	}
}

// posing is a certificate with the names of another, which its own key has signed.
func posing(t *testing.T, key *ecdsa.PrivateKey, as *x509.Certificate) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: as.Subject, URIs: as.URIs, NotBefore: as.NotBefore, NotAfter: as.NotAfter, KeyUsage: as.KeyUsage}
	issuer := &x509.Certificate{Subject: pkix.Name{CommonName: as.Issuer.CommonName}}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func state(t *testing.T, der []byte) tls.ConnectionState {
	t.Helper()
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
}
