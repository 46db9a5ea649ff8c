package app

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/config"
)

// configure changes lines of gatewayd.yaml and starts the gateway anew.
func (g *gateway) configure(lines string) {
	g.t.Helper()
	g.stop()
	file := filepath.Join(g.dir, "gatewayd.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, lines...), 0o644); err != nil {
		g.t.Fatal(err)
	}
	g.start()
}

// outsider is a relying party that has the domain's root, openssl, and what a certificate names.
type outsider struct {
	t   *testing.T
	dir string
}

func newOutsider(t *testing.T) *outsider {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		if os.Getenv("CI_ROOT") == "1" {
			t.Fatal("CI_ROOT=1 promises the openssl program:", err)
		}
		t.Skip("needs the openssl program:", err)
	}
	return &outsider{t, t.TempDir()}
}

func (o *outsider) put(name, kind string, ders ...[]byte) {
	o.t.Helper()
	var text []byte
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(filepath.Join(o.dir, name), text, 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// fetch gets what lies at a place that a certificate names.
func (o *outsider) fetch(url string) []byte {
	o.t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		o.t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return body
}

func (o *outsider) openssl(args ...string) string {
	cmd := exec.CommandContext(o.t.Context(), "openssl", args...)
	cmd.Dir = o.dir
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s\n%v", out, err)
}

// judge verifies a certificate with the CRL that it names, and asks the responder that it names.
func (o *outsider) judge(leaf *x509.Certificate) (crl, ocsp string) {
	o.t.Helper()
	if len(leaf.CRLDistributionPoints) != 1 || len(leaf.OCSPServer) != 1 || len(leaf.IssuingCertificateURL) != 1 {
		o.t.Fatalf("places in the certificate: %v %v %v", leaf.CRLDistributionPoints, leaf.OCSPServer, leaf.IssuingCertificateURL)
	}
	o.put("leaf.pem", "CERTIFICATE", leaf.Raw)
	o.put("issuing.pem", "CERTIFICATE", o.fetch(leaf.IssuingCertificateURL[0]))
	o.put("list.pem", "X509 CRL", o.fetch(leaf.CRLDistributionPoints[0]))
	crl = o.openssl("verify", "-x509_strict", "-crl_check", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "-CRLfile", "list.pem", "leaf.pem")
	ocsp = o.openssl("ocsp", "-issuer", "issuing.pem", "-cert", "leaf.pem", "-url", leaf.OCSPServer[0], "-CAfile", "root.pem")
	return crl, ocsp
}

// wants waits until both say so; an answer of the responder follows at once, the CRL within a second.
func (o *outsider) wants(step string, leaf *x509.Certificate, crl, ocsp string) {
	o.t.Helper()
	var gotCRL, gotOCSP string
	for range 60 {
		if gotCRL, gotOCSP = o.judge(leaf); strings.Contains(gotCRL, crl) && strings.Contains(gotOCSP, ocsp) && strings.Contains(gotOCSP, "Response verify OK") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	o.t.Fatalf("%s: the CRL says %s, the responder %s; want %q and %q", step, gotCRL, gotOCSP, crl, ocsp)
}

// withOutside starts a gateway that tells outsiders of its certificates.
func withOutside(t *testing.T) *gateway {
	t.Helper()
	g := newGateway(t, "pharmacy.example")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	g.configure(fmt.Sprintf("amc: {pki_url: \"http://%s\", pki_listen: \"%s\"}\n", at, at))
	return g
}

// openssl, which knows nothing of us but the root, follows an agent through its life: good, suspended, resumed, revoked.
func TestOutsidersFollowAnAgentsStanding(t *testing.T) {
	o := newOutsider(t)
	g := withOutside(t)
	o.put("root.pem", "CERTIFICATE", g.app.home.authority.Root().Raw)
	done, cert := g.mustEnrol()
	o.wants("enrolled", cert.Leaf, "leaf.pem: OK", "leaf.pem: good")
	g.setStanding(done.AIC, "suspended")
	o.wants("suspended", cert.Leaf, "certificate revoked", "Reason: certificateHold")
	held := o.fetch(cert.Leaf.CRLDistributionPoints[0])
	g.setStanding(done.AIC, "good")
	o.wants("resumed", cert.Leaf, "leaf.pem: OK", "leaf.pem: good")

	// Whoever still has the list with the hold is told by the delta that it is lifted.
	delta := o.fetch(strings.Replace(cert.Leaf.CRLDistributionPoints[0], ".crl", "-delta.crl", 1))
	o.put("delta.pem", "X509 CRL", delta)
	if text := o.openssl("crl", "-in", "delta.pem", "-noout", "-text"); !strings.Contains(text, "Remove From CRL") {
		t.Errorf("the delta does not lift the hold:\n%s", text)
	}
	o.put("list.pem", "X509 CRL", held, delta)
	if out := o.openssl("verify", "-crl_check", "-extended_crl", "-use_deltas", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "-CRLfile", "list.pem", "leaf.pem"); !strings.Contains(out, "leaf.pem: OK") {
		t.Errorf("the old list with the delta: %s", out)
	}

	g.stop() // what has been published is not taken back by a restart
	g.start()
	o.wants("after a restart", cert.Leaf, "leaf.pem: OK", "leaf.pem: good")
	g.setStanding(done.AIC, "revoked")
	o.wants("revoked", cert.Leaf, "certificate revoked", "leaf.pem: revoked")
}

// The gateway's own certificate is one like any other, the first one that it gets with places in it too.
func TestOutsidersKnowTheGatewaysCertificate(t *testing.T) {
	o := newOutsider(t)
	g := withOutside(t)
	o.put("root.pem", "CERTIFICATE", g.app.home.authority.Root().Raw)
	at := time.Now().Add(40 * time.Hour) // its next certificate is due
	if err := g.app.home.renew(g.cfg, at); err != nil {
		t.Fatal(err)
	}
	if err := g.app.renewCertificates(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	leaf := g.app.home.current().Leaf
	if _, known := g.app.amc.CertStatus(leaf.SerialNumber); !known {
		t.Error("its serial is not known")
	}
	o.put("issuing.pem", "CERTIFICATE", o.fetch(leaf.IssuingCertificateURL[0]))
	o.put("leaf.pem", "CERTIFICATE", leaf.Raw)
	if out := o.openssl("ocsp", "-issuer", "issuing.pem", "-cert", "leaf.pem", "-url", leaf.OCSPServer[0], "-CAfile", "root.pem"); !strings.Contains(out, "leaf.pem: good") {
		t.Error(out)
	}
}

// What is configured must be served: half a configuration is a mistake that the operator is told of.
func TestPKIPlaceNeedsBothHalves(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "gatewayd.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, half := range []string{"amc: {pki_url: \"http://pki.x.example\"}\n", "amc: {pki_listen: \"127.0.0.1:80\"}\n"} {
		if err := os.WriteFile(file, append(append([]byte{}, text...), half...), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := config.LoadGateway(file); err == nil || !strings.Contains(err.Error(), "go together") {
			t.Errorf("%s: %v", half, err)
		}
	}
}
