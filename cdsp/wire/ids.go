package wire

import (
	"encoding/hex"

	"agentgw/internal/frame"
)

// ID8 is a byte string of exactly 8 octets: an epoch or a stream nonce.
type ID8 [8]byte

// ID16 is a byte string of exactly 16 octets: an item key, a batch hash, a content hash, a table hash, a boot id.
type ID16 [16]byte

const bstr = 0x40 // CBOR major type 2 with a length below 24

// String is the id in lower-case hexadecimal.
func (id ID8) String() string { return hex.EncodeToString(id[:]) }

// String is the id in lower-case hexadecimal.
func (id ID16) String() string { return hex.EncodeToString(id[:]) }

// MarshalCBOR encodes the id as a byte string.
func (id ID8) MarshalCBOR() ([]byte, error) { return append([]byte{bstr | 8}, id[:]...), nil }

// MarshalCBOR encodes the id as a byte string.
func (id ID16) MarshalCBOR() ([]byte, error) { return append([]byte{bstr | 16}, id[:]...), nil }

// UnmarshalCBOR accepts a byte string of 8 octets and nothing else.
func (id *ID8) UnmarshalCBOR(b []byte) error { return unmarshalID(id[:], b) }

// UnmarshalCBOR accepts a byte string of 16 octets and nothing else.
func (id *ID16) UnmarshalCBOR(b []byte) error { return unmarshalID(id[:], b) }

func unmarshalID(id, b []byte) error {
	if len(b) != len(id)+1 || b[0] != bstr|byte(len(id)) {
		return frame.Errorf(frame.Malformed, "id is not a byte string of %d octets", len(id))
	}
	copy(id, b[1:])
	return nil
}

// XOR folds other into id; a table hash is the XOR of its entries' hashes.
func (id *ID16) XOR(other ID16) {
	for i := range id {
		id[i] ^= other[i]
	}
}
