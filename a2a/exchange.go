package a2a

import (
	"context"
	"errors"
	"io"
	"time"

	"agentgw/a2a/aci"
	"agentgw/a2a/session"
	"agentgw/a2a/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// DefaultDeadline is how long the work on a context may take when its sender names no deadline.
const DefaultDeadline = 5 * time.Minute

// maxPending is how many progress reports may wait to be written; more are dropped, since each later one says more.
const maxPending = 16

// Handler does the work of a context.
type Handler interface {
	// Deliver works on one AgentContext and returns it, changed as its agent may change it. ctx ends at the deadline, when the
	// sender cancels, and with the session; Deliver must then return soon. progress may be called from any goroutine until Deliver
	// returns. The code of an error reaches the sender; its text only inside the domain.
	Deliver(ctx context.Context, d Delivery, progress func(items []aci.ItemState, note string)) ([]byte, error)
}

// Delivery is one AgentContext that arrived in a session.
type Delivery struct {
	Sid, MsgID wire.ID
	Peer       string // AIC of the master
	Cap        string // capability that the session is bound to
	Scope      []string
	Kind       wire.Kind
	Mode       wire.Mode
	Body       []byte            // as it came
	Context    *aci.AgentContext // the same, parsed and valid
}

// exchange answers one data stream.
func (a *Agent) exchange(conn *endpoint.Conn, data *endpoint.Stream) {
	m, err := wire.ReadData(source{data, headerTimeout})
	hdr, ok := m.(*wire.CtxHdr)
	if err == nil && !ok {
		err = frame.Errorf(frame.UnexpectedFrame, "%v where a CTX_HDR was due", m.FrameType())
	}
	if err != nil {
		if !closeIfFatal(conn, err) {
			a.refuse(data, err, false)
		}
		return
	}
	s := a.find(hdr.Sid)
	var l *link
	if s != nil && !s.leader {
		l = s.linkOn(conn)
	}
	if l == nil {
		a.refuse(data, frame.Errorf(frame.SessionUnknown, "no session of this connection has the sid"), false)
		return
	}
	if err := s.work(l, data, hdr); err != nil {
		a.log.Warn("context_refused", "sid", s.sid, "msg_id", hdr.MsgID, "peer", s.peer, "err", err)
		a.refuse(data, err, a.isHome(s.peer))
	}
}

// linkOn is the session's link, where that is on a connection; else nil.
func (s *Session) linkOn(conn *endpoint.Conn) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.link.conn != conn {
		return nil
	}
	return s.link
}

// refuse answers CTX_ERR, then reads what is still on its way, so that the answer is not lost in a reset.
func (a *Agent) refuse(data *endpoint.Stream, err error, home bool) {
	code := frame.CodeOf(err)
	msg := code.String()
	var coded *frame.Error
	if home && errors.As(err, &coded) {
		msg = coded.Detail
	}
	if code == frame.Internal && errors.Is(err, errInterrupted) {
		msg = "interrupted"
	}
	if data.WriteMessage(frameTimeout, &wire.CtxErr{Code: code, Msg: wire.Cut(msg)}) != nil {
		data.Reset(code)
		return
	}
	data.CloseWrite()
	data.SetReadDeadline(time.Now().Add(headerTimeout))
	if _, err := io.Copy(io.Discard, io.LimitReader(data.Body(), wire.MaxContext+chunk)); err != nil {
		data.Reset(code)
	}
}

// errInterrupted is the outcome of a message that was being delivered when its agent stopped.
var errInterrupted = frame.Errorf(frame.Internal, "interrupted")

// work is one exchange within a session, from its header to its answer. A connection that is lost meanwhile ends the exchange, and not
// what was begun for it.
func (s *Session) work(l *link, data *endpoint.Stream, hdr *wire.CtxHdr) error {
	if hdr.Kind != wire.KindAgentContext {
		return frame.Errorf(frame.UnexpectedFrame, "a context was due, kind %d came", hdr.Kind)
	}
	if hdr.Cap != wire.Cap8Of(s.cap) {
		return frame.Errorf(frame.Scope, "message is bound to another capability than its session")
	}
	if err := s.stepOn(l, session.Message{Len: hdr.Len, Opens: true, Mode: hdr.Mode}); err != nil {
		return err
	}
	defer s.stepOn(l, session.StreamEnded{})
	if !s.track(data) {
		return frame.Errorf(frame.SessionUnknown, "session has ended")
	}
	defer s.untrack(data)
	body, err := readBody(data, hdr)
	if err != nil {
		return err
	}
	c, err := aci.ParseAgentContext(body)
	if err != nil {
		return err
	}
	if c.AgentID != s.agent.cfg.AIC {
		return frame.Errorf(frame.Scope, "context of agent %s came to %s", c.AgentID, s.agent.cfg.AIC)
	}
	j, err := s.join(l, data, hdr, Delivery{
		Sid: s.sid, MsgID: hdr.MsgID, Peer: s.peer, Cap: s.cap, Scope: s.scope(), Kind: hdr.Kind, Mode: hdr.Mode, Body: body, Context: c,
	})
	if err != nil {
		return err
	}
	if !s.follow(l, data, hdr.MsgID, j) {
		return nil
	}
	if j.err != nil {
		return j.err
	}
	return s.reply(l, data, hdr, j.outcome)
}

func (s *Session) scope() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Scope
}

func (s *Session) reply(l *link, data *endpoint.Stream, hdr *wire.CtxHdr, o Outcome) error {
	if o.Result == nil {
		return frame.Errorf(o.Code, "%s", o.Message)
	}
	if err := s.stepOn(l, session.Message{Len: uint64(len(o.Result))}); err != nil {
		return err
	}
	answer := s.header(context.Background(), o.Result, DeliverOptions{})
	answer.Kind, answer.ReplyTo = wire.KindResult, hdr.MsgID
	if err := writeBody(data, answer, o.Result); err != nil {
		data.Reset(frame.Cancelled)
		s.agent.log.Info("result_not_delivered", "sid", s.sid, "msg_id", hdr.MsgID, "err", err)
	}
	return nil
}
