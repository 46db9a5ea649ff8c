package replica

import (
	"time"

	"agentgw/internal/frame"
)

// sweepEvery is how often expired versions and old memories are looked for; nothing depends on its precision.
const sweepEvery = 5 * time.Second

// Tick does what is due at now.
func (r *Replica) Tick(now time.Time) {
	r.eachSession(func(s *session) { r.tickSession(now, s) })
	r.eachPeer(func(p *peer) { r.tickPeer(now, p) })
	if !now.Before(r.sweepAt) {
		r.sweepAt = now.Add(sweepEvery)
		r.sweep(now)
		r.reissue(now)
	}
	r.flushAll(now)
}

func (r *Replica) tickSession(now time.Time, s *session) {
	switch {
	case s.state == Open:
		if !now.Before(s.since.Add(r.cfg.Timers.Hello)) {
			r.close(now, s, frame.HelloTimeout, "no HELLO")
		}
		return
	case !now.Before(s.heard.Add(s.hold)):
		r.close(now, s, frame.HoldExpired, "hold time is over")
		return
	case s.state == Established && s.tx.stalledAt(r.cfg.Timers.Stall, now):
		r.close(now, s, frame.SendStalled, "acknowledgements make no progress")
		return
	}
	if !now.Before(s.nextAlive) {
		r.sendKeepalive(now, s)
	}
	if !s.rx.ackAt.IsZero() && !now.Before(s.rx.ackAt) {
		r.sendAck(s)
	}
}

// tickPeer ends the time of a lost neighbour's entries, and of those that wait for their keys.
func (r *Replica) tickPeer(now time.Time, p *peer) {
	if !p.refuseAt.IsZero() && !now.Before(p.refuseAt) {
		if s := p.session; s != nil && s.rx.phase == rxLive {
			r.refuseUnknown(now, p)
		}
		p.refuseAt = time.Time{} // else the next synchronisation sets it again
	}
	if p.session == nil && !p.staleUntil.IsZero() && !now.Before(p.staleUntil) {
		r.emit(Transition{Gateway: p.gateway, From: Stale, To: Idle, Reason: "did not come back in time"})
		r.purge(now, p)
		r.changed = true
	}
}

// Next is when Tick has something to do.
func (r *Replica) Next() time.Time {
	next := r.sweepAt
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, s := range r.sessions {
		if s.state == Open {
			earlier(s.since.Add(r.cfg.Timers.Hello))
			continue
		}
		earlier(s.heard.Add(s.hold))
		earlier(s.nextAlive)
		earlier(s.rx.ackAt)
		if s.state == Established {
			earlier(s.tx.next(r.cfg.Timers.Stall, r.window(s)))
		}
	}
	earlier(r.nextPlace())
	for _, p := range r.peers {
		earlier(p.refuseAt)
		if p.session == nil {
			earlier(p.staleUntil)
		}
	}
	return next
}
