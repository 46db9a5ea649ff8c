package cdsp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// paper is what a node writes to, in memory.
type paper struct {
	mu    sync.Mutex
	kept  map[string]*replica.Kept
	fails int // so many writes to come fail
	at    []time.Time
}

func (p *paper) keep(l replica.Learned) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, time.Now())
	if p.fails > 0 {
		p.fails--
		return errors.New("the disk is full")
	}
	if l.Forget {
		delete(p.kept, l.Gateway)
	}
	if len(l.Put)+len(l.Drop) == 0 && l.Cookie == nil {
		return nil
	}
	k := p.kept[l.Gateway]
	if k == nil {
		k = &replica.Kept{Gateway: l.Gateway}
		p.kept[l.Gateway] = k
	}
	k.Domain, k.Transit, k.Cookie = l.Domain, l.Transit, l.Cookie
	gone := func(e replica.KeptEntry) bool {
		return slices.Contains(l.Drop, e.Ref) || slices.ContainsFunc(l.Put, func(o replica.KeptEntry) bool { return o.Ref == e.Ref })
	}
	k.Entries = append(slices.DeleteFunc(k.Entries, gone), l.Put...)
	return nil
}

func (p *paper) of(gateway string) (k replica.Kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept[gateway] != nil {
		k = *p.kept[gateway]
	}
	return k
}

// modesOf lists the modes of the synchronisations that a link begins.
type modesOf struct {
	*memLink
	mu    *sync.Mutex
	modes *[]wire.Mode
}

func (l modesOf) OpenDigest(ctx context.Context) (Stream, error) {
	s, err := l.memLink.OpenDigest(ctx)
	return modeStream{s, l}, err
}

type modeStream struct {
	Stream
	l modesOf
}

func (s modeStream) WriteMessage(d time.Duration, m frame.Message) error {
	if b, ok := m.(*wire.SyncBegin); ok {
		s.l.mu.Lock()
		*s.l.modes = append(*s.l.modes, b.Mode)
		s.l.mu.Unlock()
	}
	return s.Stream.WriteMessage(d, m)
}

// A node that stops cleanly has written all that it was told. The next one knows it before anybody is connected, and is told only what changed.
func TestRestartGoesOnByDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &paper{kept: map[string]*replica.Kept{}}
		one := w.node("ONE", nil)
		stopOne := start(t, one)
		setup(t, one, wire.RolePeer, "two.example", "x", "y")
		two := w.node("TWO", func(c *Config) { c.Keep = p.keep })
		stopTwo := start(t, two)
		setup(t, two, wire.RolePeer, "one.example")
		a, b := connectMem("TWO", "ONE")
		var mu sync.Mutex
		var modes []wire.Mode
		two.Attach(t.Context(), a, "one.example", true)
		one.Attach(t.Context(), modesOf{b, &mu, &modes}, "two.example", false)
		knows(t, two, "ONE", "x", "y")
		stopTwo()
		k := p.of("ONE")
		if len(k.Entries) != 2 || k.Cookie == nil {
			t.Fatalf("written: %d entries and the cookie %v", len(k.Entries), k.Cookie)
		}
		two = w.node("TWO", func(c *Config) { c.Keep, c.Kept = p.keep, []replica.Kept{k} })
		stopTwo = start(t, two)
		setup(t, two, wire.RolePeer, "one.example")
		synctest.Wait()
		if got := labelsOf(two.Snapshot(), "ONE"); !slices.Equal(got, []string{"x", "y"}) || !two.Snapshot().Entries[0].Stale || two.Snapshot().Restored != 2 {
			t.Errorf("before a connection it knows %v", got)
		}
		setup(t, one, wire.RolePeer, "two.example", "y", "z")
		a, b = connectMem("TWO", "ONE")
		two.Attach(t.Context(), a, "one.example", true)
		one.Attach(t.Context(), modesOf{b, &mu, &modes}, "two.example", false)
		knows(t, two, "ONE", "y", "z")
		if !slices.Equal(modes, []wire.Mode{wire.ModeFull, wire.ModeDelta}) {
			t.Errorf("synchronisations %v", modes)
		}
		stopTwo()
		stopOne()
	})
}

// A write that fails is tried again after a pause, which grows, and then has everything: the neighbour need not tell it again.
func TestWriteThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p := &paper{kept: map[string]*replica.Kept{}, fails: 3}
		one, two := w.node("ONE", nil), w.node("TWO", func(c *Config) { c.Keep = p.keep })
		stopOne, stopTwo := start(t, one), start(t, two)
		setup(t, one, wire.RolePeer, "two.example", "x", "y")
		setup(t, two, wire.RolePeer, "one.example")
		a, b := connectMem("TWO", "ONE")
		two.Attach(t.Context(), a, "one.example", true)
		one.Attach(t.Context(), b, "two.example", false)
		knows(t, two, "ONE", "x", "y")
		time.Sleep(keepPause + 2*keepPause + 4*keepPause + time.Second)
		synctest.Wait()
		k := p.of("ONE")
		if len(k.Entries) != 2 || k.Cookie == nil {
			t.Fatalf("written: %d entries and the cookie %v", len(k.Entries), k.Cookie)
		}
		p.mu.Lock()
		for i, pause := range []time.Duration{keepPause, 2 * keepPause, 4 * keepPause} {
			if got := p.at[i+1].Sub(p.at[i]); got < pause || got > pause+time.Second {
				t.Errorf("pause %d is %v", i+1, got)
			}
		}
		p.mu.Unlock()
		stopTwo()
		stopOne()
	})
}
