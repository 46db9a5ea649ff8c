package replica

import (
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// SetLame says towards whom this gateway is a lame duck: what they were told is withdrawn, KEEPALIVE says lame, the session stays. It
// replaces what was said before.
type SetLame struct {
	All bool // towards every neighbour
	// To are domains and gateways, also of such as come later. What they announce is not used either: nothing new is to go there.
	To []string
}

// Refresh asks a neighbour with a session for its whole table anew. The error says that there is none.
type Refresh struct{ Gateway string }

func (SetLame) event() {}
func (Refresh) event() {}

func (r *Replica) lameTowards(p *peer) bool { return r.lameAll || p.drained }

func (r *Replica) setLame(now time.Time, e SetLame) {
	before := map[*peer]bool{}
	r.eachPeer(func(p *peer) { before[p] = r.lameTowards(p) })
	r.lameAll, r.lameTo = e.All, map[string]bool{}
	for _, name := range e.To {
		r.lameTo[name] = true
	}
	r.eachPeer(func(p *peer) {
		if drained := r.lameTo[p.gateway] || r.lameTo[p.row.Domain]; drained != p.drained {
			p.drained = drained
			r.reconsider(now, p)
		}
		if r.lameTowards(p) != before[p] {
			r.exportAnew(now, p)
		}
	})
}

// exportAnew tells a neighbour what it may be told now, and how we stand. No delta goes on with its history: what is told
// now is no change of a key, so a cookie does not say whether it arrived.
func (r *Replica) exportAnew(now time.Time, p *peer) {
	r.changed = true
	if p.history != nil {
		p.history.closed = true
	}
	s := p.session
	if s == nil || s.state != Established {
		return
	}
	for _, ref := range sortedRefs(r.dests) {
		r.mark(now, s, r.dests[ref])
	}
	r.sendKeepalive(now, s) // behind the marks: it has no table hash while something waits
}

// noteLame takes what a neighbour says of itself: one that takes nothing new is no way to anywhere.
func (r *Replica) noteLame(now time.Time, p *peer, lame bool) {
	if p.lame != lame {
		p.lame = lame
		r.noted(Noted{What: LameDuck, Gateway: p.gateway, Lame: lame})
		r.reconsider(now, p)
	}
}

// reconsider chooses the routes anew of what a neighbour announces.
func (r *Replica) reconsider(now time.Time, p *peer) {
	r.changed = true
	for _, ref := range sortedRefs(p.in) {
		r.recompute(now, r.dests[ref])
	}
}

// open says whether requests may go this way.
func (a *route) open() bool { return !a.peer.lame && !a.peer.drained }

func (r *Replica) refresh(gateway string) error {
	p := r.peers[gateway]
	if p == nil || p.session == nil || p.session.state != Established {
		return frame.Errorf(frame.State, "there is no session with %s", gateway)
	}
	r.askResync(p.session, wire.ModeFull, frame.OK)
	return nil
}
