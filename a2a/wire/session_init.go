package wire

import (
	"strings"

	"agentgw/internal/frame"
)

// SessionInit asks the target for a session (a2a/PROTOCOL.md, "SESSION_INIT"); the first frame of a control stream.
//
//	{1 ver uint, 2 sid bstr16, 3 initiator AIC tstr, 4 target AIC tstr, 5 cap tstr, 6 sat bstr, 8 params, 10 resume {2 ctr uint}}
//
// sat may be absent where resume is there and both keys are those of before. Key 9 (traceparent) is reserved.
type SessionInit struct {
	Version   uint64  `cbor:"1,keyasint"`
	Sid       ID      `cbor:"2,keyasint"`
	Initiator string  `cbor:"3,keyasint"`
	Target    string  `cbor:"4,keyasint"`
	Cap       string  `cbor:"5,keyasint"`
	SAT       []byte  `cbor:"6,keyasint,omitempty"`
	Params    Params  `cbor:"8,keyasint"`
	Resume    *Resume `cbor:"10,keyasint,omitempty"`
}

// Resume says that the session of the sid goes on over this connection. Ctr is larger than in any SESSION_INIT of the session
// before: unix milliseconds, or the last one plus one where the clock gives no larger one. Key 1 is reserved.
type Resume struct {
	Ctr uint64 `cbor:"2,keyasint"`
}

// Params are what the two ends of a session agree on: the initiator proposes, the target answers with values that are not wider.
//
//	{1 idle_ms uint, 2 max_ctx uint, 3 kinds [uint], 4 modes [uint]}
type Params struct {
	IdleMS     uint64 `cbor:"1,keyasint"` // the session ends after this long without a message
	MaxContext uint64 `cbor:"2,keyasint"` // largest body in bytes that the sender of the params accepts
	Kinds      []Kind `cbor:"3,keyasint"`
	Modes      []Mode `cbor:"4,keyasint"`
}

// Mode says whether the sender waits for the result before its next step. The exchange on the wire is the same.
type Mode uint64

// Modes (seed 000, section 2: SynchronousContextInteraction and AsynchronousContextInteraction).
const (
	ModeSync  Mode = 0
	ModeAsync Mode = 1
)

// FrameType says 0x80.
func (*SessionInit) FrameType() frame.Type { return frame.SessionInit }

func (m *SessionInit) check() error {
	if m.Version != Version {
		return frame.Errorf(frame.Version, "SESSION_INIT of version %d, this side speaks %d", m.Version, Version)
	}
	if m.Sid == (ID{}) {
		return malformed("SESSION_INIT without a sid")
	}
	if err := checkAIC("initiator", m.Initiator); err != nil {
		return err
	}
	if err := checkAIC("target", m.Target); err != nil {
		return err
	}
	if len(m.Cap) > MaxCap || !strings.HasPrefix(m.Cap, "acps://") {
		return malformed("cap is not a capability identifier")
	}
	if len(m.SAT) == 0 && m.Resume == nil || len(m.SAT) > MaxSAT {
		return malformed("sat of %d bytes, 1 to %d are due", len(m.SAT), MaxSAT)
	}
	if m.Resume != nil && m.Resume.Ctr == 0 {
		return malformed("resume without ctr")
	}
	return m.Params.check()
}

func (p Params) check() error {
	if len(p.Kinds) == 0 || len(p.Kinds) > MaxKinds || len(p.Modes) == 0 || len(p.Modes) > MaxKinds {
		return malformed("params: 1 to %d kinds and modes are due", MaxKinds)
	}
	if p.IdleMS == 0 || p.MaxContext == 0 || p.MaxContext > MaxContext {
		return malformed("params: idle_ms %d, max_ctx %d (at most %d) must be set", p.IdleMS, p.MaxContext, MaxContext)
	}
	return nil
}
