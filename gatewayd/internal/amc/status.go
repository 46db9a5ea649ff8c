package amc

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	maxWhy     = 256
	sessionMax = 8 * time.Hour // of a session that began before its agent was revoked
)

// note keeps in memory what the status list needs of an agent. The caller holds the lock, or is alone.
func (a *AMC) note(id string, g *agent) {
	if g.State == identity.Good {
		delete(a.bad, id)
	} else {
		a.bad[id] = g
	}
	a.certs.stand(id, g)
	a.certs.keep(id, g)
	a.noteCerts(g)
}

func (a *AMC) noteCerts(g *agent) {
	for _, c := range g.Certs {
		if c.Superseded != 0 {
			a.old[string(c.Serial)] = supers{c.Superseded, c.NotAfter}
		}
	}
}

// Suspend takes an agent out of service until Resume.
func (a *AMC) Suspend(ctx context.Context, id, why string) error {
	return a.set(ctx, id, identity.Suspended, identity.ReasonHold, why)
}

// Resume lifts a suspension: the agent goes on without a new enrolment.
func (a *AMC) Resume(ctx context.Context, id, why string) error {
	return a.set(ctx, id, identity.Good, identity.ReasonRemoveFromCRL, why)
}

// Revoke ends an agent's credentials for good; reason is of RFC 5280, section 5.3.1.
func (a *AMC) Revoke(ctx context.Context, id string, reason uint8, why string) error {
	return a.set(ctx, id, identity.Revoked, reason, why)
}

// Withdraw implements Center: an agent that has left is revoked, for cessation of operation.
func (a *AMC) Withdraw(ctx context.Context, gateway string, m *arp.Deregister) error {
	if err := a.look(ctx, func(tx Tx) error {
		g, err := getAgent(tx, m.AIC)
		if err == nil && g.Class == ClassGateway && !g.isOf(gateway, m.AIC) { // an agent may have moved to any gateway of the domain
			err = frame.Errorf(frame.Binding, "%s is a gateway, which leaves for itself", m.AIC)
		}
		return err
	}); err != nil {
		return err
	}
	err := a.Revoke(ctx, m.AIC, identity.ReasonCessation, m.Reason)
	if errors.Is(err, errAlready) {
		return nil
	}
	return err
}

// clip cuts an operator's or an agent's words: half a character would make a record that cannot be read again.
func clip(why string) string { return strings.ToValidUTF8(why[:min(len(why), maxWhy)], "") }

var errAlready = errors.New("already")

// events are the audit kinds of the states.
var events = map[identity.State]string{identity.Good: KindResumed, identity.Suspended: KindSuspended, identity.Revoked: KindRevoked}

// set changes an agent's state, and has the new status list out before it returns. It is recorded before it is done: a crash between
// the two leaves a record without its effect, which nobody has been told of, and never an effect that a restored backup would undo.
func (a *AMC) set(ctx context.Context, id string, state identity.State, reason uint8, why string) error {
	why = clip(why)
	now := a.cfg.Now()
	var g *agent
	var before identity.State
	check := func(tx Tx) (err error) {
		if g, err = getAgent(tx, id); err != nil {
			return err
		}
		switch before = g.State; {
		case g.State == state:
			return frame.Errorf(frame.State, "%s is %s %w", id, state, errAlready)
		case g.State == identity.Revoked:
			return frame.Errorf(frame.State, "%s is revoked, and that is for good: a new enrolment makes a new agent", id)
		}
		return nil
	}
	a.setting.Lock()
	err := a.look(ctx, check)
	if err == nil {
		err = a.cfg.Audit(ctx, events[state], Changed{AIC: id, Reason: reason, Why: why})
	}
	if err == nil {
		if err = a.transact(ctx, func(tx Tx) error {
			if err := check(tx); err != nil {
				return err
			}
			g.State, g.Since, g.Reason, g.Why = state, uint64(now.Unix()), reason, why
			return put(tx, prefixAgent+id, g)
		}); err != nil { // the last word of the log is what stands
			err = errors.Join(err, a.cfg.Audit(ctx, events[before], Changed{AIC: id, Why: "the change before could not be kept"}))
		}
	}
	if err == nil {
		a.mu.Lock()
		a.note(id, g)
		a.mu.Unlock()
	}
	a.setting.Unlock()
	if err != nil {
		return err
	}
	return a.renewList(ctx)
}

