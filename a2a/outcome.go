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

// Bounds of [Memory]. The oldest message is forgotten first.
const (
	maxRemembered      = 256
	maxRememberedBytes = 64 << 20 // of results and texts
)

// Memory is Outcomes that do not survive the process, for agents that do not need it and for tests. It holds the last 256
// messages, and no more of them than have 64 MiB of outcomes together.
type Memory struct {
	mu    sync.Mutex // guards what follows
	known map[messageKey]*Outcome
	order []messageKey
	bytes int
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
		m.forgetOldest()
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
	old, ok := m.known[k]
	if !ok {
		return nil
	}
	m.known[k] = &o
	m.bytes += o.size() - old.size()
	for m.bytes > maxRememberedBytes {
		m.forgetOldest()
	}
	return nil
}

func (o *Outcome) size() int {
	if o == nil {
		return 0
	}
	return len(o.Result) + len(o.Message)
}

// forgetOldest and forget are called with mu held.
func (m *Memory) forgetOldest() {
	m.forget(m.order[0])
	m.order = m.order[1:]
}

func (m *Memory) forget(k messageKey) {
	m.bytes -= m.known[k].size()
	delete(m.known, k)
}

// Ended implements [Outcomes]: an ended sid is refused before its outcomes are asked for, so they may go at once.
func (m *Memory) Ended(sid wire.ID, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.order[:0]
	for _, k := range m.order {
		if k.sid == sid {
			m.forget(k)
			continue
		}
		kept = append(kept, k)
	}
	m.order = kept
}
