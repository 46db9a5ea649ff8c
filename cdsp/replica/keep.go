package replica

import (
	"maps"
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// What neighbours told may outlive this process: its owner writes down what changes ([Replica.TakeLearned]) and hands it in again at the next
// start ([Restored]). As with what is sent, no queue of changes is held, only which keys changed: however slow the writer is, a key
// waits once. A cookie is handed out with the last of the changes that it speaks for, and never before them.

// Learned is what is to be written down of one neighbour, in this order and but for Forget as one: all of it or nothing.
type Learned struct {
	Gateway string // AIC
	Domain  string
	Transit bool // under a row that takes what it learned from others
	Forget  bool // first of all everything that was written of it before is to go, its cookie before its entries
	Put     []KeptEntry
	Drop    []Ref
	Cookie  *wire.Cookie // in the place of the one before; nil: what is written is not all that it speaks for, so there is none
}

// KeptEntry is one entry of a neighbour as it came but for its metric, which has the round trip to the neighbour in it.
type KeptEntry struct {
	Ref   Ref
	Entry []byte // a PUT, see [wire.Entry]
	Batch []byte // signed, that it refers to; shared, and not to be changed
}

// Kept is what was written of one neighbour.
type Kept struct {
	Gateway, Domain string
	Transit         bool
	Cookie          *wire.Cookie
	Entries         []KeptEntry
}

// Restored hands in what was written of one neighbour before this start, after the first SetNeighbours and before its first connection. It is
// judged as if it came now; what is refused, and a neighbour that no row admits, is to be forgotten. What is taken is stale.
type Restored struct{ Kept Kept }

// KeepFailed says that what TakeLearned gave last of a gateway may not have been written: everything of it is given again.
type KeepFailed struct{ Gateway string }

func (Restored) event()   {}
func (KeepFailed) event() {}

// How much one Learned has at most: a transaction of the store takes it, and the owner is not kept for long. The last entry may go above the octets
// by its batch.
const (
	maxLearned      = 1000
	maxLearnedBytes = 512 << 10
)

// unkept is what of a neighbour is not written yet.
type unkept struct {
	dirty  map[Ref]bool
	anew   bool         // what was written is not to be relied on: everything is written again; dirty means nothing meanwhile
	cookie *wire.Cookie // that is written
}

// parked is an entry that was restored and whose key is not known yet: the bundle of its domain comes when its introducer is back. It counts as
// held, so that its neighbour need not tell it again, and is of no use.
type parked struct {
	entry   wire.Entry
	batch   *batch
	version Version
	size    int
}

// newPeer makes a neighbour. Where what was written of an earlier one under this name is still to go, that goes first.
func (r *Replica) newPeer(gateway string, row Neighbour) *peer {
	p := &peer{gateway: gateway, row: row, in: map[Ref]*route{}, kept: unkept{anew: r.unkept[gateway]}, drained: r.lameTo[gateway] || r.lameTo[row.Domain]}
	r.peers[gateway] = p
	return p
}

// forgetKept notes that what was written of a gateway which is no neighbour has to go.
func (r *Replica) forgetKept(gateway string) {
	if r.cfg.Keep {
		r.unkept[gateway] = true
	}
}

// keep notes that something of a neighbour has to be written.
func (r *Replica) keep(p *peer) {
	if r.cfg.Keep {
		r.unkept[p.gateway] = true
	}
}

// keepRef notes that one entry has to be written or removed.
func (r *Replica) keepRef(p *peer, ref Ref) {
	if r.cfg.Keep && !p.kept.anew {
		if len(p.kept.dirty) >= 2*r.cfg.Limits.PeerEntries {
			r.alarm(p.gateway, "what it told is not written down as fast as it comes; it is written anew, and until then a restart asks for everything")
			r.keepAnew(p)
		} else {
			if p.kept.dirty == nil {
				p.kept.dirty = map[Ref]bool{}
			}
			p.kept.dirty[ref] = true
		}
	}
	r.keep(p)
}

func (r *Replica) keepAnew(p *peer) {
	p.kept = unkept{anew: true}
	r.keep(p)
}

// TakeLearned takes a part of what is to be written down, of one neighbour; neighbours take turns. It says false where there is nothing.
func (r *Replica) TakeLearned() (Learned, bool) {
	for range len(r.unkept) {
		gateways := slices.Sorted(maps.Keys(r.unkept))
		i, _ := slices.BinarySearch(gateways, r.keptLast+"\x00")
		gateway := gateways[i%len(gateways)]
		r.keptLast = gateway
		if l, some := r.learned(gateway); some {
			return l, true
		}
	}
	return Learned{}, false
}

func (r *Replica) learned(gateway string) (l Learned, some bool) {
	l.Gateway = gateway
	p := r.peers[gateway]
	if p == nil || len(p.in)+len(p.parked) == 0 {
		delete(r.unkept, gateway)
		if p != nil {
			if p.kept.empty() {
				return l, false
			}
			p.kept = unkept{}
		}
		l.Forget = true
		return l, true
	}
	k := &p.kept
	l.Domain, l.Transit, l.Forget = p.row.Domain, p.row.ImportTransit, k.anew
	if k.anew {
		*k = unkept{dirty: map[Ref]bool{}}
		for ref := range p.in {
			k.dirty[ref] = true
		}
		for ref := range p.parked {
			k.dirty[ref] = true
		}
	}
	some = len(k.dirty) > 0 || l.Forget
	l.take(p)
	if len(k.dirty) > 0 {
		k.cookie = nil
		return l, true
	}
	delete(r.unkept, gateway)
	if c := p.holding(); c.Epoch != (wire.ID8{}) && len(p.unknown) == 0 { // a refusal that the next start has to undo is remembered here alone
		l.Cookie = c
	}
	if was := k.cookie; (was == nil) != (l.Cookie == nil) || was != nil && *was != *l.Cookie {
		k.cookie, some = l.Cookie, true
	}
	return l, some
}

// empty says that nothing was written, or is to be.
func (k *unkept) empty() bool { return !k.anew && len(k.dirty) == 0 && k.cookie == nil }

// take moves as many of the changes of p to l as go into one.
func (l *Learned) take(p *peer) {
	size := 0
	batches := map[*batch]bool{}
	for _, ref := range sortedRefs(p.kept.dirty) {
		if len(l.Put)+len(l.Drop) == maxLearned || size > maxLearnedBytes {
			return
		}
		delete(p.kept.dirty, ref)
		e, b := p.entryOf(ref)
		raw, err := e.Append(nil)
		if b == nil || err != nil { // its parts were parsed before; there is nothing that could fail
			l.Drop = append(l.Drop, ref)
			size += len(ref.Origin) + len(ref.Key)
			continue
		}
		l.Put = append(l.Put, KeptEntry{Ref: ref, Entry: raw, Batch: b.raw})
		if size += len(raw); !batches[b] {
			batches[b] = true
			size += len(b.raw)
		}
	}
}

// entryOf is what the neighbour told about a key, with its batch; nil without.
func (p *peer) entryOf(ref Ref) (wire.Entry, *batch) {
	if rt := p.in[ref]; rt != nil {
		return wire.Entry{Op: wire.OpPut, Batch: rt.batch.hash, Index: rt.index, Path: rt.path,
			Attrs: wire.Attrs{HopsLeft: rt.hops, Stale: rt.farStale, MetricMS: rt.metric}}, rt.batch
	}
	if pk := p.parked[ref]; pk != nil {
		return pk.entry, pk.batch
	}
	return wire.Entry{}, nil
}

// restore takes in what was written of a neighbour. Its cookie counts only where all that it speaks for was taken, which also tells a
// database that has lost something or brought something back, and where as much would have been taken then as today.
func (r *Replica) restore(now time.Time, k Kept) {
	row, ok := r.rows[k.Domain]
	if p := r.peers[k.Gateway]; p != nil { // it was there first
		r.keepAnew(p)
		return
	}
	if !ok || !row.admits(k.Gateway) || k.Gateway == r.cfg.Gateway || len(r.peers) >= maxPeers {
		r.forgetKept(k.Gateway)
		return
	}
	p := r.newPeer(k.Gateway, row)
	p.kept.cookie = k.Cookie
	batches := map[wire.ID16]*batch{}
	for _, e := range k.Entries {
		if err := r.restoreEntry(now, p, e, batches); err != nil {
			r.keepRef(p, e.Ref)
		}
	}
	if k.Cookie != nil && p.hash == k.Cookie.TableHash && k.Transit == row.ImportTransit {
		p.cookie = *k.Cookie
	}
	if r.keep(p); len(p.in)+len(p.parked) > 0 {
		r.restored += len(p.in) + len(p.parked)
		p.staleUntil = now.Add(min(r.cfg.Timers.Restart, maxStale))
		r.emit(Transition{Gateway: p.gateway, From: Idle, To: Stale, Reason: "kept from before this start"})
	}
	r.changed = true
}

func (r *Replica) restoreEntry(now time.Time, p *peer, k KeptEntry, batches map[wire.ID16]*batch) error {
	e, err := wire.ParseEntry(k.Entry)
	if err != nil {
		return err
	}
	hash := wire.BatchHash(k.Batch)
	if e.Op != wire.OpPut || e.Batch != hash {
		return frame.Errorf(frame.Malformed, "kept entry is no PUT of its batch")
	}
	b := batches[hash]
	if b == nil {
		b = newBatch(k.Batch)
		batches[hash] = b
	}
	in := arrival{restored: true}
	if err := in.of(b, e); err != nil {
		return err
	}
	if in.ref != k.Ref || p.in[in.ref] != nil || p.parked[in.ref] != nil {
		return frame.Errorf(frame.Malformed, "kept entry is of another key than it is kept under")
	}
	if _, known := r.cfg.Keys(b.kid); !known {
		return r.park(p, e, &in)
	}
	if err = r.judge(now, p, e, &in); err == nil {
		err = r.install(now, p, e, &in)
	}
	return err
}

// park keeps an entry under a key that is not known, if it is none that would be refused with any key.
func (r *Replica) park(p *peer, e wire.Entry, in *arrival) error {
	if err := r.judgePath(p, e, in.data.batch.body); err != nil {
		return err
	}
	if err := r.judgePolicy(p, e, in.data.batch.body); err != nil {
		return err
	}
	if err := r.judgeLimits(p, in); err != nil {
		return err
	}
	if p.parked == nil {
		p.parked = map[Ref]*parked{}
	}
	p.parked[in.ref] = &parked{entry: e, batch: in.data.batch, version: in.data.version, size: in.size}
	p.hash.XOR(entryHash(in.ref, in.data.version))
	p.bytes += in.size
	return nil
}

// unpark forgets a parked entry; it says whether there was one.
func (r *Replica) unpark(p *peer, ref Ref) bool {
	pk := p.parked[ref]
	if pk == nil {
		return false
	}
	delete(p.parked, ref)
	p.hash.XOR(entryHash(ref, pk.version))
	p.bytes -= pk.size
	r.keepRef(p, ref)
	return true
}

// unparkAll forgets all of them: the neighbour is about to tell everything, or nothing any more.
func (r *Replica) unparkAll(p *peer) {
	for _, ref := range sortedRefs(p.parked) {
		r.unpark(p, ref)
	}
}

// tryParked takes into use what is under keys that are known now.
func (r *Replica) tryParked(now time.Time, p *peer) {
	for _, ref := range sortedRefs(p.parked) {
		pk := p.parked[ref]
		if _, known := r.cfg.Keys(pk.batch.kid); !known {
			continue
		}
		r.unpark(p, ref)
		in := arrival{restored: p.session == nil || p.session.rx.phase == rxWait}
		err := in.of(pk.batch, pk.entry)
		if err == nil {
			err = r.judge(now, p, pk.entry, &in)
		}
		if err == nil {
			err = r.install(now, p, pk.entry, &in)
		}
		if err != nil {
			r.refuseParked(now, p, ref, frame.CodeOf(err))
		}
	}
}

// refuseParked tells the neighbour, if it is there, that an entry which it takes as held is not taken.
func (r *Replica) refuseParked(now time.Time, p *peer, ref Ref, code frame.Code) {
	r.doubt(p) // it may never hear of it
	p.nacked.add(code)
	r.nackHeld(now, p, ref, code)
}

// nackHeld refuses what a neighbour told some time ago.
func (r *Replica) nackHeld(now time.Time, p *peer, ref Ref, code frame.Code) {
	s := p.session
	if s == nil {
		return
	}
	if len(s.rx.nacks) == wire.MaxEntries {
		r.sendAck(s)
		s.rx.remember(p.hash) // a KEEPALIVE may come between this ACK and the next
	}
	s.rx.nack(wire.Nack{Origin: ref.Origin, Key: ref.Key, Code: code})
	s.rx.ackAt = now
}

// parkedTime is how long after a delta the keys of what is parked may take: bundles are sent before digests, and streams overtake each other.
const parkedTime = 5 * time.Second

// askParked asks for the keys of what is parked once the neighbour has told what changed, and sets their time.
func (r *Replica) askParked(now time.Time, p *peer) {
	if len(p.parked) == 0 {
		return
	}
	p.refuseAt = now.Add(parkedTime)
	asked := map[string]bool{}
	for _, ref := range sortedRefs(p.parked) {
		if domain := p.parked[ref].batch.body.Domain; !asked[domain] && len(asked) < maxUnknown {
			asked[domain] = true
			r.emit(UnknownKey{Gateway: p.gateway, Domain: domain})
		}
	}
}

// refuseUnknown refuses what is parked still when that is over. The keys may come later, as of any entry.
func (r *Replica) refuseUnknown(now time.Time, p *peer) {
	p.refuseAt = time.Time{}
	for _, ref := range sortedRefs(p.parked) {
		b := p.parked[ref].batch
		r.unpark(p, ref)
		p.noteUnknown(b.kid)
		r.refuseParked(now, p, ref, frame.UnknownKey)
	}
}

// release has what was restored passed on that no neighbour has confirmed within Defer of the start.
func (r *Replica) release(now time.Time) {
	if r.released || now.Before(r.start.Add(r.cfg.Timers.Defer)) {
		return
	}
	r.released = true
	for _, ref := range sortedRefs(r.dests) {
		if d := r.dests[ref]; d.best != nil && d.best.restored {
			r.recompute(now, d)
		}
	}
}
