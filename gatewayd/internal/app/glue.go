package app

import (
	"context"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/match"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/gatewayd/internal/relay"
)

// glue is the directory as the registrar and the relay see it.
type glue struct {
	*registry.Registry
	store *store.Store
}

// Get implements registrar.Directory.
func (g glue) Get(id string) (directory.Entry, bool) {
	e, err := g.Registry.Get(id)
	return e, err == nil
}

// Reserve implements registrar.Directory.
func (g glue) Reserve(ctx context.Context, id string) error { return g.store.Reserve(ctx, id, now()) }

// Register implements registrar.Directory.
func (g glue) Register(ctx context.Context, e directory.Entry, doc *acs.ACS, with func(directory.Tx) error) (directory.Entry, error) {
	return g.Registry.Register(ctx, e, doc, with, now())
}

// Update implements registrar.Directory.
func (g glue) Update(ctx context.Context, e directory.Entry, doc *acs.ACS) (directory.Entry, error) {
	return g.Registry.Update(ctx, e, doc, now())
}

// Withdraw implements registrar.Directory.
func (g glue) Withdraw(ctx context.Context, id, reason string) error {
	return g.Registry.Withdraw(ctx, id, reason, now())
}

// Owe implements registrar.Directory.
func (g glue) Owe(ctx context.Context, id, reason string) error {
	return g.store.SetMeta(ctx, owedPrefix+id, []byte(reason))
}

// Paid implements registrar.Directory.
func (g glue) Paid(ctx context.Context, id string) error {
	return g.store.SetMeta(ctx, owedPrefix+id, nil)
}

// SetAlive implements registrar.Directory.
func (g glue) SetAlive(id string, alive bool) { g.Registry.SetAlive(id, alive, now()) }

// Match implements relay.Directory.
func (g glue) Match(q semreq.Query, c semreq.Constraints, asker relay.Asker, want int, minScore uint16) []directory.Candidate {
	return g.Resolve(registryRequest(q, c, asker, want, minScore), now())
}

// registryRequest is a semantic request as the directory takes it.
func registryRequest(q semreq.Query, c semreq.Constraints, asker relay.Asker, want int, minScore uint16) registry.Request {
	mq := matchQuery(q)
	mq.MinScore, mq.Limit = minScore, want
	mq.Exclude = append([]string{asker.AIC}, c.Exclude...) // nobody is told to ask itself
	return registry.Request{Query: mq, Asker: asker.Domain, Home: asker.Home, Filter: q.ParsedFilter()}
}

// Score implements relay.Directory.
func (g glue) Score(q semreq.Query, r *semreq.Result) uint16 {
	s := r.Skill
	return match.ScoreText(matchQuery(q), match.SkillText{CapID: r.Cap, Name: s.Name, Description: s.Description, Tags: s.Tags, In: s.In, Out: s.Out})
}

func matchQuery(q semreq.Query) match.Query {
	return match.Query{Text: q.Text, Caps: q.Caps, Classes: q.Classes, Tags: q.Tags, In: q.In, Out: q.Out, All: len(q.Filter) > 0}
}

// sessions is the attached agents as the relay sees them.
type sessions struct{ *registrar.Registrar }

// Offer implements relay.Agents.
func (s sessions) Offer(ctx context.Context, target string, asker relay.Asker, mint func() ([16]byte, []byte, error)) ([]semreq.Endpoint, error) {
	return s.Registrar.Offer(ctx, target, asker.Domain, asker.Home, mint)
}

// publishPause gathers the registrations of a burst into one digest.
const publishPause = 50 * time.Millisecond

// publishShare keeps a large directory that changes all the time from making digests all the time: one takes at most a tenth of a core.
const publishShare = 9

// publish keeps the own digests in step with the directory.
func (a *app) publish(ctx context.Context) {
	changed, cancel := a.registry.Subscribe()
	defer cancel()
	for {
		at := now()
		a.peers.SetOwn(ctx, a.registry.Offers(at), a.registry.PublicTerms(at))
		pause := max(publishPause, publishShare*time.Since(at))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
