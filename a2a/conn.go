package a2a

import (
	"context"
	"errors"
	"io"
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

// Deadlines of reads and writes.
const (
	headerTimeout = 5 * time.Second  // from the opening of a stream to its first frame
	frameTimeout  = 10 * time.Second // one frame, or the next chunk of a body
	lingerTimeout = time.Second      // from our last frame to the peer's end of a control stream
	quietTimeout  = 24 * time.Hour   // a control stream may be silent; the machine and QUIC bound that
)

// outboxSize is how many control frames may wait to be written. A peer that lets it fill does not read: the session ends as lost.
const outboxSize = 16

// Session is one open session with one peer.
type Session struct {
	agent   *Agent
	conn    *endpoint.Conn
	control *endpoint.Stream
	sid     wire.ID
	remote  session.Remote
	cap     string
	leader  bool
	issuer  string            // gateway that minted its token
	issued  uint64            // when, unix seconds
	init    *wire.SessionInit // what a leader opens with

	outbox   chan wire.Message
	kick     chan struct{} // the machine's next deadline may have changed
	opened   chan struct{} // closed when ESTABLISHED
	released chan struct{} // closed when CLOSED
	readDone chan struct{} // closed when the reader of the control stream has ended
	done     chan struct{} // closed when the last goroutine has ended

	mu      sync.Mutex // guards what follows; never held across I/O or a callback
	machine *session.Session
	streams map[*endpoint.Stream]struct{} // exchanges that run
	msgs    map[wire.ID]struct{}          // msg_ids that are being delivered here
	cause   error                         // why the connection was lost
	revoked error                         // why this side has cut it
}

// Info describes a session.
type Info struct {
	Sid   wire.ID
	Peer  string // AIC
	Cap   string
	Until time.Time // sess_exp
	State session.State
}

func (a *Agent) newSession(conn *endpoint.Conn, control *endpoint.Stream, remote session.Remote, cfg session.Config) *Session {
	return &Session{
		agent: a, conn: conn, control: control, sid: cfg.Sid, remote: remote, cap: cfg.Cap, leader: cfg.Role == session.Leader,
		outbox: make(chan wire.Message, outboxSize), kick: make(chan struct{}, 1),
		opened: make(chan struct{}), released: make(chan struct{}), readDone: make(chan struct{}), done: make(chan struct{}),
		machine: session.New(cfg), streams: make(map[*endpoint.Stream]struct{}), msgs: make(map[wire.ID]struct{}),
	}
}

// Info is the session as it is now.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Info{Sid: s.sid, Peer: s.remote.AIC, Cap: s.cap, Until: s.machine.Until, State: s.machine.State()}
}

// Released is closed when the session has ended, by either side.
func (s *Session) Released() <-chan struct{} { return s.released }

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
	return frame.Errorf(s.machine.Reason(), "session with %s has ended", s.remote.AIC)
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
	s.mu.Lock()
	running := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, stream := range running {
		stream.Reset(code)
	}
}

