package wire

import "agentgw/internal/frame"

// Keepalive shows that the sender lives while a session is idle (a2a/PROTOCOL.md, "A2A_KEEPALIVE").
//
//	{1 ts_ms uint, 2 echo_ts_ms uint, 3 pad bstr}, the frame at least 48 bytes
//
// ts_ms is the sender's own clock and means nothing to the receiver, who sends the last one back as echo_ts_ms.
type Keepalive struct {
	TimestampMS uint64 `cbor:"1,keyasint"`
	EchoMS      uint64 `cbor:"2,keyasint,omitempty"`
	Pad         []byte `cbor:"3,keyasint,omitempty"`
}

// NewKeepalive makes a keepalive that is long enough to provoke a stateless reset from a peer that has restarted.
func NewKeepalive(timestampMS, echoMS uint64) *Keepalive {
	return &Keepalive{TimestampMS: timestampMS, EchoMS: echoMS, Pad: make([]byte, minLiveness)}
}

// FrameType says 0x8C.
func (*Keepalive) FrameType() frame.Type { return frame.A2AKeepalive }

func (m *Keepalive) check() error {
	if len(m.Pad) > MaxPad {
		return malformed("A2A_KEEPALIVE pads %d bytes, at most %d are of use", len(m.Pad), MaxPad)
	}
	return nil
}
