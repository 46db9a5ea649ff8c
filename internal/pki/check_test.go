package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

var testURLs = URLs{CRL: []string{"http://pki.x.example/crl/1.crl"}, OCSP: []string{"http://pki.x.example/ocsp"}, Issuer: []string{"http://pki.x.example/ca/1.cer"}}

func testAIC(t testing.TB, serial string) aic.AIC {
	t.Helper()
	id, err := aic.New("2.999.1.1", "A1", "1", "1", serial, []byte{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func testKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func testCA(t testing.TB, o Options) *CA {
	t.Helper()
	if o.Domain == "" {
		o.Domain = "x.example"
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// profiles is one profile a kind, with everything that the kind may have.
func profiles(t testing.TB) map[Kind]Profile {
	return map[Kind]Profile{
		Root:    {Kind: Root, Name: "x.example root"},
		Issuing: {Kind: Issuing, Name: "x.example issuing CA", URLs: testURLs},
		Agent:   {Kind: Agent, AIC: testAIC(t, "1"), Organization: "Example GmbH", Country: "DE", URLs: testURLs},
		Gateway: {Kind: Gateway, AIC: testAIC(t, "2"), DNSNames: []string{"gw.x.example"}, URLs: testURLs},
		OCSP:    {Kind: OCSP, Name: "x.example responder"},
	}
}

// bench signs whatever template it is told to, with the right issuer.
type bench struct {
	t   *testing.T
	ca  *CA
	p   Profile
	now time.Time
}

func (b bench) issuer() pair {
	v := b.ca.view.Load()
	switch b.p.Kind {
	case Root:
		return pair{}
	case Issuing:
		return v.roots[0]
	}
	return v.issuing
}

func (b bench) make(pub crypto.PublicKey, key crypto.Signer, change func(*x509.Certificate)) *x509.Certificate {
	b.t.Helper()
	return b.makeBy(b.issuer(), pub, key, change)
}

func (b bench) makeBy(by pair, pub crypto.PublicKey, key crypto.Signer, change func(*x509.Certificate)) *x509.Certificate {
	b.t.Helper()
	ski, err := subjectKeyID(pub)
	if err != nil {
		b.t.Fatal(err)
	}
	serial, err := newSerial()
	if err != nil {
		b.t.Fatal(err)
	}
	tmpl := b.p.template(by.cert, Limits{}, ski, serial, b.now)
	change(tmpl)
	parent := tmpl
	if by.cert != nil {
		parent, key = by.cert, by.key
	}
	cert, err := create(tmpl, parent, pub, key)
	if err != nil {
		b.t.Fatal(err)
	}
	return cert
}

func (b bench) key() *ecdsa.PrivateKey {
	if b.p.Kind == Root {
		return testKey(b.t, elliptic.P384())
	}
	return testKey(b.t, elliptic.P256())
}

func (b bench) refused(rule Rule, change func(*x509.Certificate)) {
	b.t.Helper()
	key := b.key()
	b.want(rule, b.make(key.Public(), key, change), b.issuer().cert)
}

func (b bench) want(rule Rule, c, issuer *x509.Certificate) {
	b.t.Helper()
	var broken *RuleError
	if err := Check(c, b.p, issuer, Limits{}, b.now); !errors.As(err, &broken) || broken.Rule != rule || !strings.Contains(err.Error(), string(rule)) {
		b.t.Errorf("%s: %v where rule %q was due", b.p.Kind, err, rule)
	}
}

func TestCheckAcceptsWhatTheTemplatesMake(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now().UTC().Truncate(time.Second)
	for kind, p := range profiles(t) {
		b := bench{t, ca, p, now}
		key := b.key()
		if err := Check(b.make(key.Public(), key, func(*x509.Certificate) {}), p, b.issuer().cert, Limits{}, now); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Every rule has a template that breaks it and nothing that comes before it.
func TestEveryRuleRefusesWhatBreaksIt(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now().UTC().Truncate(time.Second)
	ext := func(id asn1.ObjectIdentifier, critical bool, value []byte) pkix.Extension {
		return pkix.Extension{Id: id, Critical: critical, Value: value}
	}
	other := testAIC(t, "9")
	leaf := []Kind{Agent, Gateway, OCSP}
	named := []Kind{Agent, Gateway}
	all := []Kind{Root, Issuing, Agent, Gateway, OCSP}
	for _, c := range []struct {
		name   string
		rule   Rule
		kinds  []Kind
		change func(*x509.Certificate)
	}{
		{"serial of 8 octets", RuleSerial, all, func(c *x509.Certificate) { c.SerialNumber = big.NewInt(1 << 62) }},
		{"serial of 17 octets", RuleSerial, all, func(c *x509.Certificate) { c.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 130) }},
		{"serial with the top bit", RuleSerial, all, func(c *x509.Certificate) { c.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 127) }},
		{"name of another", RuleSubject, all, func(c *x509.Certificate) { c.Subject.CommonName = string(other) }},
		{"no name", RuleSubject, all, func(c *x509.Certificate) { c.Subject.CommonName = "" }},
		{"other organization", RuleSubject, all, func(c *x509.Certificate) { c.Subject.Organization = []string{"Other"} }},
		{"other country", RuleSubject, all, func(c *x509.Certificate) { c.Subject.Country = []string{"FR"} }},
		{"an attribute more", RuleSubject, all, func(c *x509.Certificate) { c.Subject.Locality = []string{"Here"} }},
		{"not backdated", RuleNotBefore, all, func(c *x509.Certificate) { c.NotBefore = now }},
		{"from tomorrow", RuleNotBefore, all, func(c *x509.Certificate) { c.NotBefore = now.Add(24 * time.Hour) }},
		{"a second too long", RuleLife, []Kind{Root, Agent, Gateway, OCSP}, func(c *x509.Certificate) { c.NotAfter = now.Add(DefaultLimits().Of(kindOf(c)) + time.Second) }},
		{"a year too long", RuleLife, []Kind{Issuing}, func(c *x509.Certificate) { c.NotAfter = now.Add(2 * 365 * 24 * time.Hour) }},
		{"ended", RuleLife, all, func(c *x509.Certificate) { c.NotAfter = now }},
		{"an extension more", RuleExtensions, all, func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, ext(asn1.ObjectIdentifier{1, 2, 3}, false, asn1.NullBytes))
		}},
		{"policies", RuleExtensions, all, func(c *x509.Certificate) { c.Policies = []x509.OID{oid(t, "2.5.29.32.0")} }},
		{"name constraints", RuleExtensions, []Kind{Root, Issuing}, func(c *x509.Certificate) { c.PermittedURIDomains = []string{"x.example"} }},
		{"no key usage", RuleExtensions, all, func(c *x509.Certificate) { c.KeyUsage = 0 }},
		{"key usage not critical", RuleExtensions, leaf, func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, ext(oidKeyUsage, false, []byte{3, 2, 7, 0x80}))
		}},
		{"no constraints", RuleExtensions, leaf, func(c *x509.Certificate) { c.BasicConstraintsValid = false }},
		{"constraints not critical", RuleExtensions, leaf, func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, ext(oidBasicConstraints, false, []byte{0x30, 0}))
		}},
		{"no extended use", RuleExtensions, leaf, func(c *x509.Certificate) { c.ExtKeyUsage = nil }},
		{"extended use of a CA", RuleExtensions, []Kind{Root, Issuing}, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }},
		{"no alternative name", RuleExtensions, named, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, nil }},
		{"alternative name of a CA", RuleExtensions, []Kind{Root, Issuing, OCSP}, func(c *x509.Certificate) { c.DNSNames = []string{"x.example"} }},
		{"nocheck of a leaf", RuleExtensions, named, func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, ext(oidNoCheck, false, asn1.NullBytes))
		}},
		{"no nocheck", RuleExtensions, []Kind{OCSP}, func(c *x509.Certificate) { c.ExtraExtensions = nil }},
		{"nocheck with a value", RuleExtensions, []Kind{OCSP}, func(c *x509.Certificate) { c.ExtraExtensions[0].Value = []byte{1, 1, 0xff} }},
		{"no CRL place", RuleExtensions, []Kind{Issuing, Agent, Gateway}, func(c *x509.Certificate) { c.CRLDistributionPoints = nil }},
		{"CRL place that is not of the profile", RuleExtensions, []Kind{Root, OCSP}, func(c *x509.Certificate) { c.CRLDistributionPoints = testURLs.CRL }},
		{"a bit more of key usage", RuleKeyUsage, all, func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageKeyAgreement }},
		{"a leaf that signs CRLs", RuleKeyUsage, leaf, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }},
		{"one extended use", RuleExtKeyUsage, named, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }},
		{"three extended uses", RuleExtKeyUsage, named, func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning) }},
		{"unknown extended use", RuleExtKeyUsage, leaf, func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }},
		{"responder for TLS", RuleExtKeyUsage, []Kind{OCSP}, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }},
		{"path length 1", RuleConstraints, []Kind{Issuing}, func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 1, false }},
		{"no path length", RuleConstraints, []Kind{Root, Issuing}, func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = -1, false }},
		{"a leaf that is a CA", RuleConstraints, leaf, func(c *x509.Certificate) { c.IsCA = true }},
		{"two URIs", RuleURI, named, func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }},
		{"URI of another", RuleURI, named, func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "acps", Host: string(other)}} }},
		{"URI with a path", RuleURI, named, func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "acps", Host: c.URIs[0].Host, Path: "/"}} }},
		{"URI of another scheme", RuleURI, named, func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "aic", Host: c.URIs[0].Host}} }},
		{"DNS name only", RuleURI, named, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"x.example"} }},
		{"IP address", RuleNames, named, func(c *x509.Certificate) { c.IPAddresses = []net.IP{{127, 0, 0, 1}} }},
		{"mail address", RuleNames, named, func(c *x509.Certificate) { c.EmailAddresses = []string{"a@x.example"} }},
		{"DNS name of an agent", RuleNames, []Kind{Agent}, func(c *x509.Certificate) { c.DNSNames = []string{"x.example"} }},
		{"DNS name of another gateway", RuleNames, []Kind{Gateway}, func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} }},
		{"other name", RuleNames, []Kind{Agent}, func(c *x509.Certificate) {
			uri := asn1.RawValue{Class: 2, Tag: 6, Bytes: []byte(c.URIs[0].String())}
			registered := asn1.RawValue{Class: 2, Tag: 8, Bytes: []byte{0x2a, 3}}
			der, err := asn1.Marshal([]asn1.RawValue{uri, registered})
			if err != nil {
				t.Fatal(err)
			}
			c.ExtraExtensions = append(c.ExtraExtensions, ext(oidSubjectAltName, false, der))
		}},
		{"subject key id of another", RuleKeyIDs, all, func(c *x509.Certificate) { c.SubjectKeyId = slices.Repeat([]byte{1}, 20) }},
		{"other OCSP place", RuleURLs, named, func(c *x509.Certificate) { c.OCSPServer = []string{"http://evil.example/"} }},
		{"other issuer place", RuleURLs, named, func(c *x509.Certificate) { c.IssuingCertificateURL = []string{"http://evil.example/"} }},
		{"other CRL place", RuleURLs, named, func(c *x509.Certificate) { c.CRLDistributionPoints = []string{"http://evil.example/"} }},
	} {
		for _, kind := range c.kinds {
			t.Run(c.name+"/"+kind.String(), func(t *testing.T) {
				bench{t, ca, profiles(t)[kind], now}.refused(c.rule, c.change)
			})
		}
	}
}

