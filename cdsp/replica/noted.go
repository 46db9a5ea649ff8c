package replica

import (
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Happening is what a [Noted] effect tells of.
type Happening uint8

// The happenings.
const (
	SyncBegun    Happening = iota + 1 // a neighbour's synchronisation
	SyncEnded                         // it was received whole
	Accepted                          // an entry of a neighbour
	Rejected                          // for Code
	Withdrawn                         // by a neighbour
	RouteChanged                      // of a key, from one neighbour to another
	LameDuck                          // a neighbour takes nothing new, or does again
)

// Noted is something that a person who watches may want to see; nothing depends on it. It is made while Config.Watched says so.
type Noted struct {
	What     Happening
	Gateway  string // the neighbour
	Ref      Ref    // of an entry; without an origin where it could not be read
	NS       string
	Label    string
	Domain   string // of the origin
	Code     frame.Code
	From, To string // RouteChanged: the neighbours' gateways; empty: none
	Delta    bool   // of a synchronisation
	Count    int    // SyncEnded: entries held of the neighbour
	Lame     bool
}

func (Noted) effect() {}

func (r *Replica) watched() bool { return r.cfg.Watched != nil && r.cfg.Watched() }

func (r *Replica) noted(n Noted) {
	if r.watched() {
		r.emit(n)
	}
}

// notedKey tells of an entry, with what is known of its key.
func (r *Replica) notedKey(what Happening, p *peer, ref Ref, code frame.Code) {
	if !r.watched() {
		return
	}
	n := Noted{What: what, Gateway: p.gateway, Ref: ref, Code: code}
	if d := r.dests[ref]; d != nil {
		n.NS, n.Label, n.Domain = d.names()
	}
	r.emit(n)
}

func (r *Replica) notedRoute(d *dest, was, is stamp) {
	from, to := was.via(), is.via()
	if d.own || from == to || !r.watched() {
		return
	}
	n := Noted{What: RouteChanged, Ref: d.ref, From: from, To: to}
	n.NS, n.Label, n.Domain = d.names()
	r.emit(n)
}

// via is the neighbour of the best route, "" without one.
func (s stamp) via() string {
	if s.best == nil {
		return ""
	}
	return s.best.peer.gateway
}

// names are what people know a key by; of a tombstone the domain alone.
func (d *dest) names() (ns, label, domain string) {
	if d.newest == nil {
		return "", "", ""
	}
	return d.newest.item.NS, d.newest.item.Label, d.newest.batch.body.Domain
}

// counts is how often something happened, by its code.
type counts map[frame.Code]uint64

// maxCodes bounds the codes that are told apart: a neighbour may name any. What comes later counts as INTERNAL.
const maxCodes = 64

func (c *counts) add(code frame.Code) {
	if *c == nil {
		*c = counts{}
	}
	if _, known := (*c)[code]; !known && len(*c) >= maxCodes {
		code = frame.Internal
	}
	(*c)[code]++
}

func (c counts) sum() (n uint64) {
	for _, k := range c {
		n += k
	}
	return n
}

// endOf is why a session ended: what the neighbour said goodbye with says more than that its connection went then.
func endOf(s *session, reason string) string {
	if s.leaving != nil {
		return "it said " + goodbyeText(s.leaving)
	}
	return reason
}

func goodbyeText(m *wire.Goodbye) string {
	if m.Msg == "" {
		return "GOODBYE " + m.Code.String()
	}
	return "GOODBYE " + m.Code.String() + ": " + m.Msg
}

// staleCount is how many of a neighbour's entries are not confirmed. While its stream is live none is.
func (p *peer) staleCount() (n int) {
	switch s := p.session; {
	case s == nil:
		return len(p.in)
	case s.state == Established && s.rx.phase == rxLive:
		return 0
	}
	for _, rt := range p.in {
		if rt.stale {
			n++
		}
	}
	return n
}

// Criterion is what decided between two routes. Its name reads behind "by".
type Criterion string

// The criteria, in the order in which they count.
const (
	ByLame    Criterion = "lame"    // one of the neighbours takes nothing new, or is drained here
	ByStale   Criterion = "stale"   // one is not confirmed
	ByRole    Criterion = "role"    // of the domain from which it came into ours: the own one, customer, peer, provider
	ByPath    Criterion = "path"    // the shorter one
	ByOutside Criterion = "outside" // the own way out before that of another gateway of the domain
	ByMetric  Criterion = "metric"  // the lower one, in steps of 50 ms
	ByGateway Criterion = "gateway" // the smaller AIC
)

// Known is one key with every route to it, for people.
type Known struct {
	Ref         Ref
	Domain      string
	NS, Label   string
	Level       wire.Level
	Own         bool
	Version     Version
	Expires     time.Time
	Quarantined bool // its origin says two things: nothing is passed on
	Routes      []Route
	ToldTo      []string // gateways of the neighbours that hold it from this one, by name
}

// Route is what one neighbour announces.
type Route struct {
	Gateway  string
	Domain   string // of the neighbour
	Role     wire.Role
	Path     []string
	MetricMS uint32
	Hops     uint8 // left
	Since    time.Time
	Stale    bool
	Lame     bool // requests do not go there
	Best     bool
	// By is the first criterion that decided between this one and the best; of the best, between it and the next. Empty where there is nothing to
	// compare with.
	By Criterion
}

// Routes lists the keys that want asks for, by origin and key from the one behind after on, at most limit of them; more says that others
// follow. Keys that nobody announces are left out.
func (r *Replica) Routes(want func(*Known) bool, after Ref, limit int) (out []Known, more bool) {
	for _, ref := range sortedRefs(r.dests) {
		d := r.dests[ref]
		if ref.Compare(after) <= 0 || d.newest == nil || d.newest.tombstone() || !d.own && len(d.routes) == 0 {
			continue
		}
		k := Known{Ref: ref, Own: d.own, Level: d.newest.batch.body.Level, Version: d.newest.version, Expires: unix(d.newest.batch.body.Expires),
			Quarantined: d.quarantined}
		k.NS, k.Label, k.Domain = d.names()
		if !want(&k) {
			continue
		}
		if len(out) == limit {
			return out, true
		}
		k.Routes = r.ranked(d)
		r.eachPeer(func(p *peer) {
			if p.session != nil && p.session.tx.history != nil && p.session.tx.out[ref] != nil {
				k.ToldTo = append(k.ToldTo, p.gateway)
			}
		})
		out = append(out, k)
	}
	return out, false
}

// ranked are the routes, best first.
func (r *Replica) ranked(d *dest) []Route {
	order := r.bestFirst(d)
	out := make([]Route, len(order))
	for i, rt := range order {
		out[i] = Route{Gateway: rt.peer.gateway, Domain: rt.peer.row.Domain, Role: rt.peer.row.Role, Path: rt.path, MetricMS: rt.metric, Hops: rt.hops,
			Since: rt.since, Stale: rt.stale || rt.farStale, Lame: !rt.open(), Best: rt == d.best}
		if other := min(1, len(order)-1); i > 0 {
			_, out[i].By = r.against(order[0], rt)
		} else if other > 0 {
			_, out[i].By = r.against(rt, order[other])
		}
	}
	return out
}
