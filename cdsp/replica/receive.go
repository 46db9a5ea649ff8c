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
	sess    wire.ID8
	next    uint64 // frame sequence due
	applied uint64 // rib_seq
	hash    wire.ID16
	recent  [16]wire.ID16 // after the last frames: a KEEPALIVE may be overtaken by frames sent later
	recentN int
	carried map[wire.ID16]*batch
	bytes   int  // of carried
	full    bool // a batch was left out for its bytes
	nacks   []wire.Nack
	refused bool // something of this stream was refused, so that the tables may differ until the sender knows
	unknown map[frame.KeyID]bool

	ackAt     time.Time // zero: nothing to acknowledge
	ackFrames int
	ackBytes  int
}

// maxUnknown bounds the keys that a bundle may bring later; one is enough to ask for everything anew.
const maxUnknown = 64

// noteUnknown remembers a key; it says whether the key is new among those of this stream.
func (rx *receiver) noteUnknown(kid frame.KeyID) bool {
	if rx.unknown == nil {
		rx.unknown = map[frame.KeyID]bool{}
	}
	if len(rx.unknown) == maxUnknown || rx.unknown[kid] {
		return false
	}
	rx.unknown[kid] = true
	return true
}

func (rx *receiver) nack(n wire.Nack) {
	rx.refused = true
	rx.nacks = append(rx.nacks, n)
}

func (rx *receiver) remember() {
	rx.recent[rx.recentN%len(rx.recent)] = rx.hash
	rx.recentN++
}

// knew says whether our table is, or was some frames ago, the one that the neighbour says it sent.
func (rx *receiver) knew(hash wire.ID16) bool {
	return hash == rx.hash || slices.Contains(rx.recent[:min(rx.recentN, len(rx.recent))], hash)
}

func (r *Replica) onSyncBegin(now time.Time, s *session, m *wire.SyncBegin) {
	rx := &s.rx
	r.dropCarried(s)
	*rx = receiver{phase: rxSync, sess: m.Sess, next: 1, hash: rx.hash, carried: map[wire.ID16]*batch{}}
	if m.Mode == wire.ModeFull {
		r.markStale(now, s.peer)
		return
	}
	rx.applied = m.Base
	for ref, rt := range s.peer.in { // the base that our cookie named vouches for them
		if rt.stale {
			rt.stale = false
			rx.hash.XOR(entryHash(ref, rt.version))
		}
	}
	r.sweepStale(now, s.peer)
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
		r.askResync(s, frame.SeqGap)
		return false
	}
	s.rx.next++
	return true
}

func (r *Replica) onEntries(now time.Time, s *session, m *wire.Entries) {
	if !r.inOrder(now, s, m.Seq) {
		return
	}
	s.peer.overLimit = false
	r.carry(s, m.Batches)
	for _, raw := range m.Entries {
		r.acceptEntry(now, s, raw)
		if len(s.rx.nacks) == wire.MaxEntries {
			s.rx.applied = min(s.rx.applied, m.RIBSeq)
			r.sendAck(s)
		}
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
	rx.remember()
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
	r.sweepStale(now, s.peer)
	r.applied(now, s, m.RIBSeq, 0)
	r.sendAck(s)
	if !s.rx.refused && m.TableHash != s.rx.hash {
		r.tablesDiffer(now, s)
	}
	r.changed = true
}

// askResync asks the neighbour to send its table anew; what it still sends on the old stream is skipped.
func (r *Replica) askResync(s *session, reason frame.Code) {
	r.dropCarried(s)
	s.rx.phase, s.rx.ackAt, s.rx.nacks = rxSkip, time.Time{}, nil
	r.emit(Send{Conn: s.conn, Msg: &wire.Resync{Mode: wire.ModeFull, Reason: reason}})
}

// keysChanged drops what no accepted key vouches for any more, and asks those for everything anew whose entries were
// refused for a key that is known now.
func (r *Replica) keysChanged(now time.Time) {
	for _, ref := range sortedRefs(r.dests) {
		if d := r.dests[ref]; !d.own && d.newest != nil && !d.newest.batch.stillKnown(r.cfg.Keys) {
			r.disown(now, d)
		}
	}
	r.eachSession(func(s *session) {
		for kid := range s.rx.unknown {
			if _, ok := r.cfg.Keys(kid); ok && s.rx.phase != rxSkip {
				r.askResync(s, frame.UnknownKey)
				return
			}
		}
	})
}

func (r *Replica) disown(now time.Time, d *dest) {
	b := d.newest.batch
	for _, rt := range slices.Clone(d.routes) {
		if s := rt.peer.session; s != nil {
			s.rx.noteUnknown(b.kid)
			s.rx.nack(wire.Nack{Origin: d.ref.Origin, Key: d.ref.Key, Code: frame.UnknownKey})
			s.rx.ackAt = now
			if len(s.rx.nacks) == wire.MaxEntries {
				r.sendAck(s)
			}
		}
		r.dropRoute(now, rt.peer, d.ref)
	}
	b.ok = false
	d.newest = nil
	r.recompute(now, d)
	r.forget(d)
}
