package cdsp

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Link is one connection to a gateway whose TLS identity was verified. Close must make every pending call return.
type Link interface {
	RemoteGateway() string                          // AIC of the verified certificate
	Control(ctx context.Context) (Stream, error)    // opened by the dialler, awaited by the other side; called once
	OpenDigest(ctx context.Context) (Stream, error) // to be written only
	AcceptDigest(ctx context.Context) (Stream, error)
	Close(code frame.Code, reason string)
	RTT() time.Duration
	Until() time.Time // when the first of both ends' certificates ends; zero: not known
}

// Stream is one stream of frames. Reset abandons it, is idempotent, and may be called beside a read or write; every stream
// is Reset in the end.
type Stream interface {
	ReadFrame(within time.Duration) (frame.Type, []byte, error)
	WriteMessage(within time.Duration, m frame.Message) error
	Reset(code frame.Code)
}

// Deadlines of the shell; those of the protocol are the machine's.
const (
	openTimeout    = 5 * time.Second  // a stream must open
	controlTimeout = 10 * time.Second // a control frame must be written
	digestTimeout  = 30 * time.Second // a digest frame must be written
	toldTimeout    = time.Second      // longest wait of digests for what goes before them
	silence        = 10 * time.Minute // read of a control frame; the hold time ends a silent session long before
	forever        = 100 * 365 * 24 * time.Hour
)

// Bounds of a session's queues. A full one means that the neighbour does not read.
const (
	maxControl = 256
	maxDigest  = 192 // two windows of frames, and what begins and ends a stream
)

// Session is one attached connection.
type Session struct {
	node    *Node
	link    Link
	conn    uint64
	domain  string
	dialled bool

	control chan wire.Message // nil: everything was said, the session ends
	digest  chan wire.Message
	relay   chan struct{} // bundles or status lists may have to be sent
	moves   moves
	told    chan struct{} // closed when those known at the start were handed to the writer
	up      chan struct{}
	done    chan struct{}

	ending  chan struct{} // closed once err is set
	endOnce sync.Once
	err     error
	// farewell is why the session is left; nil: for the stop of this gateway.
	farewell atomic.Pointer[string]

	current Stream // digest stream that the last processed frame came from; the owner's
}

// Attach hands a connection to the node. domain is the domain that owns the gateway's AIC; dialled says that we dialled. The
// session, not the caller, closes the link. When ctx ends the session says goodbye and ends.
func (n *Node) Attach(ctx context.Context, link Link, domain string, dialled bool) *Session {
	s := &Session{node: n, link: link, conn: n.conns.Add(1), domain: domain, dialled: dialled,
		control: make(chan wire.Message, maxControl), digest: make(chan wire.Message, maxDigest), relay: make(chan struct{}, 1), moves: newMoves(),
		told: make(chan struct{}), up: make(chan struct{}), done: make(chan struct{}), ending: make(chan struct{})}
	go s.run(ctx)
	return s
}

// Up is closed when the neighbour's HELLO was received and accepted: the session is established.
func (s *Session) Up() <-chan struct{} { return s.up }

// Done is closed when the session has ended and its link is closed.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session ended; it is there once Done is closed. Its code is the one that either side closed with.
func (s *Session) Err() error { return s.err }

// end ends the session; the first reason counts.
func (s *Session) end(err error) {
	s.endOnce.Do(func() {
		s.err = err
		close(s.ending)
	})
}

// retireTime is for the requests that run on a connection when a younger one takes its place.
const retireTime = 10 * time.Second

// retire ends the session when what else runs on its connection has had time to end.
func (s *Session) retire() {
	time.AfterFunc(retireTime, func() { s.end(frame.Errorf(frame.Collision, "a younger connection has taken its place")) })
}

// queue hands a frame to the writer of its stream; the owner must not wait, so a full queue ends the session.
func (s *Session) queue(m wire.Message) {
	q := s.control
	if m != nil && wire.OnDigestStream(m.FrameType()) {
		q = s.digest
	}
	select {
	case q <- m:
	default:
		s.end(frame.Errorf(frame.SendStalled, "neighbour does not read"))
	}
}

func (s *Session) stopDigest(code frame.Code) {
	if s.current != nil {
		s.current.Reset(code)
	}
}

func (s *Session) relaySoon() {
	select {
	case s.relay <- struct{}{}:
	default:
	}
}

