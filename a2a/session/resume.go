package session

import (
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// Held is what a target knows of a session that an INIT wants to resume.
type Held struct {
	Peer     string    // AIC of the initiator
	PeerSPKI wire.Hash // key that the session is bound to
	OwnSPKI  wire.Hash // the target's own key that it is bound to
	Cap      string
	Ctr      uint64 // of its last INIT; 0 for none
	Until    time.Time
}

// CheckResume is the part of the target's checks on a resuming INIT that needs no token: who is who (64, 63), the capability (63), ctr
// (62), and without a new SAT that both keys are those of before (63) and the session's time is not over (26). A SAT that came with it
// is checked besides, as in any INIT: see [CheckInitToken].
func CheckResume(m *wire.SessionInit, me string, ownSPKI wire.Hash, remote Remote, h Held, now time.Time) error {
	switch {
	case m.Target != me:
		return frame.Errorf(frame.Audience, "SESSION_INIT is for %s, this is %s", m.Target, me)
	case m.Initiator != remote.AIC:
		return frame.Errorf(frame.Binding, "SESSION_INIT names %s, the certificate names %s", m.Initiator, remote.AIC)
	case h.Peer != remote.AIC:
		return frame.Errorf(frame.Binding, "the session is with %s, %s wants to resume it", h.Peer, remote.AIC)
	case h.Cap != m.Cap:
		return frame.Errorf(frame.Binding, "the session is bound to %s, not to %s", h.Cap, m.Cap)
	case m.Resume.Ctr <= h.Ctr:
		return frame.Errorf(frame.TokenReplayed, "ctr %d is not larger than %d", m.Resume.Ctr, h.Ctr)
	case len(m.SAT) > 0:
		return nil
	case h.PeerSPKI != remote.SPKI || h.OwnSPKI != ownSPKI:
		return frame.Errorf(frame.Binding, "the session is bound to another key: it needs a new SAT to resume")
	case !now.Before(h.Until):
		return frame.Errorf(frame.Expired, "the session's time is over")
	}
	return nil
}

// NextCtr is the ctr of the next resuming INIT after one with last.
func NextCtr(last uint64, now time.Time) uint64 { return max(uint64(now.UnixMilli()), last+1) }

func (s *Session) connLost(ev ConnLost, now time.Time) []Effect {
	switch s.state {
	case None, Closed:
		return nil
	case Closing:
		return s.becomeClosed(s.reason, now)
	case Lost:
		if !ev.Final {
			return nil
		}
	case Established, Updating, Resuming:
		if s.Resumable && !ev.Final {
			return s.becomeLost(now)
		}
	}
	return s.becomeClosed(frame.UpstreamFailed, now)
}

func (s *Session) resume(ev Resume, now time.Time) ([]Effect, error) {
	if !s.state.Live() && s.state != Lost {
		return nil, frame.Errorf(frame.SessionUnknown, "session is %v", s.state)
	}
	s.granted = ev.Grant
	return s.becomeResuming(now), nil
}

// resumed goes on after the target's ACCEPT, with the narrower of what the two sides remember: the answer to an update may have been
// lost with the connection.
func (s *Session) resumed(ev RecvAccept, now time.Time) ([]Effect, error) {
	t := s.terms()
	if s.granted != nil {
		t.Grant = *s.granted
	}
	var err error
	if t.params, err = Narrow(ev.Params, s.Params); err != nil {
		return nil, err
	}
	t.Until = earlier(t.Until, ev.Until)
	if !ev.Resumed || !t.Until.After(now) {
		return nil, frame.Errorf(frame.Malformed, "SESSION_ACCEPT does not resume the session")
	}
	s.setTerms(t)
	s.becomeEstablished(now)
	return []Effect{Resumed{}}, nil
}

// readmit goes on over the connection that the leader has resumed on; the one before may still live.
func (s *Session) readmit(ev Readmit, now time.Time) ([]Effect, error) {
	if !s.state.Live() && s.state != Lost {
		return nil, frame.Errorf(frame.SessionUnknown, "session is %v", s.state)
	}
	if ev.Grant != nil {
		s.setTerms(terms{*ev.Grant, s.Params})
	}
	out := s.leaveLink()
	s.becomeEstablished(now)
	return append(out, SendAccept{Params: s.Params, Until: s.Until, Resumed: true}, Resumed{}), nil
}

// rejected ends the session, but for a reason that passes.
func (s *Session) rejected(code frame.Code, now time.Time) []Effect {
	if s.state == Resuming && (code == frame.RateLimited || code == frame.Overloaded) {
		return s.becomeLost(now)
	}
	return s.becomeClosed(code, now)
}

// leaveLink forgets what belongs to one connection: exchanges, and updates without an answer.
func (s *Session) leaveLink() []Effect {
	s.running, s.judged = 0, nil
	if s.state == Updating {
		return []Effect{Updated{Code: frame.UpstreamFailed}}
	}
	return nil
}

// becomeLost may come again and again; the 60 s count from the connection that carried data.
func (s *Session) becomeLost(now time.Time) []Effect {
	out := s.leaveLink()
	s.keepFrom(now)
	s.become(Lost, frame.UpstreamFailed, now)
	return append(out, Left{Until: s.lostEnds})
}

func (s *Session) becomeResuming(now time.Time) []Effect {
	out := s.leaveLink()
	s.keepFrom(now)
	s.become(Resuming, frame.OK, now)
	s.phaseEnds = now.Add(InitTimeout)
	return append(out, SendInit{})
}

// keepFrom begins the time for which a session is kept without a connection, where it has not begun.
func (s *Session) keepFrom(now time.Time) {
	if s.state.Live() {
		s.lostEnds = earlier(now.Add(ResumeTime), s.Until)
	}
}
