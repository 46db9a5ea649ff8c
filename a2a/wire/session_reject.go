package wire

import "agentgw/internal/frame"

// SessionReject refuses an INIT (a2a/PROTOCOL.md, "SESSION_REJECT"). It says a code and nothing else: which check failed is
// for the target's own log.
//
//	{1 sid bstr16, 2 code uint, 3 retry_after_ms uint}
type SessionReject struct {
	Sid          ID         `cbor:"1,keyasint"`
	Code         frame.Code `cbor:"2,keyasint"`
	RetryAfterMS uint64     `cbor:"3,keyasint,omitempty"`
}

// FrameType says 0x84.
func (*SessionReject) FrameType() frame.Type { return frame.SessionReject }

func (m *SessionReject) check() error {
	if m.Sid == (ID{}) || m.Code == frame.OK {
		return malformed("SESSION_REJECT without sid or code")
	}
	return nil
}
