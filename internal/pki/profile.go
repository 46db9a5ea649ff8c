package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"agentgw/directory/aic"
)

// Kind is what a certificate is for.
type Kind uint8

// Kinds.
const (
	Root    Kind = 1 // P-384; signs issuing CAs
	Issuing Kind = 2 // P-256; signs the kinds below, no CA
	Agent   Kind = 3
	Gateway Kind = 4
	OCSP    Kind = 5 // answers status requests in the name of its issuing CA
)

func (k Kind) String() string {
	switch k {
	case Root:
		return "root"
	case Issuing:
		return "issuing CA"
	case Agent:
		return "agent"
	case Gateway:
		return "gateway"
	case OCSP:
		return "OCSP responder"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// isCA says whether certificates of the kind sign others.
func (k Kind) isCA() bool { return k == Root || k == Issuing }

// named says whether certificates of the kind name an AIC.
func (k Kind) named() bool { return k == Agent || k == Gateway }

// Profile is what one certificate shall say.
type Profile struct {
	Kind         Kind
	AIC          aic.AIC       // agents and gateways
	Name         string        // common name of the other kinds, at most 64 characters
	Organization string        // cut to 64 characters, the bound of RFC 5280
	Country      string        // ISO 3166-1 alpha-2; anything else is left out
	DNSNames     []string      // gateways only
	Life         time.Duration // from now; 0 is the limit of the kind
	URLs         URLs          // where none is given the CA puts its own, if it has any
}

// URLs are the places that tell of a certificate's issuer. They go into every kind but roots and responders.
type URLs struct {
	CRL    []string // CRL distribution points
	OCSP   []string // authority information access, id-ad-ocsp
	Issuer []string // authority information access, id-ad-caIssuers: DER
}

func (u URLs) empty() bool { return len(u.CRL)+len(u.OCSP)+len(u.Issuer) == 0 }

// Limits are the longest lives by kind. The zero value of a field is the default.
type Limits struct {
	Root, Issuing, Agent, Gateway, OCSP time.Duration
}

// DefaultLimits are the lives of the PKI profile.
func DefaultLimits() Limits {
	const day = 24 * time.Hour
	return Limits{Root: 10 * 365 * day, Issuing: 365 * day, Agent: day, Gateway: 3 * day, OCSP: time.Hour}
}

// Of is the limit of a kind.
func (l Limits) Of(k Kind) time.Duration {
	set, std := l.of(k), DefaultLimits().of(k)
	if set <= 0 {
		return std
	}
	return set
}

func (l Limits) of(k Kind) time.Duration {
	switch k {
	case Root:
		return l.Root
	case Issuing:
		return l.Issuing
	case Agent:
		return l.Agent
	case Gateway:
		return l.Gateway
	case OCSP:
		return l.OCSP
	}
	return 0
}

const (
	backdate = time.Minute // a clock behind ours by this much still accepts a new certificate
	maxName  = 64          // ub-common-name and ub-organization-name of RFC 5280, in characters
)

// Object identifiers of the extensions that the profile knows (RFC 5280, section 4.2; RFC 6960, section 4.2.2.2.1).
var (
	oidSubjectKeyID     = asn1.ObjectIdentifier{2, 5, 29, 14}
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidCRLPoints        = asn1.ObjectIdentifier{2, 5, 29, 31}
	oidAuthorityKeyID   = asn1.ObjectIdentifier{2, 5, 29, 35}
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidAuthorityInfo    = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}
	oidNoCheck          = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 5}
)

// template writes a profile down for package x509. issuer is nil for a root.
func (p Profile) template(issuer *x509.Certificate, l Limits, ski []byte, serial *big.Int, now time.Time) *x509.Certificate {
	life := p.Life
	if life == 0 {
		life = l.Of(p.Kind)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: p.subject(), SubjectKeyId: ski,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		CRLDistributionPoints: p.URLs.CRL, OCSPServer: p.URLs.OCSP, IssuingCertificateURL: p.URLs.Issuer,
	}
	if issuer != nil && issuer.NotAfter.Before(t.NotAfter) {
		t.NotAfter = issuer.NotAfter
	}
	switch p.Kind {
	case Root:
		t.IsCA, t.MaxPathLen, t.KeyUsage = true, 1, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	case Issuing:
		t.IsCA, t.MaxPathLenZero, t.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	case Agent, Gateway:
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
		t.URIs, t.DNSNames = []*url.URL{{Scheme: "acps", Host: string(p.AIC)}}, p.DNSNames
	case OCSP:
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}
		t.ExtraExtensions = []pkix.Extension{{Id: oidNoCheck, Value: asn1.NullBytes}}
	}
	return t
}

func (p Profile) subject() pkix.Name {
	name := pkix.Name{CommonName: p.Name}
	if p.Kind.named() {
		name.CommonName = string(p.AIC)
	}
	if o := p.organization(); o != "" {
		name.Organization = []string{o}
	}
	if c := p.country(); c != "" {
		name.Country = []string{c}
	}
	return name
}

func (p Profile) organization() string { return clip(strings.TrimSpace(p.Organization), maxName) }

func (p Profile) country() string {
	if len(p.Country) != 2 || strings.Trim(p.Country, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return p.Country
}

// clip is the first n characters of s.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return strings.TrimSpace(string(r[:n]))
	}
	return s
}

// caName is the common name of a CA: its domain, its role and the start of its key identifier, so that two CAs of one domain
// never share a name. A long domain is cut.
func caName(domain, role string, ski []byte) string {
	tail := " " + role + " " + hex.EncodeToString(ski[:4])
	return clip(domain, maxName-len(tail)) + tail
}
