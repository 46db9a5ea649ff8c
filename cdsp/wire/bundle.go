package wire

import "agentgw/internal/frame"

// Bundle carries a signed trust bundle: the sender's own, or one that it introduces (PROTOCOL.md, "BUNDLE").
//
//	BUNDLE { 1 bundle bstr }
type Bundle struct {
	Bundle []byte `cbor:"1,keyasint"`
}

// FrameType implements [frame.Message].
func (*Bundle) FrameType() frame.Type { return frame.BundleFrame }

func (m *Bundle) check() error {
	if len(m.Bundle) == 0 || len(m.Bundle) > MaxBundle {
		return malformed("bundle of %d octets is not between 1 and %d", len(m.Bundle), MaxBundle)
	}
	return nil
}
