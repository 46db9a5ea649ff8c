package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/filter"
	"agentgw/directory/match"
	"agentgw/directory/taxonomy"
)

// Store is what the registry keeps its entries in. A nil error means durable; Put and Tombstone compare the stored version with
// expected and fail with the errors of package directory.
type Store interface {
	All(func(directory.Entry) error) error
	// Sequence is the number of the last change of an entry.
	Sequence() (uint64, error)
	Get(aic string) (directory.Entry, error)
	Put(ctx context.Context, e directory.Entry, expected uint64) error
	// PutWith changes the store's records in the same commit.
	PutWith(ctx context.Context, e directory.Entry, expected uint64, change func(directory.Tx) error) error
	Tombstone(ctx context.Context, t directory.Tombstone, expected uint64) error
	Due(now time.Time, limit int) ([]string, error)
	Editions(aic string, f func(directory.Entry) error) error
}

// Registry is an open directory.
type Registry struct {
	store   Store
	records sync.Map // AIC → *record: readers never wait
	count   atomic.Int64
	changes atomic.Uint64 // AICs that came or went
	ordered atomic.Pointer[inOrder]
	index   match.Index

	unsure    atomic.Bool   // the store could not be read back: what is shown may be less than what it holds
	resolving chan struct{} // one for each request that is ranked now

	indexing sync.Mutex // the index's one writer; never held across I/O

	mu      sync.Mutex               // guards what follows
	owned   map[string]chan struct{} // AICs under change; closed when free again
	subs    map[chan struct{}]bool
	pending []match.Change // for the index's next writer; of different AICs, for each is owned
}

// Len is the number of entries.
func (r *Registry) Len() int { return int(r.count.Load()) }

// Get is the entry of an AIC as the store holds it, or ErrNotFound.
func (r *Registry) Get(aic string) (directory.Entry, error) {
	if r.record(aic) == nil {
		return directory.Entry{}, fmt.Errorf("entry %s: %w", aic, directory.ErrNotFound)
	}
	return r.store.Get(aic)
}

// SetAlive marks an agent as attached or not; false if it has no entry. The digest does not follow liveness, so nobody is told.
func (r *Registry) SetAlive(aic string, alive bool, now time.Time) bool {
	rec := r.record(aic)
	if rec == nil {
		return false
	}
	rec.live.alive.Store(alive)
	if alive {
		rec.live.lastSeen.Store(now.UnixMilli())
	}
	return true
}

// SetCapacity notes how many of its places an attached agent has free, of 255; false if it has no entry. Nobody is told.
func (r *Registry) SetCapacity(aic string, free uint8) bool {
	rec := r.record(aic)
	if rec == nil {
		return false
	}
	rec.live.free.Store(uint32(free))
	return true
}

// offlineLoad is that of an agent that is not attached: above that of every other.
const offlineLoad = 256

// load is how busy an agent is: 0 with all places free, 255 with none.
func (r *Registry) load(c *directory.Capability) uint16 {
	rec := r.record(c.AIC)
	if rec == nil || !rec.live.alive.Load() {
		return offlineLoad
	}
	return uint16(math.MaxUint8 - rec.live.free.Load())
}

// Alive says whether an agent is attached.
func (r *Registry) Alive(aic string) bool {
	rec := r.record(aic)
	return rec != nil && rec.live.alive.Load()
}

// Request is a semantic request to this directory.
type Request struct {
	match.Query
	Asker          string         // domain that asks, for the allow lists
	Home           bool           // the asker is of this domain
	IncludeOffline bool           // also agents that are not attached
	Filter         *filter.Filter // nil passes all
}

// What one request's filter may cost, together: specifications that it reads, each of them anew, their octets, and the work of judging
// them. The best capabilities come first.
const (
	maxFiltered       = 4096
	maxFilteredOctets = 4 << 20
	maxFilterWork     = 8 << 20 // some 50 ms
)

