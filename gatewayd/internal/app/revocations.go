package app

import (
	"context"
	"sync"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// A status list may change thousands of states at once, another domain's as often as that domain likes, and every attached agent
// hears of each that is bad: so they are gathered, and told in lists, at a pace that agents can read.
const (
	revokePause = 250 * time.Millisecond // between two lists of revocations
	maxWaiting  = 64 << 10               // AICs that wait; beyond, the sessions with their whole domain end
)

// revocations are agents whose sessions are to end.
type revocations struct {
	mu    sync.Mutex // guards bad
	bad   map[string]struct{}
	ready chan struct{}
}

func newRevocations() *revocations {
	return &revocations{bad: map[string]struct{}{}, ready: make(chan struct{}, 1)}
}

// add takes changes of states. It says whether there was room for all that are bad.
func (r *revocations) add(list []identity.Standing) (room bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room = true
	for _, s := range list {
		_, waits := r.bad[s.AIC]
		switch {
		case s.State == identity.Good:
			delete(r.bad, s.AIC)
		case !waits && len(r.bad) >= maxWaiting:
			room = false
		default:
			r.bad[s.AIC] = struct{}{}
		}
	}
	select {
	case r.ready <- struct{}{}:
	default:
	}
	return room
}

// take takes what fits one frame; more says that some are left.
func (r *revocations) take() (ids []string, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.bad {
		if len(ids) == arp.MaxRevoked {
			return ids, true
		}
		ids = append(ids, id)
		delete(r.bad, id)
	}
	return ids, false
}

// run tells them until ctx ends.
func (r *revocations) run(ctx context.Context, tell func(ids []string)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.ready:
		}
		for more := true; more; {
			var ids []string
			if ids, more = r.take(); len(ids) > 0 {
				tell(ids)
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(revokePause):
			}
		}
	}
}

// foreignStanding hears of agents of other domains whose state a list has changed.
func (a *app) foreignStanding(list []identity.Standing) {
	domain := a.trust.DomainOf(list[0].AIC)
	a.log.Info("standing changed", "domain", domain, "agents", len(list), "first", list[0].AIC, "state", list[0].State.String())
	a.endSessionsOf(list)
}

// endSessionsOf ends the sessions with those whose state is bad.
func (a *app) endSessionsOf(list []identity.Standing) {
	if a.revoked.add(list) {
		return
	}
	if b := a.trust.Of(list[0].AIC); b != nil {
		a.log.Warn("more agents are revoked than can be told one by one: the sessions with their whole domain end", "domain", b.Domain)
		a.endSessionsWith(b, frame.Revoked)
	}
}

// endSessionsWith ends the sessions with every agent of a domain.
func (a *app) endSessionsWith(b *identity.Accepted, code frame.Code) {
	for _, prefix := range b.Prefixes {
		a.agents.RevokeUnder(prefix, code)
	}
}
