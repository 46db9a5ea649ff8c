package session

import (
	"fmt"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/directory"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// Timers of a session.
const (
	InitTimeout       = 5 * time.Second  // SESSION_INIT to its answer
	DrainTimeout      = 5 * time.Second  // SESSION_TERMINATE to the end of what still runs
	KeepaliveInterval = 20 * time.Second // of idleness before an A2A_KEEPALIVE
	DefaultIdle       = 5 * time.Minute  // without an exchange before the session ends
	UpdateTimeout     = 5 * time.Second  // SESSION_UPDATE to its answer; without one the session ends
	ResumeTime        = 60 * time.Second // a session without a connection is kept
)

// MaxStreams is how many exchanges of one session may run at a time.
const MaxStreams = 16

// MaxUpdateRate is how many updates of the peer are judged in one second; more get 0F.
const MaxUpdateRate = 5

// MaxUpdates is how many updates of the peer are judged in one session; more get 0F.
const MaxUpdates = 256

const maxTransitions = 16 // remembered; a session may be updated and resumed for hours

// Config is what a session is made of. Until and Params are proposals until the session is established.
type Config struct {
	Sid    wire.ID
	Role   Role
	Self   string // AIC
	Peer   string // AIC
	Cap    string
	Scope  []string
	Limits token.Limits
	Params wire.Params
	Until  time.Time // sess_exp of the SAT

	Renewable bool // upd of the SAT: an update may bring a new one
	Resumable bool // it is kept when its connection is lost
}

// Session is the machine of one session, at one of its two ends.
type Session struct {
	Config
	invoke string // scope string that its contexts need
	state  State
	reason frame.Code // why it is CLOSING or CLOSED

	phaseEnds time.Time // end of INIT_SENT, INIT_RCVD, RESUMING or CLOSING
	lostEnds  time.Time // end of LOST, and of RESUMING
	granted   *Grant    // of the new SAT with which it is RESUMING

	updateSeq   uint64    // of this side's last update
	updateEnds  time.Time // end of UPDATING
	asked       Update    // that its answer puts into force
	peerSeq     uint64    // of the peer's last update
	peerUpdates int       // of the peer that were judged
	peerRate    perSecond // of the peer's updates
	judged      *Change   // of the peer, while its SAT is checked

	lastUsed time.Time // last message or end of an exchange
	lastSent time.Time // last time that the peer could see us alive
	echoMS   uint64    // timestamp of the peer's last keepalive

	running         int    // exchanges begun and not ended
	messages, bytes uint64 // both directions
	streams         uint64
	spent           bool      // a limit is reached
	rate            perSecond // of messages
	transitions     []Transition
}

// Transition is one change of state, for the log and for people.
type Transition struct {
	At       time.Time
	From, To State
	Reason   frame.Code
}

// New makes a session in state NONE.
func New(c Config) *Session {
	_, skill, _ := directory.ParseCapID(c.Cap) // one that is none is covered by no scope of a token
	return &Session{Config: c, invoke: policy.ScopeSkillInvoke + skill}
}

// State is the state.
func (s *Session) State() State { return s.state }

// Reason is the code with which the session is closing or closed; [frame.OK] for an ordinary end.
func (s *Session) Reason() frame.Code { return s.reason }

// Running is the number of exchanges that run.
func (s *Session) Running() int { return s.running }

// Transitions are the last changes of state, at most [maxTransitions].
func (s *Session) Transitions() []Transition { return s.transitions }

// Step takes one event. The effects are to be carried out in their order. An error carries the code for the peer; the state
// is then unchanged, but for a limit that was exceeded, where the effects may end the session.
func (s *Session) Step(ev Event, now time.Time) ([]Effect, error) {
	switch ev := ev.(type) {
	case Start:
		if s.state == Closed { // the agent was closed in this very moment
			return nil, nil
		}
		s.must(ev, None)
		return s.becomeInitSent(now), nil
	case RecvInit:
		if s.state != None {
			return nil, s.illegal("SESSION_INIT")
		}
		return s.becomeInitRcvd(now), nil
	case Admit:
		return s.admit(ev, now), nil
	case Refuse:
		return s.refuse(ev, now), nil
	case RecvAccept:
		return s.accepted(ev, now)
	case RecvReject:
		if s.state != InitSent && s.state != Resuming {
			return nil, s.illegal("SESSION_REJECT")
		}
		return s.rejected(ev.Code, now), nil
	case Message:
		return s.message(ev, now)
	case StreamEnded:
		return s.streamEnded(now), nil
	case RecvKeepalive:
		if !s.state.Live() && s.state != Closing {
			return nil, s.illegal("A2A_KEEPALIVE")
		}
		s.echoMS = ev.TimestampMS
		return nil, nil
	case Close:
		return s.closeLocal(ev.Code, now), nil
	case RecvTerminate:
		return s.terminated(ev.Code, now)
	case ConnLost:
		return s.connLost(ev, now), nil
	case Tick:
		return s.tick(now), nil
	}
	return s.stepLater(ev, now)
}

// stepLater takes the events of a session that goes on: updates, and other connections.
func (s *Session) stepLater(ev Event, now time.Time) ([]Effect, error) {
	switch ev := ev.(type) {
	case Resume:
		return s.resume(ev, now)
	case Readmit:
		return s.readmit(ev, now)
	case Update:
		return s.update(ev, now)
	case RecvUpdate:
		return s.updateAsked(ev, now)
	case AdmitUpdate:
		return s.checked(ev.Seq, &ev.Grant, frame.OK, now), nil
	case RefuseUpdate:
		return s.checked(ev.Seq, nil, ev.Code, now), nil
	case RecvUpdateAck:
		return s.acknowledged(ev, now)
	}
	panic(fmt.Sprintf("session: event %T is not of this package", ev))
}

func (s *Session) admit(ev Admit, now time.Time) []Effect {
	if s.state == Closed { // the connection went while the checks ran
		return nil
	}
	s.must(ev, InitRcvd)
	if ev.Until.Before(s.Until) {
		s.Until = ev.Until
	}
	s.Params = ev.Params
	s.becomeEstablished(now)
	return []Effect{SendAccept{Params: s.Params, Until: s.Until}, Opened{}}
}

func (s *Session) refuse(ev Refuse, now time.Time) []Effect {
	if s.state == Closed {
		return nil
	}
	s.must(ev, InitRcvd)
	return append([]Effect{SendReject(ev)}, s.becomeClosed(ev.Code, now)...)
}

func (s *Session) accepted(ev RecvAccept, now time.Time) ([]Effect, error) {
	if s.state == Resuming {
		return s.resumed(ev, now)
	}
	if s.state != InitSent {
		return nil, s.illegal("SESSION_ACCEPT")
	}
	if ev.Resumed || ev.Until.After(s.Until) || !ev.Until.After(now) || !within(ev.Params, s.Params) {
		return nil, frame.Errorf(frame.Malformed, "SESSION_ACCEPT is wider than what was proposed")
	}
	s.Params, s.Until = ev.Params, ev.Until
	s.becomeEstablished(now)
	return []Effect{Opened{}}, nil
}

func (s *Session) closeLocal(code frame.Code, now time.Time) []Effect {
	switch s.state {
	case None, InitRcvd, Lost:
		return s.becomeClosed(code, now)
	case InitSent, Resuming: // the target may just have accepted: tell it
		return append([]Effect{SendTerminate{Code: code}}, s.becomeClosed(code, now)...)
	case Established, Updating:
		return append([]Effect{SendTerminate{Code: code}}, s.becomeClosing(code, now)...)
	}
	return nil
}

func (s *Session) terminated(code frame.Code, now time.Time) ([]Effect, error) {
	switch s.state {
	case Established, Updating:
		return s.becomeClosing(code, now), nil
	case Closing, Closed: // both ended at once
		return nil, nil
	case InitRcvd, Lost, Resuming: // the leader gave up while the checks ran; it was on its way when the connection was left
		return s.becomeClosed(code, now), nil
	}
	return nil, s.illegal("SESSION_TERMINATE")
}

func (s *Session) streamEnded(now time.Time) []Effect {
	if s.state == Closed || s.state == Lost || s.state == Resuming {
		return nil
	}
	if s.running == 0 {
		panic("session: an exchange ended that never began")
	}
	s.running--
	s.lastUsed = now
	if s.state == Closing && s.running == 0 {
		return s.becomeClosed(s.reason, now)
	}
	return s.endSpent(now)
}

func (s *Session) tick(now time.Time) []Effect {
	switch s.state {
	case InitSent, InitRcvd:
		if !now.Before(s.phaseEnds) {
			return s.becomeClosed(frame.Deadline, now)
		}
	case Closing:
		if !now.Before(s.phaseEnds) {
			return s.becomeClosed(s.reason, now)
		}
	case Lost, Resuming:
		switch {
		case !now.Before(s.Until):
			return s.closeLocal(frame.Expired, now)
		case !now.Before(s.lostEnds):
			return s.closeLocal(frame.UpstreamFailed, now)
		case s.state == Resuming && !now.Before(s.phaseEnds):
			return s.becomeLost(now)
		}
	case Established, Updating:
		switch {
		case !now.Before(s.Until):
			return s.closeLocal(frame.Expired, now)
		case s.state == Updating && !now.Before(s.updateEnds):
			return s.closeLocal(frame.Deadline, now)
		case s.running == 0 && now.Sub(s.lastUsed) >= s.idle():
			return s.closeLocal(frame.HoldExpired, now)
		case now.Sub(s.lastSent) >= KeepaliveInterval:
			s.lastSent = now
			return []Effect{SendKeepalive{TimestampMS: uint64(now.UnixMilli()), EchoMS: s.echoMS}}
		}
	}
	return nil
}

// NextDeadline is when a [Tick] is due; the zero time means never.
func (s *Session) NextDeadline() time.Time {
	switch s.state {
	case InitSent, InitRcvd, Closing:
		return s.phaseEnds
	case Lost:
		return s.lostEnds
	case Resuming:
		return earlier(s.phaseEnds, s.lostEnds)
	case Established, Updating:
		next := earlier(s.Until, s.lastSent.Add(KeepaliveInterval))
		if s.state == Updating {
			next = earlier(next, s.updateEnds)
		}
		if s.running == 0 {
			next = earlier(next, s.lastUsed.Add(s.idle()))
		}
		return next
	}
	return time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s *Session) idle() time.Duration {
	idle := min(s.Params.IdleMS, 24*3600*1000)
	if n := s.Limits.IdleSeconds; n > 0 && n < idle/1000 {
		idle = n * 1000
	}
	return time.Duration(idle) * time.Millisecond
}

// The becomeX functions are the only changes of state.

func (s *Session) becomeInitSent(now time.Time) []Effect {
	s.become(InitSent, frame.OK, now)
	s.phaseEnds = now.Add(InitTimeout)
	return []Effect{SendInit{}}
}

func (s *Session) becomeInitRcvd(now time.Time) []Effect {
	s.become(InitRcvd, frame.OK, now)
	s.phaseEnds = now.Add(InitTimeout)
	return []Effect{CheckInit{}}
}

func (s *Session) becomeEstablished(now time.Time) {
	s.become(Established, frame.OK, now)
	s.lastUsed, s.lastSent = now, now
}

func (s *Session) becomeClosing(code frame.Code, now time.Time) []Effect {
	s.become(Closing, code, now)
	s.phaseEnds = now.Add(DrainTimeout)
	if s.running == 0 {
		return append([]Effect{StopData{Code: code}}, s.becomeClosed(code, now)...)
	}
	return []Effect{StopData{Code: code}}
}

func (s *Session) becomeClosed(code frame.Code, now time.Time) []Effect {
	s.become(Closed, code, now)
	s.running = 0
	return []Effect{Released{Code: code, Until: s.Until}}
}

func (s *Session) become(to State, reason frame.Code, now time.Time) {
	if len(s.transitions) == maxTransitions {
		s.transitions = s.transitions[1:]
	}
	s.transitions = append(s.transitions, Transition{At: now, From: s.state, To: to, Reason: reason})
	s.state, s.reason = to, reason
}

func (s *Session) illegal(what string) error {
	return frame.Errorf(frame.State, "%s in state %v", what, s.state)
}

func (s *Session) must(ev Event, want State) {
	if s.state != want {
		panic(fmt.Sprintf("session: %T in state %v", ev, s.state))
	}
}