// Run makes a new status list whenever a third of the newest one's life is over, and clears away what has ended, until ctx ends.
func (a *AMC) Run(ctx context.Context) {
	list, purge := time.NewTicker(max(a.cfg.StatusLife/3, 100*time.Millisecond)), time.NewTicker(purgeEvery)
	defer list.Stop()
	defer purge.Stop()
	if err := a.renewList(ctx); err != nil {
		a.cfg.Log.Error("status list", "err", err)
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-list.C:
			err = a.renewList(ctx)
		case <-purge.C:
			err = a.purge(ctx)
		}
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Error("status list and records of the AMC", "err", err)
		}
	}
}

func (a *AMC) loadSeq() (seq uint64, err error) {
	err = a.cfg.Store.Records(nameStatus, func(_ string, value []byte) error {
		if len(value) != 8 {
			return errors.New("the status list's sequence number is damaged: restore the folder from a backup")
		}
		seq = binary.BigEndian.Uint64(value)
		return nil
	})
	return seq, err
}

// renewList signs and publishes the status list as of now. Its sequence number is a time in milliseconds, and always above the
// one before: neither a restart nor a backup that was restored repeats one.
func (a *AMC) renewList(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.cfg.Now()
	seq := max(a.seq+1, uint64(now.UnixMilli()))
	if err := a.transact(ctx, func(tx Tx) error {
		tx.Set(nameStatus, binary.BigEndian.AppendUint64(nil, seq))
		return nil
	}); err != nil {
		return err
	}
	a.seq = seq
	lists, err := identity.SignStatus(identity.StatusList{
		Domain: a.cfg.Domain, Issuer: string(a.cfg.Issuer), Seq: seq, Issued: uint64(now.Unix()),
		Next: uint64(now.Add(a.cfg.StatusLife).Unix()), Entries: a.entries(now),
	}, a.cfg.Status())
	if err != nil {
		return err
	}
	a.cfg.Publish(lists)
	return nil
}

// maxListed is what a status list takes.
const maxListed = identity.MaxStatusParts * identity.MaxStatusEntries

// entries are all that are not good and that anybody could still meet; where a list does not take them, agents come first, and of
// them the revoked: gateways hold superseded certificates by the key that they know. The caller holds the lock.
func (a *AMC) entries(now time.Time) []identity.StatusEntry {
	unix := uint64(now.Unix())
	var out []identity.StatusEntry
	for id, g := range a.bad {
		until := g.Since
		if c := g.newest(); c != nil {
			until = max(until, c.NotAfter)
		}
		if g.State == identity.Revoked && unix > until+uint64(sessionMax.Seconds()) {
			continue // no certificate and no session of it can live any more
		}
		out = append(out, identity.StatusEntry{Subject: id, State: g.State, Since: g.Since, Reason: g.Reason})
	}
	if len(out) > maxListed {
		slices.SortFunc(out, func(x, y identity.StatusEntry) int { return cmp.Compare(y.State, x.State) })
		out = out[:maxListed]
	}
	for serial, c := range a.old {
		if unix > c.notAfter {
			delete(a.old, serial)
			continue
		}
		if len(out) < maxListed {
			out = append(out, identity.StatusEntry{Subject: []byte(serial), State: identity.Revoked, Since: c.since, Reason: identity.ReasonSuperseded})
		}
	}
	if n := len(a.bad) + len(a.old); n > maxListed {
		a.cfg.Log.Error("the status list does not take all that are suspended, revoked or superseded", "known", n, "listed", len(out))
	}
	return out
}

