package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Replica is the machine of one gateway. Its owner is one goroutine.
type Replica struct {
	cfg   Config
	start time.Time

	rows     map[string]Neighbour // by domain
	peers    map[string]*peer     // by gateway
	sessions map[uint64]*session  // by connection

	dests   map[Ref]*dest
	origins map[string]int // keys known of each origin
	batches map[wire.ID16]*batch

	own           map[wire.ID16]*ownItem
	oseq          uint64
	reissueFailed bool                 // and the alarm was raised
	lameAll       bool                 // towards every neighbour,
	lameTo        map[string]bool      // towards these domains and gateways, see [SetLame]
	equivocal     map[string]time.Time // when an alarm was last raised about an origin, of origins that have keys here
	ribSeq        uint64               // counts changes of what we would export
	floor         uint64               // rib_seq of the newest change whose key is forgotten: a delta cannot start before
	sweepAt       time.Time

	unkept   map[string]bool // gateways of which something has to be written down,
	keptLast string          // and the one whose turn was last
	restored int             // entries that were taken at the start
	released bool            // and are passed on now like others

	changed bool
	effects []Effect
}

// New makes a Replica without neighbours and without own digests.
func New(cfg Config, now time.Time) *Replica {
	cfg.Timers, cfg.Limits = cfg.Timers.withDefaults(), cfg.Limits.withDefaults()
	return &Replica{
		cfg: cfg, start: now, sweepAt: now.Add(sweepEvery),
		rows: map[string]Neighbour{}, peers: map[string]*peer{}, sessions: map[uint64]*session{},
		dests: map[Ref]*dest{}, origins: map[string]int{}, batches: map[wire.ID16]*batch{}, own: map[wire.ID16]*ownItem{},
		equivocal: map[string]time.Time{}, unkept: map[string]bool{},
	}
}

// Step takes one event in. An error is about our own input: of SetNeighbours it leaves everything as it was, of SetOwn it names
// what was left out.
func (r *Replica) Step(now time.Time, ev Event) error {
	switch e := ev.(type) {
	case Connected:
		r.connected(now, e)
	case Disconnected:
		if s := r.sessions[e.Conn]; s != nil {
			r.lose(now, s, e.Reason)
		}
	case Received:
		if s := r.sessions[e.Conn]; s != nil {
			s.rtt = e.RTT
			r.received(now, s, e.Msg)
		}
	case Undecodable:
		if s := r.sessions[e.Conn]; s != nil {
			r.undecodable(now, s, e.Err)
		}
	case SetNeighbours:
		if err := r.setNeighbours(now, e.Rows); err != nil {
			return err
		}
	case SetOwn:
		err := r.setOwn(now, e.Groups)
		r.flushAll(now)
		return err
	case KeysChanged:
		r.keysChanged(now)
	case Leave:
		if s := r.sessions[e.Conn]; s != nil {
			r.leave(s, e.Msg)
		}
	case SetLame:
		r.setLame(now, e)
	case Refresh:
		return r.refresh(e.Gateway)
	case Expel:
		if p := r.peers[e.Gateway]; p != nil {
			r.closeAll(now, p, e.Code, e.Reason)
			r.purge(now, p)
			r.changed = true
		}
	case Restored:
		r.restore(now, e.Kept)
	case KeepFailed:
		if p := r.peers[e.Gateway]; p != nil {
			r.keepAnew(p)
		} else {
			r.forgetKept(e.Gateway)
		}
	case Shutdown:
		r.eachSession(func(s *session) { r.leave(s, "") })
	}
	r.flushAll(now)
	return nil
}

// Ready takes the effects of the last events, in order.
func (r *Replica) Ready() []Effect {
	if r.changed {
		r.effects = append(r.effects, Changed{})
		r.changed = false
	}
	out := r.effects
	r.effects = nil
	return out
}

func (r *Replica) emit(e Effect) { r.effects = append(r.effects, e) }

