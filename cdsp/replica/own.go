package replica

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"agentgw/cdsp/wire"
)

// ownItem is one of our own keys, with the batch that says so.
type ownItem struct {
	item  *wire.Item
	scope wire.Scope
	batch *ownBatch
	index uint16
}

// ownBatch is one batch that we signed.
type ownBatch struct {
	*batch
	scope     wire.Scope
	size      int       // items in it
	reissueAt time.Time // zero: holds tombstones, which are left to expire
}

func sameScope(a, b wire.Scope) bool {
	return a.Visibility == b.Visibility && a.MaxHops == b.MaxHops && a.Level == b.Level && slices.Equal(a.Allow, b.Allow)
}

// ownReserve is the room that is left for our tombstones among the keys that neighbours take of one origin.
const ownReserve = 50

// setOwn compares the wanted digests with the current ones: what is new or changed gets a version and a batch, what is
// gone a tombstone, and what is the same stays as it is.
func (r *Replica) setOwn(now time.Time, groups []wire.Group) error {
	wanted, err := collect(groups)
	if err != nil {
		return err
	}
	if limit := r.cfg.Limits.OriginEntries - ownReserve; len(wanted) > limit {
		return fmt.Errorf("%d own digests are over the limit of %d: neighbours would refuse them", len(wanted), limit)
	}
	var signing []*ownItem
	for _, key := range sortedIDs(wanted) { // versions are given in one order, so that a run can be repeated
		w, have := wanted[key], r.own[key]
		if have != nil && have.item.Kind == wire.KindDigest && have.item.CHash == w.item.CHash && sameScope(have.scope, w.scope) {
			continue
		}
		signing = append(signing, r.renewOwn(w))
	}
	for _, key := range r.ownKeys() {
		have := r.own[key]
		if _, kept := wanted[key]; !kept && have.item.Kind == wire.KindDigest {
			signing = append(signing, r.renewOwn(&ownItem{item: &wire.Item{Key: key}, scope: have.scope}))
		}
	}
	return r.signOwn(now, r.withThinned(signing))
}

func collect(groups []wire.Group) (map[wire.ID16]*ownItem, error) {
	wanted := map[wire.ID16]*ownItem{}
	for _, g := range groups {
		for i := range g.Items {
			it := g.Items[i]
			it.Kind = wire.KindDigest
			hash, err := it.ContentHash()
			if err != nil {
				return nil, fmt.Errorf("own digest %q: %w", it.Label, err)
			}
			it.CHash = hash
			if err := readsBack(&it); err != nil {
				return nil, fmt.Errorf("own digest %q: %w", it.Label, err)
			}
			if wanted[it.Key] != nil {
				return nil, fmt.Errorf("own digest %q of taxonomy %q is there twice at level %v", it.Label, it.NS, g.Scope.Level)
			}
			wanted[it.Key] = &ownItem{item: &it, scope: g.Scope}
		}
	}
	return wanted, nil
}

// readsBack says whether neighbours will accept the item's form.
func readsBack(it *wire.Item) error {
	raw, err := it.MarshalCBOR()
	if err != nil {
		return err
	}
	return new(wire.Item).UnmarshalCBOR(raw)
}

func (r *Replica) ownKeys() []wire.ID16 { return sortedIDs(r.own) }

func sortedIDs[V any](m map[wire.ID16]V) []wire.ID16 {
	return slices.SortedFunc(maps.Keys(m), func(a, b wire.ID16) int { return slices.Compare(a[:], b[:]) })
}

func (r *Replica) renewOwn(w *ownItem) *ownItem {
	r.oseq++
	w.item.OSeq = r.oseq
	r.own[w.item.Key] = w
	return w
}

// withThinned adds the items of batches of which less than half still counts, so that the old batches can be dropped.
func (r *Replica) withThinned(signing []*ownItem) []*ownItem {
	live := map[*ownBatch]int{}
	for _, it := range r.own {
		if it.batch != nil {
			live[it.batch]++
		}
	}
	for _, key := range r.ownKeys() {
		it := r.own[key]
		if b := it.batch; b != nil && !b.reissueAt.IsZero() && live[b]*2 < b.size {
			signing = append(signing, it)
		}
	}
	return signing
}

// reissue signs batches anew before they expire. Versions and contents stay, so no table changes.
func (r *Replica) reissue(now time.Time) {
	var due []*ownItem
	for _, key := range r.ownKeys() {
		if b := r.own[key].batch; b != nil && !b.reissueAt.IsZero() && !now.Before(b.reissueAt) {
			due = append(due, r.own[key])
		}
	}
	if err := r.signOwn(now, due); err != nil {
		r.alarm(r.cfg.Gateway, "own digests are not re-issued and will expire: %v", err)
	}
}

// signOwn puts items into batches of one scope and one kind each; a sketch stands alone.
func (r *Replica) signOwn(now time.Time, items []*ownItem) error {
	slices.SortFunc(items, func(a, b *ownItem) int { return slices.Compare(a.item.Key[:], b.item.Key[:]) })
	for len(items) > 0 {
		var batch, rest []*ownItem
		size := 0
		for _, it := range items {
			n := len(it.item.Sketch) + 1024 // more than the rest of an item of ours takes
			fits := len(batch) == 0 || sameScope(it.scope, batch[0].scope) && it.item.Kind == batch[0].item.Kind &&
				it.item.Sketch == nil && batch[0].item.Sketch == nil && len(batch) < wire.MaxItems && size+n <= wire.MaxBatch
			if fits {
				batch, size = append(batch, it), size+n
			} else {
				rest = append(rest, it)
			}
		}
		if err := r.signBatch(now, batch); err != nil {
			return err
		}
		items = rest
	}
	return nil
}

func (r *Replica) signBatch(now time.Time, items []*ownItem) error {
	sc := items[0].scope
	body := &wire.Batch{Origin: r.cfg.Gateway, Domain: r.cfg.Domain, OEpoch: r.cfg.OEpoch, NotBefore: uint64(now.Unix()),
		Expires: uint64(now.Add(r.cfg.Timers.TTL).Unix()), Visibility: sc.Visibility, Allow: sc.Allow, MaxHops: sc.MaxHops, Level: sc.Level}
	wireItems := make([]*wire.Item, len(items))
	for i, it := range items {
		wireItems[i] = it.item
	}
	raw, err := body.Sign(r.cfg.Signer, wireItems)
	if err != nil {
		return fmt.Errorf("sign own digests: %w", err)
	}
	b := &ownBatch{batch: &batch{hash: wire.BatchHash(raw), raw: raw, body: body, ok: true}, scope: sc, size: len(items)}
	if items[0].item.Kind == wire.KindDigest {
		b.reissueAt = now.Add(r.jitter(r.cfg.Timers.TTL, 50, 60))
	}
	for i, it := range items {
		it.batch, it.index = b, uint16(i)
		r.publish(now, it)
	}
	return nil
}

func (r *Replica) publish(now time.Time, it *ownItem) {
	d := r.destOf(Ref{Origin: r.cfg.Gateway, Key: it.item.Key})
	d.own = true
	d.newest = &content{version: Version{OEpoch: r.cfg.OEpoch, OSeq: it.item.OSeq}, batch: it.batch.batch, index: it.index, item: it.item}
	r.recompute(now, d)
}
