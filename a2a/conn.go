package a2a

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/directory/aic"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Session is one open session with one peer.
type Session struct {
	agent  *Agent
	sid    wire.ID
	peer   string // AIC
	cap    string
	leader bool
	route  *Route // how a leader resumes it; nil: not at all

	life   context.Context // ends when the session is CLOSED, and with it what its handler does
	end    context.CancelFunc
	kick   chan struct{} // the machine's next deadline may have changed
	wake   chan struct{} // a leader has a reason to resume
	opened chan struct{} // closed when ESTABLISHED for the first time
	done   chan struct{} // closed when the last goroutine has ended
	works  sync.WaitGroup

	bound binding // guarded by agent.mu

	mu      sync.Mutex // guards what follows; never held across I/O or a callback
	machine *session.Session
	link    *link                         // nil while LOST
	flows   chan struct{}                 // closed but while a message has to wait for the session to be open
	ctr     uint64                        // of its last resuming SESSION_INIT
	streams map[*endpoint.Stream]struct{} // exchanges that run
	jobs    map[wire.ID]*job              // messages that are being delivered here
	updated chan frame.Code               // of the update that waits for its answer
	cause   error                         // why the connection was lost
	revoked error                         // why this side has cut it
}

// binding is what a session is bound to since its last SAT.
type binding struct {
	peer, own wire.Hash // keys
	issuer    string    // gateway that minted the token
	issued    uint64    // when, unix seconds
}

// Info describes a session.
type Info struct {
	Sid   wire.ID
	Peer  string // AIC
	Cap   string
	Until time.Time // sess_exp
	State session.State
}

func (a *Agent) newSession(l *link, sat token.SAT, cfg session.Config) *Session {
	life, end := context.WithCancel(context.Background())
	return &Session{
		agent: a, sid: cfg.Sid, peer: cfg.Peer, cap: cfg.Cap, leader: cfg.Role == session.Leader,
		life: life, end: end, kick: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		opened: make(chan struct{}), done: make(chan struct{}),
		bound:   bindingOf(sat, cfg.Role == session.Leader),
		machine: session.New(cfg), link: l, flows: make(chan struct{}),
		streams: make(map[*endpoint.Stream]struct{}), jobs: make(map[wire.ID]*job),
	}
}

// Info is the session as it is now.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Info{Sid: s.sid, Peer: s.peer, Cap: s.cap, Until: s.machine.Until, State: s.machine.State()}
}

// Released is closed when the session has ended, by either side.
func (s *Session) Released() <-chan struct{} { return s.life.Done() }

// Err says why the session has ended: nil while it lives and after an ordinary end.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine.State() != session.Closed || s.machine.Reason() == frame.OK {
		return nil
	}
	if s.revoked != nil {
		return s.revoked
	}
	if s.cause != nil {
		return s.cause
	}
	return frame.Errorf(s.machine.Reason(), "session with %s has ended", s.peer)
}

// cutBy is what a failed exchange is due to: where the session was cut, that, and not what the reset of its stream looks like.
func (s *Session) cutBy(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.revoked != nil {
		return s.revoked
	}
	if frame.CodeOf(err) == frame.Revoked || s.machine.Reason() == frame.Revoked {
		return frame.Errorf(frame.Revoked, "the other side ended the session: one of the two agents, or the session, was suspended or revoked")
	}
	return err
}

// Close ends the session and returns when it is over: what runs is given 5 s.
func (s *Session) Close(code frame.Code) {
	s.step(session.Close{Code: code})
	<-s.done
}

// cut ends the session and what runs in it at once; why is for those who wait for it.
func (s *Session) cut(code frame.Code, why string) {
	s.mu.Lock()
	if s.revoked == nil {
		s.revoked = frame.Errorf(code, "%s", why)
	}
	s.mu.Unlock()
	s.step(session.Close{Code: code})
	s.resetStreams(code)
}

func (s *Session) resetStreams(code frame.Code) {
	s.mu.Lock()
	running := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, stream := range running {
		stream.Reset(code)
	}
}

// errLeft is what comes of an event of a link that the session has left.
var errLeft = frame.Errorf(frame.UpstreamFailed, "the session goes on over another connection")

// stepped is what one event has brought.
type stepped struct {
	effects []session.Effect
	err     error
	left    *link // that the session has left
	stalled *link // that takes no more frames
}

// step gives the machine one event and carries out what comes of it.
func (s *Session) step(ev session.Event) error {
	s.mu.Lock()
	done := s.apply(ev, nil)
	s.mu.Unlock()
	return s.finishStep(done)
}