func (r *Replica) alarm(gateway, format string, args ...any) {
	r.emit(Alarm{Gateway: gateway, Text: fmt.Sprintf(format, args...)})
}

// eachSession visits sessions in the order in which they were made, so that effects come in one order.
func (r *Replica) eachSession(f func(*session)) {
	for _, conn := range slices.Sorted(maps.Keys(r.sessions)) {
		if s := r.sessions[conn]; s != nil {
			f(s)
		}
	}
}

func (r *Replica) eachPeer(f func(*peer)) {
	for _, gw := range slices.Sorted(maps.Keys(r.peers)) {
		f(r.peers[gw])
	}
}

func sortedRefs[V any](m map[Ref]V) []Ref {
	refs := slices.AppendSeq(make([]Ref, 0, len(m)), maps.Keys(m))
	slices.SortFunc(refs, Ref.Compare)
	return refs
}

// Ref names one key of one origin.
type Ref struct {
	Origin string // AIC of the gateway
	Key    wire.ID16
}

// Compare orders refs by origin, then key.
func (a Ref) Compare(b Ref) int {
	return cmp.Or(cmp.Compare(a.Origin, b.Origin), slices.Compare(a.Key[:], b.Key[:]))
}

// Version orders what an origin said about one key.
type Version struct{ OEpoch, OSeq uint64 }

// Compare is negative when v is older than w.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.OEpoch, w.OEpoch), cmp.Compare(v.OSeq, w.OSeq))
}

func (r *Replica) setNeighbours(now time.Time, rows []Neighbour) error {
	next := make(map[string]Neighbour, len(rows))
	for _, row := range rows {
		if (row.Role == wire.RoleInternal) != (row.Domain == r.cfg.Domain) {
			return fmt.Errorf("neighbour %s: role internal is for gateways of our own domain %s, and the only one for them", row.Domain, r.cfg.Domain)
		}
		if _, twice := next[row.Domain]; twice {
			return fmt.Errorf("neighbour %s has two policy rows", row.Domain)
		}
		next[row.Domain] = row
	}
	before := r.rows
	r.rows = next
	r.changed = true
	r.eachPeer(func(p *peer) { r.applyRow(now, p) })
	if rolesDiffer(before, next) { // what another gateway of our domain has heard of is judged by them too
		for _, ref := range sortedRefs(r.dests) {
			r.recompute(now, r.dests[ref])
		}
	}
	return nil
}

func rolesDiffer(a, b map[string]Neighbour) bool {
	return !maps.EqualFunc(a, b, func(x, y Neighbour) bool { return x.Role == y.Role })
}

// applyRow brings one neighbour under its row as it is now.
func (r *Replica) applyRow(now time.Time, p *peer) {
	row, ok := r.rows[p.row.Domain]
	switch {
	case !ok || !row.admits(p.gateway):
		r.closeAll(now, p, frame.TrustDenied, "no policy for this gateway")
		r.purge(now, p)
		delete(r.peers, p.gateway)
		r.forgetKept(p.gateway)
		return
	case row.equal(p.row):
		return
	}
	old := p.row
	p.row = row
	if h := p.history; h != nil && !old.exportsLike(row) {
		h.closed = true // what is told from now on is another export than the one that its epoch names
	}
	if old.ImportTransit != row.ImportTransit {
		r.doubt(p)
	}
	if old.Role != row.Role {
		r.closeAll(now, p, frame.Policy, "role changed")
		return
	}
	if s := p.session; s != nil {
		if old.ImportTransit != row.ImportTransit {
			r.askResync(s, wire.ModeFull, frame.Policy)
		}
		for _, ref := range sortedRefs(r.dests) {
			r.mark(now, s, r.dests[ref])
		}
	}
}

func (r *Replica) closeAll(now time.Time, p *peer, code frame.Code, reason string) {
	r.eachSession(func(s *session) {
		if s.peer == p {
			r.close(now, s, code, reason)
		}
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
