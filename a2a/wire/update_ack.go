package wire

import "agentgw/internal/frame"

// UpdateAck answers a [SessionUpdate] (a2a/PROTOCOL.md, "UPDATE_ACK"). Code 00 says that it is in force from now on; any other,
// that nothing has changed.
//
//	{1 sid bstr16, 2 upd_seq uint, 3 code uint}
type UpdateAck struct {
	Sid  ID         `cbor:"1,keyasint"`
	Seq  uint64     `cbor:"2,keyasint"`
	Code frame.Code `cbor:"3,keyasint"`
}

// FrameType says 0x88.
func (*UpdateAck) FrameType() frame.Type { return frame.UpdateAck }

func (m *UpdateAck) check() error {
	if m.Sid == (ID{}) || m.Seq == 0 {
		return malformed("UPDATE_ACK without sid or upd_seq")
	}
	return nil
}