// Resolve is the best capabilities that the asker may see and that are offered now, best first. Private entries are seen by
// nobody here. The error is that of a request whose context ended before its turn came.
func (r *Registry) Resolve(ctx context.Context, q Request, now time.Time) ([]directory.Candidate, error) {
	own, passes := q.Refuse, r.filtered(q.Filter)
	q.Offered = func(c *directory.Capability) bool {
		rec := r.record(c.AIC)
		return rec != nil && rec.offered(now) && rec.visibleTo(q.Asker, q.Home) && (q.IncludeOffline || rec.live.alive.Load())
	}
	q.Refuse = func(c *directory.Capability) string {
		rec := r.record(c.AIC)
		switch {
		case rec == nil:
			return "was withdrawn a moment ago"
		case !rec.state.Offered():
			return "is " + rec.state.String()
		case rec.live.moved.Load() != nil:
			return "is at home at another gateway of the domain, " + rec.live.moved.Load().Gateway
		case !rec.offered(now):
			return "has expired"
		case !rec.visibleTo(q.Asker, q.Home):
			return "is not visible to " + q.Asker + " (" + rec.visibility.String() + ")"
		case !q.IncludeOffline && !rec.live.alive.Load():
			return "its agent is offline"
		case !passes(c):
			return "the filter does not hold of it"
		case own != nil:
			return own(c)
		}
		return ""
	}
	q.Load = r.load
	list, err := r.ranked(ctx, q.Query)
	for i := range list {
		list[i].Offline = !r.Alive(list[i].AIC)
	}
	return list, err
}