// run is the life of the session. The end of the caller's ctx is a reason to say goodbye, not to stop in mid-word.
func (s *Session) run(caller context.Context) {
	defer close(s.done)
	ctx, cancel := context.WithCancel(context.WithoutCancel(caller))
	defer cancel()
	control, err := s.open(caller)
	if err != nil {
		s.end(err)
		s.link.Close(frame.CodeOf(err), "")
		return
	}
	var running sync.WaitGroup
	for _, f := range []func(context.Context, Stream){s.readControl, s.writeControl, s.readDigests, s.writeDigest, s.sendTrust, s.sendMoves} {
		running.Go(func() { f(ctx, control) })
	}
	s.waitForEnd(caller)
	cancel()
	s.link.Close(frame.CodeOf(s.err), closeReason(s.err))
	control.Reset(frame.CodeOf(s.err))
	running.Wait()
	s.node.forget(s)
}

func (s *Session) waitForEnd(caller context.Context) {
	select {
	case <-s.ending:
	case <-caller.Done():
		s.node.post(context.Background(), func() { s.node.leave(s, "") })
		timer := time.NewTimer(controlTimeout)
		defer timer.Stop()
		select {
		case <-s.ending:
		case <-timer.C:
			s.end(errStopped)
		}
	}
	if errors.Is(s.err, errStopped) {
		s.linger()
	}
}

// linger gives a GOODBYE time to arrive: closing a connection discards what is still on its way.
func (s *Session) linger() {
	timer := time.NewTimer(min(max(3*s.link.RTT(), 20*time.Millisecond), time.Second))
	defer timer.Stop()
	<-timer.C
}

// closeReason is what the neighbour may read of err: the machine's own short words, and nothing of other errors.
func closeReason(err error) string {
	var own left
	if errors.As(err, &own) {
		return own.why
	}
	var coded *frame.Error
	if errors.As(err, &coded) && len(coded.Detail) <= 128 && coded.Unwrap() == nil {
		return coded.Detail
	}
	return ""
}

// open gets the control stream and tells the owner.
func (s *Session) open(ctx context.Context) (Stream, error) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	control, err := s.link.Control(opening)
	if err != nil {
		return nil, withCode(frame.HelloTimeout, err)
	}
	n := s.node
	registered := make(chan error, 1)
	err = n.post(ctx, func() { registered <- n.register(s) })
	if err == nil {
		select {
		case err = <-registered:
		case <-n.done:
			err = errStopped
		}
	}
	if err != nil {
		control.Reset(frame.Shutdown)
		return nil, err
	}
	return control, nil
}

func (n *Node) register(s *Session) error {
	if n.stopping {
		return errStopped
	}
	n.sessions[s.conn] = s
	n.step(replica.Connected{Conn: s.conn, Gateway: s.link.RemoteGateway(), Domain: s.domain, Dialled: s.dialled, Until: s.link.Until()})
	return nil
}

// forget tells the owner that the session is over.
func (n *Node) forget(s *Session) {
	n.post(context.Background(), func() {
		delete(n.sessions, s.conn)
		n.step(replica.Disconnected{Conn: s.conn, Reason: s.err.Error()})
	})
}

func withCode(code frame.Code, err error) error {
	var coded *frame.Error
	if errors.As(err, &coded) {
		return err
	}
	return frame.Errorf(code, "digest session: %w", err)
}

// readControl reads frames until the connection ends.
func (s *Session) readControl(ctx context.Context, control Stream) {
	in := trustIn{asked: map[asked]time.Time{}}
	for {
		t, payload, err := control.ReadFrame(silence)
		if err != nil {
			s.readFailed(ctx, err)
			return
		}
		m, err := parseOn(t, payload, false)
		if m == nil && err == nil {
			continue
		}
		if err == nil {
			err = s.takeTrust(ctx, m, &in)
		}
		if !s.deliver(ctx, m, err, nil) {
			return
		}
	}
}

// parseOn parses a frame of one of the two streams; nil without an error is a frame to be skipped.
func parseOn(t frame.Type, payload []byte, digest bool) (wire.Message, error) {
	m, err := wire.Parse(t, payload)
	if frame.CodeOf(err) == frame.UnexpectedFrame && t.Optional() {
		return nil, nil
	}
	if err == nil && wire.OnDigestStream(t) != digest {
		return nil, frame.Errorf(frame.UnexpectedFrame, "%v on the wrong stream", t)
	}
	return m, err
}

