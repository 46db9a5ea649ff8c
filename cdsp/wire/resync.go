package wire

import "agentgw/internal/frame"

// Mode is how a synchronisation starts.
type Mode uint8

// The modes; 1 is reserved.
const (
	ModeDelta Mode = 0 // from the base that the receiver's cookie names
	ModeFull  Mode = 2
)

// Resync asks the neighbour to start its digest stream anew (PROTOCOL.md, "RESYNC").
//
//	RESYNC { 1 mode, ? 2 cookie, 3 reason }
type Resync struct {
	Mode   Mode       `cbor:"1,keyasint"`
	Cookie *Cookie    `cbor:"2,keyasint,omitempty"`
	Reason frame.Code `cbor:"3,keyasint"`
}

// FrameType implements [frame.Message].
func (*Resync) FrameType() frame.Type { return frame.Resync }

func (m *Resync) check() error { return checkMode(m.Mode) }

func checkMode(m Mode) error {
	if m != ModeDelta && m != ModeFull {
		return malformed("synchronisation mode %d is not known", m)
	}
	return nil
}
