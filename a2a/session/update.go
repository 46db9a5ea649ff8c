package session

import (
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// Change is what an update changes; a zero field stays as it is.
type Change struct {
	Params *wire.Params
	Scope  []string
	Until  time.Time // sess_exp
	SAT    []byte
}

// Grant is what a new SAT allows. It takes the place of what the one before allowed.
type Grant struct {
	Scope  []string
	Limits token.Limits
	Until  time.Time
	Update bool
}

// GrantOf is what a verified SAT allows.
func GrantOf(sat token.SAT) *Grant {
	return &Grant{Scope: sat.Scope, Limits: sat.Limits, Until: sat.Ends(), Update: sat.Update}
}

// terms are what a session allows now.
type terms struct {
	Grant
	params wire.Params
}

// changed is what the session would allow after a change. Without a grant it may only become narrower (6B); with one the change may
// narrow what the grant allows. This is the one place that judges an update.
func (s *Session) changed(c Change, g *Grant, now time.Time) (terms, error) {
	t, widest := s.terms(), s.Params
	if g != nil {
		t.Grant, widest = *g, DefaultParams()
	}
	switch {
	case len(c.Scope) > 0 && !policy.Covers(t.Scope, c.Scope):
		return t, frame.Errorf(frame.UpdateRejected, "scope %q is wider than %q: an update may only narrow it without a new SAT", c.Scope, t.Scope)
	case c.Until.After(t.Until):
		return t, frame.Errorf(frame.UpdateRejected, "the session ends at %v: an update may extend it with a new SAT only", t.Until.UTC())
	case c.Params != nil && !within(*c.Params, widest):
		return t, frame.Errorf(frame.UpdateRejected, "params are wider than those of the session: an update may only narrow them without a new SAT")
	}
	if len(c.Scope) > 0 {
		t.Scope = c.Scope
	}
	if !c.Until.IsZero() {
		t.Until = c.Until
	}
	if c.Params != nil {
		t.params = *c.Params
	}
	if !t.Until.After(now) {
		return t, frame.Errorf(frame.UpdateRejected, "the session would be over: end it with a TERMINATE")
	}
	return t, nil
}

func (s *Session) terms() terms {
	return terms{Grant{Scope: s.Scope, Limits: s.Limits, Until: s.Until, Update: s.Renewable}, s.Params}
}

func (s *Session) setTerms(t terms) {
	raised := t.Limits != s.Limits
	s.Scope, s.Limits, s.Until, s.Renewable, s.Params = t.Scope, t.Limits, t.Until, t.Update, t.params
	if raised {
		s.spent = s.used()
	}
}

// update begins an update of this side.
func (s *Session) update(ev Update, now time.Time) ([]Effect, error) {
	switch {
	case s.state == Updating || s.judged != nil:
		return nil, frame.Errorf(frame.State, "another update of this session waits for its answer")
	case s.state != Established:
		return nil, frame.Errorf(frame.SessionUnknown, "session is %v", s.state)
	case ev.Grant != nil && !s.mayRenew():
		return nil, frame.Errorf(frame.UpdateRejected, "the session may not be renewed: its SAT does not say upd, or this side is its target")
	}
	if _, err := s.changed(ev.Change, ev.Grant, now); err != nil {
		return nil, err
	}
	s.updateSeq++
	s.asked = ev
	return s.becomeUpdating(ev.Change, now), nil
}

// mayRenew says whether a new SAT may come in an update: the initiator has it from its gateway, where the one before allows that.
func (s *Session) mayRenew() bool { return s.Role == Leader && s.Renewable }

// updateAsked judges an update of the peer. Of two that cross the one of the lower AIC wins.
func (s *Session) updateAsked(ev RecvUpdate, now time.Time) ([]Effect, error) {
	if s.state == Closing || s.state == Closed { // it crossed the end
		return nil, nil
	}
	if !s.state.Live() || s.judged != nil {
		return nil, s.illegal("SESSION_UPDATE")
	}
	if ev.Seq <= s.peerSeq {
		return nil, frame.Errorf(frame.State, "SESSION_UPDATE %d after %d", ev.Seq, s.peerSeq)
	}
	s.peerSeq = ev.Seq
	switch {
	case !s.peerRate.under(MaxUpdateRate, now), s.peerUpdates >= MaxUpdates:
		return s.acknowledge(frame.RateLimited), nil
	case s.state == Updating && s.Self < s.Peer:
		return s.acknowledge(frame.UpdateRejected), nil
	}
	s.peerUpdates++
	switch {
	case len(ev.Change.SAT) == 0:
		return s.judge(ev.Change, nil, now), nil
	case s.Role == Leader || !s.Renewable:
		return s.acknowledge(frame.UpdateRejected), nil
	}
	s.judged = &ev.Change
	return []Effect{CheckUpdate{Seq: ev.Seq, SAT: ev.Change.SAT}}, nil
}

// judge puts an update of the peer into force, or refuses it.
func (s *Session) judge(c Change, g *Grant, now time.Time) []Effect {
	t, err := s.changed(c, g, now)
	if err != nil {
		return s.acknowledge(frame.CodeOf(err))
	}
	s.setTerms(t)
	return append(s.acknowledge(frame.OK), Changed{})
}

func (s *Session) acknowledge(code frame.Code) []Effect {
	s.judged = nil
	return []Effect{SendUpdateAck{Seq: s.peerSeq, Code: code}}
}

// checked goes on with an update whose SAT was checked. The session may have ended meanwhile, or lost its connection and got another
// update on the next one.
func (s *Session) checked(seq uint64, g *Grant, code frame.Code, now time.Time) []Effect {
	if s.judged == nil || seq != s.peerSeq || !s.state.Live() {
		return nil
	}
	if g == nil {
		return s.acknowledge(code)
	}
	return s.judge(*s.judged, g, now)
}

// acknowledged ends an update of this side: what it asked for is in force from here on.
func (s *Session) acknowledged(ev RecvUpdateAck, now time.Time) ([]Effect, error) {
	if s.state == Closing || s.state == Closed {
		return nil, nil
	}
	if s.state != Updating || ev.Seq != s.updateSeq {
		return nil, s.illegal("UPDATE_ACK")
	}
	out := []Effect{Updated{Code: ev.Code}}
	if ev.Code == frame.OK {
		t, err := s.changed(s.asked.Change, s.asked.Grant, now)
		if err != nil { // it had to refuse this one: its own has won meanwhile
			return nil, s.illegal("UPDATE_ACK 00")
		}
		s.setTerms(t)
		out = append(out, Changed{})
	}
	s.become(Established, frame.OK, now)
	return out, nil
}

func (s *Session) becomeUpdating(c Change, now time.Time) []Effect {
	s.become(Updating, frame.OK, now)
	s.updateEnds = now.Add(UpdateTimeout)
	return []Effect{SendUpdate{Seq: s.updateSeq, Change: c}}
}
