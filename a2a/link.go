package a2a

import (
	"errors"
	"io"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// Deadlines of reads and writes.
const (
	headerTimeout = 5 * time.Second  // from the opening of a stream to its first frame
	frameTimeout  = 10 * time.Second // one frame, or the next chunk of a body
	lingerTimeout = time.Second      // from our last frame to the peer's end of a control stream
	quietTimeout  = 24 * time.Hour   // a control stream may be silent; the machine and QUIC bound that
)

// outboxSize is how many control frames may wait to be written. A peer that lets it fill does not read: its link counts as lost.
const outboxSize = 16

// link is what a session runs over: its control stream on one connection. A session has one at a time; another one takes its place
// when the session is resumed.
type link struct {
	conn    *endpoint.Conn
	control *endpoint.Stream
	owned   bool              // conn is for this session alone, and ends with the link
	init    *wire.SessionInit // what a leader opens with

	outbox   chan wire.Message
	left     chan struct{} // closed when the session has left it; under the session's mutex
	readDone chan struct{} // closed when the reader of the control stream has ended

	cause    error      // why it was lost; guarded by the session's mutex
	rejected frame.Code // what the target has refused the SESSION_INIT with; likewise
}

func newLink(conn *endpoint.Conn, control *endpoint.Stream, owned bool) *link {
	return &link{
		conn: conn, control: control, owned: owned,
		outbox: make(chan wire.Message, outboxSize), left: make(chan struct{}), readDone: make(chan struct{}),
	}
}

// queue says whether the frame has found a place; it does not wait.
func (l *link) queue(m wire.Message) bool {
	select {
	case l.outbox <- m:
		return true
	default:
		return false
	}
}

// serve runs a link until the session has left it, or is over: it starts the reader, and returns after it.
func (s *Session) serve(l *link) {
	go s.read(l)
	s.write(l)
	if l.owned {
		l.conn.Close(frame.OK, "")
	}
	<-l.readDone
}

// write writes the control stream.
func (s *Session) write(l *link) {
	draining, ended := l.conn.Draining(), l.conn.Context().Done()
	for {
		select {
		case m := <-l.outbox:
			if err := l.control.WriteMessage(frameTimeout, m); err != nil {
				s.lost(l, err)
			}
		case <-draining:
			draining = nil
			s.stepOn(l, session.Close{Code: frame.Shutdown})
		case <-ended:
			ended = nil
			s.lost(l, l.conn.Err())
		case <-l.left:
			l.control.Reset(frame.Collision)
			return
		case <-s.life.Done():
			l.finish()
			return
		}
	}
}

// finish sends what is still to be said, and gives the peer a moment to end its side, so that our last frame arrives.
func (l *link) finish() {
	for {
		select {
		case m := <-l.outbox:
			if l.control.WriteMessage(frameTimeout, m) != nil {
				l.control.Reset(frame.SessionUnknown)
				return
			}
			continue
		default:
		}
		break
	}
	l.control.CloseWrite()
	select {
	case <-l.readDone:
	case <-time.After(lingerTimeout):
		l.control.Reset(frame.SessionUnknown)
	}
}

// read gives the machine what arrives on the control stream, until its end.
func (s *Session) read(l *link) {
	defer close(l.readDone)
	for {
		m, err := wire.ReadControl(source{l.control, quietTimeout})
		if err != nil {
			s.readFailed(l, err)
			return
		}
		if err := s.received(l, m); err != nil {
			if errors.Is(err, errLeft) {
				return
			}
			s.agent.log.Warn("control_frame_refused", "sid", s.sid, "peer", s.peer, "err", err)
			s.stepOn(l, session.Close{Code: frame.CodeOf(err)})
			return
		}
	}
}

func (s *Session) readFailed(l *link, err error) {
	if errors.Is(err, io.EOF) {
		err = frame.Errorf(frame.UpstreamFailed, "%s ended the control stream", s.peer)
	}
	if connErr := l.conn.Err(); connErr != nil {
		err = connErr
	}
	s.lost(l, err)
	closeIfFatal(l.conn, err)
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

// final says whether no other link can take the place of one that was lost for err: a side has stopped, or breaks the framing.
func final(err error) bool {
	code := frame.CodeOf(err)
	return code >= frame.Shutdown && code <= frame.Version
}

// lost notes why, and has the session wait for another link, or end without another word. A session that is closing has no more use
// for its control stream: what runs may still end, as long as the connection lives.
func (s *Session) lost(l *link, cause error) {
	s.mu.Lock()
	state := s.machine.State()
	if s.link != l || state == session.Closed || state == session.Closing && l.conn.Err() == nil {
		s.mu.Unlock()
		return
	}
	if l.cause = cause; s.cause == nil && state != session.Closing {
		s.cause = cause
	}
	done := s.apply(session.ConnLost{Final: final(cause)}, nil)
	s.mu.Unlock()
	s.finishStep(done)
}

// received gives the machine one frame of a link that the session has not left.
func (s *Session) received(l *link, m wire.Message) error {
	if sid, ok := sidOf(m); ok && sid != s.sid {
		return frame.Errorf(frame.SessionUnknown, "%v names another session than its stream's", m.FrameType())
	}
	switch m := m.(type) {
	case *wire.SessionInit:
		return s.stepOn(l, session.RecvInit{})
	case *wire.SessionAccept:
		return s.stepOn(l, session.RecvAccept{Params: m.Params, Until: unix(m.SessExp), Resumed: m.Resumed})
	case *wire.SessionReject:
		s.mu.Lock()
		l.rejected = m.Code
		s.mu.Unlock()
		return s.stepOn(l, session.RecvReject{Code: m.Code, RetryAfter: time.Duration(min(m.RetryAfterMS, 60_000)) * time.Millisecond})
	case *wire.SessionUpdate:
		return s.stepOn(l, session.RecvUpdate{Seq: m.Seq, Change: changeOf(m)})
	case *wire.UpdateAck:
		return s.stepOn(l, session.RecvUpdateAck{Seq: m.Seq, Code: m.Code})
	case *wire.SessionTerminate:
		return s.stepOn(l, session.RecvTerminate{Code: m.Code})
	case *wire.Keepalive:
		return s.stepOn(l, session.RecvKeepalive{TimestampMS: m.TimestampMS})
	}
	return frame.Errorf(frame.UnexpectedFrame, "%v has no place on a control stream", m.FrameType())
}

// sidOf is the session that a control frame names.
func sidOf(m wire.Message) (wire.ID, bool) {
	switch m := m.(type) {
	case *wire.SessionAccept:
		return m.Sid, true
	case *wire.SessionReject:
		return m.Sid, true
	case *wire.SessionUpdate:
		return m.Sid, true
	case *wire.UpdateAck:
		return m.Sid, true
	case *wire.SessionTerminate:
		return m.Sid, true
	}
	return wire.ID{}, false
}

const maxTime = 253402300799 // the year 9999

func unix(seconds uint64) time.Time { return time.Unix(int64(min(seconds, maxTime)), 0) }

// source reads frames of a stream under one deadline each.
type source struct {
	stream  *endpoint.Stream
	timeout time.Duration
}

func (s source) Next() (frame.Type, []byte, error) { return s.stream.ReadFrame(s.timeout) }
