package replica

import (
	"math"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

type txPhase uint8

const (
	txIdle txPhase = iota
	txSync
	txLive
)

// sender is our digest stream to one neighbour. It holds no queue of changes: only which keys changed. However slow the
// neighbour is, a key waits once.
type sender struct {
	*history // nil before the first stream
	phase    txPhase
	sess     wire.ID8
	seq      uint64
	carried  map[wire.ID16]bool
	dirty    map[Ref]uint64 // rib_seq of the oldest change not sent
	unsure   map[Ref]bool   // of dirty: the neighbour may hold something, whatever out says
	delta    bool

	announceAt time.Time // zero: no announcement waits
	withdrawAt time.Time
	announced  time.Time // last

	credit   uint64
	inflight []sentFrame
	bytes    int // of inflight
	progress time.Time
	full     bool // the neighbour's entry limit was reached, and said so

	lineAt   time.Time // its place in the line for a full synchronisation; zero: it does not wait
	servedAt time.Time // when this one began
	freed    bool      // it takes no place any more: all of it is sent but SYNC_END, or its time is over

	resyncAt   time.Time    // a RESYNC waits until then,
	resyncFrom *wire.Cookie // for a delta from there
	lastResync time.Time
}

type sentFrame struct {
	seq  uint64
	low  uint64 // its rib_seq
	size int
}

func newSender(sess wire.ID8) sender {
	return sender{sess: sess, carried: map[wire.ID16]bool{}, dirty: map[Ref]uint64{}, unsure: map[Ref]bool{}}
}

// settled says that everything we have to say was said and acknowledged.
func (tx *sender) settled() bool {
	return tx.phase == txLive && len(tx.dirty) == 0 && len(tx.inflight) == 0
}

func (tx *sender) stalledAt(stall time.Duration, now time.Time) bool {
	return len(tx.inflight) > 0 && !now.Before(tx.progress.Add(stall))
}

// open says whether the window has room: frames by the neighbour's credit and ours, octets by ours.
func (r *Replica) window(s *session) bool {
	tx := &s.tx
	frames := min(tx.credit, uint64(r.cfg.Limits.Inflight))
	return uint64(len(tx.inflight)) < frames && tx.bytes < r.cfg.Limits.InflightBytes
}

// next is when something of the stream is due; without room in the window only the stall is.
func (tx *sender) next(stall time.Duration, room bool) (t time.Time) {
	earlier := func(at time.Time) {
		if !at.IsZero() && (t.IsZero() || at.Before(t)) {
			t = at
		}
	}
	if len(tx.inflight) > 0 {
		earlier(tx.progress.Add(stall))
	}
	earlier(tx.resyncAt)
	if room {
		earlier(tx.announceAt)
		earlier(tx.withdrawAt)
	}
	return t
}

// startSync begins a digest stream: with what changed since the neighbour's cookie, where it holds of us what we know it to hold,
// else with the whole table, which may have to wait its turn.
func (r *Replica) startSync(now time.Time, s *session, cookie *wire.Cookie) {
	r.noteAcked(s)
	base, delta := r.baseFor(now, s.peer, cookie)
	if !delta && !r.mayServe(s) {
		r.lineUp(now, s)
		return
	}
	r.beginSync(now, s, base, delta)
}

func (r *Replica) beginSync(now time.Time, s *session, base uint64, delta bool) {
	sess := s.tx.sess
	if s.tx.phase != txIdle {
		sess = r.nonce()
	}
	if !delta {
		s.peer.history = newHistory(sess)
	}
	announced := s.tx.announced
	s.tx = newSender(sess)
	s.tx.history = s.peer.history
	s.tx.phase, s.tx.delta, s.tx.announced, s.tx.lastResync = txSync, delta, announced, now
	s.tx.servedAt = now
	s.tx.credit = max(1, s.hello.Limits.MaxInflight)
	s.tx.progress = now
	m := &wire.SyncBegin{Sess: sess, Mode: wire.ModeFull, Epoch: s.tx.epoch}
	if delta {
		m.Mode, m.Base = wire.ModeDelta, base
		r.markSince(now, s, base)
	} else {
		for ref := range r.dests {
			s.tx.dirty[ref] = 1
		}
	}
	m.Target = r.ribSeq
	r.emit(Send{Conn: s.conn, Msg: m})
}

// minResync keeps a neighbour from making us send our table over and over.
const minResync = time.Second

func (r *Replica) onResync(now time.Time, s *session, m *wire.Resync) {
	tx := &s.tx
	var from *wire.Cookie
	if m.Mode == wire.ModeDelta {
		from = m.Cookie
	}
	if at := tx.lastResync.Add(minResync); now.Before(at) {
		if tx.resyncAt.IsZero() || from == nil { // one that asks for everything is not undone by the next
			tx.resyncFrom = from
		}
		tx.resyncAt = at
		return
	}
	r.startSync(now, s, from)
}

// mark notes that d may have changed for this neighbour.
func (r *Replica) mark(now time.Time, s *session, d *dest) {
	tx := &s.tx
	if tx.phase == txIdle || s.state != Established {
		return
	}
	want, have := r.export(now, s, d), tx.out[d.ref]
	if want != nil && want.content.tombstone() {
		want = nil
	}
	if tx.phase == txLive && (want == nil && have == nil || want != nil && have != nil && have.same(want)) {
		delete(tx.dirty, d.ref)
		return
	}
	if _, marked := tx.dirty[d.ref]; !marked {
		tx.dirty[d.ref] = r.ribSeq
	}
	if want == nil && tx.withdrawAt.IsZero() {
		tx.withdrawAt = now.Add(r.cfg.Timers.Withdraw)
	}
	if want != nil && tx.announceAt.IsZero() {
		tx.announceAt = latest(now, tx.announced.Add(r.jitter(r.cfg.Timers.Announce, 75, 100)))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *Replica) flushAll(now time.Time) {
	r.release(now)
	for more := true; more; more = r.serveNext(now) { // each time one waits less
		r.eachSession(func(s *session) {
			if s.state != Established {
				return
			}
			if at := s.tx.resyncAt; !at.IsZero() && !now.Before(at) {
				r.startSync(now, s, s.tx.resyncFrom)
			}
			r.flush(now, s)
		})
	}
}

// flush sends what is due as far as the window allows.
func (r *Replica) flush(now time.Time, s *session) {
	tx := &s.tx
	sync := tx.phase == txSync
	puts := sync || !tx.announceAt.IsZero() && !now.Before(tx.announceAt)
	dels := sync || !tx.withdrawAt.IsZero() && !now.Before(tx.withdrawAt)
	if (puts || dels) && len(tx.dirty) > 0 && r.window(s) {
		if !r.sendChanges(now, s, puts, dels) {
			return // the window closed; what is left stays due
		}
	} else if (puts || dels) && len(tx.dirty) > 0 {
		return
	}
	if puts && !tx.announceAt.IsZero() {
		tx.announceAt, tx.announced = time.Time{}, now
	}
	if dels {
		tx.withdrawAt = time.Time{}
	}
	tx.freed = tx.freed || sync && len(tx.dirty) == 0 && r.window(s)
	if sync && r.mayEnd(now, s) {
		r.sendSyncEnd(now, s)
	}
}

// sendChanges builds frames of the keys that are due, in the order of their refs. It reports whether all were sent.
func (r *Replica) sendChanges(now time.Time, s *session, puts, dels bool) bool {
	tx := &s.tx
	var b wire.Builder
	for _, ref := range sortedRefs(tx.dirty) {
		ch := r.change(now, s, ref)
		if ch == nil {
			delete(tx.dirty, ref)
			continue
		}
		if put := ch.entry.Op == wire.OpPut; put && !puts || !put && !dels {
			tx.wait(put, now, r.cfg.Timers.Withdraw)
			continue
		}
		raw, err := ch.entry.Append(nil)
		if err != nil {
			delete(tx.dirty, ref) // its parts were parsed before; there is nothing that could fail
			continue
		}
		batch := ch.batchFor(tx)
		if !b.Fits(len(raw), batch) {
			r.sendEntries(now, s, &b)
			b = wire.Builder{}
			if !r.window(s) {
				return false
			}
		}
		b.Add(raw, batch)
		ch.apply(tx)
		if r.dests[ch.ref] == nil { // forgotten before the neighbour was told: the floor speaks for it
			delete(tx.gone, ch.ref)
		}
	}
	if len(b.Frame.Entries) > 0 {
		r.sendEntries(now, s, &b)
	}
	return true
}

// wait arms the timer of a change that turned from announcement to withdrawal, or back, since it was marked.
func (tx *sender) wait(put bool, now time.Time, delay time.Duration) {
	if put && tx.announceAt.IsZero() {
		tx.announceAt = now.Add(delay)
	}
	if !put && tx.withdrawAt.IsZero() {
		tx.withdrawAt = now.Add(delay)
	}
}

// changeOf is one entry on its way, with what it does to our record of the neighbour's table.
type changeOf struct {
	ref   Ref
	entry wire.Entry
	next  *announcement // nil: withdrawn
	from  *batch        // that the entry refers to
}

// change is what the neighbour must be told about ref now, or nil.
func (r *Replica) change(now time.Time, s *session, ref Ref) *changeOf {
	ch := r.differs(now, s, ref)
	if ch == nil && s.tx.unsure[ref] {
		return withdrawn(ref)
	}
	return ch
}

// differs is the difference between what the neighbour was told about ref and what it is to be told.
func (r *Replica) differs(now time.Time, s *session, ref Ref) *changeOf {
	tx := &s.tx
	d := r.dests[ref]
	want, have := r.export(now, s, d), tx.out[ref]
	switch {
	case want == nil && have == nil:
		return nil
	case want == nil:
		return withdrawn(ref)
	case want.content.tombstone():
		if have == nil && !tx.unsure[ref] {
			return nil
		}
		return newChange(ref, wire.OpDel, want, nil)
	case have != nil && have.same(want), tx.nacked[ref] == want.content.batch.hash:
		return nil
	case have == nil && uint64(len(tx.out)) >= s.hello.Limits.MaxEntries:
		if !tx.full {
			tx.full = true
			r.alarm(s.peer.gateway, "neighbour takes %d entries; what is over is not sent", len(tx.out))
		}
		return nil
	}
	return newChange(ref, wire.OpPut, want, want)
}

func withdrawn(ref Ref) *changeOf {
	return &changeOf{ref: ref, entry: wire.Entry{Op: wire.OpUnreach, Origin: ref.Origin, Key: ref.Key}}
}

func newChange(ref Ref, op wire.Op, a, next *announcement) *changeOf {
	e := wire.Entry{Op: op, Batch: a.content.batch.hash, Index: a.content.index, Path: a.path, Attrs: a.attrs}
	return &changeOf{ref: ref, entry: e, next: next, from: a.content.batch}
}

// batchFor is the batch to send along: each travels once on a stream, with its first use.
func (ch *changeOf) batchFor(tx *sender) []byte {
	if ch.from == nil || tx.carried[ch.from.hash] {
		return nil
	}
	return ch.from.raw
}

func (ch *changeOf) apply(tx *sender) {
	delete(tx.dirty, ch.ref)
	delete(tx.unsure, ch.ref)
	delete(tx.nacked, ch.ref)
	if ch.from != nil {
		tx.carried[ch.from.hash] = true
	}
	tx.take(ch.ref)
	if ch.next == nil {
		tx.gone[ch.ref] = 0
		return
	}
	delete(tx.gone, ch.ref)
	ch.next.seq = tx.seq + 1
	tx.out[ch.ref] = ch.next
	tx.hash.XOR(entryHash(ch.ref, ch.next.content.version))
}

// lowWater is the rib_seq up to which every change was sent or superseded.
func (r *Replica) lowWater(s *session) uint64 {
	oldest := uint64(math.MaxUint64)
	for _, seq := range s.tx.dirty {
		oldest = min(oldest, seq)
	}
	if oldest == math.MaxUint64 {
		return r.ribSeq
	}
	return oldest - min(oldest, 1)
}

func (r *Replica) sendEntries(now time.Time, s *session, b *wire.Builder) {
	m := b.Frame // the builder is used again before this one is carried out
	m.Seq, m.RIBSeq = s.tx.seq+1, r.lowWater(s)
	r.sendFrame(now, s, &m, m.RIBSeq, b.Size())
}

func (r *Replica) sendFrame(now time.Time, s *session, m wire.Message, low uint64, size int) {
	tx := &s.tx
	tx.seq++
	if len(tx.inflight) == 0 {
		tx.progress = now
		r.changed = true
	}
	tx.inflight = append(tx.inflight, sentFrame{seq: tx.seq, low: low, size: size})
	tx.head = max(tx.head, low)
	tx.bytes += size
	r.emit(Send{Conn: s.conn, Msg: m})
}

func (r *Replica) sendSyncEnd(now time.Time, s *session) {
	s.tx.phase = txLive
	low := r.lowWater(s)
	r.sendFrame(now, s, &wire.SyncEnd{Seq: s.tx.seq + 1, RIBSeq: low, Count: uint64(len(s.tx.out)), TableHash: s.tx.hash}, low, 64)
}

// mayEnd: the SYNC_END of a full synchronisation makes a neighbour drop what we did not send. A neighbour that kept entries of ours from before our
// restart waits until we have heard all others again, else what we carry for them would vanish and come back.
func (r *Replica) mayEnd(now time.Time, s *session) bool {
	if len(s.tx.dirty) > 0 || !r.window(s) {
		return false
	}
	if s.tx.delta || s.hello.Cookie == nil || !s.peer.row.ExportTransit || !now.Before(r.start.Add(r.cfg.Timers.Defer)) {
		return true
	}
	heard := map[string]bool{s.peer.row.Domain: true, r.cfg.Domain: true}
	for _, o := range r.sessions {
		if o.state != Established {
			continue
		}
		if o.rx.phase == rxLive {
			heard[o.peer.row.Domain] = true
		} else if o.peer.row.Domain == r.cfg.Domain {
			return false // a gateway of our own domain is there and has not told all; nobody knows whether another is to come
		}
	}
	for domain := range r.rows {
		if !heard[domain] {
			return false
		}
	}
	return true
}

func (r *Replica) onAck(now time.Time, s *session, m *wire.Ack) {
	tx := &s.tx
	if m.Sess != tx.sess || tx.phase == txIdle {
		return // of a stream that ended
	}
	if m.Seq > tx.seq {
		r.close(now, s, frame.Malformed, "acknowledges a frame that was not sent")
		return
	}
	for len(tx.inflight) > 0 && tx.inflight[0].seq <= m.Seq {
		tx.bytes -= tx.inflight[0].size
		tx.acked = max(tx.acked, tx.inflight[0].low)
		tx.inflight = tx.inflight[1:]
		tx.progress, s.peer.ackedAt = now, now
	}
	tx.credit = m.Credit
	if len(m.Nacks) > 0 {
		r.ribSeq++ // a cookie from before is of a table that may hold what is refused
	}
	for _, n := range m.Nacks {
		s.peer.refused.add(n.Code)
		s.peer.lastRefusal = n.Code
		ref := Ref{Origin: n.Origin, Key: n.Key}
		if have := tx.out[ref]; have != nil && have.seq <= m.Seq {
			tx.nacked[ref] = have.content.batch.hash
			tx.take(ref)
			tx.gone[ref] = r.ribSeq
		}
	}
	r.noteAcked(s)
	r.changed = r.changed || len(tx.inflight) == 0
}
