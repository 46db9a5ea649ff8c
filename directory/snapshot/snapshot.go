// Package snapshot is the file in which a gateway keeps what it has made of its directory between a clean stop and the next start: blocks of
// octets, each checked, under a header that says what they are of. It knows nothing of their content.
//
//	magic   8 octets: "AGWSNAP" and the version of the format, 1
//	header  a block of kind 255: the Header, as CBOR
//	block   uint32 length, uint32 CRC-32C, then as many octets: the kind, 1 to 254, and the body
//	…
//	end     a block of kind 0: uint64 number of the blocks between
//
// Numbers are most significant octet first; the CRC covers length and octets, nothing follows the end. With a key each body, but for the header's, is
// sealed with AES-256-GCM: the key is HKDF-SHA-256 of the database's with the header's ID as salt, the nonce the block's number, the kind and the
// header are authenticated with it.
//
// The contract: a snapshot only saves time. Whoever reads one takes any error for "there is none" and reads the store. What [Reader.Next]
// returned counts once it has returned io.EOF. Reading allocates what the file has, and never what it claims.
//
// The package is pure. A [Writer] or [Reader] is for one goroutine.
package snapshot

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"agentgw/internal/frame"
)

const (
	magic     = "AGWSNAP\x01"
	headSize  = 8 // of a block
	kindEnd   = 0
	kindHead  = 255
	maxHeader = 4 << 10
	// MaxBody is the longest body of a block, in octets.
	MaxBody = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says what a snapshot is of.
type Header struct {
	ID       [16]byte // random; the store knows the one that it goes with
	Sequence uint64   // of the store's last change
	Entries  uint64
	Matcher  string // what the content was made by; another one's is of no use
}

type wireHeader struct {
	ID       []byte `cbor:"1,keyasint"`
	Sequence uint64 `cbor:"2,keyasint"`
	Entries  uint64 `cbor:"3,keyasint"`
	Matcher  string `cbor:"4,keyasint"`
}

func parseHeader(b []byte) (Header, error) {
	var w wireHeader
	if err := frame.Unmarshal(b, &w); err != nil {
		return Header{}, err
	}
	if len(w.ID) != 16 {
		return Header{}, fmt.Errorf("an id of %d octets", len(w.ID))
	}
	return Header{[16]byte(w.ID), w.Sequence, w.Entries, w.Matcher}, nil
}

// sealer seals and opens the bodies of one snapshot; nil leaves them as they are.
type sealer struct {
	aead cipher.AEAD
	aad  []byte // the header, and the kind behind it
}

func newSealer(key []byte, id [16]byte, header []byte) (*sealer, error) {
	if len(key) == 0 {
		return nil, nil
	}
	derived, err := hkdf.Key(sha256.New, key, id[:], "agentgw index snapshot", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &sealer{aead, append(bytes.Clone(header), 0)}, err
}

func (s *sealer) about(kind byte, number uint64) (nonce, aad []byte) {
	s.aad[len(s.aad)-1] = kind
	return binary.BigEndian.AppendUint64(make([]byte, 4, 12), number), s.aad
}

// Writer writes one snapshot.
type Writer struct {
	to    io.Writer
	seal  *sealer
	count uint64
	buf   []byte
}

// NewWriter begins a snapshot. The key is the database's, empty where that is not encrypted; the header's ID must be another one for each snapshot.
func NewWriter(to io.Writer, h Header, key []byte) (*Writer, error) {
	raw, err := frame.Marshal(wireHeader{h.ID[:], h.Sequence, h.Entries, h.Matcher})
	if err != nil {
		return nil, err
	}
	if len(raw) > maxHeader {
		return nil, fmt.Errorf("header of %d octets, the limit is %d", len(raw), maxHeader)
	}
	w := &Writer{to: to}
	if _, err := io.WriteString(to, magic); err != nil {
		return nil, err
	}
	if err := w.put(kindHead, raw); err != nil {
		return nil, err
	}
	w.seal, err = newSealer(key, h.ID, raw)
	return w, err
}

// Block writes one block of a kind from 1 to 254. The body is not kept.
func (w *Writer) Block(kind byte, body []byte) error {
	if kind == kindEnd || kind == kindHead || len(body) > MaxBody {
		return fmt.Errorf("block of kind %d with %d octets, the limit is %d", kind, len(body), MaxBody)
	}
	w.count++
	return w.put(kind, body)
}

// Close writes the end; without it nothing counts.
func (w *Writer) Close() error {
	return w.put(kindEnd, binary.BigEndian.AppendUint64(nil, w.count))
}

func (w *Writer) put(kind byte, body []byte) error {
	w.buf = append(w.buf[:0], make([]byte, headSize)...)
	w.buf = append(w.buf, kind)
	if w.seal == nil {
		w.buf = append(w.buf, body...)
	} else {
		nonce, aad := w.seal.about(kind, w.count)
		w.buf = w.seal.aead.Seal(w.buf, nonce, body, aad)
	}
	binary.BigEndian.PutUint32(w.buf, uint32(len(w.buf)-headSize))
	sum := crc32.Update(crc32.Checksum(w.buf[:4], castagnoli), castagnoli, w.buf[headSize:])
	binary.BigEndian.PutUint32(w.buf[4:], sum)
	_, err := w.to.Write(w.buf)
	return err
}

// ErrDamaged is the error of a file that is no whole snapshot of this format, or under another key.
var ErrDamaged = errors.New("the snapshot is damaged, cut or of another program")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// Reader reads one snapshot.
type Reader struct {
	from  io.Reader
	seal  *sealer
	count uint64
	ended bool
}

// NewReader reads the beginning of a snapshot.
func NewReader(from io.Reader, key []byte) (*Reader, Header, error) {
	r := &Reader{from: from}
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(from, begin); err != nil || string(begin) != magic {
		return nil, Header{}, damaged("it does not begin as one of this version does")
	}
	kind, raw, err := r.block(nil, maxHeader)
	if err != nil {
		return nil, Header{}, err
	}
	if kind != kindHead {
		return nil, Header{}, damaged("it has no header")
	}
	h, err := parseHeader(raw)
	if err != nil {
		return nil, Header{}, damaged("header: %w", err)
	}
	r.seal, err = newSealer(key, h.ID, raw)
	return r, h, err
}

// Next is the next block, and io.EOF at the end of a whole snapshot. The body is in buf where that has room for it.
func (r *Reader) Next(buf []byte) (kind byte, body []byte, err error) {
	if r.ended {
		return 0, nil, io.EOF
	}
	kind, body, err = r.block(buf, MaxBody)
	if err != nil {
		return 0, nil, err
	}
	switch kind {
	case kindHead:
		return 0, nil, damaged("a second header")
	case kindEnd:
		if len(body) != 8 || binary.BigEndian.Uint64(body) != r.count {
			return 0, nil, damaged("its end does not fit its %d blocks", r.count)
		}
		if n, err := io.ReadFull(r.from, make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			return 0, nil, damaged("something follows its end")
		}
		r.ended = true
		return 0, nil, io.EOF
	}
	return kind, body, nil
}

// readStep is how much is allocated ahead of what has come.
const readStep = 256 << 10

func (r *Reader) block(buf []byte, limit int) (kind byte, body []byte, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return 0, nil, damaged("it ends too early")
	}
	n, overhead := int(binary.BigEndian.Uint32(head[:])), 1
	if r.seal != nil {
		overhead += r.seal.aead.Overhead()
	}
	if n < overhead || n > limit+overhead {
		return 0, nil, damaged("a block of %d octets", n)
	}
	stored := buf[:0]
	for len(stored) < n {
		step := min(n-len(stored), max(readStep, cap(stored)-len(stored)))
		at := len(stored)
		stored = append(stored, make([]byte, step)...)
		if _, err := io.ReadFull(r.from, stored[at:]); err != nil {
			return 0, nil, damaged("it ends too early")
		}
	}
	if sum := crc32.Update(crc32.Checksum(head[:4], castagnoli), castagnoli, stored); sum != binary.BigEndian.Uint32(head[4:]) {
		return 0, nil, damaged("the checksum of block %d does not fit", r.count+1)
	}
	kind, body = stored[0], stored[1:]
	if kind != kindEnd && kind != kindHead {
		r.count++
	}
	if r.seal != nil {
		nonce, aad := r.seal.about(kind, r.count)
		if body, err = r.seal.aead.Open(body[:0], nonce, body, aad); err != nil {
			return 0, nil, damaged("block %d was sealed with another key", r.count)
		}
	}
	return kind, body, nil
}
