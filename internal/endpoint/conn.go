package endpoint

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"agentgw/internal/frame"
)

// Conn is one connection to a verified peer.
type Conn struct {
	q        *quic.Conn
	endpoint *Endpoint
	alpn     string
	served   atomic.Pointer[Stream] // whose credit goes back with the next one's answer; nil for none
}

// ALPN is the protocol of the connection.
func (c *Conn) ALPN() string { return c.alpn }

// PeerLeaf is the peer's certificate.
func (c *Conn) PeerLeaf() *x509.Certificate { return c.q.ConnectionState().TLS.PeerCertificates[0] }

// PeerSPKI is the SHA-256 of the peer's DER SubjectPublicKeyInfo.
func (c *Conn) PeerSPKI() [32]byte { return sha256.Sum256(c.PeerLeaf().RawSubjectPublicKeyInfo) }

// ServerName is the name that the dialler asked for.
func (c *Conn) ServerName() string { return c.q.ConnectionState().TLS.ServerName }

// RemoteAddr is where the peer's packets come from now.
func (c *Conn) RemoteAddr() netip.AddrPort { return addrPort(c.q.RemoteAddr()) }

// LocalAddr is the local end of the path.
func (c *Conn) LocalAddr() netip.AddrPort { return addrPort(c.q.LocalAddr()) }

// RTT is the smoothed round trip time.
func (c *Conn) RTT() time.Duration { return c.q.ConnectionStats().SmoothedRTT }

// Context ends when the connection does.
func (c *Conn) Context() context.Context { return c.q.Context() }

// Draining is closed when the endpoint begins to shut down: say goodbye, take nothing new, finish what runs.
func (c *Conn) Draining() <-chan struct{} { return c.endpoint.draining }

// Err says why a connection ended, nil while it is open.
func (c *Conn) Err() error {
	if c.q.Context().Err() == nil {
		return nil
	}
	return explain("connection", context.Cause(c.q.Context()))
}

// Close closes the connection with a code. Only the first call counts. reason travels to the peer: no internal detail.
func (c *Conn) Close(code frame.Code, reason string) {
	c.q.CloseWithError(quic.ApplicationErrorCode(code), reason)
}

// closeServed closes a connection whose handlers have returned. Closing discards what is still on its way, so a draining
// connection lingers until the last answers have arrived.
func (c *Conn) closeServed() {
	select {
	case <-c.endpoint.draining:
	default:
		c.Close(frame.OK, "")
		return
	}
	select {
	case <-c.q.Context().Done():
	case <-time.After(min(max(3*c.RTT(), 20*time.Millisecond), time.Second)):
	}
	c.Close(frame.Shutdown, "")
}

// Open opens a bidirectional stream; its type is written at once, since the peer sees nothing of a stream before its first
// byte. ctx bounds the wait for credit.
func (c *Conn) Open(ctx context.Context, kind frame.StreamType) (*Stream, error) {
	q, err := c.q.OpenStreamSync(ctx)
	if err != nil {
		return nil, explain("open stream", err)
	}
	return c.begin(kind, q, q)
}

// OpenUni opens a stream that only this side writes.
func (c *Conn) OpenUni(ctx context.Context, kind frame.StreamType) (*Stream, error) {
	q, err := c.q.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, explain("open stream", err)
	}
	return c.begin(kind, q, nil)
}

func (c *Conn) begin(kind frame.StreamType, send sendSide, recv receiveSide) (*Stream, error) {
	s := newStream(c, kind, send, recv)
	s.SetWriteDeadline(time.Now().Add(headerTimeout))
	if _, err := s.Write(frame.AppendVarint(nil, uint64(kind))); err != nil {
		s.Reset(frame.Internal)
		return nil, err
	}
	return s, nil
}

// Handlers are what a connection does with the streams that its peer opens. A handler owns its stream until it returns.
type Handlers map[frame.StreamType]func(ctx context.Context, s *Stream)

// Serve accepts streams and runs the handler of each in its own goroutine, until the connection ends, ctx ends or the
// endpoint drains; it returns after the handlers have. A stream of an unknown type, or one that does not say its type
// within 5 s, closes the connection (06, 04).
func (c *Conn) Serve(ctx context.Context, handlers Handlers) {
	accept, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(c.q.Context(), cancel)
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		select {
		case <-accept.Done():
		case <-c.endpoint.draining:
			cancel()
		}
	})
	running.Go(func() {
		for {
			q, err := c.q.AcceptUniStream(accept)
			if err != nil {
				return
			}
			running.Go(func() { c.handle(ctx, handlers, newStream(c, 0, nil, q)) })
		}
	})
	next, waiting := make(chan *quic.Stream), make(chan struct{}, 1)
	for {
		q, err := c.q.AcceptStream(accept)
		if err != nil {
			return
		}
		select {
		case next <- q:
		default: // nobody waits
			running.Go(func() {
				for ; q != nil; q = await(accept, next, waiting) {
					c.handle(ctx, handlers, newStream(c, 0, q, q))
				}
			})
		}
	}
}

