package replica

import (
	"time"
)

// A full synchronisation is the one thing that costs a gateway much at once, and after the restart of many they are all asked for together. So few are served
// at a time, and the others stand in line; their sessions are up meanwhile, and deltas never wait. A place in line is the time of asking and a random
// while: who asks that much later comes later, so nobody starves, and within it the order is another one at each gateway, so that a neighbour of
// many of them is not everybody's next. No place is kept free for the while: who asks when there is room is served at once.
const (
	maxServed  = 4
	servedTime = 10 * time.Second // then a neighbour that reads slowly takes no place any more, and goes on beside the others
	lineWhile  = 5 * time.Second
)

// takesPlace says whether a full synchronisation counts as served. It does until all is sent but SYNC_END, which may have to wait for others.
func (s *session) takesPlace() bool {
	return s.state == Established && s.tx.phase == txSync && !s.tx.delta && !s.tx.freed
}

// waits says whether a neighbour stands in line.
func (s *session) waits() bool { return s.state == Established && !s.tx.lineAt.IsZero() }

// mayServe says whether a full synchronisation can begin at once: there is room, and nobody waits for it.
func (r *Replica) mayServe(but *session) bool {
	served := 0
	for _, s := range r.sessions {
		if s == but {
			continue // what it is told now is given up
		}
		if s.waits() {
			return false
		}
		if s.takesPlace() {
			served++
		}
	}
	return served < maxServed
}

// lineUp has a neighbour wait for a full synchronisation. One that waits keeps its place. What it was being told is given up: it asked for that.
func (r *Replica) lineUp(now time.Time, s *session) {
	tx := &s.tx
	if s.waits() {
		tx.resyncAt, tx.resyncFrom = time.Time{}, nil
		return
	}
	sess, announced := tx.sess, tx.announced
	if tx.phase != txIdle {
		sess = r.nonce()
	}
	*tx = newSender(sess)
	tx.history = newHistory([8]byte{}) // of nothing; the neighbour's is kept where it is
	tx.announced, tx.lastResync = announced, now
	tx.lineAt = now.Add(r.jitter(lineWhile, 0, 100))
	r.changed = true
}

// serveNext begins what there is room for, the first in line first. It says whether it has begun any.
func (r *Replica) serveNext(now time.Time) (begun bool) {
	for {
		served := 0
		var next *session
		r.eachSession(func(s *session) {
			s.tx.freed = s.tx.freed || !now.Before(s.tx.servedAt.Add(servedTime))
			if s.takesPlace() {
				served++
			}
			if s.waits() && (next == nil || s.tx.lineAt.Before(next.tx.lineAt)) {
				next = s
			}
		})
		if next == nil || served >= maxServed {
			return begun
		}
		r.beginSync(now, next, 0, false)
		begun = true
	}
}

// nextPlace is when a neighbour that reads slowly gives its place to one that waits; zero where none does.
func (r *Replica) nextPlace() (next time.Time) {
	some := false
	for _, s := range r.sessions {
		some = some || s.waits()
		if end := s.tx.servedAt.Add(servedTime); s.takesPlace() && (next.IsZero() || end.Before(next)) {
			next = end
		}
	}
	if !some {
		return time.Time{}
	}
	return next
}