// step gives the machine one event and carries out what comes of it. Frames are queued before the next event can be taken, so
// that they leave in the order of the states that they belong to.
func (s *Session) step(ev session.Event) error {
	s.mu.Lock()
	effects, err := s.machine.Step(ev, time.Now())
	queued := true
	for _, e := range effects {
		if m := s.frameOf(e); m != nil {
			queued = s.queue(m) && queued
		}
	}
	s.mu.Unlock()
	for _, e := range effects {
		s.carryOut(e)
	}
	if !queued {
		s.stalled()
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return err
}

// frameOf is what an effect sends; nil where it sends nothing.
func (s *Session) frameOf(e session.Effect) wire.Message {
	switch e := e.(type) {
	case session.SendInit:
		return s.init
	case session.SendAccept:
		return &wire.SessionAccept{Sid: s.sid, Params: e.Params, SessExp: uint64(e.Until.Unix())}
	case session.SendReject:
		return &wire.SessionReject{Sid: s.sid, Code: e.Code, RetryAfterMS: uint64(e.RetryAfter.Milliseconds())}
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
		if s.agent.cfg.Opened != nil {
			s.agent.cfg.Opened(s.Info())
		}
	case session.Released:
		s.release(e)
	}
}

// queue says whether the frame has found a place; it does not wait.
func (s *Session) queue(m wire.Message) bool {
	select {
	case s.outbox <- m:
		return true
	default:
		return false
	}
}

func (s *Session) stalled() {
	s.lost(frame.Errorf(frame.SendStalled, "%s does not read its control stream", s.remote.AIC))
}

// lost notes why, and ends the session without another word. A session that is closing has no more use for its control stream:
// what runs may still end, as long as the connection lives.
func (s *Session) lost(cause error) {
	s.mu.Lock()
	state := s.machine.State()
	if state == session.Closed || state == session.Closing && s.conn.Err() == nil {
		s.mu.Unlock()
		return
	}
	if s.cause == nil && state != session.Closing {
		s.cause = cause
	}
	s.mu.Unlock()
	s.step(session.ConnLost{})
}

func (s *Session) release(e session.Released) {
	s.mu.Lock()
	running := slices.Collect(maps.Keys(s.streams))
	s.mu.Unlock()
	for _, stream := range running {
		stream.Reset(frame.SessionUnknown)
	}
	if s.agent.forget(s, e.Until) {
		s.agent.cfg.Outcomes.Ended(s.sid, time.Now())
		if s.agent.cfg.Ended != nil {
			s.agent.cfg.Ended(s.Info(), e.Code)
		}
	}
	s.agent.log.Debug("session_released", "sid", s.sid, "peer", s.remote.AIC, "code", e.Code.Hex())
	close(s.released)
}

// run owns the session until it is over: it starts the reader, and returns after it.
func (s *Session) run() {
	defer close(s.done)
	go s.read()
	s.write()
	<-s.readDone
}

// write writes the control stream and keeps the machine's time until the session is released.
func (s *Session) write() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	draining, ended := s.conn.Draining(), s.conn.Context().Done()
	for {
		timer.Reset(s.untilTick())
		select {
		case m := <-s.outbox:
			if err := s.control.WriteMessage(frameTimeout, m); err != nil {
				s.lost(err)
			}
		case <-s.kick:
		case <-timer.C:
			s.step(session.Tick{})
		case <-draining:
			draining = nil
			s.step(session.Close{Code: frame.Shutdown})
		case <-ended:
			ended = nil
			s.lost(s.conn.Err())
		case <-s.released:
			s.finish()
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

// finish sends what is still to be said, and gives the peer a moment to end its side, so that our last frame arrives.
func (s *Session) finish() {
	for {
		select {
		case m := <-s.outbox:
			if s.control.WriteMessage(frameTimeout, m) != nil {
				s.control.Reset(frame.SessionUnknown)
				return
			}
			continue
		default:
		}
		break
	}
	s.control.CloseWrite()
	select {
	case <-s.readDone:
	case <-time.After(lingerTimeout):
		s.control.Reset(frame.SessionUnknown)
	}
}

// read gives the machine what arrives on the control stream, until its end.
func (s *Session) read() {
	defer close(s.readDone)
	for {
		m, err := wire.ReadControl(source{s.control, quietTimeout})
		if err != nil {
			s.readFailed(err)
			return
		}
		if err := s.received(m); err != nil {
			s.agent.log.Warn("control_frame_refused", "sid", s.sid, "peer", s.remote.AIC, "err", err)
			s.step(session.Close{Code: frame.CodeOf(err)})
			return
		}
	}
}

func (s *Session) readFailed(err error) {
	if errors.Is(err, io.EOF) {
		err = frame.Errorf(frame.UpstreamFailed, "%s ended the control stream", s.remote.AIC)
	}
	if connErr := s.conn.Err(); connErr != nil {
		err = connErr
	}
	s.lost(err)
	closeIfFatal(s.conn, err)
}

// closeIfFatal closes the connection of a peer that breaks the framing: nothing after it can be trusted.
func closeIfFatal(conn *endpoint.Conn, err error) bool {
	code := frame.CodeOf(err)
	fatal := code >= frame.FrameTooLarge && code <= frame.Version
	if fatal {
		conn.Close(code, "")
	}
	return fatal
}

func (s *Session) received(m wire.Message) error {
	switch m := m.(type) {
	case *wire.SessionInit:
		return s.step(session.RecvInit{})
	case *wire.SessionAccept:
		if m.Sid != s.sid {
			return otherSid(m)
		}
		return s.step(session.RecvAccept{Params: m.Params, Until: time.Unix(int64(min(m.SessExp, maxTime)), 0)})
	case *wire.SessionReject:
		if m.Sid != s.sid {
			return otherSid(m)
		}
		return s.step(session.RecvReject{Code: m.Code, RetryAfter: time.Duration(min(m.RetryAfterMS, 60_000)) * time.Millisecond})
	case *wire.SessionTerminate:
		if m.Sid != s.sid {
			return otherSid(m)
		}
		return s.step(session.RecvTerminate{Code: m.Code})
	case *wire.Keepalive:
		return s.step(session.RecvKeepalive{TimestampMS: m.TimestampMS})
	}
	return frame.Errorf(frame.UnexpectedFrame, "%v has no place on a control stream", m.FrameType())
}

const maxTime = 253402300799 // the year 9999

func otherSid(m wire.Message) error {
	return frame.Errorf(frame.SessionUnknown, "%v names another session than its stream's", m.FrameType())
}

// source reads frames of a stream under one deadline each.
type source struct {
	stream  *endpoint.Stream
	timeout time.Duration
}

func (s source) Next() (frame.Type, []byte, error) { return s.stream.ReadFrame(s.timeout) }

// Initiate opens a session over a connection to the target, with the SAT that this agent's gateway handed over. It returns when
// the target has accepted: a dial that succeeded proves nothing (TLS 1.3 lets a client finish before the server has judged it).
// It does not close conn, which may hold several sessions with the same target.
func (a *Agent) Initiate(ctx context.Context, conn *endpoint.Conn, sat []byte) (*Session, error) {
	return a.initiate(ctx, conn, sat, false)
}

func (a *Agent) initiate(ctx context.Context, conn *endpoint.Conn, sat []byte, ownsConn bool) (*Session, error) {
	claims, err := token.ReadSAT(sat)
	if err != nil {
		return nil, err
	}
	if err := session.CheckHeld(claims, a.cfg.AIC, a.cfg.SPKI(), time.Now()); err != nil {
		return nil, err
	}
	remote, err := remoteOf(conn)
	if err != nil {
		return nil, err
	}
	if remote.AIC != claims.Audience || remote.SPKI != claims.TargetSPKI {
		return nil, frame.Errorf(frame.IdentityMismatch, "the peer is %s with another key or name than the SAT's target %s", remote.AIC, claims.Audience)
	}
	control, err := conn.Open(ctx, frame.StreamA2AControl)
	if err != nil {
		return nil, err
	}
	control.SetPriority(0, false)
	s := a.newSession(conn, control, remote, configOf(claims, session.Leader, session.DefaultParams()))
	s.issuer, s.issued = claims.Issuer, claims.Issued
	s.init = &wire.SessionInit{
		Version: wire.Version, Sid: s.sid, Initiator: a.cfg.AIC, Target: claims.Audience, Cap: claims.Cap, SAT: sat,
		Params: session.DefaultParams(),
	}
	if err := a.begin(s); err != nil {
		control.Reset(frame.CodeOf(err))
		return nil, err
	}
	s.start(ownsConn)
	if err := s.waitOpen(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// start sends the SESSION_INIT of a session that begin has made known, and runs it. The agent may have closed it in between.
func (s *Session) start(ownsConn bool) {
	s.step(session.Start{})
	go func() {
		defer s.agent.running.Done()
		s.run()
		if ownsConn {
			s.conn.Close(frame.OK, "")
		}
	}()
}

// begin makes an initiated session known, and counts its goroutine.
func (a *Agent) begin(s *Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.room(s.remote); err != nil {
		return err
	}
	if _, live := a.sessions[s.sid]; live {
		return frame.Errorf(frame.State, "the session of this SAT is open already")
	}
	if err := a.stillGood(s); err != nil {
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
	case <-s.released:
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
	return frame.Errorf(s.machine.Reason(), "%s did not open the session", s.remote.AIC)
}

func configOf(sat token.SAT, role session.Role, params wire.Params) session.Config {
	peer := sat.Audience
	if role == session.Partner {
		peer = sat.Subject
	}
	return session.Config{
		Sid: sat.Sid, Role: role, Peer: peer, Cap: sat.Cap, Scope: sat.Scope, Limits: sat.Limits, Params: params, Until: sat.Ends(),
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
		frame.StreamA2AData:    func(ctx context.Context, data *endpoint.Stream) { a.exchange(ctx, conn, data) },
	})
}

// answer reads the SESSION_INIT of a control stream, runs the checks, and owns the session until it is over.
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
	sat, presented, params, err := a.checkInit(init, remote)
	s := a.newSession(conn, control, remote, configOf(sat, session.Partner, params))
	s.issuer, s.issued = sat.Issuer, sat.Issued
	s.sid = init.Sid
	if err == nil {
		err = a.register(s, sat, presented)
	}
	s.step(session.RecvInit{})
	if err != nil {
		a.log.Warn("session_refused", "peer", remote.AIC, "sid", init.Sid, "cti", sat.ID, "err", err)
		code := session.RejectCode(frame.CodeOf(err), a.isHome(remote.AIC))
		s.step(session.Refuse{Code: code, RetryAfter: retryAfter(code)})
	} else {
		use.enter()
		defer use.leave()
		a.log.Info("session_accepted", "peer", remote.AIC, "sid", init.Sid, "cti", sat.ID, "cap", sat.Cap)
		s.step(session.Admit{Params: params, Until: sat.Ends()})
	}
	s.run()
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
