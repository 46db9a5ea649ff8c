package replica

import (
	"time"

	"agentgw/cdsp/wire"
)

// history is what one neighbour was told since the last full synchronisation began. It outlives the session for as long as the
// neighbour may keep what it was told, so that the next one can go on where this one ended. It is bounded by the tables: what is
// gone is forgotten with its key.
type history struct {
	epoch  wire.ID8              // names it: the nonce of its first stream
	closed bool                  // the policy row is another one since: no delta goes on with it
	out    map[Ref]*announcement // Adj-RIB-Out
	hash   wire.ID16             // of out
	nacked map[Ref]wire.ID16     // keys that the neighbour refused, with the batch that it refused
	gone   map[Ref]uint64        // taken out again, which the neighbour may have missed; rib_seq of a refusal
	acked  uint64                // rib_seq up to which everything was acknowledged: no refusal of it is under way any more
	head   uint64                // highest rib_seq that the neighbour was told
	until  time.Time             // without a session: when it is forgotten
}

func newHistory(epoch wire.ID8) *history {
	return &history{epoch: epoch, out: map[Ref]*announcement{}, nacked: map[Ref]wire.ID16{}, gone: map[Ref]uint64{}}
}

// take takes a key out of our record of the neighbour's table.
func (h *history) take(ref Ref) {
	if have := h.out[ref]; have != nil {
		h.hash.XOR(entryHash(ref, have.content.version))
		delete(h.out, ref)
	}
}

// exportEpoch is what HELLO says of our export to a neighbour: the history that a delta would go on with; zero without one.
func (p *peer) exportEpoch() wire.ID8 {
	if p.history == nil || p.history.closed {
		return wire.ID8{}
	}
	return p.history.epoch
}

// putBackEvery bounds the alarms about what a neighbour claims.
const putBackEvery = time.Minute

// baseFor is the rib_seq from which a delta to a neighbour with this cookie starts; without one the synchronisation is a full one.
// A refusal that did not reach us is known to the neighbour alone, so what it did not acknowledge is told again whatever its
// cookie says.
func (r *Replica) baseFor(now time.Time, p *peer, c *wire.Cookie) (base uint64, delta bool) {
	h := p.history
	switch {
	case c == nil || h == nil || h.closed || c.Epoch != h.epoch:
		return 0, false
	case c.RIBSeq > h.head: // it heard us say what we know nothing of
		if now.Sub(p.putBack) >= putBackEvery {
			p.putBack = now
			r.alarm(p.gateway, "holds our table as of %d and was told up to %d: this gateway was put back to an earlier state; everything is sent anew",
				c.RIBSeq, h.head)
		}
		return 0, false
	}
	base = min(c.RIBSeq, h.acked)
	return base, base >= r.floor
}

// markSince marks what a delta carries. A key that changed since the base counts as told in an unknown way: the neighbour may have
// missed what it was told last, or hold nothing. The others are as they were told; where we would tell them otherwise today, such
// as for a limit of the neighbour that is another one, that is a change as of now.
func (r *Replica) markSince(now time.Time, s *session, base uint64) {
	tx := &s.tx
	tx.acked = base
	for _, a := range tx.out {
		a.seq = 0 // every frame of the new stream comes after it
	}
	for _, ref := range sortedRefs(r.dests) {
		d := r.dests[ref]
		refused, gone := tx.gone[ref]
		if max(d.changed, refused) > base && (gone || tx.out[ref] != nil) {
			tx.take(ref)
			delete(tx.nacked, ref)
			tx.gone[ref], tx.unsure[ref] = refused, true
		}
		if r.change(now, s, ref) == nil {
			continue
		}
		if d.changed <= base {
			r.touch(d)
		}
		tx.dirty[ref] = d.changed
	}
}

// touch moves a key to the end of the order of changes.
func (r *Replica) touch(d *dest) {
	r.ribSeq++
	d.changed = r.ribSeq
}

// noteAcked notes how far everything was acknowledged, once nothing is under way.
func (r *Replica) noteAcked(s *session) {
	if tx := &s.tx; tx.phase != txIdle && len(tx.inflight) == 0 && s.state == Established {
		tx.acked = max(tx.acked, r.lowWater(s))
	}
}

// keepHistory keeps what a neighbour was told for as long as it may keep it without a session.
func (r *Replica) keepHistory(now time.Time, s *session) {
	if s.tx.phase != txIdle {
		r.noteAcked(s)
		s.tx.until = now.Add(maxStale)
	}
}

// sweepHistory forgets what lost neighbours were told once they have dropped it.
func (p *peer) sweepHistory(now time.Time) {
	if p.session == nil && p.history != nil && !now.Before(p.history.until) {
		p.history = nil
	}
}
