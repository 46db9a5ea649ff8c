package pki

import (
	"testing"
	"time"

	zx509 "github.com/zmap/zcrypto/x509"
	"github.com/zmap/zlint/v3"
	"github.com/zmap/zlint/v3/lint"
)

// Lints of the RFCs that do not fit the profile, each with its reason.
var unfit = map[string]string{
	"e_ext_san_uri_host_not_fqdn_or_ip": "the host of acps:// is an AIC, which is no host name",
}

// The web PKI's sources do not apply: nobody reaches an agent by a browser.
func TestLintFindsNothingInWhatWeIssue(t *testing.T) {
	names := make([]string, 0, len(unfit))
	for name := range unfit {
		names = append(names, name)
	}
	registry, err := lint.GlobalRegistry().Filter(lint.FilterOptions{
		IncludeSources: lint.SourceList{lint.RFC5280, lint.RFC5480, lint.RFC8813}, ExcludeNames: names,
	})
	if err != nil {
		t.Fatal(err)
	}
	ca, now := testCA(t, Options{BaseURL: "http://pki.x.example"}), time.Now()
	certs := map[string][]byte{"root": ca.Root().Raw, "issuing CA": ca.Issuing().Raw}
	for _, p := range profiles(t) {
		if p.Kind.named() {
			p.URLs = URLs{}
			certs[p.Kind.String()] = issue(t, ca, p, now)[0].Raw
		}
	}
	responder, err := ca.responder(ca.view.Load().issuing, now)
	if err != nil {
		t.Fatal(err)
	}
	certs["responder"] = responder.cert.Raw
	plain := testCA(t, Options{Domain: "a-long-name.of-a-domain.that-has-no-room.in-a-common-name.example"})
	certs["long root"], certs["long issuing CA"] = plain.Root().Raw, plain.Issuing().Raw
	certs["bare agent"] = issue(t, plain, Profile{Kind: Agent, AIC: testAIC(t, "7")}, now)[0].Raw
	ran := 0
	for name, der := range certs {
		c, err := zx509.ParseCertificate(der)
		if err != nil {
			t.Fatal(name, err)
		}
		for id, r := range zlint.LintCertificateEx(c, registry).Results {
			switch {
			case r.Status >= lint.Warn:
				t.Errorf("%s: %s: %s %s", name, id, r.Status, r.Details)
			case r.Status == lint.Pass:
				ran++
			}
		}
	}
	if ran < 100 {
		t.Errorf("only %d lints applied: the sources are not what they were", ran)
	}
}
