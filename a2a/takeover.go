package a2a

import (
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// resumption is a resuming SESSION_INIT, with the SAT that it has brought, where it has and that has passed its checks.
type resumption struct {
	init    *wire.SessionInit
	remote  session.Remote
	ownSPKI wire.Hash
	sat     *token.SAT // nil for none
	shown   token.Presented
}

// takeOver goes on with a session of before over the link on which its leader resumes it. Whatever connection it had is closed (0B).
func (a *Agent) takeOver(l *link, init *wire.SessionInit, remote session.Remote) (*Session, error) {
	s := a.find(init.Sid)
	if s == nil || s.leader {
		return nil, frame.Errorf(frame.SessionUnknown, "no session of the sid is kept here")
	}
	r := resumption{init: init, remote: remote, ownSPKI: a.cfg.SPKI()}
	if err := a.checkResumption(s, &r); err != nil {
		return nil, err
	}
	a.mu.Lock()
	done, err := a.readmit(s, l, r)
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if old := done.left; old != nil && old.conn != l.conn {
		old.conn.Close(frame.Collision, "resumed on another connection")
	}
	a.log.Info("session_resumed", "peer", remote.AIC, "sid", s.sid, "new_sat", r.sat != nil)
	s.finishStep(done)
	return s, nil
}

// checkResumption repeats the checks of INIT: those of its SAT, or without one the capability and the standing of the peer. It keeps no
// state.
func (a *Agent) checkResumption(s *Session, r *resumption) error {
	if len(r.init.SAT) > 0 {
		sat, shown, err := a.checkSAT(r.init, r.remote)
		r.sat, r.shown = &sat, shown
		return err
	}
	if err := a.capBound(token.SAT{Cap: s.cap, Scope: s.scope()}); err != nil {
		return err
	}
	return a.status(r.remote.AIC)
}

// readmit is the one step of a resume that changes anything. It is called with mu held, and takes the session's own mutex below it.
func (a *Agent) readmit(s *Session, l *link, r resumption) (stepped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := session.Held{Peer: s.peer, PeerSPKI: s.bound.peer, OwnSPKI: s.bound.own, Cap: s.cap, Ctr: s.ctr, Until: s.machine.Until}
	if err := session.CheckResume(r.init, a.cfg.AIC, r.ownSPKI, r.remote, held, time.Now()); err != nil {
		return stepped{}, err
	}
	bound, ev := s.bound, session.Readmit{}
	if r.sat != nil {
		bound, ev.Grant = bindingOf(*r.sat, false), session.GrantOf(*r.sat)
	}
	if err := a.stillGood(s.peer, bound.issued); err != nil {
		return stepped{}, err
	}
	if r.sat != nil {
		if err := a.consume(*r.sat, r.shown); err != nil {
			return stepped{}, err
		}
	}
	s.bound, s.ctr = bound, r.init.Resume.Ctr
	done := s.apply(ev, l)
	return done, done.err
}
