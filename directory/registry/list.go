package registry

import (
	"iter"
	"slices"
	"time"

	"agentgw/directory"
)

// Listing is one entry with what is known of the agent now.
type Listing struct {
	directory.Entry
	Capabilities []directory.Capability
	Alive        bool
	MovedTo      string    // gateway of the domain that is its home now; "" for this one
	LastSeen     time.Time // zero: not since this process began
}

// Listing is one entry, as the store holds it, with what is known of the agent now; false without one.
func (r *Registry) Listing(aic string) (Listing, bool) {
	rec := r.record(aic)
	if rec == nil {
		return Listing{}, false
	}
	e, err := r.store.Get(aic)
	if err != nil {
		return Listing{}, false
	}
	l := Listing{Entry: e, Capabilities: r.index.Of(aic), Alive: rec.live.alive.Load(), MovedTo: r.MovedTo(aic).Gateway}
	if len(l.Capabilities) == 0 || l.Capabilities[0].EntryVersion != e.Version { // the index follows in a moment
		if l.Capabilities, err = directory.Capabilities(e); err != nil {
			return Listing{}, false
		}
	}
	if ms := rec.live.lastSeen.Load(); ms != 0 {
		l.LastSeen = time.UnixMilli(ms).UTC()
	}
	return l, true
}

// Page is at most limit entries that are kept, of the AICs after one, in their order. more says that others follow.
func (r *Registry) Page(after string, limit int, keep func(Mark) bool) (list []Listing, more bool) {
	order := r.order()
	at, found := slices.BinarySearch(order, after)
	if found {
		at++
	}
	for _, id := range order[at:] {
		rec := r.record(id)
		if rec == nil || !keep(rec.mark(id)) {
			continue
		}
		if len(list) == limit {
			return list, true
		}
		if l, ok := r.Listing(id); ok { // else it went at this moment
			list = append(list, l)
		}
	}
	return list, false
}

// inOrder is the AICs in order, as they were after so many changes.
type inOrder struct {
	changes uint64
	at      time.Time
	aics    []string
}

// A list is put in order anew when an AIC has come or gone; a long one at most once a second, so that who reads it page by page while
// others register does not have it sorted for each.
const (
	longList = 10_000
	longWait = time.Second
)

func (r *Registry) order() []string {
	changes, kept := r.changes.Load(), r.ordered.Load()
	if kept != nil && (kept.changes == changes || len(kept.aics) > longList && time.Since(kept.at) < longWait) {
		return kept.aics
	}
	next := &inOrder{changes: changes, at: time.Now(), aics: make([]string, 0, r.Len())}
	r.records.Range(func(id, _ any) bool {
		next.aics = append(next.aics, id.(string))
		return true
	})
	slices.Sort(next.aics)
	r.ordered.Store(next)
	return next.aics
}

// Mark is what the registry has of an entry at hand.
type Mark struct {
	AIC        string
	State      directory.State
	Credential bool // an agent holds, or has held, a credential under which it attaches; an imported entry has none
}

func (r *record) mark(aic string) Mark { return Mark{aic, r.state, r.credential} }

// Marked is the AICs of the entries that are kept, in order.
func (r *Registry) Marked(keep func(Mark) bool) []string {
	var out []string
	r.records.Range(func(id, v any) bool {
		if m := v.(*record).mark(id.(string)); keep(m) {
			out = append(out, m.AIC)
		}
		return true
	})
	slices.Sort(out)
	return out
}

// Offer is a capability that is offered now, and to whom.
type Offer struct {
	*directory.Capability // not to be changed
	Visibility            directory.Visibility
	Allow                 []string // domains, for VisibleListed
}

// Offers visits the capabilities that are offered at the time now, private ones apart, in no order.
func (r *Registry) Offers(now time.Time) iter.Seq[Offer] {
	return func(yield func(Offer) bool) {
		r.index.Each(func(c *directory.Capability) bool {
			rec := r.record(c.AIC)
			if rec == nil || !rec.offered(now) || rec.visibility == directory.VisiblePrivate {
				return true
			}
			return yield(Offer{c, rec.visibility, rec.allow})
		})
	}
}

// PublicTerms is the distinct terms that at least so many of the public capabilities have that are offered at the time now, in order.
func (r *Registry) PublicTerms(atLeast int, now time.Time) []string {
	return r.index.Vocabulary(atLeast, func(c *directory.Capability) bool {
		rec := r.record(c.AIC)
		return rec != nil && rec.offered(now) && rec.visibility == directory.VisiblePublic
	})
}

// Versions is the AICs that have an entry, with its version, in no order.
func (r *Registry) Versions() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		r.records.Range(func(id, v any) bool { return yield(id.(string), v.(*record).version) })
	}
}

// Capabilities are those of an AIC, as the matcher has them; nil for none.
func (r *Registry) Capabilities(aic string) []directory.Capability { return r.index.Of(aic) }