// await is the next stream, nil for none: of the goroutines that have served one a single one stays, whose stack has grown to what the
// handlers take. A new one would grow it anew for each small request, which is a tenth of the work on it.
func await(ctx context.Context, next <-chan *quic.Stream, waiting chan struct{}) *quic.Stream {
	select {
	case waiting <- struct{}{}:
	default:
		return nil
	}
	defer func() { <-waiting }()
	select {
	case q := <-next:
		return q
	case <-ctx.Done():
		return nil
	}
}

func (c *Conn) handle(ctx context.Context, handlers Handlers, s *Stream) {
	defer c.release(s)
	s.SetReadDeadline(time.Now().Add(headerTimeout))
	kind, err := s.frames.Varint()
	if err != nil {
		s.Reset(frame.Malformed)
		return
	}
	s.kind = frame.StreamType(kind)
	h, ok := handlers[s.kind]
	if !ok {
		c.Close(frame.UnknownStream, "")
		return
	}
	h(ctx, s)
}

// release gives the credit of the stream before this one back. The peer has answered that one's last packet, and the new credit travels
// with the answer to this one; the own credit would go as a packet of its own, for each request.
func (c *Conn) release(s *Stream) {
	if before := c.served.Swap(s); before != nil {
		before.recv.ReleaseStreamCredit()
	}
}

type sendSide interface {
	io.Writer
	Close() error
	CancelWrite(quic.StreamErrorCode)
	SetWriteDeadline(time.Time) error
	SetPriority(urgency int8, incremental bool)
	Context() context.Context
}

type receiveSide interface {
	io.Reader
	CancelRead(quic.StreamErrorCode)
	SetReadDeadline(time.Time) error
	ReleaseStreamCredit()
}

// Stream is one framed stream. A direction that it lacks (unidirectional streams) must not be used.
type Stream struct {
	conn   *Conn
	kind   frame.StreamType
	send   sendSide
	recv   receiveSide
	frames *frame.Reader
	out    []byte // reused by WriteMessage
}

func newStream(c *Conn, kind frame.StreamType, send sendSide, recv receiveSide) *Stream {
	s := &Stream{conn: c, kind: kind, send: send, recv: recv}
	if recv != nil {
		s.frames = frame.NewReader(recv)
	}
	return s
}

// Kind is the stream's type.
func (s *Stream) Kind() frame.StreamType { return s.kind }

// Conn is the connection of the stream.
func (s *Stream) Conn() *Conn { return s.conn }

// Context ends when the peer stops reading this side's writes, or the connection ends.
func (s *Stream) Context() context.Context { return s.send.Context() }

// SetReadDeadline bounds reads from now on; the zero time means never.
func (s *Stream) SetReadDeadline(t time.Time) { s.recv.SetReadDeadline(t) }

// SetWriteDeadline bounds writes from now on.
func (s *Stream) SetWriteDeadline(t time.Time) { s.send.SetWriteDeadline(t) }

// SetPriority orders this stream's data among the connection's: 0 first, 7 last.
func (s *Stream) SetPriority(urgency int8, incremental bool) {
	s.send.SetPriority(urgency, incremental)
}

// ReadFrame reads the next frame within d. The payload is valid until the next read. io.EOF means that the peer closed its
// side between two frames.
func (s *Stream) ReadFrame(d time.Duration) (frame.Type, []byte, error) {
	s.recv.SetReadDeadline(time.Now().Add(d))
	t, payload, err := s.frames.Next()
	return t, payload, explain("read", err)
}

// ReadMessage reads the one frame that is due within d.
func (s *Stream) ReadMessage(d time.Duration, m frame.Message) error {
	s.recv.SetReadDeadline(time.Now().Add(d))
	return explain("read "+m.FrameType().String(), s.frames.Into(m))
}

// Body is the raw bytes that follow the frames read so far.
func (s *Stream) Body() io.Reader { return bodyReader{s} }

type bodyReader struct{ s *Stream }

func (b bodyReader) Read(p []byte) (int, error) {
	n, err := b.s.frames.Rest().Read(p)
	return n, explain("read body", err)
}

// WriteMessage writes m as one frame within d.
func (s *Stream) WriteMessage(d time.Duration, m frame.Message) error {
	out, err := frame.AppendMessage(s.out[:0], m)
	if err != nil {
		return err
	}
	s.out = out
	s.send.SetWriteDeadline(time.Now().Add(d))
	_, err = s.send.Write(out)
	return explain("write "+m.FrameType().String(), err)
}

// Write writes raw bytes under the deadline that was set.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.send.Write(p)
	return n, explain("write", err)
}

// CloseWrite ends this side's direction; what was written arrives.
func (s *Stream) CloseWrite() error { return explain("close stream", s.send.Close()) }

