package a2a

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	"agentgw/a2a/aci"
	"agentgw/a2a/session"
	"agentgw/a2a/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// DeliverOptions change how a context is delivered. The zero value is fine.
type DeliverOptions struct {
	MsgID    wire.ID // to repeat a message; zero makes a new one
	Async    bool    // tells the target that the master does not wait with its next step
	Progress func(items []aci.ItemState, note string)
}

// maxRepeats is how often one message is sent: a session whose connection goes more often than that is of no use.
const maxRepeats = 16

// Deliver sends an encoded AgentContext and returns the AgentContext that comes back. The deadline of ctx is told to the target;
// its end cancels the work there. A connection that is lost meanwhile is waited for, and the message repeated under its id: the target
// works on it once. Codes: 44, 49 for ctx; 67 for a session that is closing; 69, 10, 0F for limits; 66, 46 for what the session does
// not allow; what the target answered; 48 for a connection that did not come back. Progress is called from the calling goroutine.
func (s *Session) Deliver(ctx context.Context, body []byte, o DeliverOptions) ([]byte, error) {
	if !s.leader {
		return nil, frame.Errorf(frame.State, "only the side that opened a session delivers contexts in it")
	}
	if o.MsgID == (wire.ID{}) {
		rand.Read(o.MsgID[:])
	}
	for sent := 1; ; sent++ {
		l, err := s.ready(ctx)
		if err != nil {
			return nil, err
		}
		result, err := s.deliver(ctx, l, body, o)
		if err == nil {
			return result, nil
		}
		if errors.Is(err, endpoint.ErrConnEnded) {
			s.lost(l, err) // nobody else may have noticed yet
		} else if !errors.Is(err, errLeft) {
			return nil, orContext(ctx, s.cutBy(err))
		}
		if s.route == nil || sent == maxRepeats || ctx.Err() != nil {
			return nil, orContext(ctx, s.cutBy(err))
		}
	}
}

// ready is the link over which messages go now. It waits for a session that is being resumed.
func (s *Session) ready(ctx context.Context) (*link, error) {
	for {
		s.mu.Lock()
		l, flows, over := s.link, s.flows, s.machine.State() >= session.Closing
		s.mu.Unlock()
		if over {
			return nil, s.over()
		}
		select {
		case <-flows:
			if l != nil {
				return l, nil
			}
		case <-ctx.Done():
			return nil, contextError(ctx)
		}
	}
}

// over is why nothing begins any more: a connection that did not come back, or that the session is closing.
func (s *Session) over() error {
	if err := s.Err(); frame.CodeOf(err) == frame.UpstreamFailed {
		return err
	}
	return frame.Errorf(frame.SessionUnknown, "session is %v", s.Info().State)
}

// deliver is one try of Deliver, over one link.
func (s *Session) deliver(ctx context.Context, l *link, body []byte, o DeliverOptions) ([]byte, error) {
	hdr := s.header(ctx, body, o)
	if err := s.stepOn(l, session.Message{Len: hdr.Len, Opens: true, Mode: hdr.Mode}); err != nil {
		return nil, err
	}
	defer s.stepOn(l, session.StreamEnded{})
	data, err := l.conn.Open(ctx, frame.StreamA2AData)
	if err != nil {
		return nil, err
	}
	if !s.track(data) {
		data.Reset(frame.SessionUnknown)
		return nil, frame.Errorf(frame.SessionUnknown, "session has ended")
	}
	defer s.untrack(data)
	stop := context.AfterFunc(ctx, func() { data.Reset(frame.Cancelled) })
	defer stop()
	result, err := s.roundTrip(l, data, hdr, body, o)
	if err != nil {
		data.Reset(frame.Cancelled)
	}
	return result, err
}

func orContext(ctx context.Context, err error) error {
	if cause := contextError(ctx); cause != nil {
		return cause
	}
	return err
}

