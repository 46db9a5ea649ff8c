package replica

import (
	"maps"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Snapshot is a copy of the tables that any goroutine may read. Its slices and sketches are shared and not to be changed.
type Snapshot struct {
	Gateway    string
	Domain     string
	RIBSeq     uint64
	Restored   int // entries that were taken at the start from what was kept before it
	Neighbours []NeighbourStatus
	Entries    []Entry // by origin and key; own ones too
}

// NeighbourStatus is how one policy row stands; a domain of several gateways has one for each that was ever met.
type NeighbourStatus struct {
	Domain      string
	Gateway     string // empty: never met
	Role        wire.Role
	State       State
	Since       time.Time // of the state, while there is a session
	Acked       bool      // everything that we have to tell it was told and acknowledged
	Synced      bool      // its first exchange was received whole
	Received    int       // entries held from it
	Sent        int       // entries that it holds from us
	InHash      wire.ID16 // table hash of what was received
	OutHash     wire.ID16 // and of what was sent: the other side's InHash once Acked
	Refused     uint64    // entries of ours that it refused,
	RefusedFor  map[frame.Code]uint64
	LastRefusal frame.Code
	LastAck     time.Time // it acknowledged something of ours; zero: never
	Accepted    uint64    // entries of it that we took, again each time
	Nacked      uint64    // entries of it that we refused,
	NackedFor   map[frame.Code]uint64
	Stale       int    // of Received, not confirmed
	Ended       string // why its last session ended; empty: none has
	EndedAt     time.Time
	Lame        bool   // it says that it takes nothing new
	Drained     bool   // nothing new goes there, by this gateway's operator
	Forged      uint64 // batches of it that did not verify
	RTT         time.Duration
	Skew        time.Duration // how far its clock was ahead of ours at its last HELLO
	HeldUntil   time.Time     // none of its connections is accepted before,
	Held        string        // for this reason
}

// Entry is one key as it stands: the newest version, over the best route.
type Entry struct {
	Origin    string // AIC of the gateway behind which the capabilities are
	Domain    string
	Own       bool
	Path      []string // domains, nearest first; empty for own ones
	Via       string   // AIC of the neighbour to ask
	ViaDomain string
	Others    []string // AICs of the other neighbours that know a way, the best first
	Level     wire.Level
	Item      *wire.Item
	Stale     bool
	MetricMS  uint32
	Expires   time.Time
}

// Snapshot copies the tables.
func (r *Replica) Snapshot() *Snapshot {
	sn := &Snapshot{Gateway: r.cfg.Gateway, Domain: r.cfg.Domain, RIBSeq: r.ribSeq, Restored: r.restored}
	met := map[string]bool{}
	r.eachPeer(func(p *peer) {
		met[p.row.Domain] = true
		sn.Neighbours = append(sn.Neighbours, p.status(r))
	})
	for _, domain := range sortedKeys(r.rows) {
		if !met[domain] {
			sn.Neighbours = append(sn.Neighbours, NeighbourStatus{Domain: domain, Role: r.rows[domain].Role})
		}
	}
	for _, ref := range sortedRefs(r.dests) {
		if d := r.dests[ref]; d.usable() {
			sn.Entries = append(sn.Entries, r.entry(d))
		}
	}
	return sn
}

func (p *peer) status(r *Replica) NeighbourStatus {
	st := NeighbourStatus{Domain: p.row.Domain, Gateway: p.gateway, Role: p.row.Role, Received: len(p.in), Refused: p.refused.sum(), RefusedFor: maps.Clone(p.refused),
		LastAck: p.ackedAt, Accepted: p.accepted, NackedFor: maps.Clone(p.nacked), Stale: p.staleCount(), Ended: p.ended, EndedAt: p.endedAt, Lame: p.lame, Drained: p.drained,
		LastRefusal: p.lastRefusal, Nacked: p.nacked.sum(), Forged: p.badTotal, Skew: p.skew, HeldUntil: p.heldUntil, Held: p.held}
	switch s := p.session; {
	case s != nil:
		st.State, st.Since, st.Acked, st.Synced = s.state, s.since, s.tx.settled(), s.rx.phase == rxLive
		st.Sent, st.RTT, st.InHash, st.OutHash = len(s.tx.out), s.rtt, p.hash, s.tx.hash
	case p.open > 0:
		st.State = Open
	case len(p.in) > 0:
		st.State = Stale
	}
	return st
}

func (r *Replica) entry(d *dest) Entry {
	b := d.newest.batch.body
	e := Entry{Origin: d.ref.Origin, Domain: b.Domain, Own: d.own, Level: b.Level, Item: d.newest.item, Expires: unix(b.Expires)}
	if rt := d.best; rt != nil {
		e.Path, e.Via, e.ViaDomain = rt.path, rt.peer.gateway, rt.peer.row.Domain
		e.Stale, e.MetricMS = rt.stale || rt.farStale, rt.metric
		if len(d.routes) > 1 {
			e.Others = r.others(d)
		}
	}
	return e
}

// others are the neighbours that know a way to a key, but for the best.
func (r *Replica) others(d *dest) []string {
	var out []string
	for _, rt := range r.bestFirst(d) {
		if rt != d.best && rt.open() {
			out = append(out, rt.peer.gateway)
		}
	}
	return out
}

// Told is what one neighbour is told about one key.
type Told struct {
	Version Version
	Path    []string // domains, nearest first; empty between gateways of one domain
	Hops    uint8    // left
	Stale   bool
}

// Exported is what a neighbour with a session is to hold of this gateway, made from the tables as they are and not from what was sent.
// What it refused is left out. For tests: at rest it is the neighbour's [Replica.Held].
func (r *Replica) Exported(now time.Time, gateway string) map[Ref]Told {
	out := map[Ref]Told{}
	p := r.peers[gateway]
	if p == nil || p.session == nil || p.session.state != Established {
		return out
	}
	for ref, d := range r.dests {
		a := r.export(now, p.session, d)
		if a == nil || a.content.tombstone() || p.session.tx.nacked[ref] == a.content.batch.hash {
			continue
		}
		out[ref] = Told{Version: a.content.version, Path: a.path, Hops: a.attrs.HopsLeft, Stale: a.attrs.Stale}
	}
	return out
}

// Held is what this gateway holds of a neighbour.
func (r *Replica) Held(gateway string) map[Ref]Told {
	out := map[Ref]Told{}
	if p := r.peers[gateway]; p != nil {
		for ref, rt := range p.in {
			out[ref] = Told{Version: rt.version, Path: rt.path, Hops: rt.hops, Stale: rt.farStale}
		}
	}
	return out
}
