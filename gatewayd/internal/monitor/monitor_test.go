package monitor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/internal/frame"
)

func listen(t *testing.T, h *Hub, kinds ...string) *Listener {
	t.Helper()
	kinds, err := ParseKinds(kinds)
	if err != nil {
		t.Fatal(err)
	}
	l, err := h.Listen(kinds)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func next(t *testing.T, l *Listener) Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	e, err := l.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A listener that does not read gets the oldest events, then how many are missing, then what came when there was room again.
func TestSlowReaderIsTold(t *testing.T) {
	var h Hub
	l, other := listen(t, &h), listen(t, &h, "alarm")
	for i := range Queue + 7 {
		h.Publish(Event{Kind: PeerUp, Count: i})
	}
	for i := range 3 {
		if e := next(t, l); e.Count != i {
			t.Fatalf("event %d is %+v", i, e)
		}
		if i == 0 { // there is room for it, and not for what would tell of the loss before it
			h.Publish(Event{Kind: PeerUp})
		}
	}
	h.Publish(Event{Kind: Alarm, Text: "a"})
	for range Queue - 3 {
		next(t, l)
	}
	if e := next(t, l); e.Kind != Lost || e.Count != 8 || !strings.Contains(e.Text, "8 events") {
		t.Errorf("after a loss: %+v", e)
	}
	if e := next(t, l); e.Kind != Alarm {
		t.Errorf("after that: %+v", e)
	}
	for range Queue + 2 { // nothing comes behind these
		h.Publish(Event{Kind: PeerDown})
	}
	for range Queue {
		next(t, l)
	}
	if e := next(t, l); e.Kind != Lost || e.Count != 2 || e.Time.IsZero() {
		t.Errorf("a loss at the end: %+v", e)
	}
	if e := next(t, other); e.Text != "a" {
		t.Errorf("the other listener asked for alarms and got %+v", e)
	}
}

// Kinds are asked for by name or by what they are about.
func TestKinds(t *testing.T) {
	got, err := ParseKinds([]string{"peer", "alarm"})
	if err != nil || !slices.Equal(got, []string{PeerUp, PeerDown, PeerLame, Alarm}) {
		t.Errorf("%v %v", got, err)
	}
	for asked, say := range map[string]string{"peer.upp": "did you mean peer.up?", "weather": "kinds are peer.up", "": "kinds are", "peer.": "did you mean peer.up?", "alarms": "did you mean alarm?"} {
		if _, err := ParseKinds([]string{"peer", asked}); frame.CodeOf(err) != frame.ReqInvalid || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", asked, err)
		}
	}
}

// At most eight listen; nobody is served after the hub was closed, and who listened reads what was queued first.
func TestBounds(t *testing.T) {
	var h Hub
	if h.Watched() {
		t.Error("watched by nobody")
	}
	var all []*Listener
	for range MaxListeners {
		all = append(all, listen(t, &h))
	}
	if _, err := h.Listen(nil); frame.CodeOf(err) != frame.Overloaded || !strings.Contains(err.Error(), fmt.Sprint(MaxListeners)) {
		t.Errorf("one too many: %v", err)
	}
	all[0].Close()
	all[0].Close()
	all[0] = listen(t, &h)
	h.Publish(Event{Kind: PeerUp})
	h.Close()
	next(t, all[3])
	if _, err := all[3].Next(t.Context()); !Stopped(err) || frame.CodeOf(err) != frame.Shutdown {
		t.Errorf("after the end: %v", err)
	}
	if _, err := h.Listen(nil); !Stopped(err) {
		t.Errorf("listening to a hub that is closed: %v", err)
	}
	if h.Watched() {
		t.Error("still watched")
	}
}

// Next waits, and ends with its context; publishing beside it is safe.
func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hub
		l := listen(t, &h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				time.Sleep(time.Second)
				h.Publish(Event{Kind: Alarm})
			})
		}
		for range 4 {
			if e, err := l.Next(ctx); err != nil || e.Kind != Alarm {
				t.Errorf("%+v %v", e, err)
			}
		}
		if _, err := l.Next(ctx); err != context.DeadlineExceeded {
			t.Error(err)
		}
		wg.Wait()
		l.Close()
		h.Publish(Event{Kind: Alarm})
		if h.Watched() {
			t.Error("watched after the last has gone")
		}
	})
}
