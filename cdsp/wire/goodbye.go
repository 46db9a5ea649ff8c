package wire

import "agentgw/internal/frame"

// Leaving is the kind of a GOODBYE.
type Leaving uint8

// The kinds of GOODBYE.
const (
	LeaveRestart Leaving = 0 // keep my entries, stale, for restart_ms
	LeaveDrain   Leaving = 1 // drop my entries when the connection is gone
	LeaveHard    Leaving = 2 // drop my entries now
)

// Goodbye announces that its sender is about to close the session (PROTOCOL.md, "GOODBYE").
//
//	GOODBYE { 1 kind, 2 restart_ms, 3 code, ? 4 msg }
type Goodbye struct {
	Kind      Leaving    `cbor:"1,keyasint"`
	RestartMS uint64     `cbor:"2,keyasint"`
	Code      frame.Code `cbor:"3,keyasint"`
	Msg       string     `cbor:"4,keyasint,omitempty"`
}

// FrameType implements [frame.Message].
func (*Goodbye) FrameType() frame.Type { return frame.Goodbye }

func (m *Goodbye) check() error {
	if m.Kind > LeaveHard {
		return malformed("GOODBYE of kind %d is not known", m.Kind)
	}
	return checkText("GOODBYE message", m.Msg, MaxMessage)
}
