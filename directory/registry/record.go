package registry

import (
	"sync/atomic"
	"time"

	"agentgw/directory"
)

// record is what the readers need of an entry for every request. The rest, its specification above all, is in the store alone: a million
// records take some 200 MB, a million entries would take several gigabytes.
type record struct {
	version    uint64
	expires    int64 // unix milliseconds, 0 for never
	state      directory.State
	visibility directory.Visibility
	credential bool      // somebody holds a credential of this AIC
	adopted    bool      // its agent was at home at another gateway of the domain before
	allow      []string  // domains, for VisibleListed
	live       *liveness // the same through all versions of an entry
}

type liveness struct {
	alive    atomic.Bool
	moved    atomic.Pointer[Home] // another gateway of the domain that is its agent's home; nil: this one
	lastSeen atomic.Int64         // unix milliseconds, 0 for never
	free     atomic.Uint32        // share of its places that are free, 0 to 255
}

// Home is a gateway at which an agent is at home.
type Home struct {
	Gateway string
	Version uint64 // of its entry there
	Base    uint64 // the highest version that was known when the agent came there
}

// GivesWayTo says whether h is over: o knew of it, or is what has become of it. A version alone says nothing, for an agent that comes and goes with
// an old statement could run it up.
func (h Home) GivesWayTo(o Home) bool {
	return o.Base >= h.Version || o.Gateway == h.Gateway && o.Version > h.Version
}

func newRecord(e *directory.Entry) *record {
	r := &record{
		version: e.Version, state: e.State, visibility: e.Visibility, credential: e.Provenance.SPKI != [32]byte{}, adopted: e.Provenance.From != "",
		allow: e.Allow, live: new(liveness),
	}
	if !e.ExpiresAt.IsZero() {
		r.expires = e.ExpiresAt.UnixMilli()
	}
	return r
}

// sameAs says whether a record is that of an entry; liveness is of no entry.
func (r *record) sameAs(e *directory.Entry) bool {
	o := newRecord(e)
	same := r.version == o.version && r.expires == o.expires && r.state == o.state && r.visibility == o.visibility && r.credential == o.credential && r.adopted == o.adopted
	if !same || len(r.allow) != len(o.allow) {
		return false
	}
	for i := range r.allow {
		same = same && r.allow[i] == o.allow[i]
	}
	return same
}

// offered is [directory.Entry.Offered], of an agent that is at home here.
func (r *record) offered(now time.Time) bool {
	return r.state.Offered() && r.live.moved.Load() == nil && (r.expires == 0 || now.Before(time.UnixMilli(r.expires)))
}

// visibleTo is [directory.Entry.VisibleTo].
func (r *record) visibleTo(asker string, home bool) bool {
	return directory.Entry{Visibility: r.visibility, Allow: r.allow}.VisibleTo(asker, home)
}

func (r *Registry) record(aic string) *record {
	v, ok := r.records.Load(aic)
	if !ok {
		return nil
	}
	return v.(*record)
}