func (s *Session) header(ctx context.Context, body []byte, o DeliverOptions) *wire.CtxHdr {
	h := &wire.CtxHdr{
		Sid: s.sid, MsgID: o.MsgID, Kind: wire.KindAgentContext, Media: wire.MediaJSON, Len: uint64(len(body)),
		SHA256: sha256.Sum256(body), Cap: wire.Cap8Of(s.cap),
	}
	if h.MsgID == (wire.ID{}) {
		rand.Read(h.MsgID[:]) // a result's own
	}
	if o.Async {
		h.Mode = wire.ModeAsync
	}
	if at, ok := ctx.Deadline(); ok {
		h.DeadlineMS = uint64(max(1, time.Until(at).Milliseconds()))
	}
	return h
}

// roundTrip writes the request and reads up to its answer. A write that fails may mean that the target has answered early.
func (s *Session) roundTrip(l *link, data *endpoint.Stream, hdr *wire.CtxHdr, body []byte, o DeliverOptions) ([]byte, error) {
	writeErr := writeBody(data, hdr, body)
	for {
		m, err := wire.ReadData(source{data, quietTimeout})
		if errors.Is(err, io.EOF) {
			err = frame.Errorf(frame.UpstreamFailed, "target ended the exchange without a result")
		}
		if err != nil {
			return nil, errors.Join(err, writeErr)
		}
		switch m := m.(type) {
		case *wire.CtxProgress:
			if o.Progress != nil && m.MsgID == hdr.MsgID {
				o.Progress(itemStates(m.Items), m.Note)
			}
		case *wire.CtxErr:
			return nil, answeredError(m)
		case *wire.CtxHdr:
			return s.result(l, data, hdr, m)
		}
	}
}

func answeredError(m *wire.CtxErr) error {
	if m.Msg == "" {
		return frame.Errorf(m.Code, "target answers %v", m.Code)
	}
	return frame.Errorf(m.Code, "target answers: %s", m.Msg)
}

func (s *Session) result(l *link, data *endpoint.Stream, asked, m *wire.CtxHdr) ([]byte, error) {
	if m.Kind != wire.KindResult || m.ReplyTo != asked.MsgID || m.Sid != s.sid || m.Cap != asked.Cap {
		return nil, frame.Errorf(frame.Binding, "target answers another message than was sent")
	}
	if err := s.stepOn(l, session.Message{Len: m.Len}); err != nil {
		return nil, err
	}
	return readBody(data, m)
}

func itemStates(items []wire.ItemState) []aci.ItemState {
	out := make([]aci.ItemState, len(items))
	for i, it := range items {
		out[i] = aci.ItemState{ItemID: it.ItemID, State: int(it.State)}
	}
	return out
}

// chunk is how much of a body must move within one frame timeout.
const chunk = 64 << 10

// writeBody writes a header, its body and the end of this side.
func writeBody(data *endpoint.Stream, hdr *wire.CtxHdr, body []byte) error {
	data.SetPriority(4, true)
	if err := data.WriteMessage(frameTimeout, hdr); err != nil {
		return err
	}
	for len(body) > 0 {
		n := min(len(body), chunk)
		data.SetWriteDeadline(time.Now().Add(frameTimeout))
		if _, err := data.Write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	return data.CloseWrite()
}

// readBody reads exactly the body that a header announces, then the end of the stream. Memory grows as bytes arrive.
func readBody(data *endpoint.Stream, hdr *wire.CtxHdr) ([]byte, error) {
	var body bytes.Buffer
	r := data.Body()
	for left := int64(hdr.Len); left > 0; {
		data.SetReadDeadline(time.Now().Add(frameTimeout))
		n, err := io.CopyN(&body, r, min(left, chunk))
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = frame.Errorf(frame.Malformed, "body is %d bytes short", left-n)
			}
			return nil, err
		}
		left -= n
	}
	data.SetReadDeadline(time.Now().Add(frameTimeout))
	if n, err := r.Read(make([]byte, 1)); n > 0 {
		return nil, frame.Errorf(frame.Malformed, "bytes follow the body of %d bytes", hdr.Len)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if sha256.Sum256(body.Bytes()) != hdr.SHA256 {
		return nil, frame.Errorf(frame.Malformed, "body differs from its SHA-256")
	}
	return body.Bytes(), nil
}

// track notes a stream of a running exchange, so that the end of the session ends it; false when that is past.
func (s *Session) track(data *endpoint.Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine.State() == session.Closed {
		return false
	}
	s.streams[data] = struct{}{}
	return true
}

func (s *Session) untrack(data *endpoint.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, data)
}