// stepOn is step for an event that belongs to a link; it is nothing once the session has left that.
func (s *Session) stepOn(l *link, ev session.Event) error {
	s.mu.Lock()
	if s.link != l {
		s.mu.Unlock()
		return errLeft
	}
	done := s.apply(ev, nil)
	s.mu.Unlock()
	return s.finishStep(done)
}

// apply is called with mu held: frames are queued before the next event can be taken, so that they leave in the order of the states
// that they belong to. next takes the place of the link where the machine takes the event. What is left to do is for finishStep.
func (s *Session) apply(ev session.Event, next *link) stepped {
	effects, err := s.machine.Step(ev, time.Now())
	out := stepped{effects: effects, err: err}
	if next != nil && err == nil {
		out.left, s.link = s.link, next
	}
	for _, e := range effects {
		if m := s.frameOf(e); m != nil && s.link != nil && !s.link.queue(m) {
			out.stalled = s.link
		}
		if _, ok := e.(session.Left); ok {
			out.left, s.link = s.link, nil
		}
	}
	if out.left != nil {
		close(out.left.left)
	}
	s.gate()
	return out
}

// gate is called with mu held: it holds back messages while the session waits for a connection.
func (s *Session) gate() {
	open := false
	select {
	case <-s.flows:
		open = true
	default:
	}
	state := s.machine.State()
	switch flows := state.Live() || state >= session.Closing; {
	case flows && !open:
		close(s.flows)
	case !flows && open:
		s.flows = make(chan struct{})
	}
}

func (s *Session) finishStep(done stepped) error {
	for _, e := range done.effects {
		s.carryOut(e)
	}
	if l := done.stalled; l != nil {
		s.lost(l, frame.Errorf(frame.SendStalled, "%s does not read its control stream", s.peer))
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return done.err
}

// frameOf is what an effect sends; nil where it sends nothing. It is called with mu held.
func (s *Session) frameOf(e session.Effect) wire.Message {
	switch e := e.(type) {
	case session.SendInit:
		return s.link.init
	case session.SendAccept:
		return &wire.SessionAccept{Sid: s.sid, Params: e.Params, SessExp: uint64(e.Until.Unix()), Resumed: e.Resumed}
	case session.SendReject:
		return &wire.SessionReject{Sid: s.sid, Code: e.Code, RetryAfterMS: uint64(e.RetryAfter.Milliseconds())}
	case session.SendUpdate:
		return updateOf(s.sid, e)
	case session.SendUpdateAck:
		return &wire.UpdateAck{Sid: s.sid, Seq: e.Seq, Code: e.Code}
	case session.SendTerminate:
		return &wire.SessionTerminate{Sid: s.sid, Code: e.Code}
	case session.SendKeepalive:
		return wire.NewKeepalive(e.TimestampMS, e.EchoMS)
	}
	return nil
}

// carryOut does what is not sending. Package a2a itself runs the checks of CheckInit, and the machine alone enforces StopData.
func (s *Session) carryOut(e session.Effect) {
	switch e := e.(type) {
	case session.Opened:
		close(s.opened)
		tell(s.agent.cfg.Opened, s)
		s.nudge() // the key may have changed while it was opened
	case session.Resumed:
		s.mu.Lock()
		s.cause = nil
		s.mu.Unlock()
		tell(s.agent.cfg.Resumed, s)
	case session.Left:
		s.agent.log.Info("session_lost_its_connection", "sid", s.sid, "peer", s.peer, "kept_until", e.Until.UTC())
		s.nudge()
	case session.CheckUpdate:
		s.checkUpdate(e)
	case session.Updated:
		s.answered(e.Code)
	case session.Changed:
		tell(s.agent.cfg.Updated, s)
	case session.Released:
		s.release(e)
	}
}

func tell(listener func(Info), s *Session) {
	if listener != nil {
		listener(s.Info())
	}
}

func (s *Session) release(e session.Released) {
	s.resetStreams(frame.SessionUnknown)
	if s.agent.forget(s, e.Until) {
		s.agent.cfg.Outcomes.Ended(s.sid, time.Now())
		if s.agent.cfg.Ended != nil {
			s.agent.cfg.Ended(s.Info(), e.Code)
		}
	}
	s.agent.log.Debug("session_released", "sid", s.sid, "peer", s.peer, "code", e.Code.Hex())
	s.end()
}

// own runs the session until it is over: it keeps the machine's time, and returns after all that was begun for the session. A leader
// serves its first link, and others after that.
func (s *Session) own(first *link) {
	defer close(s.done)
	var parts sync.WaitGroup
	if first != nil {
		parts.Go(func() { s.serve(first) })
	}
	if s.route != nil {
		parts.Go(s.stayConnected)
	}
	s.keepTime()
	parts.Wait()
	s.works.Wait()
}

func (s *Session) keepTime() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(s.untilTick())
		select {
		case <-s.kick:
		case <-timer.C:
			s.step(session.Tick{})
		case <-s.life.Done():
			return
		}
	}
}

