package wire

import "agentgw/internal/frame"

// CtxProgress tells the state of items before the result is there (a2a/PROTOCOL.md, "CTX_PROGRESS"); on the reply direction only.
//
//	{1 msg_id bstr16, 2 [[itemID tstr, state 0 or 1]…], 3 note tstr}
type CtxProgress struct {
	MsgID ID          `cbor:"1,keyasint"`
	Items []ItemState `cbor:"2,keyasint,omitempty"`
	Note  string      `cbor:"3,keyasint,omitempty"`
}

// ItemState is one entry of ItemStateUpdates: state 0 is not completed, 1 completed.
type ItemState struct {
	_      struct{} `cbor:",toarray"`
	ItemID string
	State  uint64
}

// FrameType says 0xA1; a receiver that does not care may skip it.
func (*CtxProgress) FrameType() frame.Type { return frame.CtxProgress }

func (m *CtxProgress) check() error {
	if m.MsgID == (ID{}) || len(m.Note) > MaxText || len(m.Items) > MaxItems {
		return malformed("CTX_PROGRESS: msg_id is due, a note of at most %d bytes, at most %d items", MaxText, MaxItems)
	}
	for _, it := range m.Items {
		if it.ItemID == "" || len(it.ItemID) > MaxItemID || it.State > 1 {
			return malformed("CTX_PROGRESS: item %q has state %d", it.ItemID, it.State)
		}
	}
	return nil
}
