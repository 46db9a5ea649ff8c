package replica

import (
	"crypto/sha256"
	"slices"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// content is one signed version of what an origin says about one key.
type content struct {
	version Version
	batch   *batch
	index   uint16
	item    *wire.Item
}

func (c *content) tombstone() bool { return c.item.Kind == wire.KindTombstone }

// route is what one neighbour announces about one key: an element of its Adj-RIB-In.
type route struct {
	peer     *peer
	version  Version // that it sent, which may be older than the newest
	path     []string
	hops     uint8
	metric   uint32 // ms, its own round trip included
	size     int
	batch    *batch // that it came with
	index    uint16
	stale    bool      // not confirmed since the neighbour was lost, or since its full synchronisation began
	restored bool      // from before this start, and not confirmed since: passed on with delay only
	farStale bool      // stale already where it comes from
	since    time.Time // that it is announced over this path
}

// dest is everything known of one key: the newest version from anybody, and the routes to its origin.
type dest struct {
	ref         Ref
	own         bool
	newest      *content
	routes      []*route
	best        *route // nil: no usable route
	last        *route // brought the tombstone, or was the last best: the way on which a withdrawal travels
	quarantined bool   // two contents of one version: not passed on until a newer one comes
	forgetAt    time.Time
	changed     uint64 // rib_seq of the last change that others see: its place in the order of changes
	shown       stamp
}

// stamp is what others see of a dest; a change of it is passed on.
type stamp struct {
	best  *route
	path  string
	hops  uint8
	batch wire.ID16
	index uint16
	up    bool
	held  bool // back: quarantined
	waits bool // restored, and not passed on yet
	stale bool
}

// tolerance is the difference that validity times forgive.
const tolerance = 60 * time.Second

func (c *content) expired(now time.Time) bool { return !now.Before(c.batch.expires().Add(tolerance)) }

func (r *Replica) destOf(ref Ref) *dest {
	d := r.dests[ref]
	if d == nil {
		d = &dest{ref: ref}
		r.dests[ref] = d
		r.origins[ref.Origin]++
	}
	return d
}

func (r *Replica) forget(d *dest) {
	delete(r.dests, d.ref)
	r.floor = max(r.floor, d.changed)
	for _, p := range r.peers {
		if p.history != nil {
			delete(p.history.gone, d.ref)
			delete(p.history.nacked, d.ref)
		}
	}
	if r.origins[d.ref.Origin]--; r.origins[d.ref.Origin] == 0 {
		delete(r.origins, d.ref.Origin)
		delete(r.equivocal, d.ref.Origin)
	}
}

// dropRoute takes one neighbour's announcement out.
func (r *Replica) dropRoute(now time.Time, p *peer, ref Ref) {
	rt := p.in[ref]
	if r.unpark(p, ref) || rt == nil {
		return
	}
	delete(p.in, ref)
	r.keepRef(p, ref)
	p.bytes -= rt.size
	p.hash.XOR(entryHash(ref, rt.version))
	d := r.dests[ref]
	d.routes = slices.DeleteFunc(d.routes, func(o *route) bool { return o == rt })
	if len(d.routes) == 0 {
		d.forgetAt = now.Add(r.cfg.Timers.HoldDown)
	}
	r.changed = true // of a way that was not used nothing else tells
	r.recompute(now, d)
}

// entryHash is one entry's share of a table hash: the first 16 octets of SHA-256 of [origin gw, key, oepoch, oseq, op].
func entryHash(ref Ref, v Version) wire.ID16 {
	raw, err := frame.Marshal([]any{ref.Origin, ref.Key, v.OEpoch, v.OSeq, uint8(wire.OpPut)})
	if err != nil {
		return wire.ID16{} // strings and integers always encode
	}
	sum := sha256.Sum256(raw)
	return wire.ID16(sum[:16])
}

// recompute chooses the best route again and passes on what changed.
func (r *Replica) recompute(now time.Time, d *dest) {
	d.best = nil
	if d.newest != nil && !d.own && !d.newest.tombstone() && !d.newest.expired(now) {
		d.best = r.bestOf(d.routes)
	}
	if d.best != nil {
		d.last = d.best
	}
	is := r.stampOf(d)
	was := d.shown
	if is == was {
		return
	}
	d.shown = is
	r.changed = true
	r.notedRoute(d, was, is)
	confirmed := was.stale && !is.stale // the other way is not told on: it would only make noise
	was.stale, is.stale = false, false
	if is != was {
		r.touch(d)
		r.eachSession(func(s *session) { r.mark(now, s, d) })
	} else if confirmed {
		r.confirm(now, d)
	}
}

// confirm tells those that a key is not stale any more who were told that it is. For the others nothing has changed.
func (r *Replica) confirm(now time.Time, d *dest) {
	touched := false
	r.eachSession(func(s *session) {
		if s.tx.history == nil {
			return
		}
		if have := s.tx.out[d.ref]; have != nil && have.attrs.Stale {
			if !touched {
				r.touch(d)
				touched = true
			}
			r.mark(now, s, d)
		}
	})
}

func (r *Replica) stampOf(d *dest) stamp {
	st := stamp{best: d.best, up: d.usable(), held: d.quarantined}
	if d.newest != nil {
		st.batch, st.index = d.newest.batch.hash, d.newest.index
	}
	if d.best != nil {
		st.path, st.hops = joinPath(d.best.path), d.best.hops
		st.stale, st.waits = d.best.stale || d.best.farStale, d.best.restored && !r.released
	}
	return st
}

func joinPath(path []string) string {
	n := 0
	for _, d := range path {
		n += len(d) + 1
	}
	b := make([]byte, 0, n)
	for _, d := range path {
		b = append(append(b, d...), '/')
	}
	return string(b)
}

// usable says whether the key can be asked for.
func (d *dest) usable() bool {
	if d.newest == nil || d.newest.tombstone() {
		return false
	}
	return d.own || d.best != nil
}

func (r *Replica) bestOf(routes []*route) *route {
	var best *route
	for _, rt := range routes {
		if rt.open() && (best == nil || r.better(rt, best)) {
			best = rt
		}
	}
	return best
}

// roleOf is what the domain is to ours from which a route has come into our domain, whichever of its gateways has heard it.
func (r *Replica) roleOf(rt *route) wire.Role {
	role := rt.peer.row.Role
	if role != wire.RoleInternal || len(rt.path) == 0 {
		return role
	}
	if row, ok := r.rows[rt.path[0]]; ok {
		return row.Role
	}
	return wire.RoleProvider // its rows are not ours: the least that it may be
}

// bestFirst are the routes to a key, the best first.
func (r *Replica) bestFirst(d *dest) []*route {
	routes := slices.Clone(d.routes)
	slices.SortFunc(routes, func(a, b *route) int {
		if r.better(a, b) {
			return -1
		}
		return 1
	})
	return routes
}

// metricBucket keeps small differences of round trips from moving routes.
const metricBucket = 50

// better is the order of routes: not stale, what the domain that it comes from is to ours, shorter path, from outside before from another gateway of
// our domain, lower metric, smaller gateway. The version that a neighbour sent has no part in it, else a lagging neighbour would lose traffic
// to a longer way. That one's own way out comes first keeps gateways of a domain from each taking the other's: then none would see that it is gone.
func (r *Replica) better(a, b *route) bool {
	first, _ := r.against(a, b)
	return first
}

// against says which of two routes is the better one, and the first criterion that says so.
func (r *Replica) against(a, b *route) (first bool, by Criterion) {
	if ao, bo := a.open(), b.open(); ao != bo {
		return ao, ByLame
	}
	if as, bs := a.stale || a.farStale, b.stale || b.farStale; as != bs {
		return bs, ByStale
	}
	if ap, bp := localPref(r.roleOf(a)), localPref(r.roleOf(b)); ap != bp {
		return ap > bp, ByRole
	}
	if len(a.path) != len(b.path) {
		return len(a.path) < len(b.path), ByPath
	}
	if ai, bi := a.peer.row.Role == wire.RoleInternal, b.peer.row.Role == wire.RoleInternal; ai != bi {
		return bi, ByOutside
	}
	if am, bm := a.metric/metricBucket, b.metric/metricBucket; am != bm {
		return am < bm, ByMetric
	}
	return a.peer.gateway < b.peer.gateway, ByGateway
}

// markStale marks everything of a neighbour as no longer confirmed.
func (r *Replica) markStale(now time.Time, p *peer) {
	for _, ref := range sortedRefs(p.in) {
		p.in[ref].stale = true
		r.recompute(now, r.dests[ref])
	}
}

// clearStale takes the marks off: the neighbour vouches for what it told before.
func (r *Replica) clearStale(now time.Time, p *peer) {
	for _, ref := range sortedRefs(p.in) {
		p.in[ref].stale, p.in[ref].restored = false, false
		r.recompute(now, r.dests[ref])
	}
	p.staleUntil = time.Time{}
}

// sweepStale drops what is still marked: the neighbour's table did not have it.
func (r *Replica) sweepStale(now time.Time, p *peer) {
	for _, ref := range sortedRefs(p.in) {
		if p.in[ref].stale {
			r.dropRoute(now, p, ref)
		} else {
			r.recompute(now, r.dests[ref])
		}
	}
	p.staleUntil = time.Time{}
}

// purge drops everything of a neighbour.
func (r *Replica) purge(now time.Time, p *peer) {
	for _, ref := range sortedRefs(p.in) {
		r.dropRoute(now, p, ref)
	}
	r.unparkAll(p)
	p.staleUntil = time.Time{}
	p.unknown = nil
	r.doubt(p)
}

// sweep looks for versions that expired and for memories that served their time.
func (r *Replica) sweep(now time.Time) {
	for _, ref := range sortedRefs(r.dests) {
		d := r.dests[ref]
		if d.newest != nil && d.newest.expired(now) {
			r.recompute(now, d)
		}
		if len(d.routes) == 0 && r.forgettable(now, d) {
			r.forget(d)
			if d.own {
				delete(r.own, ref.Key)
			}
		}
	}
	r.eachSession(func(s *session) { r.sweepCarried(now, s) })
	for _, p := range r.peers {
		p.sweepHistory(now)
	}
	r.sweepPeers()
}

// forgettable: a tombstone is remembered until every older version of its key has expired, so that none can come back; a
// key without a route for the hold-down.
func (r *Replica) forgettable(now time.Time, d *dest) bool {
	if d.newest == nil {
		return true
	}
	if d.newest.tombstone() {
		return now.After(d.newest.batch.expires().Add(2 * tolerance))
	}
	return !d.own && !now.Before(d.forgetAt)
}
