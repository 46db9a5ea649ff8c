package cdsp

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// heard collects what a node's callbacks were told.
type heard struct {
	mu   sync.Mutex
	list []string
}

func (h *heard) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, s)
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}

// Lists travel behind the bundles that hold their keys, each once, the new ones when they come.
func TestStatusListsTravelOnceBehindBundles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got heard
		one := w.node("ONE", func(c *Config) {
			c.OnBundle = func(_ context.Context, _, _ string, b []byte) error { got.add("bundle " + string(b)); return nil }
			c.OnStatus = func(_ context.Context, gw, domain string, l []byte) error {
				got.add(gw + " " + domain + " " + string(l))
				return nil
			}
		})
		var mu sync.Mutex
		lists := [][]byte{[]byte("full"), []byte("delta")}
		two := w.node("TWO", func(c *Config) {
			c.Bundles = func(string) [][]byte { return [][]byte{[]byte("own")} }
			c.Statuses = func(string) [][]byte {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(lists)
			}
		})
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y")
		a, b := connectMem("ONE", "TWO")
		one.Attach(t.Context(), a, "two.example", true)
		two.Attach(t.Context(), b, "one.example", false)
		knows(t, one, "TWO", "y")
		two.StatusChanged() // nothing new
		time.Sleep(time.Second)
		mu.Lock()
		lists = append(lists, []byte("delta 2"))
		mu.Unlock()
		two.StatusChanged()
		time.Sleep(time.Second)
		want := []string{"bundle own", "TWO two.example full", "TWO two.example delta", "TWO two.example delta 2"}
		if !slices.Equal(got.all(), want) {
			t.Errorf("heard %q, want %q", got.all(), want)
		}
	})
}

// What was sent already is sent again to whoever asks, and nobody is answered about one domain twice within 10 s.
func TestTrustGetIsAnsweredOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got, asked heard
		one := w.node("ONE", func(c *Config) {
			c.OnStatus = func(_ context.Context, _, _ string, l []byte) error { got.add(string(l)); return nil }
		})
		two := w.node("TWO", func(c *Config) {
			c.Statuses = func(string) [][]byte { return [][]byte{[]byte("list")} }
			c.OnTrustGet = func(gw, domain string, g *wire.TrustGet) (bundles, statuses [][]byte) {
				asked.add(gw + " " + domain + " " + g.Domain)
				return nil, [][]byte{[]byte("list")}
			}
		})
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y")
		get := wire.TrustGet{Domain: "far.example"}
		if n := one.AskTrust(t.Context(), "two.example", get); n != 0 {
			t.Errorf("%d asked without a session", n)
		}
		a, b := connectMem("ONE", "TWO")
		one.Attach(t.Context(), a, "two.example", true)
		two.Attach(t.Context(), b, "one.example", false)
		knows(t, one, "TWO", "y")
		for range 3 {
			if n := one.AskTrust(t.Context(), "two.example", get); n != 1 {
				t.Errorf("%d asked", n)
			}
			time.Sleep(4 * time.Second)
		}
		one.AskTrust(t.Context(), "two.example", get) // 12 s after the first
		time.Sleep(time.Second)
		if want := []string{"ONE one.example far.example", "ONE one.example far.example"}; !slices.Equal(asked.all(), want) {
			t.Errorf("answered %q", asked.all())
		}
		if want := []string{"list", "list", "list"}; !slices.Equal(got.all(), want) {
			t.Errorf("got %q", got.all())
		}
	})
}

func TestKeepaliveTellsWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		got := make(chan []wire.TrustVersion, 8)
		one := w.node("ONE", func(c *Config) {
			c.OnTrustHeld = func(_, _ string, held []wire.TrustVersion) { got <- held }
		})
		two := w.node("TWO", func(c *Config) {
			c.Trust = func(domain string) []wire.TrustVersion {
				return []wire.TrustVersion{{Issuer: "AMC of " + domain, BundleSeq: 3, StatusSeq: 9}}
			}
		})
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example")
		setup(t, two, wire.RolePeer, "one.example")
		a, b := connectMem("ONE", "TWO")
		one.Attach(t.Context(), a, "two.example", true)
		two.Attach(t.Context(), b, "one.example", false)
		if held := <-got; len(held) != 1 || held[0].Issuer != "AMC of one.example" || held[0].BundleSeq != 3 || held[0].StatusSeq != 9 {
			t.Errorf("held %+v", held)
		}
	})
}

// A neighbour may not flood us with what is about trust.
func TestTrustFloodEndsTheSession(t *testing.T) {
	for name, m := range map[string]wire.Message{
		"lists": &wire.Status{List: []byte{1}}, "bundles": &wire.Bundle{Bundle: []byte{1}}, "questions": &wire.TrustGet{Domain: "x.example"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, h := playPeer(t, newWorld())
				h.hello()
				for range maxStatuses + 1 {
					if h.link.control.WriteMessage(0, m) != nil {
						break
					}
				}
				h.mustEnd(frame.Malformed)
			})
		})
	}
}

// A sender keeps within what its neighbour takes in a minute.
func TestManyBundlesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got heard
		one := w.node("ONE", func(c *Config) {
			c.OnBundle = func(_ context.Context, _, _ string, b []byte) error { got.add(string(b)); return nil }
		})
		two := w.node("TWO", func(c *Config) {
			c.Bundles = func(string) (out [][]byte) {
				for i := range 600 {
					out = append(out, []byte{byte(i >> 8), byte(i), 1})
				}
				return out
			}
		})
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y")
		a, b := connectMem("ONE", "TWO")
		s := one.Attach(t.Context(), a, "two.example", true)
		two.Attach(t.Context(), b, "one.example", false)
		knows(t, one, "TWO", "y")
		time.Sleep(6 * time.Minute)
		if n := len(got.all()); n != 600 {
			t.Errorf("%d bundles arrived, session %v", n, s.Err())
		}
	})
}

// A gateway whose certificate is revoked is gone at once, with all that it told, and not kept for its return.
func TestCase06RevokedGatewayIsPurgedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		one, two := w.node("ONE", nil), w.node("TWO", nil)
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y")
		a, b := connectMem("ONE", "TWO")
		s1 := one.Attach(t.Context(), a, "two.example", true)
		s2 := two.Attach(t.Context(), b, "one.example", false)
		knows(t, one, "TWO", "y")
		one.Expel("TWO", frame.CertStatus, "certificate revoked")
		<-s1.Done()
		<-s2.Done()
		if frame.CodeOf(s1.Err()) != frame.CertStatus || frame.CodeOf(s2.Err()) != frame.CertStatus {
			t.Errorf("ended with %v, %v", s1.Err(), s2.Err())
		}
		knows(t, one, "TWO")
		if st := one.Snapshot().Neighbours[0]; st.State != replica.Idle || st.Received != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// Digests under an unknown key say of which domain the key is due, once.
func TestUnknownKeyIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var got heard
		one := w.node("ONE", func(c *Config) { c.OnUnknownKey = func(gw, domain string) { got.add(gw + " " + domain) } })
		two := w.node("TWO", nil)
		w.hidden["TWO"] = true
		defer start(t, one)()
		defer start(t, two)()
		setup(t, one, wire.RolePeer, "two.example", "x")
		setup(t, two, wire.RolePeer, "one.example", "y", "z")
		a, b := connectMem("ONE", "TWO")
		one.Attach(t.Context(), a, "two.example", true)
		two.Attach(t.Context(), b, "one.example", false)
		time.Sleep(5 * time.Second)
		if want := []string{"TWO two.example"}; !slices.Equal(got.all(), want) {
			t.Errorf("reported %q", got.all())
		}
	})
}
