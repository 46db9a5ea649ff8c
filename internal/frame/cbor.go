package frame

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// Bounds of one payload. They bound what a decoder may allocate for a payload that is itself within its frame's limit.
const (
	maxDepth    = 8
	maxElements = 8192
	maxPairs    = 64
	critical    = 128 // keys from here on must be understood; this version defines none
)

var (
	encMode = must(cbor.CoreDetEncOptions().EncMode())
	decMode = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		MaxNestedLevels:   maxDepth,
		MaxArrayElements:  maxElements,
		MaxMapPairs:       maxPairs,
		NaN:               cbor.NaNDecodeForbidden,
		Inf:               cbor.InfDecodeForbidden,
		BignumTag:         cbor.BignumTagForbidden,
		UTF8:              cbor.UTF8RejectInvalid,
		ExtraReturnErrors: cbor.ExtraDecErrorNone,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // constant options: only a change of this file can bring it
	}
	return v
}

// Marshal encodes v, a struct with `keyasint` tags, in core deterministic encoding.
func Marshal(v any) ([]byte, error) { return encMode.Marshal(v) }

// Unmarshal decodes a payload into v. Unknown keys below 128 are ignored. The error is an [*Error] with code
// [Malformed] or [CriticalUnknown].
func Unmarshal(b []byte, v any) error {
	if err := Check(b); err != nil {
		return err
	}
	if err := decMode.Unmarshal(b, v); err != nil {
		return Errorf(Malformed, "payload does not fit its message: %w", err)
	}
	return nil
}

// Check walks b once without allocating and says whether it is one item of the form that this project's protocols use:
// deterministic CBOR of integers, byte and text strings, booleans, arrays, and maps with integer keys; depth, elements
// and pairs bounded; no key of 128 or above.
func Check(b []byte) error {
	rest, err := checkItem(b, 0)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return Errorf(Malformed, "%d bytes follow the payload", len(rest))
	}
	return nil
}

func checkItem(b []byte, depth int) (rest []byte, err error) {
	if depth > maxDepth {
		return nil, Errorf(Malformed, "nested deeper than %d levels", maxDepth)
	}
	major, arg, rest, err := checkHead(b)
	if err != nil {
		return nil, err
	}
	switch major {
	case 0, 1:
		return rest, nil
	case 2, 3:
		if arg > uint64(len(rest)) {
			return nil, Errorf(Malformed, "string of %d bytes, %d are left", arg, len(rest))
		}
		if major == 3 && !utf8.Valid(rest[:arg]) {
			return nil, Errorf(Malformed, "text is not UTF-8")
		}
		return rest[arg:], nil
	case 4:
		if arg > maxElements {
			return nil, Errorf(Malformed, "array of %d elements, the limit is %d", arg, maxElements)
		}
		for ; arg > 0; arg-- {
			if rest, err = checkItem(rest, depth+1); err != nil {
				return nil, err
			}
		}
		return rest, nil
	case 5:
		return checkMap(rest, arg, depth)
	case 7:
		if arg == 20 || arg == 21 {
			return rest, nil
		}
	}
	return nil, Errorf(Malformed, "item 0x%02x has no place in a payload", b[0])
}

func checkMap(b []byte, pairs uint64, depth int) (rest []byte, err error) {
	if pairs > maxPairs {
		return nil, Errorf(Malformed, "map of %d pairs, the limit is %d", pairs, maxPairs)
	}
	rest = b
	var last []byte
	for i := uint64(0); i < pairs; i++ {
		major, arg, after, err := checkHead(rest)
		if err != nil {
			return nil, err
		}
		if major > 1 {
			return nil, Errorf(Malformed, "map key is not an integer")
		}
		if major == 0 && arg >= critical {
			return nil, Errorf(CriticalUnknown, "key %d must be understood and is not known here", arg)
		}
		key := rest[:len(rest)-len(after)]
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return nil, Errorf(Malformed, "map keys are not sorted, or repeat")
		}
		last = key
		if rest, err = checkItem(after, depth+1); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// checkHead reads one item head and insists on its shortest form. Indefinite lengths and reserved values are refused.
func checkHead(b []byte) (major byte, arg uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, 0, nil, Errorf(Malformed, "payload is cut short")
	}
	major, info := b[0]>>5, b[0]&0x1f
	b = b[1:]
	if info < 24 {
		return major, uint64(info), b, nil
	}
	if info > 27 || major == 7 {
		return 0, 0, nil, Errorf(Malformed, "item 0x%02x has no place in a payload", major<<5|info)
	}
	n := 1 << (info - 24)
	if len(b) < n {
		return 0, 0, nil, Errorf(Malformed, "payload is cut short")
	}
	var raw [8]byte
	copy(raw[8-n:], b[:n])
	arg = binary.BigEndian.Uint64(raw[:])
	if arg < 24 || n > 1 && arg>>(4*n) == 0 {
		return 0, 0, nil, Errorf(Malformed, "integer is not in its shortest form")
	}
	return major, arg, b[n:], nil
}

// Raw is an encoded item that passes through unread, so that what was signed over it stays the same bytes.
type Raw = cbor.RawMessage
