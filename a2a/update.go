package a2a

import (
	"context"
	"slices"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// Update changes what the session allows, and returns when the other side has answered: from then on the change is in force at both
// ends. Without a new SAT it may only narrow; with one, which only the initiator has, the session goes on under that. Codes: 6B for
// what is wider, or crossed an update of the lower AIC; 6A while another one waits; what a target tells of a SAT that it refuses; 48
// when the connection is lost before the answer: then it is not known whether it is in force, and the same may be asked for again; 67
// for a session that is not open; 4A for a change of nothing, or one that does not fit into a frame; 44, 49 for ctx.
func (s *Session) Update(ctx context.Context, c session.Change) error {
	if _, err := wire.Append(nil, updateOf(s.sid, session.SendUpdate{Seq: 1, Change: c})); err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	ev := session.Update{Change: c}
	var sat token.SAT
	if len(c.SAT) > 0 {
		var err error
		if sat, err = s.heldSAT(c.SAT); err != nil {
			return err
		}
		ev.Grant = session.GrantOf(sat)
	}
	answer := make(chan frame.Code, 1)
	s.mu.Lock()
	done := s.apply(ev, nil)
	if done.err == nil {
		s.updated = answer
	}
	s.mu.Unlock()
	if err := s.finishStep(done); err != nil {
		return err
	}
	select {
	case code := <-answer:
		if code != frame.OK {
			return frame.Errorf(code, "%s does not take the update", s.peer)
		}
	case <-s.life.Done():
		return frame.Errorf(frame.SessionUnknown, "the session ended before the update was answered")
	case <-ctx.Done():
		return contextError(ctx)
	}
	if ev.Grant != nil {
		s.rebind(sat)
	}
	return nil
}

// heldSAT holds a new SAT against the session before it is sent: it is for the same two agents under the same two keys, for the same
// sid and capability, and it is time.
func (s *Session) heldSAT(raw []byte) (token.SAT, error) {
	sat, err := token.ReadSAT(raw)
	if err != nil {
		return sat, err
	}
	now := s.binding()
	if err := s.isFor(sat); err != nil {
		return sat, err
	}
	if sat.TargetSPKI != now.peer || sat.Confirm.SPKI != now.own {
		return sat, frame.Errorf(frame.Binding, "the SAT is for another key than the session runs under: it needs another connection")
	}
	return sat, sat.CheckTime(time.Now())
}

// isFor holds that a SAT is for this session (63).
func (s *Session) isFor(sat token.SAT) error {
	if sat.Sid != s.sid || sat.Cap != s.cap || sat.Audience != s.peer || sat.Subject != s.agent.cfg.AIC {
		return frame.Errorf(frame.Binding, "the SAT is for another session than this one with %s", s.peer)
	}
	return nil
}

// answered hands the fate of this side's update to whoever waits for it.
func (s *Session) answered(code frame.Code) {
	s.mu.Lock()
	answer := s.updated
	s.updated = nil
	s.mu.Unlock()
	if answer != nil {
		answer <- code
	}
}

// checkUpdate runs the checks of INIT on the SAT of the initiator's update, and uses its offer up.
func (s *Session) checkUpdate(e session.CheckUpdate) {
	done, err := s.agent.admitUpdate(s, e)
	if err != nil {
		s.agent.log.Warn("session_update_refused", "sid", s.sid, "peer", s.peer, "err", err)
		s.step(session.RefuseUpdate{Seq: e.Seq, Code: session.RejectCode(frame.CodeOf(err), s.agent.isHome(s.peer))})
		return
	}
	s.finishStep(done)
}

// admitUpdate has the machine judge an update whose SAT has passed all checks. Only one that comes into force moves the session to another
// token: what is refused leaves it under the one that it has.
func (a *Agent) admitUpdate(s *Session, e session.CheckUpdate) (done stepped, err error) {
	if err := a.mayInit(s.peer); err != nil {
		return done, err
	}
	remote := session.Remote{AIC: s.peer, SPKI: s.binding().peer}
	as := &wire.SessionInit{Sid: s.sid, Initiator: s.peer, Target: a.cfg.AIC, Cap: s.cap, SAT: e.SAT} // what the SAT would have opened it with
	sat, presented, err := a.checkSAT(as, remote)
	if err != nil {
		return done, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.stillGood(s.peer, sat.Issued); err != nil {
		return done, err
	}
	if err := a.consume(sat, presented); err != nil {
		return done, err
	}
	s.mu.Lock()
	done = s.apply(session.AdmitUpdate{Seq: e.Seq, Grant: *session.GrantOf(sat)}, nil)
	s.mu.Unlock()
	if slices.Contains(done.effects, session.Effect(session.Changed{})) {
		s.bound.issuer, s.bound.issued = sat.Issuer, sat.Issued
	}
	return done, nil
}

func (s *Session) binding() binding {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	return s.bound
}

// rebind notes the SAT that the session runs under now.
func (s *Session) rebind(sat token.SAT) {
	s.agent.mu.Lock()
	defer s.agent.mu.Unlock()
	s.bound = bindingOf(sat, s.leader)
}

func bindingOf(sat token.SAT, leader bool) binding {
	b := binding{peer: sat.Confirm.SPKI, own: sat.TargetSPKI, issuer: sat.Issuer, issued: sat.Issued}
	if leader {
		b.peer, b.own = b.own, b.peer
	}
	return b
}

func updateOf(sid wire.ID, e session.SendUpdate) *wire.SessionUpdate {
	m := &wire.SessionUpdate{Sid: sid, Seq: e.Seq, Params: e.Change.Params, Scope: e.Change.Scope, SAT: e.Change.SAT}
	if !e.Change.Until.IsZero() {
		m.SessExp = uint64(e.Change.Until.Unix())
	}
	return m
}

func changeOf(m *wire.SessionUpdate) session.Change {
	c := session.Change{Params: m.Params, Scope: m.Scope, SAT: m.SAT}
	if m.SessExp > 0 {
		c.Until = unix(m.SessExp)
	}
	return c
}
