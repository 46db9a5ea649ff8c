package frame

import (
	"errors"
	"math/bits"
)

// MaxVarint is the largest value that a QUIC varint holds.
const MaxVarint = 1<<62 - 1

var errVarint = errors.New("varint is cut short")

// AppendVarint appends v as a QUIC varint (RFC 9000, section 16) in its shortest form. It panics above [MaxVarint]: no
// value of ours comes near it.
func AppendVarint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<6:
		return append(b, byte(v))
	case v < 1<<14:
		return append(b, 0x40|byte(v>>8), byte(v))
	case v < 1<<30:
		return append(b, 0x80|byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	case v <= MaxVarint:
		return append(b, 0xc0|byte(v>>56), byte(v>>48), byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	panic("frame: varint out of range")
}

// ParseVarint reads one QUIC varint and returns the bytes it took. Longer spellings than needed are refused: one
// value has one encoding.
func ParseVarint(b []byte) (v uint64, n int, err error) {
	if len(b) == 0 {
		return 0, 0, errVarint
	}
	n = 1 << (b[0] >> 6)
	if len(b) < n {
		return 0, 0, errVarint
	}
	v = uint64(b[0] & 0x3f)
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	if n != varintLen(v) {
		return 0, 0, errors.New("varint is not in its shortest form")
	}
	return v, n, nil
}

func varintLen(v uint64) int {
	switch l := bits.Len64(v); {
	case l <= 6:
		return 1
	case l <= 14:
		return 2
	case l <= 30:
		return 4
	}
	return 8
}
