package app

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/internal/daemon"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// installed has the gateway take a file of the root's owner, as `gatewayd ca install` does.
func (g *gateway) installed(file, what string) {
	g.t.Helper()
	done, err := InstallCA(g.cfg, file)
	if err != nil {
		g.t.Fatal(err)
	}
	if done.What != what || !done.Until.After(time.Now()) {
		g.t.Errorf("installed %+v, want %s", done, what)
	}
	if err := g.app.ReloadCA(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// The root's key is on a machine of its own: its CRL, the next issuing CA and a second root come from there by file, and the running
// gateway publishes them at once.
func TestOfflineRoot(t *testing.T) {
	t.Parallel()
	g := withOutside(t)
	away, state := t.TempDir(), g.cfg.StateDir
	rootKey, rootFile := filepath.Join(away, pki.FileRootKey), filepath.Join(state, pki.FileRoot)
	if err := os.Rename(filepath.Join(state, pki.FileRootKey), rootKey); err != nil {
		t.Fatal(err)
	}
	root := g.app.home.authority.Root()
	o := &outsider{t, away}
	place := fmt.Sprintf("%s/crl/%x.crl", g.cfg.AMC.PKIURL, root.SubjectKeyId)

	crl := filepath.Join(away, "root.crl")
	if _, err := SignRootCRL(RootCRLOptions{Root: rootFile, RootKey: rootKey, Out: crl, Revoke: []string{filepath.Join(state, pki.FileIssuing)}, Life: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	g.installed(crl, whatCRL)
	eventually(t, "the root's CRL published", func() bool {
		list, err := x509.ParseRevocationList(o.fetch(place))
		return err == nil && list.CheckSignatureFrom(root) == nil && len(list.RevokedCertificateEntries) == 1
	})

	half := time.Now().Add(190 * 24 * time.Hour)
	if e, err := g.app.home.authority.Rotate(half); err != nil || e.Action != pki.AskSignature {
		t.Fatalf("%+v, %v", e, err)
	}
	next := filepath.Join(away, "next.pem")
	request := IssuingOptions{CSR: filepath.Join(state, pki.FileRequest), Root: rootFile, RootKey: rootKey, Out: next, PKIURL: g.cfg.AMC.PKIURL, Life: 100 * 24 * time.Hour}
	done, err := SignIssuing(request)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(done.Until); left < 99*24*time.Hour || left > 101*24*time.Hour {
		t.Errorf("it lives until %v", done.Until)
	}
	g.installed(next, pki.Issuing.String())
	cert, err := x509.ParseCertificate(o.fetch(placeOf(t, next, g.cfg.AMC.PKIURL)))
	if err != nil || !strings.Contains(done.Name, cert.Subject.CommonName) {
		t.Errorf("the next issuing CA is not published: %v", err)
	}

	second := filepath.Join(away, "second")
	if _, err := MakeRoot(g.cfg.Domain, second); err != nil {
		t.Fatal(err)
	}
	before := g.app.trust.Own().Seq
	g.installed(filepath.Join(second, pki.FileRoot), pki.Root.String())
	if own := g.app.trust.Own(); len(own.Roots) != 2 || own.Seq <= before {
		t.Errorf("the bundle %d has %d roots", own.Seq, len(own.Roots))
	}
	if _, err := InstallCA(g.cfg, g.cfg.Control+".none"); err == nil {
		t.Error("a file that is not there is installed")
	}
	if _, err := InstallCA(g.cfg, rootKey); err == nil {
		t.Error("a key is installed")
	}
}

// placeOf is where a CA's certificate is published.
func placeOf(t *testing.T, file, base string) string {
	t.Helper()
	chain, err := identity.LoadChain(file)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(chain[0])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s/ca/%x.cer", base, cert.SubjectKeyId)
}

// A second root by the operator's verb, while the gateway runs.
func TestNewRootIsInTheBundleAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "x.example")
	if _, err := NewRoot(g.cfg); err != nil {
		t.Fatal(err)
	}
	if err := g.app.ReloadCA(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(g.app.trust.Own().Roots); n != 2 {
		t.Errorf("the bundle has %d roots", n)
	}
}

// A root that was installed by mistake is taken away again, from the bundle too; the one in use is not.
func TestRemovedRootLeavesTheBundleAtOnce(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "x.example")
	wrong, err := NewRoot(g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	first := caResult("", "", g.app.home.authority.Root())
	if err := g.app.ReloadCA(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := RemoveRoot(g.cfg, first.Fingerprint); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the root in use: %v", err)
	}
	if _, err := RemoveRoot(g.cfg, "nonsense"); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("no fingerprint: %v", err)
	}
	done, err := RemoveRoot(g.cfg, wrong.Fingerprint)
	if err != nil || done.Name != wrong.Name {
		t.Fatalf("%+v, %v", done, err)
	}
	if err := g.app.ReloadCA(t.Context()); err != nil {
		t.Fatal(err)
	}
	if own := g.app.trust.Own(); len(own.Roots) != 1 || !slices.Equal(own.Roots[0], g.app.home.authority.Root().Raw) {
		t.Errorf("the bundle has %d roots", len(own.Roots))
	}
}
