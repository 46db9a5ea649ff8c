package wire

import "agentgw/internal/frame"

// SessionTerminate ends a session from either side (a2a/PROTOCOL.md, "SESSION_TERMINATE"). Code 00 is an ordinary end.
//
//	{1 sid bstr16, 2 code uint}
type SessionTerminate struct {
	Sid  ID         `cbor:"1,keyasint"`
	Code frame.Code `cbor:"2,keyasint"`
}

// FrameType says 0x8A.
func (*SessionTerminate) FrameType() frame.Type { return frame.SessionTerminate }

func (m *SessionTerminate) check() error {
	if m.Sid == (ID{}) {
		return malformed("SESSION_TERMINATE without sid")
	}
	return nil
}
