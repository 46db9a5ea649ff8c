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
func (a *Agent) exchange(ctx context.Context, conn *endpoint.Conn, data *endpoint.Stream) {
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
	if s == nil || s.conn != conn || s.leader {
		a.refuse(data, frame.Errorf(frame.SessionUnknown, "no session of this connection has the sid"), false)
		return
	}
	if err := s.work(ctx, data, hdr); err != nil {
		a.log.Warn("context_refused", "sid", s.sid, "msg_id", hdr.MsgID, "peer", s.remote.AIC, "err", err)
		a.refuse(data, err, a.isHome(s.remote.AIC))
	}
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

// work is one exchange within a session, from its header to its answer.
func (s *Session) work(ctx context.Context, data *endpoint.Stream, hdr *wire.CtxHdr) error {
	if hdr.Kind != wire.KindAgentContext {
		return frame.Errorf(frame.UnexpectedFrame, "a context was due, kind %d came", hdr.Kind)
	}
	if hdr.Cap != wire.Cap8Of(s.cap) {
		return frame.Errorf(frame.Scope, "message is bound to another capability than its session")
	}
	if err := s.step(session.Message{Len: hdr.Len, Opens: true}); err != nil {
		return err
	}
	defer s.step(session.StreamEnded{})
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
	if !s.enter(hdr.MsgID) {
		return frame.Errorf(frame.Duplicate, "this message is being worked on")
	}
	defer s.leave(hdr.MsgID)
	o, err := s.once(ctx, data, hdr, Delivery{
		Sid: s.sid, MsgID: hdr.MsgID, Peer: s.remote.AIC, Cap: s.cap, Scope: s.scope(), Kind: hdr.Kind, Mode: hdr.Mode, Body: body, Context: c,
	})
	if err != nil {
		return err
	}
	return s.reply(data, hdr, o)
}

func (s *Session) scope() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.Scope
}

// enter says whether nobody works on a message yet; leave ends that.
func (s *Session) enter(msgID wire.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.msgs[msgID]; busy {
		return false
	}
	s.msgs[msgID] = struct{}{}
	return true
}

func (s *Session) leave(msgID wire.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.msgs, msgID)
}

// once delivers a message that was never delivered, and answers one that was with its stored outcome. The order is the promise:
// msg_id persisted, delivered, outcome persisted, answered.
func (s *Session) once(ctx context.Context, data *endpoint.Stream, hdr *wire.CtxHdr, d Delivery) (Outcome, error) {
	if s.agent.cfg.Handler == nil {
		return Outcome{}, frame.Errorf(frame.CapUnbound, "no backend serves %s", s.cap)
	}
	known, stored, err := s.agent.cfg.Outcomes.Begin(s.sid, hdr.MsgID)
	switch {
	case err != nil:
		return Outcome{}, frame.Errorf(frame.Internal, "remember message: %w", err)
	case known && stored == nil:
		return Outcome{}, errInterrupted
	case known:
		return *stored, nil
	}
	o := s.deliver(ctx, data, hdr, d)
	if err := s.agent.cfg.Outcomes.End(s.sid, hdr.MsgID, o); err != nil {
		return Outcome{}, frame.Errorf(frame.Internal, "remember outcome: %w", err)
	}
	return o, nil
}

type progressReport struct {
	items []aci.ItemState
	note  string
}

// deliver runs the handler and writes its progress. It returns after the handler has.
func (s *Session) deliver(ctx context.Context, data *endpoint.Stream, hdr *wire.CtxHdr, d Delivery) Outcome {
	timeout := DefaultDeadline
	if hdr.DeadlineMS > 0 {
		timeout = time.Duration(min(hdr.DeadlineMS, uint64(time.Hour/time.Millisecond))) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(data.Context(), cancel) // the sender no longer reads: it cancelled
	defer stop()
	reports := make(chan progressReport, maxPending)
	finished := make(chan Outcome, 1)
	go func() {
		finished <- s.handle(ctx, d, func(items []aci.ItemState, note string) {
			select {
			case reports <- progressReport{items, note}:
			default: // a report is only ever overtaken by a later one
			}
		})
	}()
	for {
		select {
		case r := <-reports:
			s.writeProgress(data, hdr.MsgID, r)
		case o := <-finished:
			for len(reports) > 0 {
				s.writeProgress(data, hdr.MsgID, <-reports)
			}
			return o
		}
	}
}

func (s *Session) handle(ctx context.Context, d Delivery, progress func([]aci.ItemState, string)) Outcome {
	result, err := s.agent.cfg.Handler.Deliver(ctx, d, progress)
	if err != nil && ctx.Err() != nil {
		err = contextError(ctx)
	}
	if err == nil && len(result) > aci.MaxSize {
		err = frame.Errorf(frame.LimitExceeded, "result of %d bytes, the limit is %d", len(result), aci.MaxSize)
	}
	if err == nil && len(result) == 0 {
		err = frame.Errorf(frame.Internal, "backend returned nothing")
	}
	if err != nil {
		var coded *frame.Error
		o := Outcome{Code: frame.CodeOf(err), Message: frame.CodeOf(err).String()}
		if errors.As(err, &coded) {
			o.Message = coded.Detail
		}
		s.agent.log.Warn("context_failed", "sid", s.sid, "msg_id", d.MsgID, "err", err)
		return o
	}
	return Outcome{Result: result}
}

func (s *Session) writeProgress(data *endpoint.Stream, msgID wire.ID, r progressReport) {
	m := &wire.CtxProgress{MsgID: msgID, Note: wire.Cut(r.note)}
	for _, it := range r.items[:min(len(r.items), wire.MaxItems)] {
		if it.ItemID != "" && len(it.ItemID) <= wire.MaxItemID && (it.State == 0 || it.State == 1) {
			m.Items = append(m.Items, wire.ItemState{ItemID: it.ItemID, State: uint64(it.State)})
		}
	}
	// A sender that is gone shows at the result; progress is worth no failure of its own.
	_ = data.WriteMessage(frameTimeout, m)
}

func (s *Session) reply(data *endpoint.Stream, hdr *wire.CtxHdr, o Outcome) error {
	if o.Result == nil {
		return frame.Errorf(o.Code, "%s", o.Message)
	}
	if err := s.step(session.Message{Len: uint64(len(o.Result))}); err != nil {
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
