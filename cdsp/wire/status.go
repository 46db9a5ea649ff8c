package wire

import "agentgw/internal/frame"

// Status carries one signed status list, or one part of a long one: of the sender's own issuer, or of a domain that it
// introduces (PROTOCOL.md, "STATUS").
//
//	STATUS { 1 list bstr }
type Status struct {
	List []byte `cbor:"1,keyasint"`
}

// FrameType implements [frame.Message].
func (*Status) FrameType() frame.Type { return frame.StatusFrame }

func (m *Status) check() error {
	if len(m.List) == 0 || len(m.List) > MaxStatus {
		return malformed("status list of %d octets is not between 1 and %d", len(m.List), MaxStatus)
	}
	return nil
}