const (
	purgeEvery = 10 * time.Minute
	purgeBatch = 256
	keepEnded  = 24 * time.Hour // tokens and unused grants, so that their holders are told why
)

// purge removes tokens and unused grants that ended a day ago, and requests that nobody decided about.
func (a *AMC) purge(ctx context.Context) error {
	now := a.cfg.Now()
	a.certs.purge(uint64(now.Unix()))
	var gone []string
	ended := errors.New("enough")
	look := func(prefix string, over func(value []byte) bool) error {
		err := a.cfg.Store.Records(prefix, func(name string, value []byte) error {
			if over(value) {
				gone = append(gone, name)
			}
			if len(gone) == purgeBatch {
				return ended
			}
			return nil
		})
		if errors.Is(err, ended) {
			return nil
		}
		return err
	}
	err := errors.Join(
		look(prefixToken, func(v []byte) bool {
			var t Token
			return frame.Unmarshal(v, &t) == nil && now.After(time.Unix(int64(t.Expires), 0).Add(keepEnded))
		}),
		look(prefixGrant, func(v []byte) bool {
			var g grant
			return frame.Unmarshal(v, &g) == nil && now.After(time.Unix(int64(g.Nbf), 0).Add(keepEnded+MaxTokenLife))
		}),
		look(prefixPending, func(v []byte) bool {
			var p pending
			return frame.Unmarshal(v, &p) == nil && now.After(time.Unix(int64(p.Asked), 0).Add(pendingLife))
		}),
	)
	if err != nil || len(gone) == 0 {
		return err
	}
	return a.transact(ctx, func(tx Tx) error {
		for _, name := range gone {
			tx.Set(name, nil)
		}
		return nil
	})
}

// Standing is what this AMC knows of one agent, for the operator.
type Standing struct {
	AIC      string
	Name     string // that it gave itself
	Class    uint8  // ClassAgent or ClassGateway
	Skills   []string
	State    identity.State
	Since    time.Time
	Reason   uint8
	Why      string
	Gateway  string
	Decider  string
	Scope    []string
	GrantEnd time.Time
	CertEnd  time.Time
}

// Agent is what this AMC knows of an AIC.
func (a *AMC) Agent(id string) (Standing, error) {
	var g *agent
	err := a.cfg.Store.Records(prefixAgent+id, func(name string, value []byte) error {
		if name != prefixAgent+id {
			return nil
		}
		g = new(agent)
		return frame.Unmarshal(value, g)
	})
	if err != nil {
		return Standing{}, err
	}
	if g == nil {
		return Standing{}, frame.Errorf(frame.NotFound, "%s was not issued by this AMC: %w", id, directory.ErrNotFound)
	}
	return g.standing(id), nil
}

// Agents are all that this AMC has issued credentials to, gateways among them, in the order of their AICs.
func (a *AMC) Agents() (out []Standing, err error) {
	err = a.cfg.Store.Records(prefixAgent, func(name string, value []byte) error {
		g := new(agent)
		if err := frame.Unmarshal(value, g); err != nil {
			return err
		}
		out = append(out, g.standing(strings.TrimPrefix(name, prefixAgent)))
		return nil
	})
	return out, err
}

func (g *agent) standing(id string) Standing {
	s := Standing{
		AIC: id, Name: g.Attributes.Name, Class: g.Class, Skills: g.Skills, State: g.State, Since: time.Unix(int64(g.Since), 0), Reason: g.Reason,
		Why: g.Why, Gateway: g.Gateway, Decider: g.Decider, Scope: g.Scope, GrantEnd: time.Unix(int64(g.GrantExp), 0),
	}
	if c := g.newest(); c != nil {
		s.CertEnd = time.Unix(int64(c.NotAfter), 0)
	}
	return s
}
