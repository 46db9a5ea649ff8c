package wire

import "agentgw/internal/frame"

// Keepalive proves life and compares tables (PROTOCOL.md, "KEEPALIVE"). The table hash is there only while nothing that
// was sent waits for its acknowledgement.
//
//	KEEPALIVE { 1 epoch b8, 2 rib_seq, ? 3 table_hash b16, 4 applied, 5 ts_ms, ? 6 echo_ts_ms, 7 load, ? 8 lame,
//	            ? 9 trust, ? 10 pad }
type Keepalive struct {
	Epoch     ID8            `cbor:"1,keyasint"`
	RIBSeq    uint64         `cbor:"2,keyasint"`
	TableHash *ID16          `cbor:"3,keyasint,omitempty"`
	Applied   uint64         `cbor:"4,keyasint"` // the neighbour's rib_seq that I hold
	TimeMS    uint64         `cbor:"5,keyasint"`
	EchoMS    uint64         `cbor:"6,keyasint,omitempty"`
	Load      uint8          `cbor:"7,keyasint"`
	Lame      bool           `cbor:"8,keyasint,omitempty"`
	Trust     []TrustVersion `cbor:"9,keyasint,omitempty"`
	Pad       []byte         `cbor:"10,keyasint,omitempty"`
}

// FrameType implements [frame.Message].
func (*Keepalive) FrameType() frame.Type { return frame.Keepalive }

func (m *Keepalive) check() error {
	if len(m.Pad) > minAlive {
		return malformed("padding of %d octets is over its limit of %d", len(m.Pad), minAlive)
	}
	return checkTrust(m.Trust)
}

// Padded is m with as much padding as makes its frame 48 octets or more.
func (m Keepalive) Padded() (*Keepalive, error) {
	m.Pad = nil
	b, err := Append(nil, &m)
	if err != nil {
		return nil, err
	}
	if short := minAlive - len(b); short > 0 {
		m.Pad = make([]byte, max(1, short-2)) // key and head of the padding take two octets
	}
	return &m, nil
}