// kindOf tells kinds of templates apart by what only they have.
func kindOf(c *x509.Certificate) Kind {
	switch {
	case c.IsCA && c.MaxPathLen == 1:
		return Root
	case c.IsCA:
		return Issuing
	case len(c.DNSNames) > 0:
		return Gateway
	case len(c.URIs) > 0:
		return Agent
	}
	return OCSP
}

func oid(t *testing.T, s string) x509.OID {
	t.Helper()
	id, err := x509.ParseOID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Rules that no template breaks: keys, issuers, and profiles that ask for what nobody gets.
func TestCheckRefusesKeysIssuersAndProfiles(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now().UTC().Truncate(time.Second)
	none := func(*x509.Certificate) {}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := profiles(t)
	for kind, keys := range map[Kind][]crypto.Signer{
		Root:    {ed, weak, testKey(t, elliptic.P256()), testKey(t, elliptic.P521())},
		Issuing: {ed, weak, testKey(t, elliptic.P384()), testKey(t, elliptic.P224())},
		Agent:   {ed, weak, testKey(t, elliptic.P224()), testKey(t, elliptic.P521())},
		Gateway: {ed, weak, testKey(t, elliptic.P521())},
		OCSP:    {ed, weak, testKey(t, elliptic.P384())},
	} {
		for _, key := range keys {
			b := bench{t, ca, p[kind], now}
			b.want(RuleKey, b.make(key.Public(), key, none), b.issuer().cert)
		}
	}
	root, issuing, stranger := ca.Root(), ca.Issuing(), testCA(t, Options{Domain: "y.example"})
	agent := bench{t, ca, p[Agent], now}
	key := agent.key()
	good := agent.make(key.Public(), key, none)
	agent.want(RuleKind, good, root)
	agent.want(RuleKind, good, nil)
	agent.want(RuleIssuer, good, stranger.Issuing())
	late := agent
	late.now = issuing.NotAfter.Add(time.Second)
	late.want(RuleIssuer, good, issuing)
	late.now = issuing.NotBefore.Add(-time.Second)
	late.want(RuleIssuer, good, issuing)
	twin := *issuing // same name, other key
	twin.SubjectKeyId = stranger.Issuing().SubjectKeyId
	agent.want(RuleKeyIDs, good, &twin)
	ending := *issuing
	ending.NotAfter = good.NotAfter.Add(-time.Second)
	agent.want(RuleNotAfter, good, &ending)
	(bench{t, ca, Profile{Kind: 9}, now}).want(RuleKind, good, issuing)
	(bench{t, ca, Profile{Kind: Root}, now}).want(RuleKind, root, root)
	(bench{t, ca, Profile{Kind: Issuing}, now}).want(RuleKind, issuing, issuing)

	for rule, p := range map[Rule]Profile{
		RuleNames: {Kind: Gateway, AIC: testAIC(t, "3"), DNSNames: []string{"*.x.example"}},
		RuleURLs:  {Kind: Gateway, AIC: testAIC(t, "3"), URLs: URLs{CRL: []string{"https://x.example/"}}},
		RuleLife:  {Kind: Agent, AIC: testAIC(t, "3"), Life: 25 * time.Hour},
		RuleKind:  {Kind: Issuing, Name: "a CA of an agent's wish"},
	} {
		var broken *RuleError
		if _, err := ca.Issue(p, key.Public(), now); !errors.As(err, &broken) || broken.Rule != rule {
			t.Errorf("rule %q: %v", rule, err)
		}
	}
	if _, err := ca.Issue(p[Agent], weak.Public(), now); frame.CodeOf(err) != frame.ReqInvalid {
		t.Error("RSA key:", err)
	}
}

func TestCheckOfIssuerNameAndRoots(t *testing.T) {
	ca, now := testCA(t, Options{}), time.Now().UTC().Truncate(time.Second)
	key := testKey(t, elliptic.P384())
	b := bench{t, ca, profiles(t)[Root], now}
	root := b.make(key.Public(), key, func(*x509.Certificate) {})
	alien := *root
	alien.RawIssuer = ca.Root().RawSubject
	b.want(RuleIssuer, &alien, nil)
	b.p = profiles(t)[Issuing]
	b.p.Name = ca.Root().Subject.CommonName
	b.refused(RuleSubject, func(*x509.Certificate) {})
}