// readFailed ends the session with what the transport says; an end of the stream counts as the end of the connection. What
// is not a frame costs the neighbour its connection, by the machine's word.
func (s *Session) readFailed(ctx context.Context, err error) {
	switch frame.CodeOf(err) {
	case frame.Malformed, frame.FrameTooLarge:
		s.deliver(ctx, nil, err, nil)
		return
	}
	if errors.Is(err, io.EOF) {
		err = frame.Errorf(frame.UpstreamFailed, "neighbour closed its control stream")
	}
	s.end(withCode(frame.UpstreamFailed, err))
}

// deliver hands a frame, or the error of an undecodable one, to the machine. It says whether to read on.
func (s *Session) deliver(ctx context.Context, m wire.Message, err error, from Stream) bool {
	n, rtt := s.node, s.link.RTT()
	posted := n.post(ctx, func() {
		if err != nil {
			n.step(replica.Undecodable{Conn: s.conn, Err: err})
			return
		}
		if from != nil {
			s.current = from
		}
		n.step(replica.Received{Conn: s.conn, Msg: m, RTT: rtt})
	})
	return err == nil && posted == nil
}

// writeControl writes queued frames; a nil one ends the session after those before it.
func (s *Session) writeControl(ctx context.Context, control Stream) {
	for {
		select {
		case m := <-s.control:
			if m == nil {
				s.end(s.parting())
				return
			}
			if err := control.WriteMessage(controlTimeout, m); err != nil {
				s.end(withCode(frame.SendStalled, err))
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// readDigests reads the neighbour's digest streams, one after the other. It waits for HELLO: streams overtake each other.
func (s *Session) readDigests(ctx context.Context, _ Stream) {
	select {
	case <-s.up:
	case <-ctx.Done():
		return
	}
	for {
		stream, err := s.link.AcceptDigest(ctx)
		if err != nil {
			s.end(withCode(frame.UpstreamFailed, err))
			return
		}
		more := s.readDigest(ctx, stream)
		stream.Reset(frame.OK)
		if !more {
			return
		}
	}
}

// readDigest reads one stream to its end. It says whether the connection may bring another.
func (s *Session) readDigest(ctx context.Context, stream Stream) bool {
	for first := true; ; first = false {
		t, payload, err := stream.ReadFrame(forever)
		switch code := frame.CodeOf(err); {
		case code == frame.Malformed || code == frame.FrameTooLarge:
			return s.deliver(ctx, nil, err, nil)
		case err != nil:
			return ctx.Err() == nil // a reset, by either side; if the connection is gone, accepting says so
		}
		m, err := parseOn(t, payload, true)
		if m == nil && err == nil {
			continue
		}
		if err == nil && first != (t == frame.SyncBegin) {
			err = frame.Errorf(frame.UnexpectedFrame, "digest stream does not start with its one SYNC_BEGIN")
		}
		if !s.deliver(ctx, m, err, stream) {
			return false
		}
	}
}

// writeDigest writes our digest streams. SYNC_BEGIN starts a new one and abandons the old. What the neighbour needs in order to
// judge digests goes first, as far as streams keep an order; where there is much of it, digests do not wait for all.
func (s *Session) writeDigest(ctx context.Context, _ Stream) {
	timer := time.NewTimer(toldTimeout)
	defer timer.Stop()
	select {
	case <-s.told:
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	var stream Stream
	defer func() {
		if stream != nil {
			stream.Reset(frame.Shutdown)
		}
	}()
	for {
		select {
		case m := <-s.digest:
			if err := s.writeDigestFrame(ctx, &stream, m); err != nil {
				s.end(withCode(frame.SendStalled, err))
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s *Session) writeDigestFrame(ctx context.Context, stream *Stream, m wire.Message) error {
	if m.FrameType() == frame.SyncBegin {
		if *stream != nil {
			(*stream).Reset(frame.OK)
			*stream = nil
		}
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		next, err := s.link.OpenDigest(opening)
		if err != nil {
			return err
		}
		*stream = next
	}
	err := (*stream).WriteMessage(digestTimeout, m)
	if code := frame.CodeOf(err); code == frame.SeqGap || code == frame.OK {
		return nil // the neighbour stopped this stream; its RESYNC is on the way
	}
	return err
}
