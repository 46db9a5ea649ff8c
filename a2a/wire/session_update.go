package wire

import "agentgw/internal/frame"

// SessionUpdate asks the other side to change what the session allows (a2a/PROTOCOL.md, "SESSION_UPDATE").
//
//	{1 sid bstr16, 2 upd_seq uint, 3 params, 4 sat bstr, 5 scope [tstr], 6 sess_exp uint}
//
// Keys 3 to 6 may be absent, not all of them: what is absent stays as it is. upd_seq is from 1 on and grows with each UPDATE of its
// sender. sess_exp is unix seconds.
type SessionUpdate struct {
	Sid     ID       `cbor:"1,keyasint"`
	Seq     uint64   `cbor:"2,keyasint"`
	Params  *Params  `cbor:"3,keyasint,omitempty"`
	SAT     []byte   `cbor:"4,keyasint,omitempty"`
	Scope   []string `cbor:"5,keyasint,omitempty"`
	SessExp uint64   `cbor:"6,keyasint,omitempty"`
}

// FrameType says 0x86.
func (*SessionUpdate) FrameType() frame.Type { return frame.SessionUpdate }

func (m *SessionUpdate) check() error {
	switch {
	case m.Sid == (ID{}) || m.Seq == 0:
		return malformed("SESSION_UPDATE without sid or upd_seq")
	case m.Params == nil && len(m.SAT) == 0 && len(m.Scope) == 0 && m.SessExp == 0:
		return malformed("SESSION_UPDATE that changes nothing")
	case len(m.SAT) > MaxSAT:
		return malformed("sat of %d bytes, at most %d are due", len(m.SAT), MaxSAT)
	case len(m.Scope) > MaxScope:
		return malformed("scope of %d strings, at most %d are due", len(m.Scope), MaxScope)
	}
	for _, s := range m.Scope {
		if s == "" || len(s) > MaxScopeText {
			return malformed("SESSION_UPDATE with an empty or oversized scope string")
		}
	}
	if m.Params != nil {
		return m.Params.check()
	}
	return nil
}
