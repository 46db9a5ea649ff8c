package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"agentgw/internal/identity"
)

// Rule is a part of the profile that a certificate can break.
type Rule string

// The rules, in the order in which they are looked at.
const (
	RuleKind        Rule = "kind"          // the kind is known, and the issuer is of the kind above
	RuleKey         Rule = "key"           // P-384 for roots, P-256 for issuing CAs and responders, either for agents and gateways
	RuleSerial      Rule = "serial"        // positive, 16 octets, as a random number has
	RuleSubject     Rule = "subject"       // CN = AIC or the CA's name, organization and country of the profile, nothing else
	RuleIssuer      Rule = "issuer"        // the issuer's name, and the issuer is valid now
	RuleNotBefore   Rule = "not-before"    // now less a minute
	RuleLife        Rule = "life"          // at most the limit of the kind
	RuleNotAfter    Rule = "not-after"     // within the issuer's life
	RuleExtensions  Rule = "extensions"    // those of the kind, each once, critical where due, and no other
	RuleKeyUsage    Rule = "key-usage"     // digitalSignature; of a CA keyCertSign and cRLSign
	RuleExtKeyUsage Rule = "ext-key-usage" // clientAuth and serverAuth; OCSPSigning of a responder; none of a CA
	RuleConstraints Rule = "constraints"   // CA:FALSE; of a CA its path length
	RuleURI         Rule = "uri"           // exactly one URI name, acps://<AIC>
	RuleNames       Rule = "names"         // DNS names of gateways only, no address and no mail name
	RuleKeyIDs      Rule = "key-ids"       // subject key id of the key, authority key id of the issuer
	RuleURLs        Rule = "urls"          // CRL, OCSP and issuer places as the profile says
)

// RuleError says that a certificate was not signed, or not released, because it breaks its profile.
type RuleError struct {
	Rule   Rule
	Kind   Kind
	Detail string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("%s certificate refused by the profile's rule %q: %s", e.Kind, e.Rule, e.Detail)
}

// Check compares a certificate with its profile. It shares no code with what makes certificates, and reads the certificate as
// it was encoded, whoever signed it: [CA] calls it with the bytes to be signed under a throw-away signature first. issuer is
// nil for a root. A breach is a [*RuleError] of the first rule that is broken.
func Check(c *x509.Certificate, p Profile, issuer *x509.Certificate, l Limits, now time.Time) error {
	k := check{c, p, issuer, l, now.UTC().Truncate(time.Second)}
	for _, r := range []struct {
		rule Rule
		test func() string
	}{
		{RuleKind, k.kind}, {RuleKey, k.key}, {RuleSerial, k.serial}, {RuleSubject, k.subject}, {RuleIssuer, k.issuedBy},
		{RuleNotBefore, k.notBefore}, {RuleLife, k.life}, {RuleNotAfter, k.notAfter}, {RuleExtensions, k.extensions},
		{RuleKeyUsage, k.keyUsage}, {RuleExtKeyUsage, k.extKeyUsage}, {RuleConstraints, k.constraints}, {RuleURI, k.uri},
		{RuleNames, k.names}, {RuleKeyIDs, k.keyIDs}, {RuleURLs, k.urls},
	} {
		if why := r.test(); why != "" {
			return &RuleError{r.rule, p.Kind, why}
		}
	}
	return nil
}

// check has one method a rule: "" when the rule is kept, else what is wrong.
type check struct {
	c      *x509.Certificate
	p      Profile
	issuer *x509.Certificate
	l      Limits
	now    time.Time
}

func (k check) kind() string {
	switch k.p.Kind {
	case Root:
		if k.issuer != nil {
			return "a root has no issuer"
		}
		return ""
	case Issuing:
		if k.issuer == nil || !k.issuer.IsCA || k.issuer.MaxPathLen == 0 {
			return "an issuing CA is signed by a root"
		}
		return ""
	case Agent, Gateway, OCSP:
		if k.issuer == nil || !k.issuer.IsCA || k.issuer.MaxPathLen != 0 {
			return "it is signed by an issuing CA, whose path length is 0"
		}
		return ""
	}
	return "the kind is not known"
}

func (k check) key() string {
	pub, ok := k.c.PublicKey.(*ecdsa.PublicKey)
	if !ok {
		return fmt.Sprintf("the key is %T, not ECDSA", k.c.PublicKey)
	}
	may := []elliptic.Curve{elliptic.P256()}
	switch k.p.Kind {
	case Root:
		may = []elliptic.Curve{elliptic.P384()}
	case Agent, Gateway:
		may = append(may, elliptic.P384())
	}
	if !slices.Contains(may, pub.Curve) {
		return "the key is on the curve " + pub.Curve.Params().Name
	}
	return ""
}

