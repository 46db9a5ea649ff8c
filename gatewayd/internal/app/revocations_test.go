package app

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/identity"
)

// A domain that changes thousands of states, again and again, costs each agent a few frames a second and not one a change.
func TestForeignRevocationsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRevocations()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		var told [][]string
		go func() {
			defer close(done)
			r.run(ctx, func(ids []string) { told = append(told, ids) })
		}()
		var list []identity.Standing
		for i := range 2500 {
			list = append(list, identity.Standing{AIC: fmt.Sprint(i), State: identity.Revoked})
		}
		for range 100 {
			if !r.add(list) {
				t.Fatal("no room")
			}
		}
		time.Sleep(10 * time.Second)
		cancel()
		<-done
		if len(told) < 3 || len(told) > 6 {
			t.Errorf("told %d times", len(told))
		}
		seen := map[string]bool{}
		for _, ids := range told {
			if len(ids) > arp.MaxRevoked {
				t.Errorf("%d in one frame", len(ids))
			}
			for _, id := range ids {
				seen[id] = true
			}
		}
		if len(seen) != len(list) {
			t.Errorf("%d of %d were told", len(seen), len(list))
		}
	})
}

// What waits is bounded, and says so; who is good again before it was told is not told.
func TestForeignRevocationsAreBounded(t *testing.T) {
	r := newRevocations()
	one := func(id string, s identity.State) []identity.Standing { return []identity.Standing{{AIC: id, State: s}} }
	for i := range maxWaiting {
		if !r.add(one(fmt.Sprint(i), identity.Suspended)) {
			t.Fatalf("no room for %d", i)
		}
	}
	if r.add(one("more", identity.Revoked)) || !r.add(one("7", identity.Revoked)) || len(r.bad) != maxWaiting {
		t.Errorf("%d wait", len(r.bad))
	}
	r = newRevocations()
	r.add(slices.Concat(one("a", identity.Suspended), one("b", identity.Suspended), one("a", identity.Good)))
	if ids, more := r.take(); !slices.Equal(ids, []string{"b"}) || more {
		t.Errorf("told %v", ids)
	}
}
