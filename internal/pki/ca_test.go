package pki

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/identity"
)

func parse(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func issue(t testing.TB, c *CA, p Profile, now time.Time) []*x509.Certificate {
	t.Helper()
	chain, err := c.Issue(p, testKey(t, elliptic.P256()).Public(), now)
	if err != nil {
		t.Fatal(err)
	}
	if len(chain) != 2 {
		t.Fatalf("chain of %d", len(chain))
	}
	return []*x509.Certificate{parse(t, chain[0]), parse(t, chain[1])}
}

// verify chains a leaf to one of the roots, as a peer does.
func verify(chain, roots []*x509.Certificate, now time.Time) error {
	opts := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, r := range roots {
		opts.Roots.AddCert(r)
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(opts)
	return err
}

func TestChainFromP384RootVerifies(t *testing.T) {
	ca, now := testCA(t, Options{BaseURL: "http://pki.x.example"}), time.Now()
	for _, p := range []Profile{profiles(t)[Agent], {Kind: Agent, AIC: testAIC(t, "5")}, profiles(t)[Gateway]} {
		chain := issue(t, ca, p, now)
		if err := verify(chain, ca.Roots(), now); err != nil {
			t.Error(err)
		}
		if ca.Root().SignatureAlgorithm != x509.ECDSAWithSHA384 || chain[1].SignatureAlgorithm != x509.ECDSAWithSHA384 ||
			chain[0].SignatureAlgorithm != x509.ECDSAWithSHA256 {
			t.Error("root signs with SHA-384, the issuing CA with SHA-256")
		}
		for _, at := range []time.Time{now.Add(-59 * time.Second), chain[0].NotAfter} {
			if err := verify(chain, ca.Roots(), at); err != nil {
				t.Error(at, err)
			}
		}
		for _, at := range []time.Time{now.Add(-62 * time.Second), chain[0].NotAfter.Add(time.Second)} {
			if err := verify(chain, ca.Roots(), at); err == nil {
				t.Error("accepted at", at)
			}
		}
	}
	if err := verify(issue(t, testCA(t, Options{}), profiles(t)[Agent], now), ca.Roots(), now); err == nil {
		t.Error("a chain of another domain of the same name is accepted")
	}
}

func TestURLsComeFromTheBase(t *testing.T) {
	ca := testCA(t, Options{BaseURL: "http://pki.x.example/"})
	c := issue(t, ca, Profile{Kind: Agent, AIC: testAIC(t, "1")}, time.Now())
	leaf, root := keyID(c[1]), keyID(ca.Root())
	for _, x := range []struct {
		got  []string
		want string
	}{
		{c[0].CRLDistributionPoints, "http://pki.x.example/crl/" + leaf + ".crl"}, {c[0].OCSPServer, "http://pki.x.example/ocsp"},
		{c[0].IssuingCertificateURL, "http://pki.x.example/ca/" + leaf + ".cer"},
		{c[1].CRLDistributionPoints, "http://pki.x.example/crl/" + root + ".crl"}, {c[1].IssuingCertificateURL, "http://pki.x.example/ca/" + root + ".cer"},
	} {
		if strings.Join(x.got, " ") != x.want {
			t.Errorf("%q, want %q", x.got, x.want)
		}
	}
	if len(c[1].OCSPServer) != 0 {
		t.Error("a root answers no OCSP")
	}
}

func TestLeavesEndWithTheIssuingCA(t *testing.T) {
	ca := testCA(t, Options{Limits: Limits{Issuing: time.Hour}})
	now := time.Now()
	if c := issue(t, ca, Profile{Kind: Agent, AIC: testAIC(t, "1")}, now); !c[0].NotAfter.Equal(c[1].NotAfter) {
		t.Error(c[0].NotAfter, c[1].NotAfter)
	}
	_, err := ca.Issue(Profile{Kind: Agent, AIC: testAIC(t, "1")}, testKey(t, elliptic.P256()).Public(), now.Add(2*time.Hour))
	var broken *RuleError
	if !errors.As(err, &broken) || broken.Rule != RuleIssuer || !strings.Contains(err.Error(), "rotate") {
		t.Error(err)
	}
}

func TestLongNamesAreCut(t *testing.T) {
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example"
	ca := testCA(t, Options{Domain: long})
	c := issue(t, ca, Profile{Kind: Agent, AIC: testAIC(t, "1"), Organization: strings.Repeat("ö", 100), Country: "Germany"}, time.Now())
	if o := c[0].Subject.Organization; len(o) != 1 || o[0] != strings.Repeat("ö", 64) || len(c[0].Subject.Country) != 0 {
		t.Error(c[0].Subject)
	}
	if n := ca.Issuing().Subject.CommonName; len(n) != 64 || !strings.HasSuffix(n, keyID(ca.Issuing())[:8]) {
		t.Error(n)
	}
}

// A certificate request may name DNS hosts and places until the chain is too long for a handshake.
func TestLongChainIsNotIssued(t *testing.T) {
	ca := testCA(t, Options{})
	var names []string
	for _, c := range "abcdefgh" {
		names = append(names, strings.Repeat(strings.Repeat(string(c), 60)+".", 4)+"example")
	}
	p := Profile{Kind: Gateway, AIC: testAIC(t, "1"), DNSNames: names, URLs: URLs{CRL: []string{"http://" + strings.Repeat("x", 1200)}}}
	if _, err := ca.Issue(p, testKey(t, elliptic.P256()).Public(), time.Now()); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Error(err)
	}
	p.DNSNames = append(names, "i.example")
	if _, err := ca.Issue(p, testKey(t, elliptic.P256()).Public(), time.Now()); err == nil || !strings.Contains(err.Error(), "at most 8") {
		t.Error(err)
	}
}

func TestSerialsAre16OctetsAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		s, err := newSerial()
		if err != nil {
			t.Fatal(err)
		}
		if b := s.Bytes(); len(b) != 16 || b[0] > 0x7f || s.Sign() <= 0 {
			t.Fatalf("%x", b)
		}
		seen[s.String()] = true
	}
	if len(seen) != 1000 {
		t.Error("serials repeat")
	}
}

func TestSignStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := testCA(t, Options{}).Sign(ctx, profiles(t)[Agent], testKey(t, elliptic.P256()).Public()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFolderIsOpenedAsItWasMade(t *testing.T) {
	dir := t.TempDir()
	made, err := Create(dir, Options{Domain: "x.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, Options{Domain: "x.example"}); err == nil {
		t.Error("a folder with a CA is written over")
	}
	again, err := OpenDir(dir, Options{Domain: "x.example"})
	if err != nil || !again.Issuing().Equal(made.Issuing()) || !again.Root().Equal(made.Root()) {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, FileRootKey)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir, Options{}); err != nil {
		t.Error("without the root's key:", err)
	}
}

// The state that the first version of gatewayd made has other names and no places in its certificates.
func TestFolderOfTheFirstVersionIsOpened(t *testing.T) {
	dir := t.TempDir() // a checkout gives files a mode that no key may have
	if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	for _, f := range files {
		if err := os.Chmod(f, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := parse(t, mustChain(t, filepath.Join(dir, FileIssuing))).NotBefore.Add(time.Hour)
	ca, err := OpenDir(dir, Options{Domain: "x.example", Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(issue(t, ca, profiles(t)[Gateway], at), ca.Roots(), at); err != nil {
		t.Error(err)
	}
}

func mustChain(t *testing.T, file string) []byte {
	t.Helper()
	chain, err := identity.LoadChain(file)
	if err != nil {
		t.Fatal(err)
	}
	return chain[0]
}

func TestFolderWhoseFilesDoNotFitIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir, other string){
		"key of another":     func(t *testing.T, dir, other string) { take(t, dir, other, FileIssuingKey) },
		"root of another":    func(t *testing.T, dir, other string) { take(t, dir, other, FileRoot) },
		"root key other":     func(t *testing.T, dir, other string) { take(t, dir, other, FileRootKey) },
		"issuing of another": func(t *testing.T, dir, other string) { take(t, dir, other, FileIssuing) },
		"no issuing":         func(t *testing.T, dir, _ string) { gone(t, dir, FileIssuing) },
		"no key":             func(t *testing.T, dir, _ string) { gone(t, dir, FileIssuingKey) },
		"no root":            func(t *testing.T, dir, _ string) { gone(t, dir, FileRoot) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			for _, d := range []string{dir, other} {
				if _, err := Create(d, Options{Domain: "x.example"}); err != nil {
					t.Fatal(err)
				}
			}
			spoil(t, dir, other)
			if _, err := OpenDir(dir, Options{Domain: "x.example"}); err == nil || !strings.Contains(err.Error(), dir) {
				t.Error(err)
			}
		})
	}
}

func take(t *testing.T, dir, other, name string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(other, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func mustCert(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	return parse(t, mustChain(t, file))
}

func loadKey(t *testing.T, file string) crypto.Signer {
	t.Helper()
	key, err := identity.LoadKey(file)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(t *testing.T, request func() ([]byte, error)) []byte {
	t.Helper()
	der, err := request()
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der})
}
