package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/registry"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// newest holds the newest of what was put into it: status lists are whole, so that one which nobody fetched yet is void when the
// next one comes.
type newest struct {
	mu    sync.Mutex // guards lists
	lists [][]byte
	ready chan struct{}
}

func (n *newest) put(lists [][]byte) {
	n.mu.Lock()
	n.lists = lists
	n.mu.Unlock()
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

func (n *newest) take() [][]byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	lists := n.lists
	n.lists = nil
	return lists
}

// spread takes the status lists of the own AMC and brings them about: at this gateway, at its agents and at its neighbours.
func (a *app) spread(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.lists.ready:
		}
		a.takeStatus(ctx, a.lists.take())
	}
}

// takeStatus applies lists of the own domain, of whatever issuer.
func (a *app) takeStatus(ctx context.Context, lists [][]byte) {
	for _, raw := range lists {
		change, err := a.statuses.Apply(raw)
		if err != nil {
			a.log.Error("status list of the own domain", "err", err)
			return
		}
		if change.Old {
			continue
		}
		a.announce(&arp.Status{List: raw}, change.Issuer)
		a.standing(ctx, change.Changed)
		if change.New && a.remote != nil {
			a.lift(ctx)
		}
	}
	a.peers.StatusChanged()
}

// standing brings about what a status list has changed, of whatever domain: entries, connections, sessions.
func (a *app) standing(ctx context.Context, changes []identity.Standing) {
	for _, c := range changes {
		a.log.Info("standing changed", "aic", c.AIC, "state", c.State.String())
		a.mirrorStanding(ctx, c)
		err := a.follow(ctx, c)
		away := errors.Is(err, directory.ErrNotFound) // another domain's, or withdrawn here: then whoever did it closes its connections
		if err != nil && !away {
			a.log.Error("directory does not follow the status list", "aic", c.AIC, "state", c.State.String(), "err", err)
		}
		if c.State == identity.Good {
			continue
		}
		if !away || a.agents.Adopting(c.AIC) { // one that is about to be at home here has no entry yet
			a.agents.Drop(c.AIC, frame.CertStatus)
		}
		if c.State == identity.Revoked && a.members != nil && a.trust.Own().IsGateway(c.AIC) { // what it signs counts no more
			if _, err := a.publishKeys(ctx, aic.AIC(c.AIC), nil); err != nil {
				a.log.Error("take the keys of a revoked gateway out of the bundle", "aic", c.AIC, "err", err)
			}
		}
	}
	if a.members != nil {
		a.members.Review()
	}
	if len(changes) > 0 {
		a.endSessionsOf(changes)
	}
}

// review ends the sessions with the agents of domains whose status lists have not come for too long: nobody can say any more who of
// them is revoked. It runs until ctx ends.
func (a *app) review(ctx context.Context) {
	tick := time.NewTicker(max(a.cfg.AMC.StatusLife.Or(identity.MaxStatusLife)/60, 100*time.Millisecond))
	defer tick.Stop()
	stale := map[string]bool{} // issuers
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, b := range a.trust.All() {
			seq, _ := a.statuses.Held(b.Issuer)
			err := a.statuses.Fresh(b.Issuer)
			if err != nil && seq > 0 && !stale[b.Issuer] {
				a.log.Warn("the sessions with a domain end", "domain", b.Domain, "err", err)
				a.endSessionsWith(b, frame.CertStatus)
			}
			stale[b.Issuer] = err != nil
		}
	}
}

// follow gives an agent's entry the state that its status demands. Agents of other domains have none here.
func (a *app) follow(ctx context.Context, c identity.Standing) error {
	e, err := a.registry.Get(c.AIC)
	if err != nil {
		return err
	}
	switch c.State {
	case identity.Suspended:
		return a.registry.SetState(ctx, c.AIC, directory.Suspended, now())
	case identity.Revoked:
		return a.registry.Revoke(ctx, c.AIC, "its credentials were revoked", now())
	}
	if e.State == directory.Suspended {
		return a.registry.SetState(ctx, c.AIC, directory.Active, now())
	}
	return nil
}

// catchUp compares the directory with the records of the own AMC when the gateway starts: what was decided while it could not
// act, or by a gateway that a crash stopped half way, is brought about now. Agents of before there were records get one; imported entries,
// which have no credential, have none.
func (a *app) catchUp(ctx context.Context) error {
	for _, id := range a.registry.Marked(func(m registry.Mark) bool { return m.Credential }) {
		s, err := a.amc.Agent(id)
		if frame.CodeOf(err) == frame.NotFound {
			err = a.adopt(ctx, id)
			s.State = identity.Good
		}
		if err == nil {
			err = a.follow(ctx, identity.Standing{AIC: id, State: s.State})
		}
		if err != nil {
			return fmt.Errorf("compare %s with the records of the AMC: %w", id, err)
		}
	}
	return nil
}

func (a *app) adopt(ctx context.Context, id string) error {
	e, err := a.registry.Get(id)
	if err != nil {
		return err
	}
	doc, err := acs.Parse(e.ACS)
	if err != nil {
		return err
	}
	return a.amc.Adopt(ctx, string(a.home.gateway), amc.Legacy{
		AIC: e.AIC, SPKI: e.Provenance.SPKI, Skills: e.Skills, Grant: e.Provenance.Grant, GrantEnd: e.ExpiresAt,
		Attributes: arp.Attributes{Organization: doc.Provider.Organization, Country: doc.Provider.CountryCode, Name: doc.Name},
		CertEnd:    e.LastModified.Add(pki.DefaultLimits().Agent),
	})
}

// owedPrefix names what the AMC must still be told.
const owedPrefix = "owed/"

// payOwed tells the AMC of withdrawals that it could not be told at once.
func (a *app) payOwed(ctx context.Context) {
	owed, err := a.store.Metas(owedPrefix)
	if err != nil {
		a.log.Error("read what the AMC must be told", "err", err)
		return
	}
	for name, reason := range owed {
		id := name[len(owedPrefix):]
		ask, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := a.center.Withdraw(ask, string(a.home.gateway), &arp.Deregister{AIC: id, Reason: string(reason)})
		cancel()
		if code := frame.CodeOf(err); err == nil || code == frame.NotFound || code == frame.State {
			err = a.store.SetMeta(ctx, name, nil)
		}
		if err != nil {
			a.log.Warn("the AMC has not been told of a withdrawal yet", "aic", id, "err", err)
			if code := frame.CodeOf(err); code == frame.UpstreamFailed || ctx.Err() != nil { // nor will it be of the others
				return
			}
		}
	}
}
