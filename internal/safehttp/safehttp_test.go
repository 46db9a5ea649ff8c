package safehttp

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// served is a TLS server on the loopback, and a client that may reach it.
func served(t *testing.T, h http.HandlerFunc) (base string, cfg Config) {
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.URL, Config{AllowPrivate: true, Roots: roots, MaxBytes: 64, Timeout: 5 * time.Second}
}

func TestGet(t *testing.T) {
	var ever atomic.Int32
	base, cfg := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			fmt.Fprint(w, "hello")
		case "/once":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/ever":
			ever.Add(1)
			http.Redirect(w, r, "/ever", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "https://localhost:1/ok", http.StatusFound)
		case "/down":
			http.Redirect(w, r, "http://"+r.Host+"/ok", http.StatusFound)
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", 65))
		case "/slow":
			select {
			case <-r.Context().Done():
			case <-time.After(10 * time.Second):
			}
		default:
			http.NotFound(w, r)
		}
	})
	for path, says := range map[string]string{
		"/ok": "", "/once": "", "/ever": "more than 3 redirects", "/away": "another host", "/down": "another host", "/large": "over 64 bytes", "/none": "404",
	} {
		b, err := New(cfg).Get(t.Context(), base+path)
		if says == "" && (err != nil || string(b) != "hello") || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	if n := ever.Load(); n != 1+maxRedirects {
		t.Errorf("%d requests in a circle of redirects", n)
	}
	cfg.Timeout = 50 * time.Millisecond
	if _, err := New(cfg).Get(t.Context(), base+"/slow"); err == nil {
		t.Error("a slow answer is awaited")
	}
}

func TestOnlyHTTPSWithoutProxy(t *testing.T) {
	if New(Config{}).transport(false).Proxy != nil { // the environment's would not be asked about loopback, so no server can tell
		t.Error("a proxy is used")
	}
	base, cfg := served(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	if _, err := New(cfg).Get(t.Context(), base); err != nil {
		t.Errorf("https: %v", err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer plain.Close()
	if _, err := New(cfg).Get(t.Context(), plain.URL); err == nil || !strings.Contains(err.Error(), "only https") {
		t.Errorf("http: %v", err)
	}
	cfg.AllowPlain, cfg.AllowPrivate = true, false
	if _, err := New(cfg).Get(t.Context(), plain.URL); err != nil {
		t.Errorf("http to loopback in a lab: %v", err)
	}
	for _, u := range []string{"http://10.0.0.1/", "http://93.184.216.34/"} {
		if _, err := New(cfg).Get(t.Context(), u); err == nil || !strings.Contains(err.Error(), "loopback only") {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{"ftp://x/", "https://", "https://user:secret@x.example/", "//x", "file:///etc/passwd"} {
		if _, err := New(cfg).Get(t.Context(), u); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// The address is checked where it is dialled, whatever name led there.
func TestAddressIsCheckedWhenDialled(t *testing.T) {
	base, cfg := served(t, func(http.ResponseWriter, *http.Request) { t.Error("it was reached") })
	cfg.AllowPrivate = false
	for _, u := range []string{base, strings.Replace(base, "127.0.0.1", "localhost", 1), strings.Replace(base, "127.0.0.1", "[::ffff:127.0.0.1]", 1)} {
		if _, err := New(cfg).Get(t.Context(), u); err == nil || !strings.Contains(err.Error(), "not of the public network") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

func TestCheckAddr(t *testing.T) {
	for text, want := range map[string][2]bool{ // public only, with private
		"93.184.216.34": {true, true}, "2606:2800:220:1::1": {true, true},
		"127.0.0.1": {false, true}, "::1": {false, true}, "10.1.2.3": {false, true}, "192.168.0.1": {false, true}, "172.16.0.1": {false, true},
		"100.64.0.1": {false, true}, "fd00::1": {false, true}, "::ffff:10.0.0.1": {false, true},
		"169.254.169.254": {false, false}, "fe80::1": {false, false}, "224.0.0.1": {false, false}, "ff02::1": {false, false}, "0.0.0.0": {false, false},
		"::": {false, false}, "255.255.255.255": {false, false}, "240.0.0.1": {false, false}, "192.0.2.1": {false, false}, "64:ff9b::7f00:1": {false, false},
		"2002:7f00:1::": {false, false}, "2001:0:1::": {false, false}, "::7f00:1": {false, false}, "fec0::1": {false, false}, "198.18.0.1": {false, false},
		"::ffff:240.0.0.1": {false, false},
	} {
		ip := netip.MustParseAddr(text)
		for i, private := range []bool{false, true} {
			if err := CheckAddr(ip, private); (err == nil) != want[i] {
				t.Errorf("%s, private allowed %v: %v", text, private, err)
			}
		}
	}
}

// TestPostJSON: the token goes to the host that was asked and nowhere else, and into no error.
func TestPostJSON(t *testing.T) {
	const token = "t0ken-of-nobody"
	var away atomic.Int32
	other, _ := served(t, func(http.ResponseWriter, *http.Request) { away.Add(1) })
	base, cfg := served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/away":
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
		case r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("Content-Type") != "application/json" || string(body) != `{"a":1}`:
			http.Error(w, "your token is "+token, http.StatusUnauthorized)
		default:
			fmt.Fprint(w, "taken")
		}
	})
	if b, err := New(cfg).PostJSON(t.Context(), base+"/ok", token, []byte(`{"a":1}`)); err != nil || string(b) != "taken" {
		t.Errorf("%q, %v", b, err)
	}
	for path, says := range map[string]string{"/away": "another host", "/ok": "401"} {
		_, err := New(cfg).PostJSON(t.Context(), base+path, token, []byte(`{"a":2}`))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v, want %s and no token", path, err, says)
		}
	}
	if away.Load() != 0 {
		t.Error("the other host was asked")
	}
}