// ranked waits for its turn: more requests at a time than there are processors end no sooner, and each has memory for every capability.
// One that nobody waits for any more takes no turn.
func (r *Registry) ranked(ctx context.Context, q match.Query) ([]directory.Candidate, error) {
	err := ctx.Err()
	if err == nil {
		select {
		case r.resolving <- struct{}{}:
			defer func() { <-r.resolving }()
			return r.index.Resolve(q), nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return nil, fmt.Errorf("wait for a turn among the requests: %w", err)
}

// Refused is a capability that a request comes near to and does not get, and why.
type Refused struct {
	directory.Capability
	Score float64
	Why   string
}

// MaxRefused is how many [Registry.Explain] names.
const MaxRefused = 20

// Explain is Resolve, with the best of those that were held back.
func (r *Registry) Explain(ctx context.Context, q Request, now time.Time) ([]directory.Candidate, []Refused, error) {
	var refused []Refused
	q.Refused = func(c *directory.Capability, score float64, why string) {
		if len(refused) < MaxRefused {
			refused = append(refused, Refused{*c, score, why})
		}
	}
	list, err := r.Resolve(ctx, q, now)
	return list, refused, err
}

// filtered judges one capability after another by a filter, as far as its budget goes.
func (r *Registry) filtered(f *filter.Filter) func(*directory.Capability) bool {
	if f == nil {
		return func(*directory.Capability) bool { return true }
	}
	left, octets, work := maxFiltered, maxFilteredOctets, maxFilterWork
	return func(c *directory.Capability) bool {
		if left--; left < 0 || octets < 0 || work < 0 {
			return false
		}
		e, err := r.store.Get(c.AIC)
		if err != nil { // it went at this moment
			return false
		}
		octets -= len(e.ACS)
		doc, err := acs.Parse(e.ACS)
		if err != nil { // the directory wrote it
			return false
		}
		members := maps.Clone(doc.Members())
		if skills, ok := members["skills"].([]any); ok {
			members["skills"] = slices.DeleteFunc(slices.Clone(skills), func(s any) bool {
				m, ok := s.(map[string]any)
				return !ok || m["id"] != c.SkillID
			})
		}
		return f.Match(members, &work)
	}
}

// Register stores a new entry: version 1, registered and modified now, its hash computed here. The ACS is doc, or that of e, which is
// read here, where doc is nil; it must name the entry's AIC. It returns what was stored. ErrExists if the AIC has or had an entry. with
// changes the store's records in the same commit, and nil does not: its error is returned, and nothing is stored.
func (r *Registry) Register(ctx context.Context, e directory.Entry, doc *acs.ACS, with func(directory.Tx) error, now time.Time) (directory.Entry, error) {
	if with == nil {
		with = func(directory.Tx) error { return nil }
	}
	e.Version, e.RegisteredAt, e.LastModified, e.Edition = 1, stamp(now), stamp(now), directory.Edition{}
	caps, err := complete(&e, doc)
	if err != nil {
		return directory.Entry{}, fmt.Errorf("register %s: %w", e.AIC, err)
	}
	free, err := r.own(ctx, e.AIC)
	if err != nil {
		return directory.Entry{}, err
	}
	defer free()
	if err := r.store.PutWith(context.WithoutCancel(ctx), e, 0, with); err != nil {
		return directory.Entry{}, r.failed(e.AIC, fmt.Errorf("register: %w", err))
	}
	r.show(e, caps)
	return e, nil
}

// Update stores the next version of an entry; its ACS is as [Registry.Register] has it. e.Version is the version that the caller saw:
// ErrConflict if it is not the current one. Registration time stays; the state may only move as drawn at [directory.State].
func (r *Registry) Update(ctx context.Context, e directory.Entry, doc *acs.ACS, now time.Time) (directory.Entry, error) {
	free, err := r.own(ctx, e.AIC)
	if err != nil {
		return directory.Entry{}, err
	}
	defer free()
	old, err := r.Get(e.AIC)
	if err != nil {
		return directory.Entry{}, fmt.Errorf("update: %w", err)
	}
	if old.Version != e.Version {
		return directory.Entry{}, fmt.Errorf("update %s: at version %d, not %d: %w", e.AIC, old.Version, e.Version, directory.ErrConflict)
	}
	if e.State.Terminal() || !old.State.May(e.State) {
		return directory.Entry{}, fmt.Errorf("update %s: no way from %v to %v", e.AIC, old.State, e.State)
	}
	e.Version, e.RegisteredAt, e.LastModified = old.Version+1, old.RegisteredAt, stamp(now)
	caps, err := complete(&e, doc)
	if err != nil {
		return directory.Entry{}, fmt.Errorf("update %s: %w", e.AIC, err)
	}
	if e.Edition = old.Edition; !e.SameContent(old) {
		e.Edition = directory.Edition{Number: old.Edition.Number + 1, Since: e.LastModified}
	}
	if err := r.store.Put(context.WithoutCancel(ctx), e, old.Version); err != nil {
		return directory.Entry{}, r.failed(e.AIC, fmt.Errorf("update: %w", err))
	}
	r.show(e, caps)
	return e, nil
}

// Adopt makes this the home of an agent that was at home at another gateway of the domain, or is again where it was before. e.Version is the
// highest version that is known of its entry: the one here, or what the other gateway has stated. The entry is stored with one above it, and of
// one here as of the time it was registered; its ACS is as [Registry.Register] has it. It returns what was stored. ErrExists if the AIC has
// ended here, ErrConflict if the entry here is of a higher version.
func (r *Registry) Adopt(ctx context.Context, e directory.Entry, doc *acs.ACS, now time.Time) (directory.Entry, error) {
	free, err := r.own(ctx, e.AIC)
	if err != nil {
		return directory.Entry{}, err
	}
	defer free()
	old, err := r.Get(e.AIC)
	if err != nil && !errors.Is(err, directory.ErrNotFound) {
		return directory.Entry{}, fmt.Errorf("adopt: %w", err)
	}
	known := err == nil
	if old.Version > e.Version {
		return directory.Entry{}, fmt.Errorf("adopt %s at version %d: it is at %d: %w", e.AIC, e.Version, old.Version, directory.ErrConflict)
	}
	if !e.State.Offered() {
		return directory.Entry{}, fmt.Errorf("adopt %s in state %v", e.AIC, e.State)
	}
	e.Provenance.Base = e.Version
	e.Version, e.RegisteredAt, e.LastModified, e.Edition = e.Version+1, stamp(e.RegisteredAt), stamp(now), old.Edition
	caps, err := complete(&e, doc)
	if err != nil {
		return directory.Entry{}, fmt.Errorf("adopt %s: %w", e.AIC, err)
	}
	if known && !e.SameContent(old) {
		e.Edition = directory.Edition{Number: old.Edition.Number + 1, Since: e.LastModified}
	}
	if err := r.store.Put(context.WithoutCancel(ctx), e, old.Version); err != nil {
		return directory.Entry{}, r.failed(e.AIC, fmt.Errorf("adopt: %w", err))
	}
	r.show(e, caps)
	if rec := r.record(e.AIC); rec.live.moved.Swap(nil) != nil {
		r.tell()
	}
	return e, nil
}

// Moved says that another gateway of the domain is an agent's home now: it is offered here no more. False if the agent has no entry here, or a home
// that does not give way. The registry does not store it.
func (r *Registry) Moved(aic string, to Home) bool {
	rec := r.record(aic)
	if rec == nil {
		return false
	}
	for {
		was := rec.live.moved.Load()
		if was != nil && !was.GivesWayTo(to) {
			return false
		}
		if rec.live.moved.CompareAndSwap(was, &to) {
			if was == nil {
				r.tell()
			}
			return true
		}
	}
}

// MovedTo is the home of an agent with an entry here, the zero Home for this gateway.
func (r *Registry) MovedTo(aic string) Home {
	if rec := r.record(aic); rec != nil {
		if to := rec.live.moved.Load(); to != nil {
			return *to
		}
	}
	return Home{}
}

// Adopted is the AICs whose agents were at home elsewhere before they were here, and have not left again.
func (r *Registry) Adopted() (list []string) {
	r.records.Range(func(id, v any) bool {
		if rec := v.(*record); rec.adopted && rec.live.moved.Load() == nil {
			list = append(list, id.(string))
		}
		return true
	})
	return list
}

// Withdraw ends an entry on its owner's or the operator's word.
func (r *Registry) Withdraw(ctx context.Context, aic, reason string, now time.Time) error {
	return r.end(ctx, aic, directory.Withdrawn, reason, now)
}

// Revoke ends an entry whose agent's credentials have been revoked.
func (r *Registry) Revoke(ctx context.Context, aic, reason string, now time.Time) error {
	return r.end(ctx, aic, directory.Revoked, reason, now)
}

// SetState moves an entry to a state that is not terminal, whatever its version is. One that is there already stays as it is.
func (r *Registry) SetState(ctx context.Context, aic string, state directory.State, now time.Time) error {
	for range setStateTries {
		e, err := r.Get(aic)
		if err != nil || e.State == state {
			return err
		}
		e.State = state
		if _, err = r.Update(ctx, e, nil, now); !errors.Is(err, directory.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("set %s to %v: it changes all the time: %w", aic, state, directory.ErrConflict)
}

// setStateTries is far more than a second writer could cause at once.
const setStateTries = 16

// Expire ends what is due at now and returns the AICs. An entry that cannot be ended does not keep others from it.
func (r *Registry) Expire(ctx context.Context, now time.Time) ([]string, error) {
	const batch = 128
	var ended []string
	for {
		due, err := r.store.Due(now, batch)
		if err != nil {
			return ended, fmt.Errorf("expire entries: %w", err)
		}
		for _, aic := range due {
			if e := r.end(ctx, aic, directory.Expired, "its time ran out", now); e != nil {
				err = errors.Join(err, e)
				continue
			}
			ended = append(ended, aic)
		}
		if err != nil || len(due) < batch {
			return ended, err
		}
	}
}

func (r *Registry) end(ctx context.Context, aic string, state directory.State, reason string, now time.Time) error {
	free, err := r.own(ctx, aic)
	if err != nil {
		return err
	}
	defer free()
	old, err := r.Get(aic)
	if err != nil {
		return fmt.Errorf("end: %w", err)
	}
	reason = reason[:min(len(reason), directory.MaxReason)]
	reason = strings.ToValidUTF8(reason, "")
	t := directory.Tombstone{AIC: aic, State: state, Version: old.Version + 1, At: stamp(now), Reason: reason}
	if err := r.store.Tombstone(context.WithoutCancel(ctx), t, old.Version); err != nil {
		return r.failed(aic, fmt.Errorf("end %s: %w", aic, err))
	}
	r.hide(aic)
	return nil
}

// stamp has the precision of the storage encoding, so that what is shown equals what a restart will show.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// complete fills what follows from the ACS, doc or else the one in e, and is its capabilities.
func complete(e *directory.Entry, doc *acs.ACS) (_ []directory.Capability, err error) {
	if doc != nil {
		e.ACS, err = doc.Encode()
	} else {
		doc, err = acs.Parse(e.ACS)
	}
	if err != nil {
		return nil, err
	}
	if doc.AIC != e.AIC {
		return nil, fmt.Errorf("the ACS is of %q", doc.AIC)
	}
	if e.ACSHash, err = doc.Hash(); err != nil {
		return nil, err
	}
	e.Taxonomy = taxonomy.Version
	if !e.ExpiresAt.IsZero() {
		e.ExpiresAt = stamp(e.ExpiresAt)
	}
	return directory.CapabilitiesOf(*e, doc), nil
}

// failed makes the registry show what the store holds of an AIC, and returns the error of the write. Whoever calls it owns the AIC.
func (r *Registry) failed(aic string, write error) error {
	e, err := r.store.Get(aic)
	if err == nil {
		var caps []directory.Capability
		if caps, err = directory.Capabilities(e); err == nil {
			if shown := r.record(aic); shown == nil || shown.version != e.Version {
				r.show(e, caps)
			}
			return write
		}
	}
	r.hide(aic)
	if errors.Is(err, directory.ErrNotFound) {
		return write
	}
	r.unsure.Store(true)
	return errors.Join(write, fmt.Errorf("read back: %w", err))
}

// show makes a committed entry visible.
func (r *Registry) show(e directory.Entry, caps []directory.Capability) {
	rec := newRecord(&e)
	if old := r.record(e.AIC); old != nil {
		rec.live = old.live
	} else {
		r.count.Add(1)
		defer r.changes.Add(1)
	}
	r.records.Store(e.AIC, rec)
	r.reindex(match.Change{AIC: e.AIC, Caps: caps})
	r.tell()
}

// hide makes an entry invisible; the record goes first, for readers ask it for everything that the index finds.
func (r *Registry) hide(aic string) {
	if _, was := r.records.LoadAndDelete(aic); !was {
		return
	}
	r.count.Add(-1)
	r.changes.Add(1)
	r.reindex(match.Change{AIC: aic})
	r.tell()
}

// reindex returns when the index has a change. Those that one commit has let go come here together: the first makes its own, the next
// that of all who wait.
func (r *Registry) reindex(c match.Change) {
	r.mu.Lock()
	r.pending = append(r.pending, c)
	r.mu.Unlock()
	r.indexing.Lock()
	defer r.indexing.Unlock()
	r.mu.Lock()
	batch := r.pending
	r.pending = nil
	r.mu.Unlock()
	if len(batch) > 0 { // else another has made it
		r.index.Apply(batch...)
	}
}

// UseEmbedder says whose vectors the matcher keeps and ranks by, beside the built-in table. It is called once, right after [Open].
func (r *Registry) UseEmbedder(id string, dim int) { r.index.Use(id, dim) }

// SetVectors gives the matcher the vectors of an entry's capabilities, in their order. They hold for one version of the entry: ErrConflict
// if it is another by now. The digest does not follow them, so nobody is told.
func (r *Registry) SetVectors(ctx context.Context, aic string, version uint64, e match.Embedded) error {
	free, err := r.own(ctx, aic)
	if err != nil {
		return err
	}
	defer free()
	rec := r.record(aic)
	if rec == nil || rec.version != version {
		return fmt.Errorf("vectors of %s at version %d: %w", aic, version, directory.ErrConflict)
	}
	r.reindex(match.Change{AIC: aic, Caps: r.index.Of(aic), Embedded: e})
	return nil
}

// own waits until nobody else changes the AIC. Its owner calls free when the change is visible.
func (r *Registry) own(ctx context.Context, aic string) (free func(), err error) {
	for {
		r.mu.Lock()
		busy, taken := r.owned[aic]
		if !taken {
			mine := make(chan struct{})
			r.owned[aic] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.owned, aic)
				r.mu.Unlock()
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another change of %s: %w", aic, ctx.Err())
		}
	}
}

// Subscribe returns a channel that holds one value whenever entries have changed since it was last read: changes that nobody
// fetched yet are one. cancel ends it.
func (r *Registry) Subscribe() (changed <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[c] = true
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subs, c)
	}
}

func (r *Registry) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
