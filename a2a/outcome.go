package a2a

import (
	"sync"
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// OutcomeLife is how long outcomes are kept after the end of their session.
const OutcomeLife = 10 * time.Minute

// Outcome is what came of one delivered context: a result, or a code in its place.
type Outcome struct {
	Result  []byte // returned AgentContext; nil where there is a code
	Code    frame.Code
	Message string
}

// Outcomes remember which contexts were delivered, so that none is delivered twice (a2a/PROTOCOL.md, "Once"). Implementations are
// safe for concurrent use.
type Outcomes interface {
	// Begin records, durably where the implementation is durable, that msgID is about to be delivered. Where it was recorded
	// before, known is true, and o is its outcome or nil when there is none yet.
	Begin(sid, msgID wire.ID) (known bool, o *Outcome, err error)
	// End records the outcome, before the answer leaves.
	End(sid, msgID wire.ID, o Outcome) error
	// Ended says that a session is over: its outcomes may go after [OutcomeLife].
	Ended(sid wire.ID, at time.Time)
}

// maxRemembered bounds [Memory]. The oldest message is forgotten first.
const maxRemembered = 256

// Memory is Outcomes that do not survive the process, for agents that do not need it and for tests.
type Memory struct {
	mu    sync.Mutex // guards what follows
	known map[messageKey]*Outcome
	order []messageKey
}

type messageKey struct{ sid, msgID wire.ID }

// NewMemory makes an empty memory.
func NewMemory() *Memory { return &Memory{known: make(map[messageKey]*Outcome)} }

// Begin implements [Outcomes].
func (m *Memory) Begin(sid, msgID wire.ID) (bool, *Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := messageKey{sid, msgID}
	if o, ok := m.known[k]; ok {
		return true, o, nil
	}
	if len(m.order) >= maxRemembered {
		delete(m.known, m.order[0])
		m.order = m.order[1:]
	}
	m.known[k] = nil
	m.order = append(m.order, k)
	return false, nil, nil
}

// End implements [Outcomes].
func (m *Memory) End(sid, msgID wire.ID, o Outcome) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := messageKey{sid, msgID}
	if _, ok := m.known[k]; ok {
		m.known[k] = &o
	}
	return nil
}

// Ended implements [Outcomes]: an ended sid is refused before its outcomes are asked for, so they may go at once.
func (m *Memory) Ended(sid wire.ID, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.order[:0]
	for _, k := range m.order {
		if k.sid == sid {
			delete(m.known, k)
			continue
		}
		kept = append(kept, k)
	}
	m.order = kept
}
