package revocation

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/internal/pki"
)

// world is a CA and what its certificates are worth, with a service that nobody asks over a socket.
type world struct {
	t  *testing.T
	ca *pki.CA
	s  *Service

	mu  sync.Mutex
	bad map[int64]pki.Revoked
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ca, err := pki.New(pki.Options{Domain: "x.example", BaseURL: "http://pki.x.example", Deltas: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ca: ca, bad: map[int64]pki.Revoked{}}
	return w
}

func (w *world) make() {
	w.t.Helper()
	var err error
	if w.s, err = New(w.config()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) config() Config {
	return Config{
		CA: w.ca, Revoked: w.revoked, Now: time.Now, Period: time.Hour, Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
		Status: func(serial *big.Int) (pki.Status, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			r, bad := w.bad[serial.Int64()]
			return pki.Status{Revoked: bad, Reason: r.Reason, At: r.At}, true
		},
	}
}

func (w *world) revoked() []pki.Revoked {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pki.Revoked
	for serial := int64(1); serial < 32; serial++ {
		if r, ok := w.bad[serial]; ok {
			out = append(out, r)
		}
	}
	return out
}

// set gives a certificate a reason to be listed; -1 takes it off.
func (w *world) set(serial int64, reason int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if reason < 0 {
		delete(w.bad, serial)
	} else {
		w.bad[serial] = pki.Revoked{Serial: big.NewInt(serial), At: time.Now().Truncate(time.Second), Reason: reason}
	}
}

// lists are the issuing CA's lists as they are served; the delta may be missing.
func (w *world) lists() (full, delta *x509.RevocationList) {
	w.t.Helper()
	return w.get(".crl"), w.get("-delta.crl")
}

func (w *world) get(ending string) *x509.RevocationList {
	w.t.Helper()
	rec := httptest.NewRecorder()
	w.s.site.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/crl/%x%s", w.ca.Issuing().SubjectKeyId, ending), nil))
	if rec.Code == http.StatusNotFound {
		return nil
	}
	l, err := x509.ParseRevocationList(rec.Body.Bytes())
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func content(l *x509.RevocationList) map[string]int {
	out := map[string]int{}
	for _, e := range l.RevokedCertificateEntries {
		out[e.SerialNumber.String()] = e.ReasonCode
	}
	return out
}

func baseOf(t *testing.T, delta *x509.RevocationList) *big.Int {
	t.Helper()
	for _, e := range delta.Extensions {
		if e.Id.String() == "2.5.29.27" {
			n := new(big.Int)
			n.SetBytes(e.Value[2:])
			return n
		}
	}
	t.Fatal("a delta without its base")
	return nil
}

// Whoever has any full list that the newest delta applies to (RFC 5280, section 5.2.4), and adds the delta, knows what the
// newest full list says, whatever has been suspended, resumed and revoked in between.
func TestAnyListWithTheDeltaIsTheNewestList(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			w, rnd := newWorld(t), rand.New(rand.NewPCG(seed, 7))
			w.make()
			first, _ := w.lists()
			fulls := []*x509.RevocationList{first}
			applied := 0
			for range 60 {
				time.Sleep(time.Duration(1+rnd.IntN(12)) * time.Minute)
				serial := 1 + rnd.Int64N(6)
				before, listed := w.bad[serial]
				switch {
				case !listed:
					w.set(serial, []int{pki.ReasonHold, pki.ReasonHold, 4}[rnd.IntN(3)])
				case before.Reason == pki.ReasonHold:
					w.set(serial, []int{-1, -1, 1}[rnd.IntN(3)])
				}
				if err := w.s.publish(rnd.IntN(6) == 0); err != nil {
					t.Fatal(err)
				}
				full, delta := w.lists()
				if delta == nil || full.Number.Cmp(delta.Number) != 0 || full.Number.Cmp(fulls[len(fulls)-1].Number) <= 0 {
					t.Fatalf("numbers %v, %v after %v", full.Number, delta.Number, fulls[len(fulls)-1].Number)
				}
				for _, held := range fulls {
					if time.Now().After(held.NextUpdate) || held.Number.Cmp(baseOf(t, delta)) < 0 {
						continue
					}
					applied++
					if got, want := combined(held, delta), content(full); !equal(got, want) {
						t.Fatalf("seed %d: list %v with delta %v is %v, the newest is %v", seed, held.Number, delta.Number, got, want)
					}
				}
				fulls = append(fulls, full)
			}
			if applied < 100 || len(w.s.lists.bases) > 4+60/6 {
				t.Errorf("%d deltas were applied, %d bases are kept", applied, len(w.s.lists.bases))
			}
		})
	}
}