// Reset abandons both directions with a code. It is idempotent and safe beside a running read or write.
func (s *Stream) Reset(code frame.Code) {
	if s.recv != nil {
		s.recv.CancelRead(quic.StreamErrorCode(code))
	}
	if s.send != nil {
		s.send.CancelWrite(quic.StreamErrorCode(code))
	}
}

// Err says why Context has ended: the peer's reset, or with [ErrConnEnded] the end of the whole connection. nil while it has not.
func (s *Stream) Err() error { return explain("stream", context.Cause(s.send.Context())) }

// ErrConnEnded is what errors.Is finds in an error whose reason is the end of the whole connection.
var ErrConnEnded = errors.New("the connection has ended")

// endedError is an error of a connection that has ended.
type endedError struct{ error }

func (e endedError) Unwrap() error      { return e.error }
func (endedError) Is(target error) bool { return target == ErrConnEnded }

// explain turns an error of the transport into one with a code: the peer's where the peer gave one. io.EOF and errors that
// carry a code already pass unchanged.
func explain(doing string, err error) error {
	if err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	var coded *frame.Error
	if errors.As(err, &coded) {
		return err
	}
	var stream *quic.StreamError
	if errors.As(err, &stream) {
		by := "this side"
		if stream.Remote {
			by = "the peer"
		}
		return frame.Errorf(frame.Code(stream.ErrorCode), "%s: %s reset the stream", doing, by)
	}
	var app *quic.ApplicationError
	if errors.As(err, &app) {
		code := frame.Code(app.ErrorCode)
		if code == frame.OK {
			code = frame.UpstreamFailed
		}
		by := "this side"
		if app.Remote {
			by = "the peer"
		}
		if reason := printable(app.ErrorMessage); reason != "" {
			return endedError{frame.Errorf(code, "%s: %s closed the connection: %s", doing, by, reason)}
		}
		return endedError{frame.Errorf(code, "%s: %s closed the connection", doing, by)}
	}
	return explainTransport(doing, err)
}

// printable is a peer's words as they may stand in a log: ASCII without control characters, at most 128.
func printable(s string) string {
	keep := func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}
	s = strings.Map(keep, s)
	return s[:min(len(s), 128)]
}

// explainDial is explain for a connection that was never there.
func explainDial(addr string, err error) error {
	var idle *quic.IdleTimeoutError
	var hs *quic.HandshakeTimeoutError
	code := frame.UpstreamFailed
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = frame.Deadline
	case errors.As(err, &idle), errors.As(err, &hs):
	default:
		return explain("dial "+addr, err)
	}
	return frame.Errorf(code, "dial %s: no answer to the handshake. Is the address right, does the daemon there run, and is its UDP port let through both ways? "+
		"Where small packets pass and these do not, try QUIC_GO_DISABLE_GSO=true, then QUIC_GO_DISABLE_ECN=true, in the environment of either daemon", addr)
}

func explainTransport(doing string, err error) error {
	var idle *quic.IdleTimeoutError
	var reset *quic.StatelessResetError
	var tr *quic.TransportError
	var netErr net.Error
	switch {
	case errors.As(err, &idle):
		return endedError{frame.Errorf(frame.UpstreamFailed, "%s: the peer is silent (idle timeout)", doing)}
	case errors.As(err, &reset):
		return endedError{frame.Errorf(frame.UpstreamFailed, "%s: the peer has restarted", doing)}
	case errors.As(err, &tr) && tr.ErrorCode.IsCryptoError() && tr.Remote:
		return endedError{frame.Errorf(frame.TrustDenied, "%s: the other side refused our certificate: does it know us (a policy row, an entry), and is the certificate valid? (%w)", doing, err)}
	case errors.As(err, &tr) && tr.ErrorCode.IsCryptoError():
		return frame.Errorf(frame.TrustDenied, "%s: handshake refused: %w", doing, err)
	case errors.As(err, &tr) && tr.ErrorCode == quic.CryptoBufferExceeded:
		return endedError{frame.Errorf(frame.TrustDenied, "%s: a certificate chain is larger than a handshake carries: leaf and issuing CA alone, 4 KiB at most (%w)", doing, err)}
	case errors.As(err, &tr) && tr.ErrorCode == quic.ConnectionRefused:
		return endedError{frame.Errorf(frame.Overloaded, "%s: the peer refuses connections now", doing)}
	case errors.As(err, &tr):
		return endedError{frame.Errorf(frame.UpstreamFailed, "%s: %w", doing, err)}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return frame.Errorf(frame.Deadline, "%s: time is up: %w", doing, err)
	case errors.Is(err, context.Canceled):
		return frame.Errorf(frame.Cancelled, "%s: %w", doing, err)
	case errors.As(err, &netErr):
		return frame.Errorf(frame.UpstreamFailed, "%s: %w", doing, err)
	}
	return frame.Errorf(frame.UpstreamFailed, "%s: %w", doing, err)
}
