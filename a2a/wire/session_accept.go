package wire

import "agentgw/internal/frame"

// SessionAccept establishes the session (a2a/PROTOCOL.md, "SESSION_ACCEPT").
//
//	{1 sid bstr16, 3 params (final), 4 sess_exp uint, 5 resumed bool}
//
// sess_exp is unix seconds, at most that of the SAT. resumed says that a session of before goes on; a new one leaves it out.
type SessionAccept struct {
	Sid     ID     `cbor:"1,keyasint"`
	Params  Params `cbor:"3,keyasint"`
	SessExp uint64 `cbor:"4,keyasint"`
	Resumed bool   `cbor:"5,keyasint,omitempty"`
}

// FrameType says 0x82.
func (*SessionAccept) FrameType() frame.Type { return frame.SessionAccept }

func (m *SessionAccept) check() error {
	if m.Sid == (ID{}) || m.SessExp == 0 {
		return malformed("SESSION_ACCEPT without sid or sess_exp")
	}
	return m.Params.check()
}
