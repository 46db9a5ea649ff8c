package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"agentgw/cdsp/wire"
)

// ownItem is one of our own keys, with the batch that says so.
type ownItem struct {
	item  *wire.Item
	scope wire.Scope
	size  int // of the encoded item, at most
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
// gone a tombstone, and what is the same stays as it is. What breaks the protocol counts as gone, all else is published; the
// error names it. Nothing counts as said before it is signed, so that what could not be signed is tried again.
func (r *Replica) setOwn(now time.Time, groups []wire.Group) error {
	wanted, refused := collect(groups)
	if limit := r.cfg.Limits.OriginEntries - ownReserve; len(wanted) > limit {
		return fmt.Errorf("%d own digests are over the limit of %d: neighbours would refuse them", len(wanted), limit)
	}
	fresh := r.renewed(wanted)
	return errors.Join(refused.err(), r.signOwn(now, append(fresh, r.thinned(fresh)...)))
}

// faults is what is wrong with the own digests that were handed in.
type faults []error

// maxFaults is how many faults one error spells out.
const maxFaults = 4

func (f faults) err() error {
	if more := len(f) - maxFaults; more > 0 {
		f = append(slices.Clone(f[:maxFaults]), fmt.Errorf("%d more own digests are left out", more))
	}
	return errors.Join(f...)
}

// collect takes the digests that neighbours will accept; a group of a wrong scope and a wrong item are left out.
func collect(groups []wire.Group) (map[wire.ID16]*ownItem, faults) {
	wanted := map[wire.ID16]*ownItem{}
	var refused faults
	for _, g := range groups {
		if err := g.Scope.Check(); err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", nameOf(g), err))
			continue
		}
		for i := range g.Items {
			it := g.Items[i]
			size, err := complete(&it, g.Scope.Level)
			if err == nil && wanted[it.Key] != nil {
				err = fmt.Errorf("it is there twice at level %v", g.Scope.Level)
			}
			if err != nil {
				refused = append(refused, fmt.Errorf("own digest %q of taxonomy %q is left out: %w", it.Label, it.NS, err))
				continue
			}
			wanted[it.Key] = &ownItem{item: &it, scope: g.Scope, size: size}
		}
	}
	return wanted, refused
}

func nameOf(g wire.Group) string {
	if len(g.Items) == 0 {
		return "a group of no own digests is left out"
	}
	return fmt.Sprintf("a group of %d own digests is left out, the first is %q of taxonomy %q", len(g.Items), g.Items[0].Label, g.Items[0].NS)
}

// complete makes a digest of an item, and says how large it is and whether neighbours will accept its form.
func complete(it *wire.Item, level wire.Level) (size int, err error) {
	it.Kind = wire.KindDigest
	if it.CHash, err = it.ContentHash(); err != nil {
		return 0, err
	}
	raw, err := it.MarshalCBOR()
	if err != nil {
		return 0, err
	}
	_, err = (&wire.Batch{Level: level, Raw: []cbor.RawMessage{raw}}).Item(0)
	return len(raw) + versionRoom, err
}

// versionRoom is what an item grows by when it gets its version; tombstoneSize is what a tombstone takes at most.
const (
	versionRoom   = 8
	tombstoneSize = 64
)

func (r *Replica) ownKeys() []wire.ID16 { return sortedIDs(r.own) }

func sortedIDs[V any](m map[wire.ID16]V) []wire.ID16 {
	return slices.SortedFunc(maps.Keys(m), func(a, b wire.ID16) int { return slices.Compare(a[:], b[:]) })
}

// renewed is what must be signed so that our own digests become the wanted ones, each with its next version. Versions are
// given in the order of keys, so that a run can be repeated.
func (r *Replica) renewed(wanted map[wire.ID16]*ownItem) []*ownItem {
	var out []*ownItem
	add := func(w *ownItem) {
		out = append(out, w)
		w.item.OSeq = r.oseq + uint64(len(out))
	}
	for _, key := range sortedIDs(wanted) {
		w, have := wanted[key], r.own[key]
		if have == nil || have.item.Kind != wire.KindDigest || have.item.CHash != w.item.CHash || !sameScope(have.scope, w.scope) {
			add(w)
		}
	}
	for _, key := range r.ownKeys() {
		have := r.own[key]
		if _, kept := wanted[key]; !kept && have.item.Kind == wire.KindDigest {
			add(&ownItem{item: &wire.Item{Key: key}, scope: have.scope, size: tombstoneSize})
		}
	}
	return out
}

