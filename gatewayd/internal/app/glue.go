package app

import (
	"context"
	"fmt"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/match"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/embedding"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/gatewayd/internal/relay"
)

// glue is the directory as the registrar and the relay see it.
type glue struct {
	*registry.Registry
	store    *store.Store
	meanings *embedding.Keeper // nil without an embeddings endpoint
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

// Adopt implements registrar.Directory.
func (g glue) Adopt(ctx context.Context, e directory.Entry, doc *acs.ACS) (directory.Entry, error) {
	e, err := g.Registry.Adopt(ctx, e, doc, now())
	if err == nil {
		err = g.store.SetMeta(context.WithoutCancel(ctx), movedPrefix+e.AIC, nil)
	}
	return e, err
}

// movedPrefix names where agents that have an entry here are at home: gateway, version and base. A gateway that had forgotten it would speak for an agent
// that it has not.
const movedPrefix = "moved/"

// Moved implements registrar.Directory.
func (g glue) Moved(ctx context.Context, id string, to registry.Home) error {
	if !g.Registry.Moved(id, to) {
		return nil
	}
	return g.store.SetMeta(ctx, movedPrefix+id, fmt.Appendf(nil, "%s %d %d", to.Gateway, to.Version, to.Base))
}

// recallMoved marks the agents again that have gone to other gateways of the domain.
func (a *app) recallMoved(ctx context.Context) error {
	all, err := a.store.Metas(movedPrefix)
	if err != nil {
		return fmt.Errorf("read which agents have moved: %w", err)
	}
	for name, value := range all {
		var to registry.Home
		if _, err := fmt.Sscanf(string(value), "%s %d %d", &to.Gateway, &to.Version, &to.Base); err != nil {
			return fmt.Errorf("read where %s has moved: %w", name, err)
		}
		if !a.registry.Moved(name[len(movedPrefix):], to) { // its entry has ended since
			if err := a.store.SetMeta(ctx, name, nil); err != nil {
				return err
			}
		}
	}
	return nil
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

// SetCapacity implements registrar.Directory.
func (g glue) SetCapacity(id string, free uint8) { g.Registry.SetCapacity(id, free) }

// Match implements relay.Directory.
func (g glue) Match(ctx context.Context, q semreq.Query, c semreq.Constraints, asker relay.Asker, want int, minScore uint16) ([]directory.Candidate, error) {
	search := registryRequest(q, c, asker, want, minScore)
	embedRequest(ctx, g.meanings, &search.Query) // what went wrong is in the log
	return g.Resolve(ctx, search, now())
}

// embedRequest has a request ranked by the embeddings endpoint, where there is one. Where that does not answer, the request is ranked by
// its words alone, and the error says why.
func embedRequest(ctx context.Context, k *embedding.Keeper, q *match.Query) error {
	if k == nil || q.Text == "" || len(q.Caps) > 0 {
		return nil
	}
	e, err := k.Ask(ctx, q.Text)
	if err != nil {
		q.Without |= match.Dense
		return err
	}
	q.Embedded = e
	return nil
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

// A pause gathers the registrations of a burst into one digest: at least this, and so long that a large directory, whose digest takes
// seconds to build, is at it for a tenth of the time at most while it changes.
const (
	publishPause = 50 * time.Millisecond
	publishRest  = 9
	maxPublish   = time.Minute
)

// restAfter is the pause after a digest that took so long to build.
func restAfter(took time.Duration) time.Duration {
	return min(max(publishPause, publishRest*took), maxPublish)
}

// publish keeps the own digests in step with the directory.
func (a *app) publish(ctx context.Context) {
	changed, cancel := a.registry.Subscribe()
	defer cancel()
	select {
	case <-a.peers.Ready():
	case <-ctx.Done():
		return
	}
	for {
		at := now()
		a.peers.SetOwn(ctx, a.registry.Offers(at), func(atLeast int) []string { return a.registry.PublicTerms(atLeast, at) })
		rest := restAfter(time.Since(at))
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-a.rowsChanged:
		}
		select {
		case <-ctx.Done():
			return
		case <-a.rowsChanged: // what a peer may be told now, it is told now
		case <-time.After(rest):
		}
	}
}
