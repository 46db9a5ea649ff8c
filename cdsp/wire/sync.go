package wire

import "agentgw/internal/frame"

// SyncBegin is the first frame of every digest stream (PROTOCOL.md, "Digest stream").
//
//	SYNC_BEGIN { 1 sess b8, 2 mode, 3 epoch b8, 4 base, 5 target }
type SyncBegin struct {
	Sess   ID8    `cbor:"1,keyasint"` // nonce of this stream, echoed in every ACK of it
	Mode   Mode   `cbor:"2,keyasint"`
	Epoch  ID8    `cbor:"3,keyasint"`
	Base   uint64 `cbor:"4,keyasint"` // rib_seq from which a delta starts
	Target uint64 `cbor:"5,keyasint"` // rib_seq at the time of the start
}

// FrameType implements [frame.Message].
func (*SyncBegin) FrameType() frame.Type { return frame.SyncBegin }

func (m *SyncBegin) check() error { return checkMode(m.Mode) }

// SyncEnd follows the last entry of the first exchange; live ENTRIES follow it (PROTOCOL.md, "Digest stream").
//
//	SYNC_END { 1 seq, 2 rib_seq, 3 count, 4 table_hash b16 }
type SyncEnd struct {
	Seq       uint64 `cbor:"1,keyasint"` // counts on from the ENTRIES frames
	RIBSeq    uint64 `cbor:"2,keyasint"`
	Count     uint64 `cbor:"3,keyasint"` // entries that stand
	TableHash ID16   `cbor:"4,keyasint"`
}

// FrameType implements [frame.Message].
func (*SyncEnd) FrameType() frame.Type { return frame.SyncEnd }

func (*SyncEnd) check() error { return nil }