func (s *Session) untilTick() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.machine.NextDeadline()
	if next.IsZero() {
		return time.Hour
	}
	return max(0, time.Until(next))
}

// Initiate opens a session over a connection to the target, with the SAT that this agent's gateway handed over. It returns when
// the target has accepted: a dial that succeeded proves nothing (TLS 1.3 lets a client finish before the server has judged it).
// It does not close conn, which may hold several sessions with the same target; a session that was opened so ends with it.
func (a *Agent) Initiate(ctx context.Context, conn *endpoint.Conn, sat []byte) (*Session, error) {
	return a.initiate(ctx, conn, sat, nil)
}

func (a *Agent) initiate(ctx context.Context, conn *endpoint.Conn, sat []byte, route *Route) (*Session, error) {
	claims, err := token.ReadSAT(sat)
	if err != nil {
		return nil, err
	}
	if err := session.CheckHeld(claims, a.cfg.AIC, a.cfg.SPKI(), time.Now()); err != nil {
		return nil, err
	}
	if err := isTarget(conn, claims); err != nil {
		return nil, err
	}
	l, err := openLink(ctx, conn, route != nil)
	if err != nil {
		return nil, err
	}
	cfg := configOf(claims, session.Leader, session.DefaultParams())
	cfg.Resumable = route != nil
	l.init = a.initOf(cfg, sat)
	s := a.newSession(l, claims, cfg)
	s.route = route
	if err := a.begin(s); err != nil {
		l.control.Reset(frame.CodeOf(err))
		return nil, err
	}
	s.start(l)
	if err := s.waitOpen(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// isTarget holds the other end of a connection against a SAT: the name as well as the key.
func isTarget(conn *endpoint.Conn, sat token.SAT) error {
	remote, err := remoteOf(conn)
	if err == nil && (remote.AIC != sat.Audience || remote.SPKI != sat.TargetSPKI) {
		err = frame.Errorf(frame.IdentityMismatch, "the peer is %s with another key or name than the SAT's target %s", remote.AIC, sat.Audience)
	}
	return err
}

func openLink(ctx context.Context, conn *endpoint.Conn, owned bool) (*link, error) {
	control, err := conn.Open(ctx, frame.StreamA2AControl)
	if err != nil {
		return nil, err
	}
	control.SetPriority(0, false)
	return newLink(conn, control, owned), nil
}

func (a *Agent) initOf(cfg session.Config, sat []byte) *wire.SessionInit {
	return &wire.SessionInit{
		Version: wire.Version, Sid: cfg.Sid, Initiator: a.cfg.AIC, Target: cfg.Peer, Cap: cfg.Cap, SAT: sat, Params: cfg.Params,
	}
}

// start sends the SESSION_INIT of a session that begin has made known, and runs it. The agent may have closed it in between.
func (s *Session) start(l *link) {
	s.step(session.Start{})
	go func() {
		defer s.agent.running.Done()
		s.own(l)
	}()
}

// begin makes an initiated session known, and counts its goroutine.
func (a *Agent) begin(s *Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.room(s.peer); err != nil {
		return err
	}
	if _, live := a.sessions[s.sid]; live {
		return frame.Errorf(frame.State, "the session of this SAT is open already")
	}
	if err := a.stillGood(s.peer, s.bound.issued); err != nil {
		return err
	}
	a.sessions[s.sid] = s
	a.running.Add(1)
	return nil
}

// waitOpen returns when the session is established, or when all of it is over again.
func (s *Session) waitOpen(ctx context.Context) error {
	select {
	case <-s.opened:
		return nil
	case <-s.life.Done():
	case <-ctx.Done():
		s.step(session.Close{Code: frame.Cancelled})
	}
	<-s.done
	if err := contextError(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return s.cause
	}
	return frame.Errorf(s.machine.Reason(), "%s did not open the session", s.peer)
}

func configOf(sat token.SAT, role session.Role, params wire.Params) session.Config {
	self, peer := sat.Subject, sat.Audience
	if role == session.Partner {
		self, peer = peer, self
	}
	return session.Config{
		Sid: sat.Sid, Role: role, Self: self, Peer: peer, Cap: sat.Cap, Scope: sat.Scope, Limits: sat.Limits, Params: params, Until: sat.Ends(),
		Renewable: sat.Update, Resumable: role == session.Partner,
	}
}

// Serve answers the streams of a connection that a peer opened to this agent, until it ends. It is the Serve of an
// [endpoint.Face]; a [Host] calls it.
func (a *Agent) Serve(ctx context.Context, conn *endpoint.Conn) {
	remote, err := remoteOf(conn)
	if err != nil {
		conn.Close(frame.IdentityMismatch, "")
		return
	}
	use := watch(conn)
	defer use.stop()
	conn.Serve(ctx, endpoint.Handlers{
		frame.StreamA2AControl: func(_ context.Context, control *endpoint.Stream) { a.answer(conn, use, control, remote) },
		frame.StreamA2AData:    func(_ context.Context, data *endpoint.Stream) { a.exchange(conn, data) },
	})
}

// answer reads the SESSION_INIT of a control stream, runs the checks, and serves the stream until the session is over or has left it.
func (a *Agent) answer(conn *endpoint.Conn, use *usage, control *endpoint.Stream, remote session.Remote) {
	m, err := wire.ReadControl(source{control, headerTimeout})
	init, ok := m.(*wire.SessionInit)
	if err == nil && !ok {
		err = frame.Errorf(frame.UnexpectedFrame, "%v where a SESSION_INIT was due", m.FrameType())
	}
	if err != nil {
		a.log.Warn("session_init_unreadable", "peer", remote.AIC, "err", err)
		control.Reset(frame.CodeOf(err))
		closeIfFatal(conn, err)
		return
	}
	control.SetPriority(0, false)
	l := newLink(conn, control, false)
	admit := a.admit
	if init.Resume != nil {
		admit = a.takeOver
	}
	var s *Session
	if err = a.mayInit(remote.AIC); err == nil {
		s, err = admit(l, init, remote)
	}
	if err != nil {
		a.log.Warn("session_refused", "peer", remote.AIC, "sid", init.Sid, "resume", init.Resume != nil, "err", err)
		a.reject(l, init, session.RejectCode(frame.CodeOf(err), a.isHome(remote.AIC)))
		return
	}
	use.enter()
	defer use.leave()
	s.serve(l)
}

// admit opens the session that a SESSION_INIT asks for.
func (a *Agent) admit(l *link, init *wire.SessionInit, remote session.Remote) (*Session, error) {
	sat, presented, err := a.checkSAT(init, remote)
	if err != nil {
		return nil, err
	}
	params, err := session.Narrow(init.Params, session.DefaultParams())
	if err != nil {
		return nil, err
	}
	s := a.newSession(l, sat, configOf(sat, session.Partner, params))
	if err := a.register(s, sat, presented); err != nil {
		return nil, err
	}
	a.log.Info("session_accepted", "peer", remote.AIC, "sid", s.sid, "cti", sat.ID, "cap", sat.Cap)
	s.step(session.RecvInit{})
	s.step(session.Admit{Params: params, Until: sat.Ends()})
	go func() {
		defer a.running.Done()
		s.own(nil)
	}()
	return s, nil
}

// reject answers a SESSION_INIT that has failed a check; nothing is kept of it.
func (a *Agent) reject(l *link, init *wire.SessionInit, code frame.Code) {
	s := a.newSession(l, token.SAT{}, session.Config{Sid: init.Sid, Role: session.Partner, Peer: init.Initiator})
	s.step(session.RecvInit{})
	s.step(session.Refuse{Code: code, RetryAfter: retryAfter(code)})
	s.serve(l)
}

func retryAfter(code frame.Code) time.Duration {
	if code == frame.RateLimited || code == frame.Overloaded {
		return time.Second
	}
	return 0
}

func (a *Agent) isHome(aic string) bool {
	d := a.cfg.DomainOf(aic)
	return d != "" && d == a.cfg.DomainOf(a.cfg.AIC)
}

// remoteOf is the verified other end of a connection.
func remoteOf(conn *endpoint.Conn) (session.Remote, error) {
	id, err := identity.AICOf(conn.PeerLeaf())
	return session.Remote{AIC: id.String(), SPKI: conn.PeerSPKI()}, err
}

func prefixOf(text string) string {
	id, err := aic.Parse(text)
	if err != nil {
		return text
	}
	return id.ARSPKey()
}

// contextError is a context's end as an error with its code: 44 for a deadline, 49 for all else.
func contextError(ctx context.Context) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return frame.Errorf(frame.Deadline, "the deadline passed")
	}
	return frame.Errorf(frame.Cancelled, "cancelled")
}
