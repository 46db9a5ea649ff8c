package replica

import (
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

type rxPhase uint8

const (
	rxWait rxPhase = iota // no stream yet
	rxSkip                // after our RESYNC: the rest of the old stream means nothing
	rxSync
	rxLive
)

// receiver is our end of the neighbour's digest stream.
type receiver struct {
	phase   rxPhase
	delta   bool // of the stream's synchronisation
	epoch   wire.ID8
	sess    wire.ID8
	next    uint64        // frame sequence due
	applied uint64        // rib_seq
	recent  [16]wire.ID16 // after the last frames: a KEEPALIVE may be overtaken by frames sent later
	recentN int
	carried map[wire.ID16]*batch
	bytes   int  // of carried
	full    bool // a batch was left out for its bytes
	nacks   []wire.Nack
	refused bool // something of this stream was refused, so that the tables may differ until the sender knows

	ackAt     time.Time // zero: nothing to acknowledge
	ackFrames int
	ackBytes  int
}

// maxUnknown bounds the keys that a bundle may bring later; one is enough to ask for everything anew.
const maxUnknown = 64

// noteUnknown remembers a key; it says whether the key is new among those that the neighbour lacks.
func (p *peer) noteUnknown(kid frame.KeyID) bool {
	if p.unknown == nil {
		p.unknown = map[frame.KeyID]bool{}
	}
	if len(p.unknown) == maxUnknown || p.unknown[kid] {
		return false
	}
	p.unknown[kid] = true
	return true
}

// holding is the cookie for the neighbour; nil where nothing of it is held.
func (p *peer) holding() *wire.Cookie {
	if len(p.in)+len(p.parked) == 0 {
		return nil
	}
	return &wire.Cookie{Epoch: p.cookie.Epoch, RIBSeq: p.cookie.RIBSeq, TableHash: p.hash}
}

// doubt notes that what is held is not, or not surely, what the neighbour takes it for: only a full synchronisation mends that.
func (r *Replica) doubt(p *peer) {
	p.cookie = wire.Cookie{}
	r.keep(p)
}

// continues says whether a delta is one of the table that is held.
func (p *peer) continues(m *wire.SyncBegin) bool {
	return p.cookie.Epoch != wire.ID8{} && m.Epoch == p.cookie.Epoch && m.Base <= p.cookie.RIBSeq
}

func (rx *receiver) nack(n wire.Nack) {
	rx.refused = true
	rx.nacks = append(rx.nacks, n)
}

func (rx *receiver) remember(hash wire.ID16) {
	rx.recent[rx.recentN%len(rx.recent)] = hash
	rx.recentN++
}

// knew says whether our table is, or was some frames ago, the one that the neighbour says it sent.
func (rx *receiver) knew(hash, now wire.ID16) bool {
	return hash == now || slices.Contains(rx.recent[:min(rx.recentN, len(rx.recent))], hash)
}

func (r *Replica) onSyncBegin(now time.Time, s *session, m *wire.SyncBegin) {
	delta := m.Mode == wire.ModeDelta
	if delta && !s.peer.continues(m) {
		r.emit(StopDigest{Conn: s.conn, Code: frame.EpochUnknown})
		r.askResync(s, wire.ModeFull, frame.EpochUnknown)
		return
	}
	r.dropCarried(s)
	was := s.rx
	r.noted(Noted{What: SyncBegun, Gateway: s.peer.gateway, Delta: delta})
	s.rx = receiver{phase: rxSync, delta: delta, epoch: m.Epoch, sess: m.Sess, next: 1, applied: m.Base, carried: map[wire.ID16]*batch{}}
	if delta {
		s.rx.recent, s.rx.recentN = was.recent, was.recentN
		r.clearStale(now, s.peer)
		return
	}
	s.peer.unknown = nil
	r.unparkAll(s.peer)
	r.markStale(now, s.peer)
}

// inOrder says whether a frame of the digest stream is the one that is due. A gap ends the stream, not the session.
func (r *Replica) inOrder(now time.Time, s *session, seq uint64) bool {
	switch s.rx.phase {
	case rxSkip:
		return false
	case rxWait:
		r.close(now, s, frame.UnexpectedFrame, "digest stream does not start with SYNC_BEGIN")
		return false
	}
	if seq != s.rx.next {
		r.emit(StopDigest{Conn: s.conn, Code: frame.SeqGap})
		r.askResync(s, wire.ModeDelta, frame.SeqGap)
		return false
	}
	s.rx.next++
	return true
}

func (r *Replica) onEntries(now time.Time, s *session, m *wire.Entries) {
	if len(s.rx.nacks)+len(m.Entries) > wire.MaxEntries {
		r.sendAck(s) // before this frame counts: the one that acknowledges it has all its refusals
	}
	if !r.inOrder(now, s, m.Seq) {
		return
	}
	s.peer.overLimit = false
	r.carry(s, m.Batches)
	for _, raw := range m.Entries {
		r.acceptEntry(now, s, raw)
	}
	if s.peer.bad >= r.cfg.Limits.BadPerMinute {
		r.alarm(s.peer.gateway, "%d batches that do not verify within a minute", s.peer.bad)
		r.close(now, s, frame.BadSignature, "too many digests do not verify")
		return
	}
	if s.peer.overLimit && s.peer.noteOver(now) {
		r.holdFlood(now, s)
		return
	}
	r.applied(now, s, m.RIBSeq, entriesSize(m))
}

func entriesSize(m *wire.Entries) (n int) {
	for _, raw := range m.Entries {
		n += len(raw)
	}
	for _, raw := range m.Batches {
		n += len(raw)
	}
	return n
}

// applied notes that a frame was taken in and when it is acknowledged: every 8 frames, 256 KiB or 50 ms.
func (r *Replica) applied(now time.Time, s *session, ribSeq uint64, size int) {
	rx := &s.rx
	if ribSeq != rx.applied {
		r.changed = true
	}
	rx.applied = ribSeq
	if rx.phase == rxLive || rx.delta { // a full one counts when it is whole
		s.peer.cookie.RIBSeq = ribSeq
		r.keep(s.peer)
	}
	rx.remember(s.peer.hash)
	rx.ackFrames++
	rx.ackBytes += size
	if rx.ackFrames >= 8 || rx.ackBytes >= 256<<10 {
		r.sendAck(s)
	} else if rx.ackAt.IsZero() {
		rx.ackAt = now.Add(r.cfg.Timers.AckDelay)
	}
}

func (r *Replica) sendAck(s *session) {
	rx := &s.rx
	r.emit(Send{Conn: s.conn, Msg: &wire.Ack{Sess: rx.sess, Seq: rx.next - 1, RIBSeq: rx.applied, Nacks: rx.nacks,
		Credit: uint64(r.cfg.Limits.Inflight)}})
	rx.nacks, rx.ackFrames, rx.ackBytes, rx.ackAt = nil, 0, 0, time.Time{}
}

func (r *Replica) onSyncEnd(now time.Time, s *session, m *wire.SyncEnd) {
	if !r.inOrder(now, s, m.Seq) {
		return
	}
	if s.rx.phase != rxSync {
		r.close(now, s, frame.UnexpectedFrame, "second SYNC_END of one stream")
		return
	}
	s.rx.phase = rxLive
	r.noted(Noted{What: SyncEnded, Gateway: s.peer.gateway, Delta: s.rx.delta, Count: len(s.peer.in)})
	if !s.rx.delta {
		r.sweepStale(now, s.peer)
		s.peer.cookie.Epoch = s.rx.epoch
	} else {
		r.askParked(now, s.peer)
	}
	r.applied(now, s, m.RIBSeq, 0)
	r.sendAck(s)
	if !s.rx.refused && m.TableHash != s.peer.hash {
		r.tablesDiffer(now, s)
	}
	r.changed = true
}

// askResync asks the neighbour for another stream: for its whole table, or for what changed since our cookie.
func (r *Replica) askResync(s *session, mode wire.Mode, reason frame.Code) {
	m := &wire.Resync{Mode: mode, Reason: reason}
	if mode == wire.ModeFull {
		r.doubt(s.peer)
	} else {
		m.Cookie = s.peer.holding()
	}
	r.skip(s)
	if s.state == Established {
		r.emit(Send{Conn: s.conn, Msg: m})
	}
}

// skip makes nothing of the rest of the current stream.
func (r *Replica) skip(s *session) {
	r.dropCarried(s)
	s.rx.phase, s.rx.ackAt, s.rx.nacks = rxSkip, time.Time{}, nil
}

// keysChanged drops what no accepted key vouches for any more, and asks those for everything anew whose entries were
// refused for a key that is known now.
func (r *Replica) keysChanged(now time.Time) {
	for _, ref := range sortedRefs(r.dests) {
		if d := r.dests[ref]; !d.own && d.newest != nil && !d.newest.batch.stillKnown(r.cfg.Keys) {
			r.disown(now, d)
		}
	}
	r.eachPeer(func(p *peer) { r.tryParked(now, p) })
	r.eachPeer(func(p *peer) {
		for kid := range p.unknown {
			if _, ok := r.cfg.Keys(kid); !ok {
				continue
			}
			if s := p.session; s != nil && s.rx.phase != rxSkip {
				r.askResync(s, wire.ModeFull, frame.UnknownKey)
			} else {
				r.doubt(p)
			}
			return
		}
	})
}

func (r *Replica) disown(now time.Time, d *dest) {
	b := d.newest.batch
	for _, rt := range slices.Clone(d.routes) {
		rt.peer.noteUnknown(b.kid)
		r.doubt(rt.peer) // it may never hear of it
		r.nackHeld(now, rt.peer, d.ref, frame.UnknownKey)
		r.dropRoute(now, rt.peer, d.ref)
	}
	b.ok = false
	d.newest = nil
	r.recompute(now, d)
	r.forget(d)
}
