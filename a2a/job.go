package a2a

import (
	"context"
	"errors"
	"time"

	"agentgw/a2a/aci"
	"agentgw/a2a/session"
	"agentgw/a2a/wire"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// job is one message that is being worked on. It belongs to the session, not to the stream that brought it: where the connection is
// lost the work goes on, and the message that is repeated on the next one gets its outcome.
type job struct {
	cancel  context.CancelFunc
	reports chan progressReport
	done    chan struct{} // closed when outcome and err are there
	outcome Outcome
	err     error

	link *link            // of the stream that waits for it; guarded by the session's mutex
	data *endpoint.Stream // likewise
}

type progressReport struct {
	items []aci.ItemState
	note  string
}

// join begins to work on a message. One that came before, over a link that the session has left, is waited for on this stream from now
// on; one that is being worked on for a stream of this very link is refused (43).
func (s *Session) join(l *link, data *endpoint.Stream, hdr *wire.CtxHdr, d Delivery) (*job, error) {
	if s.agent.cfg.Handler == nil {
		return nil, frame.Errorf(frame.CapUnbound, "no backend serves %s", s.cap)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[hdr.MsgID]; j != nil {
		if j.link == l {
			return nil, frame.Errorf(frame.Duplicate, "this message is being worked on")
		}
		before := j.data
		j.link, j.data = l, data
		before.Reset(frame.Collision) // its connection may still live
		return j, nil
	}
	if s.machine.State() == session.Closed { // from then on nobody waits for new work to end
		return nil, frame.Errorf(frame.SessionUnknown, "session has ended")
	}
	if len(s.jobs) >= session.MaxStreams { // the machine counts those of this link alone
		return nil, frame.Errorf(frame.LimitExceeded, "%d messages of this session are worked on already", len(s.jobs))
	}
	timeout := DefaultDeadline
	if hdr.DeadlineMS > 0 {
		timeout = time.Duration(min(hdr.DeadlineMS, uint64(time.Hour/time.Millisecond))) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(s.life, timeout)
	j := &job{cancel: cancel, reports: make(chan progressReport, maxPending), done: make(chan struct{}), link: l, data: data}
	s.jobs[hdr.MsgID] = j
	s.works.Go(func() {
		defer cancel()
		s.perform(ctx, j, d)
	})
	return j, nil
}

// perform does the work of a job, once.
func (s *Session) perform(ctx context.Context, j *job, d Delivery) {
	j.outcome, j.err = s.once(ctx, j, d)
	s.mu.Lock()
	delete(s.jobs, d.MsgID) // from here on the stored outcome answers
	s.mu.Unlock()
	close(j.done)
}

// once delivers a message that was never delivered, and answers one that was with its stored outcome. The order is the promise:
// msg_id persisted, delivered, outcome persisted, answered.
func (s *Session) once(ctx context.Context, j *job, d Delivery) (Outcome, error) {
	known, stored, err := s.agent.cfg.Outcomes.Begin(s.sid, d.MsgID)
	switch {
	case err != nil:
		return Outcome{}, frame.Errorf(frame.Internal, "remember message: %w", err)
	case known && stored == nil:
		return Outcome{}, errInterrupted
	case known:
		return *stored, nil
	}
	o := s.handle(ctx, d, func(items []aci.ItemState, note string) {
		select {
		case j.reports <- progressReport{items, note}:
		default: // a report is only ever overtaken by a later one
		}
	})
	if err := s.agent.cfg.Outcomes.End(s.sid, d.MsgID, o); err != nil {
		return Outcome{}, frame.Errorf(frame.Internal, "remember outcome: %w", err)
	}
	return o, nil
}

// follow writes a job's progress until it is done, and says whether its outcome is this stream's to answer: not where the connection was
// lost, or another stream has taken this one's place.
func (s *Session) follow(l *link, data *endpoint.Stream, msgID wire.ID, j *job) bool {
	for {
		select {
		case r := <-j.reports:
			s.writeProgress(data, msgID, r)
			continue
		case <-j.done:
		case <-data.Context().Done():
			if errors.Is(data.Err(), endpoint.ErrConnEnded) || !s.waitsFor(j, l) {
				return false
			}
			j.cancel() // the sender no longer reads: it cancelled
			<-j.done
		}
		break
	}
	for s.waitsFor(j, l) && len(j.reports) > 0 {
		s.writeProgress(data, msgID, <-j.reports)
	}
	return s.waitsFor(j, l)
}

func (s *Session) waitsFor(j *job, l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.link == l
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