func (k check) serial() string {
	if s := k.c.SerialNumber; s == nil || s.Sign() <= 0 || len(s.Bytes()) != 16 || s.BitLen() > 127 {
		return fmt.Sprintf("%v is no positive number of 16 octets", s)
	}
	return ""
}

func (k check) subject() string {
	want := k.p.Name
	if k.p.Kind.named() {
		want = string(k.p.AIC)
	}
	s := k.c.Subject
	attributes := 1
	for _, f := range []struct {
		name string
		got  []string
		want string
	}{{"organization", s.Organization, k.p.organization()}, {"country", s.Country, k.p.country()}} {
		switch {
		case f.want == "" && len(f.got) > 0, f.want != "" && !slices.Equal(f.got, []string{f.want}):
			return fmt.Sprintf("%s %q where %q was due", f.name, f.got, f.want)
		}
		attributes += len(f.got)
	}
	switch n := utf8.RuneCountInString(s.CommonName); {
	case n == 0 || n > maxName || s.CommonName != want:
		return fmt.Sprintf("common name %q where %q was due, of 1 to %d characters", s.CommonName, want, maxName)
	case len(s.Names) != attributes:
		return fmt.Sprintf("%d attributes in the name where %d were due", len(s.Names), attributes)
	case k.p.Kind.isCA() && k.issuer != nil && bytes.Equal(k.c.RawSubject, k.issuer.RawSubject):
		return "a CA may not have the name of its issuer"
	}
	return ""
}

func (k check) issuedBy() string {
	if k.issuer == nil {
		if !bytes.Equal(k.c.RawIssuer, k.c.RawSubject) {
			return "a root is its own issuer"
		}
		return ""
	}
	switch {
	case !bytes.Equal(k.c.RawIssuer, k.issuer.RawSubject):
		return "the issuer's name is another"
	case k.now.Before(k.issuer.NotBefore):
		return "the issuer is not valid before " + stamp(k.issuer.NotBefore) + ": look at this machine's clock"
	case k.now.After(k.issuer.NotAfter):
		return "the issuer has ended at " + stamp(k.issuer.NotAfter) + ": rotate it"
	}
	return ""
}

func (k check) notBefore() string {
	if want := k.now.Add(-backdate); !k.c.NotBefore.Equal(want) {
		return fmt.Sprintf("%s where %s was due", stamp(k.c.NotBefore), stamp(want))
	}
	return ""
}

func (k check) life() string {
	switch life := k.c.NotAfter.Sub(k.now); {
	case life > k.l.Of(k.p.Kind):
		return fmt.Sprintf("%s is over the %s of the kind", life, k.l.Of(k.p.Kind))
	case life <= 0:
		return "it would have ended already"
	}
	return ""
}

func (k check) notAfter() string {
	if k.issuer != nil && k.c.NotAfter.After(k.issuer.NotAfter) {
		return fmt.Sprintf("%s is after the issuer's end, %s", stamp(k.c.NotAfter), stamp(k.issuer.NotAfter))
	}
	return ""
}

// extensions knows for each kind what must be there and what must be critical (RFC 5280, section 4.2). The name that is the
// identity stands in the subject too, so the alternative name is not critical.
func (k check) extensions() string {
	const due, critical = 1, 2
	want := map[string]int{
		oidKeyUsage.String(): due | critical, oidBasicConstraints.String(): due | critical, oidSubjectKeyID.String(): due,
	}
	if k.p.Kind != Root {
		want[oidAuthorityKeyID.String()] = due
	}
	if !k.p.Kind.isCA() {
		want[oidExtKeyUsage.String()] = due
	}
	if k.p.Kind.named() {
		want[oidSubjectAltName.String()] = due
	}
	if k.p.Kind == OCSP {
		want[oidNoCheck.String()] = due
	}
	if len(k.p.URLs.CRL) > 0 {
		want[oidCRLPoints.String()] = due
	}
	if len(k.p.URLs.OCSP)+len(k.p.URLs.Issuer) > 0 {
		want[oidAuthorityInfo.String()] = due
	}
	for _, e := range k.c.Extensions {
		id := e.Id.String()
		w, ok := want[id]
		switch {
		case !ok:
			return "extension " + id + " is not of this profile, or there twice"
		case (w&critical != 0) != e.Critical:
			return fmt.Sprintf("extension %s is critical: %t", id, e.Critical)
		case e.Id.Equal(oidNoCheck) && !bytes.Equal(e.Value, asn1.NullBytes):
			return "extension " + id + " has a value"
		}
		delete(want, id)
	}
	for id := range want {
		return "extension " + id + " is missing"
	}
	return ""
}

func (k check) keyUsage() string {
	want := x509.KeyUsageDigitalSignature
	if k.p.Kind.isCA() {
		want = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	}
	if k.c.KeyUsage != want {
		return fmt.Sprintf("bits %#x where %#x were due", int(k.c.KeyUsage), int(want))
	}
	return ""
}

