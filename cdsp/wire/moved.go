package wire

import "agentgw/internal/frame"

// Moved says that an agent is at home at the sender now, another gateway of the receiver's own domain: who has an entry of it at a lower
// version offers it no more (PROTOCOL.md, "MOVED").
//
//	MOVED { 1 aic, 2 version, 3 jti b16 }
type Moved struct {
	AIC     string `cbor:"1,keyasint"`
	Version uint64 `cbor:"2,keyasint"` // of the sender's entry
	JTI     []byte `cbor:"3,keyasint"` // of the grant that the agent has shown
}

// FrameType implements [frame.Message].
func (*Moved) FrameType() frame.Type { return frame.Moved }

func (m *Moved) check() error {
	if m.Version == 0 || len(m.JTI) != 16 {
		return malformed("MOVED of version %d with a grant id of %d octets", m.Version, len(m.JTI))
	}
	return checkName("AIC of MOVED", m.AIC, MaxAIC)
}
