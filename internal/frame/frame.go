package frame

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Append appends one frame to b.
//
//	type varint │ length varint │ payload
func Append(b []byte, t Type, payload []byte) []byte {
	b = AppendVarint(b, uint64(t))
	b = AppendVarint(b, uint64(len(payload)))
	return append(b, payload...)
}

// Message is the payload of one frame: a struct with `keyasint` CBOR tags.
type Message interface{ FrameType() Type }

// AppendMessage appends m as a whole frame. An error means that our own message cannot be encoded or is over its limit.
func AppendMessage(b []byte, m Message) ([]byte, error) {
	payload, err := Marshal(m)
	if err != nil {
		return b, fmt.Errorf("encode %v: %w", m.FrameType(), err)
	}
	if limit := Limit(m.FrameType()); len(payload) > limit {
		return b, Errorf(FrameTooLarge, "%v of %d bytes is over its limit of %d", m.FrameType(), len(payload), limit)
	}
	return Append(b, m.FrameType(), payload), nil
}

// Reader reads frames from one stream. It is not safe for concurrent use.
type Reader struct {
	br  *bufio.Reader
	buf []byte
}

// NewReader makes a Reader that buffers r; after the last frame the rest of the stream is read through [Reader.Rest].
func NewReader(r io.Reader) *Reader { return &Reader{br: bufio.NewReaderSize(r, 2048)} }

// Rest is what follows the frames read so far: the raw body behind a CTX_HDR.
func (r *Reader) Rest() io.Reader { return r.br }

// Varint reads one varint, such as the stream type. io.EOF means that the stream ended before it.
func (r *Reader) Varint() (uint64, error) {
	first, err := r.br.ReadByte()
	if err != nil {
		return 0, err
	}
	var raw [8]byte
	raw[0] = first
	n := 1 << (first >> 6)
	if _, err := io.ReadFull(r.br, raw[1:n]); err != nil {
		return 0, noEOF(err)
	}
	v, _, err := ParseVarint(raw[:n])
	if err != nil {
		return 0, Errorf(Malformed, "%w", err)
	}
	return v, nil
}

// growBy is how far the buffer trusts a length field before bytes of that length have arrived.
const growBy = 16 << 10

// Next reads one frame. The payload is valid until the next call. io.EOF means that the stream ended between two frames.
// A frame over its limit is a [FrameTooLarge] error before anything is allocated for it.
func (r *Reader) Next() (Type, []byte, error) {
	v, err := r.Varint()
	if err != nil {
		return 0, nil, err
	}
	t := Type(v)
	n, err := r.Varint()
	if err != nil {
		return t, nil, noEOF(err)
	}
	if limit := Limit(t); n > uint64(limit) {
		return t, nil, Errorf(FrameTooLarge, "%v announces %d bytes, its limit is %d", t, n, limit)
	}
	r.buf = r.buf[:0]
	for left := int(n); left > 0; {
		step := min(left, growBy)
		start := len(r.buf)
		if cap(r.buf) < start+step {
			r.buf = append(r.buf, make([]byte, step)...)
		} else {
			r.buf = r.buf[:start+step]
		}
		if _, err := io.ReadFull(r.br, r.buf[start:]); err != nil {
			return t, nil, noEOF(err)
		}
		left -= step
	}
	return t, r.buf, nil
}

// Into reads the next frame into m, whose type it must have; optional frames that are unknown are skipped. Another type is
// an [UnexpectedFrame] error.
func (r *Reader) Into(m Message) error {
	for skipped := 0; ; skipped++ {
		t, payload, err := r.Next()
		if err != nil {
			return err
		}
		if t == m.FrameType() {
			return Unmarshal(payload, m)
		}
		if _, known := typeNames[t]; known || !t.Optional() || skipped == 16 {
			return Errorf(UnexpectedFrame, "got %v where %v was due", t, m.FrameType())
		}
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