func (k check) extKeyUsage() string {
	var want []x509.ExtKeyUsage
	switch {
	case k.p.Kind == OCSP:
		want = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}
	case k.p.Kind.named():
		want = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	got := slices.Clone(k.c.ExtKeyUsage)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(k.c.UnknownExtKeyUsage) > 0 {
		return fmt.Sprintf("%v and %d others where %v were due", got, len(k.c.UnknownExtKeyUsage), want)
	}
	return ""
}

func (k check) constraints() string {
	want, isCA := -1, k.p.Kind.isCA()
	switch k.p.Kind {
	case Root:
		want = 1
	case Issuing:
		want = 0
	}
	if !k.c.BasicConstraintsValid || k.c.IsCA != isCA || k.c.MaxPathLen != want {
		return fmt.Sprintf("CA:%t with path length %d where CA:%t with %d was due", k.c.IsCA, k.c.MaxPathLen, isCA, want)
	}
	return ""
}

func (k check) uri() string {
	if !k.p.Kind.named() {
		return ""
	}
	if len(k.c.URIs) != 1 || k.c.URIs[0].String() != "acps://"+string(k.p.AIC) {
		return fmt.Sprintf("%q where acps://%s was due", k.c.URIs, k.p.AIC)
	}
	if id, err := identity.AICOf(k.c); err != nil || id != k.p.AIC {
		return fmt.Sprintf("it does not name the AIC %s: %v", k.p.AIC, err)
	}
	return ""
}

var hostName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// IsHostName says whether s may be a DNS name of a gateway: letters, digits and hyphens in labels, no wildcard.
func IsHostName(s string) bool { return len(s) <= 253 && hostName.MatchString(s) }

func (k check) names() string {
	switch {
	case len(k.c.IPAddresses) > 0:
		return "it names an IP address"
	case len(k.c.EmailAddresses) > 0:
		return "it names a mail address"
	case len(k.c.DNSNames) > 0 && k.p.Kind != Gateway:
		return "only gateways have DNS names"
	case !slices.Equal(k.c.DNSNames, k.p.DNSNames):
		return fmt.Sprintf("DNS names %q where %q were due", k.c.DNSNames, k.p.DNSNames)
	case len(k.c.DNSNames) > maxDNSNames:
		return fmt.Sprintf("%d DNS names, at most %d", len(k.c.DNSNames), maxDNSNames)
	}
	for _, n := range k.c.DNSNames {
		if !IsHostName(n) {
			return fmt.Sprintf("%q is no host name", n)
		}
	}
	if want := len(k.c.URIs) + len(k.c.DNSNames); altNames(k.c) != want {
		return fmt.Sprintf("%d alternative names where %d were due", altNames(k.c), want)
	}
	return ""
}

const maxDNSNames = 8 // two certificates stay within the 4 KiB of a chain

// altNames counts the alternative names of every form, those that package x509 passes over included. -1 is not readable.
func altNames(c *x509.Certificate) int {
	for _, e := range c.Extensions {
		if e.Id.Equal(oidSubjectAltName) {
			var names []asn1.RawValue
			if rest, err := asn1.Unmarshal(e.Value, &names); err != nil || len(rest) > 0 {
				return -1
			}
			return len(names)
		}
	}
	return 0
}

func (k check) keyIDs() string {
	spki := sha256.Sum256(k.c.RawSubjectPublicKeyInfo)
	switch {
	case !bytes.Equal(k.c.SubjectKeyId, spki[:20]):
		return "the subject key id is not the hash of the key"
	case k.issuer != nil && (len(k.issuer.SubjectKeyId) == 0 || !bytes.Equal(k.c.AuthorityKeyId, k.issuer.SubjectKeyId)):
		return "the authority key id is not the issuer's"
	}
	return ""
}

func (k check) urls() string {
	for _, u := range []struct {
		name      string
		got, want []string
	}{
		{"CRL", k.c.CRLDistributionPoints, k.p.URLs.CRL}, {"OCSP", k.c.OCSPServer, k.p.URLs.OCSP},
		{"issuer", k.c.IssuingCertificateURL, k.p.URLs.Issuer},
	} {
		if !slices.Equal(u.got, u.want) {
			return fmt.Sprintf("%s places %q where %q were due", u.name, u.got, u.want)
		}
		for _, s := range u.got {
			if !strings.HasPrefix(s, "http://") {
				return fmt.Sprintf("%s place %q is not http:// (RFC 5280, section 8: https would need what it tells of)", u.name, s)
			}
		}
	}
	if !k.p.URLs.empty() && (k.p.Kind == Root || k.p.Kind == OCSP) {
		return "a " + k.p.Kind.String() + " has none"
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
