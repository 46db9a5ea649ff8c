package wire

import "agentgw/internal/frame"

// Nack refuses one entry. An entry that could not be read has an empty origin and a zero key.
type Nack struct {
	_      struct{} `cbor:",toarray"`
	Origin string
	Key    ID16
	Code   frame.Code
	Msg    string
}

// Ack acknowledges the frames of one digest stream (PROTOCOL.md, "ACK").
//
//	ACK { 1 sess b8, 2 seq, 3 rib_seq, ? 4 nacks [[origin, key b16, code, msg]…], 5 credit }
type Ack struct {
	Sess   ID8    `cbor:"1,keyasint"` // the sender's nonce of the stream
	Seq    uint64 `cbor:"2,keyasint"` // cumulative
	RIBSeq uint64 `cbor:"3,keyasint"` // applied
	Nacks  []Nack `cbor:"4,keyasint,omitempty"`
	Credit uint64 `cbor:"5,keyasint"` // frames that may be unacknowledged
}

// FrameType implements [frame.Message].
func (*Ack) FrameType() frame.Type { return frame.Ack }

func (m *Ack) check() error {
	if len(m.Nacks) > MaxEntries {
		return malformed("%d nacks are over the limit of %d", len(m.Nacks), MaxEntries)
	}
	for _, n := range m.Nacks {
		if err := checkText("nack origin", n.Origin, MaxAIC); err != nil {
			return err
		}
		if err := checkText("nack message", n.Msg, MaxMessage); err != nil {
			return err
		}
	}
	return nil
}
