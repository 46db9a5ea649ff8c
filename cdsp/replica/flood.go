package replica

import (
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// A neighbour that tells more than it may is refused what is new, and what is known stays. One that goes on doing so is left alone for a
// while: each breach is a minute in which something over the limits came.
const (
	breachMinute = time.Minute
	breachWindow = 10 * time.Minute
	maxBreaches  = 3 // within the window
	floodHoldMin = 5 * time.Minute
	floodHoldMax = time.Hour
	nearLimit    = 0.8 // of the limits: the operator hears of it before something is refused
)

// noteOver remembers that something over the limits came from a neighbour. It says whether that was once too often.
func (p *peer) noteOver(now time.Time) (flood bool) {
	if n := len(p.breaches); n > 0 && now.Sub(p.breaches[n-1]) < breachMinute {
		return false
	}
	p.breaches = append(p.breaches, now)
	for now.Sub(p.breaches[0]) > breachWindow {
		p.breaches = p.breaches[1:]
	}
	return len(p.breaches) >= maxBreaches
}

// holdFlood says goodbye to a neighbour and accepts none of its connections for a while, longer each time. What it told stays, stale.
func (r *Replica) holdFlood(now time.Time, s *session) {
	p := s.peer
	if now.Sub(p.flooded) > 2*floodHoldMax { // it has behaved since
		p.floodHold = 0
	}
	p.flooded = now
	p.floodHold = min(max(2*p.floodHold, floodHoldMin), floodHoldMax)
	r.alarm(p.gateway, "over its limits in %d minutes of the last %v; no connection of it is accepted for %v", len(p.breaches), breachWindow, p.floodHold)
	p.heldUntil, p.heldCode, p.held, p.breaches = now.Add(p.floodHold), frame.LimitExceeded, floodReason, nil
	r.emit(Send{Conn: s.conn, Msg: &wire.Goodbye{Kind: wire.LeaveDrain, Code: frame.LimitExceeded, Msg: floodReason}})
	r.close(now, s, frame.LimitExceeded, floodReason)
}

const floodReason = "tells more than it may, again and again"
