package discovery

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"agentgw/internal/frame"
)

// world is DNS in fake time: one domain's records, or what goes wrong, and how often it was asked for.
type world struct {
	t     *testing.T
	ttl   uint32
	fail  error // of every question
	empty bool
	delay time.Duration
	asked atomic.Int32 // lookups
}

func (w *world) resolver() *Resolver {
	r := New(Config{ALPN: alpn})
	r.connect = func(Config) (asker, error) { w.asked.Add(1); return w.ask, nil }
	return r
}

func (w *world) ask(ctx context.Context, name string, qtype uint16) (*reply, error) {
	select {
	case <-time.After(w.delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r := &reply{name: name, ttl: w.ttl}
	switch {
	case w.fail != nil:
		return nil, w.fail
	case w.empty:
	case qtype == dns.TypeSVCB:
		r.records = rrs(w.t, fmt.Sprintf(`%s %d IN SVCB 1 agw.example. alpn="dmsc-agw/1"`, name, w.ttl))
	case qtype == dns.TypeA:
		r.records = rrs(w.t, fmt.Sprintf(`%s %d IN A 192.0.2.1`, name, w.ttl))
	}
	return r, nil
}

func TestTTL(t *testing.T) {
	for ttl, counts := range map[uint32]time.Duration{0: minTTL, 31: 31 * time.Second, 300: 300 * time.Second, 1 << 31: maxTTL} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, ttl: ttl}
			r := w.resolver()
			defer r.Close()
			for i, at := range []time.Duration{0, counts - time.Second, 2 * time.Second} { // from one to the next
				time.Sleep(at)
				if a, err := r.Find(t.Context(), "a.example"); err != nil || a.TTL != counts || a.Err != nil {
					t.Errorf("TTL %d: %+v, %v", ttl, a, err)
				}
				if want := int32(1 + i/2); w.asked.Load() != want {
					t.Errorf("TTL %d, call %d: %d lookups, want %d", ttl, i, w.asked.Load(), want)
				}
			}
		})
	}
}

// Row 42: while nobody can say, or says that there is nothing, the last good answer is used for a day.
func TestCase42LastGoodStandsIn(t *testing.T) {
	servfail := frame.Errorf(frame.UpstreamFailed, "SERVFAIL")
	for name, c := range map[string]struct {
		break_ func(*world)
		code   frame.Code
		again  time.Duration
	}{
		"SERVFAIL": {func(w *world) { w.fail = servfail }, frame.UpstreamFailed, failureTTL},
		"empty":    {func(w *world) { w.empty = true }, frame.NotFound, negativeTTL},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, ttl: 300}
			r := w.resolver()
			defer r.Close()
			if _, err := r.Find(t.Context(), "a.example"); err != nil {
				t.Fatal(err)
			}
			c.break_(w)
			time.Sleep(301 * time.Second)
			for i, at := range []time.Duration{0, c.again - time.Second, 2 * time.Second} {
				time.Sleep(at)
				a, err := r.Find(t.Context(), "a.example")
				if err != nil || len(a.Addresses()) != 1 || frame.CodeOf(a.Err) != c.code {
					t.Errorf("%s: %+v, %v", name, a, err)
				}
				if want := int32(2 + i/2); w.asked.Load() != want {
					t.Errorf("%s, call %d: %d lookups, want %d", name, i, w.asked.Load(), want)
				}
			}
			time.Sleep(lastGoodFor - 2*time.Minute)
			if _, err := r.Find(t.Context(), "a.example"); err != nil {
				t.Errorf("%s: before the day is over: %v", name, err)
			}
			time.Sleep(2 * time.Minute)
			if a, err := r.Find(t.Context(), "a.example"); frame.CodeOf(err) != c.code {
				t.Errorf("%s: after the day: %+v, %v", name, a, err)
			}
			w.fail, w.empty = nil, false
			time.Sleep(negativeTTL)
			if a, err := r.Find(t.Context(), "a.example"); err != nil || a.Err != nil {
				t.Errorf("%s: it is mended: %+v, %v", name, a, err)
			}
		})
	}
}

// Where DNS hangs, nobody waits long for what is known, and nobody for ever.
func TestSlowServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ttl: 30}
		r := w.resolver()
		defer r.Close()
		if _, err := r.Find(t.Context(), "a.example"); err != nil {
			t.Fatal(err)
		}
		w.delay = time.Hour
		time.Sleep(31 * time.Second)
		began := time.Now()
		if a, err := r.Find(t.Context(), "a.example"); err != nil || time.Since(began) != patience || !errors.Is(a.Err, errSlow) {
			t.Errorf("%+v, %v after %v", a, err, time.Since(began))
		}
		began = time.Now()
		if _, err := r.Find(t.Context(), "b.example"); err == nil || time.Since(began) != lookupTime {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		r.Forget("b.example")
		ended := make(chan error)
		go func() {
			_, err := r.Find(context.Background(), "b.example")
			ended <- err
		}()
		time.Sleep(time.Second)
		r.Close()
		if err := <-ended; err == nil {
			t.Error("it has found something while it was closed")
		}
		r.Forget("b.example")
		if _, err := r.Find(t.Context(), "b.example"); frame.CodeOf(err) != frame.Shutdown {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestOneLookupForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ttl: 300, delay: 50 * time.Millisecond}
		r := w.resolver()
		defer r.Close()
		impatient, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var askers sync.WaitGroup
		for i := range 50 {
			ctx := t.Context()
			if i == 0 {
				ctx = impatient
			}
			askers.Go(func() {
				_, err := r.Find(ctx, "a.example")
				if (err != nil) != (ctx == impatient) {
					t.Error(i, err)
				}
			})
			synctest.Wait()
		}
		askers.Wait()
		if n := w.asked.Load(); n != 1 {
			t.Errorf("%d lookups", n)
		}
		for i := range maxDomains + 1 {
			if _, err := r.Find(t.Context(), fmt.Sprintf("d%d.example", i)); err != nil {
				t.Fatal(err)
			}
		}
		if r.known.Len() != maxDomains {
			t.Errorf("%d domains are kept", r.known.Len())
		}
	})
}
