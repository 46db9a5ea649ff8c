package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"

	"agentgw/directory/aic"
)

// Lifetimes of the PKI profile.
const (
	RootLife    = 10 * 365 * 24 * time.Hour
	IssuingLife = 365 * 24 * time.Hour
	AgentLife   = 24 * time.Hour
	GatewayLife = 72 * time.Hour
)

// Authority is the built-in certification authority: an issuing CA (P-256, no CA below it) under a root (P-384) that signs
// nothing else.
type Authority struct {
	Root    *x509.Certificate
	Issuing *x509.Certificate
	key     crypto.Signer // of Issuing
}

// NewAuthority makes root and issuing CA of a domain. The root's key is returned for safe keeping; nothing here needs it
// again before the issuing CA is replaced.
func NewAuthority(domain string, now time.Time) (a *Authority, rootKey, issuingKey crypto.Signer, err error) {
	rk, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	rootTmpl, err := caTemplate(domain+" root", now, RootLife, 1)
	if err != nil {
		return nil, nil, nil, err
	}
	root, err := createCert(rootTmpl, rootTmpl, rk.Public(), rk)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make root: %w", err)
	}
	ik, err := NewLeafKey()
	if err != nil {
		return nil, nil, nil, err
	}
	tmpl, err := caTemplate(domain+" issuing CA", now, IssuingLife, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	issuing, err := createCert(tmpl, root, ik.Public(), rk)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make issuing CA: %w", err)
	}
	return &Authority{Root: root, Issuing: issuing, key: ik}, rk, ik, nil
}

// OpenAuthority joins an issuing CA that was loaded with its root.
func OpenAuthority(root, issuing []byte, key crypto.Signer) (*Authority, error) {
	r, err := x509.ParseCertificate(root)
	if err != nil {
		return nil, fmt.Errorf("root certificate: %w", err)
	}
	i, err := x509.ParseCertificate(issuing)
	if err != nil {
		return nil, fmt.Errorf("issuing certificate: %w", err)
	}
	if err := i.CheckSignatureFrom(r); err != nil {
		return nil, fmt.Errorf("issuing certificate is not of this root: %w", err)
	}
	return &Authority{Root: r, Issuing: i, key: key}, nil
}

func caTemplate(name string, now time.Time, life time.Duration, pathLen int) (*x509.Certificate, error) {
	serial, err := newSerial()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-NotBeforeSlack), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: pathLen, MaxPathLenZero: pathLen == 0,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, err
}

// LeafProfile is what one leaf certificate says.
type LeafProfile struct {
	AIC          aic.AIC
	Organization string
	Country      string   // ISO 3166-1 alpha-2, may be empty
	DNSNames     []string // gateways only
	Life         time.Duration
}

// Issue signs a leaf over pub and returns the chain in DER, leaf first: key usage digitalSignature, both extended uses, CN
// and one URI SAN of the AIC, a random serial of 128 bits.
func (a *Authority) Issue(p LeafProfile, pub crypto.PublicKey, now time.Time) ([][]byte, error) {
	if err := checkPublicKey(pub); err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	name := pkix.Name{CommonName: string(p.AIC)}
	if p.Organization != "" {
		name.Organization = []string{p.Organization}
	}
	if p.Country != "" {
		name.Country = []string{p.Country}
	}
	leaf, err := createCert(&x509.Certificate{
		SerialNumber: serial, Subject: name,
		NotBefore: now.Add(-NotBeforeSlack), NotAfter: earlier(now.Add(p.Life), a.Issuing.NotAfter),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs:                  uris(p.AIC), DNSNames: p.DNSNames,
		AuthorityKeyId: a.Issuing.SubjectKeyId,
	}, a.Issuing, pub, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", p.AIC, err)
	}
	return [][]byte{leaf.Raw, a.Issuing.Raw}, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func createCert(tmpl, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	spki, err := SPKIHash(pub)
	if err != nil {
		return nil, err
	}
	tmpl.SubjectKeyId = spki[:20]
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	b[0] &= 0x7f // positive in 16 bytes
	return new(big.Int).SetBytes(b), nil
}
