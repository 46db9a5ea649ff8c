package wire

import "agentgw/internal/frame"

// CtxHdr stands before one body on a data stream (a2a/PROTOCOL.md, "CTX_HDR").
//
//	{1 sid bstr16, 2 msg_id bstr16, 3 kind uint, 5 media tstr, 6 len uint, 7 sha256 bstr32,
//	 8 reply_to bstr16, 9 mode uint, 10 deadline_ms uint, 11 cap8 bstr8} │ len raw bytes │ FIN
//
// reply_to is there exactly in a result. deadline_ms counts from the arrival of the header; absent means the session's default.
// Key 4 is reserved.
type CtxHdr struct {
	Sid        ID     `cbor:"1,keyasint"`
	MsgID      ID     `cbor:"2,keyasint"`
	Kind       Kind   `cbor:"3,keyasint"`
	Media      string `cbor:"5,keyasint"`
	Len        uint64 `cbor:"6,keyasint"`
	SHA256     Hash   `cbor:"7,keyasint"`
	ReplyTo    ID     `cbor:"8,keyasint,omitempty"`
	Mode       Mode   `cbor:"9,keyasint,omitempty"`
	DeadlineMS uint64 `cbor:"10,keyasint,omitempty"`
	Cap        Cap8   `cbor:"11,keyasint"`
}

// Kind is what a body holds.
type Kind uint64

// Kinds. 1, a TaskContext, never leaves its master (seed 000, section 2.1) and is refused; 4 to 6 are reserved for blobs,
// DeviceContext and EnvironmentContext.
const (
	KindAgentContext Kind = 2
	KindResult       Kind = 3
)

// MediaJSON is the media type of an AgentContext.
const MediaJSON = "application/json"

// FrameType says 0xA0.
func (*CtxHdr) FrameType() frame.Type { return frame.CtxHdr }

func (m *CtxHdr) check() error {
	if m.Sid == (ID{}) || m.MsgID == (ID{}) {
		return malformed("CTX_HDR without sid or msg_id")
	}
	if m.Kind != KindAgentContext && m.Kind != KindResult {
		return malformed("CTX_HDR of kind %d: only AgentContext (2) and its result (3) travel", m.Kind)
	}
	if (m.Kind == KindResult) != (m.ReplyTo != ID{}) {
		return malformed("CTX_HDR: reply_to belongs to a result, and to nothing else")
	}
	if m.Media == "" || len(m.Media) > MaxMedia || m.Mode > ModeAsync {
		return malformed("CTX_HDR: media or mode out of range")
	}
	if m.Len == 0 || m.Len > MaxContext {
		return frame.Errorf(frame.LimitExceeded, "context of %d bytes, the limit is %d: put the rest behind a ContextURI", m.Len, MaxContext)
	}
	return nil
}
