package wire

import "agentgw/internal/frame"

// Moved says that an agent is at home at the sender now, another gateway of the receiver's own domain: who has an entry of it at a version of
// at most the base offers it no more (PROTOCOL.md, "MOVED").
//
//	MOVED { 1 aic, 2 version, 3 base }
type Moved struct {
	AIC     string `cbor:"1,keyasint"`
	Version uint64 `cbor:"2,keyasint"` // of the sender's entry
	Base    uint64 `cbor:"3,keyasint"` // the highest version that the sender knew of when the agent came
}

// MaxVersion bounds the versions of entries that gateways tell each other: each change counts one, so none is ever there.
const MaxVersion = 1 << 48

// FrameType implements [frame.Message].
func (*Moved) FrameType() frame.Type { return frame.Moved }

func (m *Moved) check() error {
	if m.Version == 0 || m.Version > MaxVersion || m.Base > m.Version {
		return malformed("MOVED of version %d over version %d", m.Version, m.Base)
	}
	return checkName("AIC of MOVED", m.AIC, MaxAIC)
}
