package cdsp

import (
	"context"
	"sync"
	"time"

	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// digestUrgency is the priority of digests: behind control frames, responses, requests and bodies.
const digestUrgency = 5

// QUICLink is a connection of internal/endpoint as a [Link]. Its streams come from the connection's handlers: register
// them with Handle before Conn.Serve is called.
type QUICLink struct {
	conn    *endpoint.Conn
	gateway string
	dialled bool
	until   time.Time
	control chan Stream
	digests chan Stream
	once    sync.Once
}

// NewQUICLink wraps a connection whose peer was verified to be gateway. until is when the first of both ends' certificates ends.
func NewQUICLink(conn *endpoint.Conn, gateway string, dialled bool, until time.Time) *QUICLink {
	return &QUICLink{conn: conn, gateway: gateway, dialled: dialled, until: until, control: make(chan Stream), digests: make(chan Stream)}
}

// Until is when the first of both ends' certificates ends.
func (l *QUICLink) Until() time.Time { return l.until }

// Handle registers the handlers of the streams that the other side opens: the digest stream and, where the other side
// dialled, the control stream.
func (l *QUICLink) Handle(h endpoint.Handlers) {
	h[frame.StreamDigest] = func(_ context.Context, s *endpoint.Stream) { l.pass(l.digests, s) }
	if !l.dialled {
		h[frame.StreamControl] = l.acceptControl
	}
}

// acceptControl takes the one control stream; a second one breaks the protocol.
func (l *QUICLink) acceptControl(_ context.Context, s *endpoint.Stream) {
	second := true
	l.once.Do(func() { second = false })
	if second {
		l.conn.Close(frame.UnexpectedFrame, "second control stream")
		return
	}
	l.pass(l.control, s)
}

// pass hands a stream over and holds its handler until the stream was reset.
func (l *QUICLink) pass(to chan Stream, s *endpoint.Stream) {
	held := &heldStream{Stream: s, released: make(chan struct{})}
	gone := l.conn.Context().Done()
	select {
	case to <- held:
	case <-gone:
		return
	}
	select {
	case <-held.released:
	case <-gone:
	}
}

// heldStream is an accepted stream whose handler waits for its Reset.
type heldStream struct {
	*endpoint.Stream
	once     sync.Once
	released chan struct{}
}

func (s *heldStream) Reset(code frame.Code) {
	s.Stream.Reset(code)
	s.once.Do(func() { close(s.released) })
}

// RemoteGateway implements [Link].
func (l *QUICLink) RemoteGateway() string { return l.gateway }

// Control implements [Link].
func (l *QUICLink) Control(ctx context.Context) (Stream, error) {
	if !l.dialled {
		return l.await(ctx, l.control)
	}
	s, err := l.conn.Open(ctx, frame.StreamControl)
	if err != nil {
		return nil, err
	}
	s.SetPriority(0, false)
	return s, nil
}

// OpenDigest implements [Link].
func (l *QUICLink) OpenDigest(ctx context.Context) (Stream, error) {
	s, err := l.conn.OpenUni(ctx, frame.StreamDigest)
	if err != nil {
		return nil, err
	}
	s.SetPriority(digestUrgency, false)
	return s, nil
}

// AcceptDigest implements [Link].
func (l *QUICLink) AcceptDigest(ctx context.Context) (Stream, error) { return l.await(ctx, l.digests) }

func (l *QUICLink) await(ctx context.Context, from chan Stream) (Stream, error) {
	select {
	case s := <-from:
		return s, nil
	case <-l.conn.Context().Done():
		return nil, l.conn.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements [Link].
func (l *QUICLink) Close(code frame.Code, reason string) { l.conn.Close(code, reason) }

// RTT implements [Link].
func (l *QUICLink) RTT() time.Duration { return l.conn.RTT() }