func combined(held, delta *x509.RevocationList) map[string]int {
	out := content(held)
	for serial, reason := range content(delta) {
		if reason == pki.ReasonRemove {
			delete(out, serial)
		} else {
			out[serial] = reason
		}
	}
	return out
}

func equal(a, b map[string]int) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// A change is out at once, a burst within a second in one list, and nothing comes out when nothing has changed but in time.
func TestPublicationFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.make()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.s.keepPublishing(ctx) }()
		number := func() int64 { l, _ := w.lists(); return l.Number.Int64() }
		first := number()
		time.Sleep(time.Minute)
		w.s.Changed()
		synctest.Wait()
		if number() != first {
			t.Error("a list came out although nothing has changed")
		}
		w.set(1, pki.ReasonHold)
		w.s.Changed()
		synctest.Wait()
		second := number()
		if second == first {
			t.Error("a change does not come out")
		}
		for serial := range int64(5) {
			w.set(2+serial, 4)
			w.s.Changed()
			time.Sleep(100 * time.Millisecond)
		}
		if number() != second {
			t.Error("a burst is not one list")
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if l, _ := w.lists(); len(l.RevokedCertificateEntries) != 6 {
			t.Errorf("after a second: %d entries", len(l.RevokedCertificateEntries))
		}
		third := number()
		time.Sleep(2 * time.Second)
		w.s.Renewed()
		synctest.Wait()
		fourth := number()
		time.Sleep(time.Hour)
		synctest.Wait()
		if fourth == third || number() == fourth {
			t.Errorf("lists %d, %d after the CA has changed, %d after the period", third, fourth, number())
		}
		cancel()
		<-done
	})
}

// run starts a service on a socket of the loopback.
func (w *world) run() (base string) {
	w.t.Helper()
	w.make()
	if err := w.s.Listen(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.s.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
	return "http://" + w.s.Addr().String()
}

func TestServesWhatCertificatesName(t *testing.T) {
	w := newWorld(t)
	base := w.run()
	id := fmt.Sprintf("%x", w.ca.Issuing().SubjectKeyId)
	for at, want := range map[string]int{"/crl/" + id + ".crl": 200, "/ca/" + id + ".cer": 200, "/crl/00.crl": 404, "/": 404} {
		resp, err := http.Get(base + at)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s: %d", path.Base(at), resp.StatusCode)
		}
	}
}

// Serials that nobody issued cost a signature each: who asks for many is put off.
func TestAskingTooOftenIsPutOff(t *testing.T) {
	synctest.Test(t, askTooOften) // where time stands still: no bucket fills while a slow machine asks
}

func askTooOften(t *testing.T) {
	asked := 0
	l := newLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	ask := func(from string) int {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ocsp/x", nil)
		req.RemoteAddr = from
		l.ServeHTTP(rec, req)
		return rec.Code
	}
	off := 0
	for i := range 500 {
		if ask(fmt.Sprintf("[2001:db8::%x]:1024", i)) == http.StatusTooManyRequests { // one customer's /64
			off++
		}
	}
	if off < 350 || asked > 150 {
		t.Errorf("%d of 500 were put off, %d signatures", off, asked)
	}
	if code := ask("192.0.2.1:1024"); code != http.StatusOK {
		t.Errorf("another customer: %d", code)
	}
	for i := range 4 * totalRate {
		ask(fmt.Sprintf("10.1.%d.%d:1024", i/250, i%250))
	}
	if code := ask("198.51.100.7:1"); code != http.StatusTooManyRequests || asked > 3*totalRate {
		t.Errorf("%d were answered in all, then: %d", asked, code)
	}
}

// One address cannot take all connections, and a place is free again when its connection has ended.
func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t)
	base := strings.TrimPrefix(w.run(), "http://")
	open := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", base)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return c, err == nil
	}
	var conns []net.Conn
	for i := range connsAddress {
		c, ok := open()
		if !ok {
			t.Fatalf("connection %d is refused", i)
		}
		conns = append(conns, c)
	}
	if c, ok := open(); ok {
		t.Error("one more than the bound is served")
	} else {
		c.Close()
	}
	for _, c := range conns {
		c.Close()
	}
	for range 100 {
		if c, ok := open(); ok {
			c.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Error("places of connections that have ended are not free again")
}
