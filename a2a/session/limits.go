package session

import (
	"slices"
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// message counts one CTX_HDR of either direction. The message that reaches a limit passes, and one that would exceed it is
// refused with 69; from then on nothing new begins, and when nothing runs any more the session ends with 69. It does not end at
// once: a TERMINATE on its own stream could overtake the very message that reached the limit (a2a/PROTOCOL.md, "Limits").
func (s *Session) message(ev Message, now time.Time) ([]Effect, error) {
	switch {
	case s.state.Live():
	case s.state == Closing && !ev.Opens: // the result of what still runs
		s.lastUsed, s.lastSent = now, now
		return nil, nil
	case s.state >= Lost:
		return nil, frame.Errorf(frame.SessionUnknown, "session is %v", s.state)
	default:
		return nil, s.illegal("CTX_HDR")
	}
	if err := s.allows(ev); err != nil {
		return nil, err
	}
	if ev.Len > s.Params.MaxContext {
		return nil, frame.Errorf(frame.LimitExceeded, "context of %d bytes, this session allows %d", ev.Len, s.Params.MaxContext)
	}
	if ev.Opens && s.running >= MaxStreams {
		return nil, frame.Errorf(frame.LimitExceeded, "%d exchanges of this session run already", s.running)
	}
	if !s.underRate(now) {
		return nil, frame.Errorf(frame.RateLimited, "more than %d messages in one second", s.Limits.RatePerSec)
	}
	return s.count(ev, now)
}

// allows holds a message against what the session allows now; an update may have narrowed it: scope (66), kinds and modes (46).
func (s *Session) allows(ev Message) error {
	kind := wire.KindResult
	if ev.Opens {
		kind = wire.KindAgentContext
	}
	switch {
	case !slices.Contains(s.Params.Kinds, kind):
		return frame.Errorf(frame.PolicyDenied, "this session allows no messages of kind %d", kind)
	case ev.Opens && !slices.Contains(s.Params.Modes, ev.Mode):
		return frame.Errorf(frame.PolicyDenied, "this session allows no messages of mode %d", ev.Mode)
	case ev.Opens && !policy.Covers(s.Scope, []string{s.invoke}):
		return frame.Errorf(frame.Scope, "the session's scope %q does not cover %s", s.Scope, s.invoke)
	}
	return nil
}

func (s *Session) count(ev Message, now time.Time) ([]Effect, error) {
	messages, bytes, streams := s.messages+1, s.bytes+ev.Len, s.streams
	if ev.Opens {
		streams++
	}
	l := s.Limits
	if s.spent && ev.Opens || over(messages, l.MaxMessages) || over(bytes, l.MaxBytes) || over(streams, l.MaxStreams) {
		s.spent = true
		return s.endSpent(now), frame.Errorf(frame.SessionLimit, "the session's limit is used up")
	}
	s.messages, s.bytes, s.streams = messages, bytes, streams
	if ev.Opens {
		s.running++
	}
	s.lastUsed, s.lastSent = now, now
	s.spent = s.spent || s.used()
	return s.endSpent(now), nil
}

// used says whether a limit is reached.
func (s *Session) used() bool {
	l := s.Limits
	return reached(s.messages, l.MaxMessages) || reached(s.bytes, l.MaxBytes) || reached(s.streams, l.MaxStreams)
}

func (s *Session) endSpent(now time.Time) []Effect {
	if !s.state.Live() || !s.spent || s.running > 0 {
		return nil
	}
	return s.closeLocal(frame.SessionLimit, now)
}

func over(n, limit uint64) bool    { return limit > 0 && n > limit }
func reached(n, limit uint64) bool { return limit > 0 && n >= limit }

func (s *Session) underRate(now time.Time) bool {
	return s.Limits.RatePerSec == 0 || s.rate.under(s.Limits.RatePerSec, now)
}

// perSecond counts what happens in one second.
type perSecond struct {
	second int64
	count  uint64
}

// under counts one more, and says whether that is within a limit.
func (p *perSecond) under(limit uint64, now time.Time) bool {
	if second := now.Unix(); second != p.second {
		p.second, p.count = second, 0
	}
	p.count++
	return p.count <= limit
}

// DefaultParams are what this side proposes, and the widest that it accepts.
func DefaultParams() wire.Params {
	return wire.Params{
		IdleMS:     uint64(DefaultIdle / time.Millisecond),
		MaxContext: wire.MaxContext,
		Kinds:      []wire.Kind{wire.KindAgentContext, wire.KindResult},
		Modes:      []wire.Mode{wire.ModeSync, wire.ModeAsync},
	}
}

// Narrow is what two sides agree on: the smaller of each bound, what both know of each list (46 when nothing is left).
func Narrow(proposed, own wire.Params) (wire.Params, error) {
	p := wire.Params{IdleMS: min(proposed.IdleMS, own.IdleMS), MaxContext: min(proposed.MaxContext, own.MaxContext)}
	for _, k := range proposed.Kinds {
		if slices.Contains(own.Kinds, k) {
			p.Kinds = append(p.Kinds, k)
		}
	}
	for _, m := range proposed.Modes {
		if slices.Contains(own.Modes, m) {
			p.Modes = append(p.Modes, m)
		}
	}
	if len(p.Kinds) == 0 || len(p.Modes) == 0 {
		return p, frame.Errorf(frame.PolicyDenied, "no context kind or no mode in common")
	}
	return p, nil
}

// within says whether p is nowhere wider than the proposal.
func within(p, proposed wire.Params) bool {
	narrowed, err := Narrow(p, proposed)
	return err == nil && narrowed.IdleMS == p.IdleMS && narrowed.MaxContext == p.MaxContext &&
		len(narrowed.Kinds) == len(p.Kinds) && len(narrowed.Modes) == len(p.Modes)
}
