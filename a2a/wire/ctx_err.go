package wire

import "agentgw/internal/frame"

// CtxErr stands in place of a result (a2a/PROTOCOL.md, "CTX_ERR").
//
//	{1 code uint, 2 msg tstr}
type CtxErr struct {
	Code frame.Code `cbor:"1,keyasint"`
	Msg  string     `cbor:"2,keyasint,omitempty"`
}

// FrameType says 0xA2.
func (*CtxErr) FrameType() frame.Type { return frame.CtxErr }

func (m *CtxErr) check() error {
	if m.Code == frame.OK || len(m.Msg) > MaxText {
		return malformed("CTX_ERR: a code is due, and a message of at most %d bytes", MaxText)
	}
	return nil
}

// Cut shortens a text to what a CTX_ERR or a CTX_PROGRESS may carry, at a rune's border.
func Cut(s string) string {
	if len(s) <= MaxText {
		return s
	}
	end := 0
	for i := range s {
		if i > MaxText {
			break
		}
		end = i
	}
	return s[:end]
}
