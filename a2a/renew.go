package a2a

import (
	"context"
	"time"

	"agentgw/a2a/session"
)

const renewFloor = time.Second // between two looks whether a session has to be renewed

// left is the time until the session's end, and a quarter of all that its SAT has given.
func (r *resumer) left(now time.Time) (left, quarter time.Duration) {
	end := r.Info().Until
	return end.Sub(now), end.Sub(unix(r.binding().issued)) / 4
}

// untilRenewal is when to look next whether the session needs a later end: when three quarters of what its SAT has given are over, and
// then ever more often.
func (r *resumer) untilRenewal(now time.Time) time.Duration {
	left, quarter := r.left(now)
	if left > quarter {
		return max(left-quarter, renewFloor)
	}
	return max(left/4, renewFloor)
}

// renew extends a session in which something is still being worked on when its end is near: with a new SAT, by an update. One in which
// nothing runs ends as it was to end.
func (r *resumer) renew(now time.Time) {
	r.mu.Lock()
	runs := r.machine.State() == session.Established && r.machine.Running() > 0 && r.machine.Renewable
	r.mu.Unlock()
	if left, quarter := r.left(now); !runs || left > quarter || r.route.NewSAT == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.life, resumeTime)
	defer cancel()
	sat, addrs, err := r.route.NewSAT(ctx, r.sid, r.cap)
	if err == nil {
		r.addrs = addrs
		err = r.Update(ctx, session.Change{SAT: sat})
	}
	r.agent.log.Info("session_renewed", "sid", r.sid, "peer", r.peer, "until", r.Info().Until.UTC(), "err", err)
}
