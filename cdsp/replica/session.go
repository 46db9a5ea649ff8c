package replica

import (
	"encoding/binary"
	"fmt"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// State is how a neighbour stands. IDLE and CONNECT, until a connection exists, belong to the dialler.
//
//	          Connected          HELLO ok            GOODBYE
//	IDLE ───────────────► OPEN ───────────► UP ───────────────► DRAIN
//	 ▲ ▲                   │                 │                    │
//	 │ └── bad, 5 s ───────┘    connection   │      connection    │
//	 │                             lost      ▼         lost       │
//	 └── timer ◄──────────────────────── STALE ◄──────────────────┘ (restart)
//
// STALE is a neighbour without a session whose entries are kept, marked stale, until restart_ms are over.
type State uint8

// The states.
const (
	Idle State = iota
	Open
	Established // UP
	Draining
	Stale
)

var stateNames = [...]string{"IDLE", "OPEN", "UP", "DRAIN", "STALE"}

// String is the state's name in the specification.
func (s State) String() string { return stateNames[s] }

// maxOpen bounds connections of one neighbour that have not become its session.
const maxOpen = 4

// maxPeers bounds the neighbouring gateways that are remembered; above half of it those without anything to remember go.
const maxPeers = 1024

func (r *Replica) sweepPeers() {
	if len(r.peers) < maxPeers/2 {
		return
	}
	r.eachPeer(func(p *peer) {
		if p.session == nil && p.open == 0 && len(p.in)+len(p.parked) == 0 && len(p.flips) == 0 && p.heldUntil.IsZero() && len(p.breaches) == 0 {
			delete(r.peers, p.gateway)
		}
	})
}

// peer is one neighbouring gateway. It outlives its sessions while its entries are kept.
type peer struct {
	gateway string
	row     Neighbour
	session *session // UP or DRAIN; nil without
	open    int      // sessions in OPEN

	in         map[Ref]*route  // Adj-RIB-In
	parked     map[Ref]*parked // of what was restored: what cannot be judged yet,
	refuseAt   time.Time       // and is refused then; zero: it waits for its neighbour
	kept       unkept
	bytes      int
	hash       wire.ID16            // table hash of in, of what is stale or parked too
	staleUntil time.Time            // zero: nothing is kept for a lost neighbour
	cookie     wire.Cookie          // what in surely has all of; without an epoch nothing is sure
	unknown    map[frame.KeyID]bool // keys for which entries were refused since the last full synchronisation
	putBack    time.Time            // when an alarm about its cookie was last raised
	history    *history             // what it was told; nil: nothing that is known

	badFrom      time.Time // start of the minute that bad counts
	bad          int
	badTotal     uint64
	accepted     uint64 // entries that we took
	nacked       counts // entries that we refused
	refused      counts // entries of ours that it refused
	lastRefusal  frame.Code
	ackedAt      time.Time // it acknowledged something of ours last
	ended        string    // why its last session ended; empty: none has
	endedAt      time.Time
	lame         bool        // by its last KEEPALIVE it takes nothing new
	drained      bool        // it is in lameTo
	resyncs      []time.Time // for differing tables, within the last hour
	limitAlarmed bool
	nearAlarmed  bool

	boots     []wire.ID16   // of its last HELLOs, the newest last
	flips     []time.Time   // when it changed, within the last minute
	heldUntil time.Time     // none of its connections is accepted before,
	heldCode  frame.Code    // with this code
	held      string        // and reason
	breaches  []time.Time   // minutes in which it was over its limits, within the last ten
	overLimit bool          // in the frame at hand
	floodHold time.Duration // after the last flood
	flooded   time.Time     // when that was
	skew      time.Duration // how far its clock was ahead of ours at its last HELLO
}

// session is one connection to a neighbour.
type session struct {
	conn    uint64
	peer    *peer
	dialled bool
	until   time.Time // of the certificates, see [Connected]
	state   State
	hello   *wire.Hello // the neighbour's
	rtt     time.Duration

	since     time.Time // of the state
	heard     time.Time // last frame
	hold      time.Duration
	nextAlive time.Time
	peerTime  uint64 // ts_ms of its last KEEPALIVE, to be echoed
	leaving   *wire.Goodbye

	rx receiver
	tx sender
}

func (r *Replica) connected(now time.Time, e Connected) {
	row, ok := r.rows[e.Domain]
	if !ok || !row.admits(e.Gateway) || e.Gateway == r.cfg.Gateway {
		r.emit(Close{Conn: e.Conn, Code: frame.TrustDenied, Reason: "no policy for this gateway"})
		return
	}
	p := r.peers[e.Gateway]
	if p == nil && len(r.peers) >= maxPeers {
		r.emit(Close{Conn: e.Conn, Code: frame.LimitExceeded, Reason: "too many neighbours"})
		return
	}
	if p != nil && p.row.Domain != row.Domain {
		r.emit(Close{Conn: e.Conn, Code: frame.IdentityMismatch, Reason: "gateway belongs to another domain"})
		return
	}
	if p == nil {
		p = r.newPeer(e.Gateway, row)
	}
	if now.Before(p.heldUntil) {
		r.emit(Close{Conn: e.Conn, Code: p.heldCode, Reason: p.held})
		return
	}
	p.heldUntil, p.held = time.Time{}, ""
	if p.open >= maxOpen {
		r.emit(Close{Conn: e.Conn, Code: frame.Collision, Reason: "too many connections"})
		return
	}
	s := &session{conn: e.Conn, peer: p, dialled: e.Dialled, until: e.Until, heard: now, since: now}
	r.sessions[e.Conn] = s
	s.tx = newSender(r.nonce())
	r.become(now, s, Open, "connected")
	p.open++
	r.emit(Send{Conn: s.conn, Msg: r.helloTo(now, s)})
}

// become is the only change of a session's state.
func (r *Replica) become(now time.Time, s *session, to State, reason string) {
	r.emit(Transition{Conn: s.conn, Gateway: s.peer.gateway, From: s.state, To: to, Reason: reason})
	s.state, s.since = to, now
	r.changed = true
}

func (r *Replica) nonce() (id wire.ID8) {
	binary.BigEndian.PutUint64(id[:], r.cfg.Random())
	return id
}

func (r *Replica) helloTo(now time.Time, s *session) *wire.Hello {
	p, l := s.peer, r.cfg.Limits
	return &wire.Hello{
		Versions: wire.VersionRange{Min: wire.Version, Max: wire.Version}, Gateway: r.cfg.Gateway, Domain: r.cfg.Domain,
		BootID: r.cfg.BootID, Epoch: p.exportEpoch(), RIBSeq: r.ribSeq, Floor: r.floor,
		HoldMS: ms(r.cfg.Timers.Hold), RestartMS: ms(r.cfg.Timers.Restart), Role: p.row.Role.Opposite(),
		Limits: wire.Limits{MaxEntries: uint64(l.PeerEntries), MaxBytes: uint64(l.PeerBytes), MaxEntry: wire.MaxItem,
			MaxInflight: uint64(l.Inflight)},
		Cookie: p.holding(), Now: uint64(now.Unix()), Sess: s.tx.sess, Trust: r.trustTold(p),
	}
}

// trustTold is what a neighbour learns of what is held here.
func (r *Replica) trustTold(p *peer) []wire.TrustVersion {
	if r.cfg.Trust == nil {
		return nil
	}
	told := r.cfg.Trust(p.row.Domain)
	return told[:min(len(told), wire.MaxTrust)]
}

func ms(d time.Duration) uint64 { return uint64(d / time.Millisecond) }

func millis(v uint64) time.Duration { return time.Duration(min(v, 1<<40)) * time.Millisecond }

// received hands one frame to the state that the session is in.
func (r *Replica) received(now time.Time, s *session, m wire.Message) {
	s.heard = now
	if hello, ok := m.(*wire.Hello); ok {
		if s.state != Open {
			r.close(now, s, frame.UnexpectedFrame, "second HELLO")
			return
		}
		r.onHello(now, s, hello)
		return
	}
	if s.state == Open {
		r.close(now, s, frame.UnexpectedFrame, "first frame is not HELLO")
		return
	}
	switch m := m.(type) {
	case *wire.Keepalive:
		r.onKeepalive(now, s, m)
	case *wire.Ack:
		r.onAck(now, s, m)
	case *wire.Resync:
		r.onResync(now, s, m)
	case *wire.Goodbye:
		r.onGoodbye(now, s, m)
	case *wire.SyncBegin:
		r.onSyncBegin(now, s, m)
	case *wire.Entries:
		r.onEntries(now, s, m)
	case *wire.SyncEnd:
		r.onSyncEnd(now, s, m)
	case *wire.Bundle, *wire.Status, *wire.TrustGet, *wire.Moved: // the shell hands them on; here they only prove life
	}
}

// undecodable ends the session: after a frame that cannot be read nothing on the connection has a meaning.
func (r *Replica) undecodable(now time.Time, s *session, err error) {
	code := frame.CodeOf(err)
	if code < frame.FrameTooLarge || code > frame.Version && code != frame.CriticalUnknown {
		code = frame.Malformed
	}
	r.close(now, s, code, "undecodable frame")
}

func (r *Replica) onHello(now time.Time, s *session, h *wire.Hello) {
	if code, reason := r.judgeHello(now, s.peer, h); code != frame.OK {
		if code == frame.ClockSkew {
			r.alarm(s.peer.gateway, "%s: compare both with a time server", reason)
		}
		r.close(now, s, code, reason)
		return
	}
	if s.peer.noteBoot(now, h.BootID) {
		r.holdTwins(now, s.peer)
		return
	}
	s.hello = h
	if cur := s.peer.session; cur != nil {
		if !r.replaces(now, s, cur) {
			r.close(now, s, frame.Collision, "another connection is kept")
			return
		}
		if s.hello.BootID == cur.hello.BootID && younger(s, cur) {
			r.emit(Retire{Conn: cur.conn})
			r.lose(now, cur, "a younger connection takes its place")
		} else {
			r.close(now, cur, frame.Collision, "another connection is kept")
		}
	}
	r.becomeUp(now, s)
}

// RolesDiffer begins the reason of a session that ended for the roles of its two policy rows.
const RolesDiffer = "roles do not match"

func (r *Replica) judgeHello(now time.Time, p *peer, h *wire.Hello) (frame.Code, string) {
	switch {
	case h.Versions.Min > wire.Version || h.Versions.Max < wire.Version:
		return frame.Version, "no version in common"
	case h.Gateway != p.gateway || h.Domain != p.row.Domain:
		return frame.IdentityMismatch, "HELLO names another gateway than its certificate"
	case h.Role != p.row.Role:
		return frame.Policy, fmt.Sprintf("%s: one side says %v, the other %v", RolesDiffer, p.row.Role, h.Role.Opposite()) // both sides read it
	}
	if p.noteClock(now, h); p.skew.Abs() > r.cfg.Timers.ClockSkew {
		return frame.ClockSkew, skewReason(now, p, r.cfg.Timers.ClockSkew)
	}
	return frame.OK, ""
}

// replaces says whether the connection s, whose HELLO just arrived, takes the place of the session cur. Both sides decide
// alike: a restarted neighbour wins, and so does a connection with younger certificates, so that the old one need not end with
// its own; else a live session stays, a silent one goes, and of two that were dialled at the same time the one of the smaller
// gateway is kept.
func (r *Replica) replaces(now time.Time, s, cur *session) bool {
	if s.hello.BootID != cur.hello.BootID || cur.state == Draining {
		return true
	}
	if younger(s, cur) {
		return true
	}
	if now.Sub(cur.since) >= r.cfg.Timers.Hello {
		return now.Sub(cur.heard) >= cur.hold/2
	}
	return KeepsDialled(r.cfg.Gateway, s.peer.gateway) == s.dialled && s.dialled != cur.dialled
}

// younger says whether the certificates of a connection end later than those of another.
func younger(s, cur *session) bool {
	return !cur.until.IsZero() && s.until.After(cur.until.Add(time.Second))
}

// KeepsDialled says whether, of two connections between local and remote, the one that local dialled is kept.
func KeepsDialled(local, remote string) bool { return local < remote }

func (r *Replica) becomeUp(now time.Time, s *session) {
	s.peer.open--
	s.peer.session = s
	s.hold = min(r.cfg.Timers.Hold, max(millis(s.hello.HoldMS), time.Second))
	r.become(now, s, Established, "HELLO")
	r.emit(Up{Conn: s.conn, Gateway: s.peer.gateway, Domain: s.peer.row.Domain})
	r.startSync(now, s, s.hello.Cookie)
	r.sendKeepalive(now, s)
}

func (r *Replica) sendKeepalive(now time.Time, s *session) {
	m := wire.Keepalive{Epoch: s.tx.epoch, RIBSeq: r.lowWater(s), Applied: s.rx.applied,
		TimeMS: uint64(now.UnixMilli()), EchoMS: s.peerTime, Trust: r.trustTold(s.peer), Lame: r.lameTowards(s.peer)}
	if s.tx.settled() && s.state == Established { // one that is leaving is told of no change any more
		hash := s.tx.hash
		m.TableHash = &hash
		s.tx.head = max(s.tx.head, m.RIBSeq)
	}
	if padded, err := m.Padded(); err == nil { // it has no variable part that could break a limit
		r.emit(Send{Conn: s.conn, Msg: padded})
	}
	s.nextAlive = now.Add(r.jitter(s.hold/3, 90, 110))
}

// jitter is d times a random share between lo and hi per cent.
func (r *Replica) jitter(d time.Duration, lo, hi uint64) time.Duration {
	return d * time.Duration(lo*100+r.cfg.Random()%((hi-lo)*100+1)) / 10_000
}

func (r *Replica) onKeepalive(now time.Time, s *session, m *wire.Keepalive) {
	s.peerTime = m.TimeMS
	r.noteLame(now, s.peer, m.Lame)
	if s.rx.phase != rxLive || m.TableHash == nil || m.RIBSeq < s.rx.applied || m.Epoch != s.rx.epoch {
		return // frames that were sent later overtook it, or the synchronisation that they were of
	}
	s.rx.applied = m.RIBSeq // the hash is there only when we acknowledged all: later changes did not concern us
	s.peer.cookie.RIBSeq = m.RIBSeq
	r.keep(s.peer)
	if !s.rx.knew(*m.TableHash, s.peer.hash) {
		r.tablesDiffer(now, s)
	}
}

// tablesDiffer asks for everything anew; a difference is a fault of one side, so it is asked for rarely and counted.
func (r *Replica) tablesDiffer(now time.Time, s *session) {
	p := s.peer
	if s.state != Established {
		return // it is leaving
	}
	r.doubt(p)
	for len(p.resyncs) > 0 && now.Sub(p.resyncs[0]) > time.Hour {
		p.resyncs = p.resyncs[1:]
	}
	if n := len(p.resyncs); n > 0 && now.Sub(p.resyncs[n-1]) < r.cfg.Timers.Resync {
		return
	}
	p.resyncs = append(p.resyncs, now)
	if len(p.resyncs) >= 3 {
		r.alarm(p.gateway, "tables differed %d times within an hour", len(p.resyncs))
	}
	r.askResync(s, wire.ModeFull, frame.OK)
}

func (r *Replica) onGoodbye(now time.Time, s *session, m *wire.Goodbye) {
	s.leaving = m
	if s.rx.phase == rxSync && !s.rx.delta {
		r.skip(s) // its SYNC_END would drop what is marked stale now
	}
	if s.state == Established {
		r.become(now, s, Draining, goodbyeText(m))
	}
	if m.Kind == wire.LeaveHard {
		r.purge(now, s.peer)
	} else {
		r.markStale(now, s.peer)
	}
}

// close ends a session on our side.
func (r *Replica) close(now time.Time, s *session, code frame.Code, reason string) {
	r.emit(Close{Conn: s.conn, Code: code, Reason: reason})
	r.lose(now, s, code.String()+": "+reason)
}

// lose forgets a session; the neighbour's entries stay, stale, for as long as it may take to restart.
func (r *Replica) lose(now time.Time, s *session, reason string) {
	delete(r.sessions, s.conn)
	p := s.peer
	if s.state == Open {
		p.open--
		r.become(now, s, Idle, reason)
		return
	}
	p.session = nil
	p.ended, p.endedAt = endOf(s, reason), now
	r.dropCarried(s)
	r.keepHistory(now, s)
	if s.leaving != nil && s.leaving.Kind != wire.LeaveRestart {
		r.purge(now, p)
	}
	if len(p.in)+len(p.parked) == 0 {
		r.become(now, s, Idle, reason)
		return
	}
	restart := s.hello.RestartMS
	if s.leaving != nil {
		restart = s.leaving.RestartMS
	}
	p.staleUntil = now.Add(min(millis(restart), maxStale))
	r.markStale(now, p)
	r.become(now, s, Stale, reason)
}

// maxStale bounds restart_ms.
const maxStale = 300 * time.Second

// leave says goodbye for a restart.
func (r *Replica) leave(s *session, msg string) {
	if s.state == Established {
		r.emit(Send{Conn: s.conn, Msg: &wire.Goodbye{Kind: wire.LeaveRestart, RestartMS: ms(r.cfg.Timers.Restart), Code: frame.Shutdown, Msg: msg}})
	}
}