// thinned is the items of batches of which less than half still counts once fresh ones are signed; they are signed anew, so
// that the old batches can be dropped.
func (r *Replica) thinned(fresh []*ownItem) []*ownItem {
	replaced := make(map[wire.ID16]bool, len(fresh))
	for _, it := range fresh {
		replaced[it.item.Key] = true
	}
	live := map[*ownBatch]int{}
	for key, it := range r.own {
		if !replaced[key] {
			live[it.batch]++
		}
	}
	var out []*ownItem
	for _, key := range r.ownKeys() {
		it := r.own[key]
		if b := it.batch; !replaced[key] && !b.reissueAt.IsZero() && live[b]*2 < b.size {
			out = append(out, it)
		}
	}
	return out
}

// reissue signs batches anew before they expire. Versions and contents stay, so no table changes.
func (r *Replica) reissue(now time.Time) {
	var due []*ownItem
	for _, key := range r.ownKeys() {
		if b := r.own[key].batch; !b.reissueAt.IsZero() && !now.Before(b.reissueAt) {
			due = append(due, r.own[key])
		}
	}
	err := r.signOwn(now, due)
	if err != nil && !r.reissueFailed {
		r.alarm(r.cfg.Gateway, "own digests are not re-issued and will expire: %v", err)
	}
	r.reissueFailed = err != nil
}

// signOwn puts items into batches of one scope and one kind each; a sketch stands alone. A batch that cannot be signed keeps
// nothing of the others back.
func (r *Replica) signOwn(now time.Time, items []*ownItem) error {
	slices.SortFunc(items, func(a, b *ownItem) int { return slices.Compare(a.item.Key[:], b.item.Key[:]) })
	var failed faults
	for len(items) > 0 {
		var batch, rest []*ownItem
		size := 0
		for _, it := range items {
			fits := len(batch) == 0 || sameScope(it.scope, batch[0].scope) && it.item.Kind == batch[0].item.Kind &&
				it.item.Sketch == nil && batch[0].item.Sketch == nil && len(batch) < wire.MaxItems && size+it.size <= wire.MaxBatch
			if fits {
				batch, size = append(batch, it), size+it.size
			} else {
				rest = append(rest, it)
			}
		}
		if err := r.signBatch(now, batch); err != nil {
			failed = append(failed, fmt.Errorf("sign %d own digests, the first is %q: %w", len(batch), batch[0].item.Label, err))
		}
		items = rest
	}
	return failed.err()
}

// signBatch signs items of one scope, and only then makes them our own.
func (r *Replica) signBatch(now time.Time, items []*ownItem) error {
	sc := items[0].scope
	body := &wire.Batch{Origin: r.cfg.Gateway, Domain: r.cfg.Domain, OEpoch: r.cfg.OEpoch, NotBefore: uint64(now.Unix()),
		Expires: uint64(now.Add(r.cfg.Timers.TTL).Unix()), Visibility: sc.Visibility, Allow: sc.Allow, MaxHops: sc.MaxHops, Level: sc.Level}
	wireItems := make([]*wire.Item, len(items))
	for i, it := range items {
		wireItems[i] = it.item
	}
	raw, err := body.Sign(r.cfg.Signer(), wireItems)
	if err != nil {
		return err
	}
	b := &ownBatch{batch: &batch{hash: wire.BatchHash(raw), raw: raw, body: body, ok: true}, scope: sc, size: len(items)}
	if items[0].item.Kind == wire.KindDigest {
		b.reissueAt = now.Add(r.jitter(r.cfg.Timers.TTL, 50, 60))
	}
	for i, it := range items {
		it.batch, it.index = b, uint16(i)
		r.own[it.item.Key] = it
		r.oseq = max(r.oseq, it.item.OSeq)
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
