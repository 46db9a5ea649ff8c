package pki

import (
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// statuses is a lookup that a test changes while the responder runs.
type statuses struct {
	mu sync.Mutex
	m  map[string]Status
}

func (s *statuses) set(serial *big.Int, to Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string]Status{}
	}
	s.m[serial.String()] = to
}

func (s *statuses) forget(serial *big.Int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, serial.String())
}

func (s *statuses) status(serial *big.Int) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, ok := s.m[serial.String()]
	return to, ok
}

// openSSL runs the program in a folder of its own, where put writes files.
type openSSL struct {
	t   *testing.T
	dir string
}

func newOpenSSL(t *testing.T) openSSL {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		if os.Getenv("CI_ROOT") == "1" {
			t.Fatal("CI_ROOT=1 promises the openssl program:", err)
		}
		t.Skip("needs the openssl program:", err)
	}
	return openSSL{t, t.TempDir()}
}

func (o openSSL) put(name, kind string, ders ...[]byte) {
	o.t.Helper()
	var text []byte
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	if err := os.WriteFile(filepath.Join(o.dir, name), text, 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// run says what openssl printed, and whether it was content.
func (o openSSL) run(args ...string) (string, bool) {
	o.t.Helper()
	cmd := exec.CommandContext(o.t.Context(), "openssl", args...)
	cmd.Dir = o.dir
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func (o openSSL) want(ok bool, phrase string, args ...string) {
	o.t.Helper()
	if out, got := o.run(args...); got != ok || !strings.Contains(out, phrase) {
		o.t.Errorf("openssl %s: ok %t, want %t and %q:\n%s", strings.Join(args, " "), got, ok, phrase, out)
	}
}

const (
	pemCert = "CERTIFICATE"
	pemCRL  = "X509 CRL"
)

func TestOpenSSLAcceptsWhatWeIssue(t *testing.T) {
	o, now := newOpenSSL(t), time.Now()
	ca, known := testCA(t, Options{BaseURL: "http://pki.x.example", Deltas: true}), &statuses{}
	responder, err := NewResponder(ca, known.status, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(NewSite(ca, responder))
	defer server.Close()
	o.put("root.pem", pemCert, ca.Root().Raw)
	o.put("issuing.pem", pemCert, ca.Issuing().Raw)
	number := int64(0)
	lists := func(entries ...Revoked) CRLs {
		number++
		l, err := ca.CRL(entries, big.NewInt(number), now, now.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	putLists := func(file string, l CRLs) { o.put(file, pemCRL, l[keyID(ca.Root())], l[keyID(ca.Issuing())]) }
	for kind, p := range profiles(t) {
		if !kind.named() {
			continue
		}
		leaf := issue(t, ca, p, now)[0]
		o.put("leaf.pem", pemCert, leaf.Raw)
		verify := []string{"verify", "-x509_strict", "-crl_check_all", "-purpose", "sslclient", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "-CRLfile", "lists.pem", "leaf.pem"}
		ask := []string{"ocsp", "-issuer", "issuing.pem", "-cert", "leaf.pem", "-url", server.URL + "/ocsp", "-CAfile", "root.pem", "-verify_other", "issuing.pem"}

		putLists("lists.pem", lists())
		o.want(true, "OK", verify...)
		o.want(true, "leaf.pem: unknown", ask...)
		known.set(leaf.SerialNumber, Status{})
		o.want(true, "leaf.pem: good", ask...)
		o.want(true, "Response verify OK", ask...)
		o.want(true, "leaf.pem: good", append([]string{"ocsp", "-no_nonce", "-sha256"}, ask[1:]...)...)

		hold := Revoked{Serial: leaf.SerialNumber, At: now, Reason: ReasonHold}
		base := lists(hold)
		putLists("lists.pem", base)
		o.want(false, "certificate revoked", verify...)
		known.set(leaf.SerialNumber, Status{Revoked: true, Reason: ReasonHold, At: now})
		o.want(true, "leaf.pem: revoked", ask...)
		o.want(true, "Reason: certificateHold", ask...)

		// The hold is lifted: by the next full list, and by a delta over the one that has it.
		number++
		delta, err := ca.DeltaCRL([]Revoked{hold}, nil, big.NewInt(number-1), big.NewInt(number), now, now.Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		o.put("lists.pem", pemCRL, base[keyID(ca.Root())], base[keyID(ca.Issuing())], delta[keyID(ca.Root())], delta[keyID(ca.Issuing())])
		o.want(true, "OK", append([]string{"verify", "-extended_crl", "-use_deltas"}, verify[1:]...)...)
		o.want(false, "certificate revoked", verify...)
		putLists("lists.pem", lists())
		o.want(true, "OK", verify...)
		known.set(leaf.SerialNumber, Status{})
		o.want(true, "leaf.pem: good", ask...)
	}
	stranger := issue(t, testCA(t, Options{Domain: "y.example"}), profiles(t)[Agent], now)
	o.put("leaf.pem", pemCert, stranger[0].Raw)
	o.put("other.pem", pemCert, stranger[1].Raw)
	o.want(false, "unauthorized", "ocsp", "-issuer", "other.pem", "-cert", "leaf.pem", "-url", server.URL+"/ocsp", "-CAfile", "root.pem")
}

// A lone issuing CA of ours is no anchor for openssl either: the path to the root is needed, and an expired leaf is one.
func TestOpenSSLRefusesWhatHasEnded(t *testing.T) {
	o, ca := newOpenSSL(t), testCA(t, Options{})
	o.put("root.pem", pemCert, ca.Root().Raw)
	o.put("issuing.pem", pemCert, ca.Issuing().Raw)
	p := Profile{Kind: Agent, AIC: testAIC(t, "1"), Life: time.Second}
	old := issue(t, ca, p, time.Now().Add(-5*time.Second))
	o.put("leaf.pem", pemCert, old[0].Raw)
	o.want(false, "certificate has expired", "verify", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "leaf.pem")
	o.want(false, "unable to get issuer certificate", "verify", "-CAfile", "issuing.pem", "leaf.pem")
}
