package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"agentgw/internal/frame"
)

// The backup file. Numbers are most significant octet first.
//
//	magic   8 octets: "AGWBKUP" and the version of the format, 1
//	header  uint32 length, then the Header as CBOR
//	chunk   uint32 length, not 0, then records of uvarint length and key, uvarint length and value; keys ascend through the file
//	…
//	end     uint32 0, then uint64 number of records
//	trailer SHA-256 of everything before it
//
// Nothing follows the trailer. The content is not encrypted, wherever the database is: it has entries, hashes of tokens, no keys.
const (
	backupMagic     = "AGWBKUP\x01"
	maxBackupHeader = 4 << 10
	chunkTarget     = 256 << 10 // a chunk is closed when it is as long
	maxChunk        = 8 << 20   // the longest record is far below
	maxKey          = 65_000    // Badger's own
)

// Header is what a backup says of itself.
type Header struct {
	Created    time.Time // milliseconds
	Domain     string
	Gateway    string   // AIC
	AuditCount uint64   // lines of the audit log when the backup was begun: what came later has to be applied again
	AuditHash  [32]byte // of the last of them
	Schema     uint64   // of the keys and values; set by Backup
}

type wireHeader struct {
	CreatedMS  uint64 `cbor:"1,keyasint"`
	Domain     string `cbor:"2,keyasint"`
	Gateway    string `cbor:"3,keyasint"`
	AuditCount uint64 `cbor:"4,keyasint"`
	AuditHash  []byte `cbor:"5,keyasint"`
	Schema     uint64 `cbor:"6,keyasint"`
}

// EncodeHeader is the header as CBOR.
func EncodeHeader(h Header) ([]byte, error) {
	return frame.Marshal(wireHeader{uint64(max(h.Created.UnixMilli(), 0)), h.Domain, h.Gateway, h.AuditCount, h.AuditHash[:], h.Schema})
}

// DecodeHeader reads what [EncodeHeader] made, as the named value [MetaRecovering] has it.
func DecodeHeader(b []byte) (Header, error) {
	var w wireHeader
	if err := frame.Unmarshal(b, &w); err != nil {
		return Header{}, fmt.Errorf("header of a backup: %w", err)
	}
	if len(w.AuditHash) != 32 || w.CreatedMS > 1<<50 {
		return Header{}, errors.New("header of a backup: a hash of 32 octets and a time are due")
	}
	return Header{time.UnixMilli(int64(w.CreatedMS)).UTC(), w.Domain, w.Gateway, w.AuditCount, [32]byte(w.AuditHash), w.Schema}, nil
}

// Backup writes the whole database to w, in the state of one moment after it is called; writes go on meanwhile. The mark of the audit
// log in h must be taken before, so that nothing is missed between the two. w should be a file: old versions are kept until it is done, and
// Close waits. Only a file whose Backup returned nil is a backup; that it is synced and named is the caller's.
func (s *Store) Backup(ctx context.Context, w io.Writer, h Header) error {
	h.Schema = schema
	header, err := EncodeHeader(h)
	if err == nil && len(header) > maxBackupHeader {
		err = fmt.Errorf("header of %d octets, the limit is %d", len(header), maxBackupHeader)
	}
	if err != nil {
		return fmt.Errorf("back up the directory database: %w", err)
	}
	b := newBackupWriter(w)
	b.bytes([]byte(backupMagic))
	b.block(header)
	err = s.read(func(r reader) error {
		return r.scan("", func(key, value []byte) error {
			if err := b.record(key, value); err != nil {
				return err
			}
			return ctx.Err()
		})
	})
	if err == nil {
		err = b.finish()
	}
	if err != nil {
		return fmt.Errorf("back up the directory database: %w", err)
	}
	return nil
}

// backupWriter hashes what it writes. After an error it writes nothing more.
type backupWriter struct {
	out   *bufio.Writer
	sum   hash.Hash
	chunk []byte
	count uint64
	err   error
}

func newBackupWriter(w io.Writer) *backupWriter {
	return &backupWriter{out: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
}

func (b *backupWriter) bytes(p []byte) {
	if b.err == nil {
		b.sum.Write(p)
		_, b.err = b.out.Write(p)
	}
}

// block writes a length and as many octets.
func (b *backupWriter) block(p []byte) {
	b.bytes(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
	b.bytes(p)
}

func (b *backupWriter) record(key, value []byte) error {
	b.count++
	b.chunk = binary.AppendUvarint(b.chunk, uint64(len(key)))
	b.chunk = append(b.chunk, key...)
	b.chunk = binary.AppendUvarint(b.chunk, uint64(len(value)))
	b.chunk = append(b.chunk, value...)
	switch {
	case len(b.chunk) > maxChunk:
		return fmt.Errorf("record %q of %d octets, the limit is %d", key, len(b.chunk), maxChunk)
	case len(b.chunk) >= chunkTarget:
		b.flush()
	}
	return b.err
}

func (b *backupWriter) flush() {
	if len(b.chunk) > 0 {
		b.block(b.chunk)
		b.chunk = b.chunk[:0]
	}
}

func (b *backupWriter) finish() error {
	b.flush()
	b.bytes(make([]byte, 4))
	b.bytes(binary.BigEndian.AppendUint64(nil, b.count))
	b.bytes(b.sum.Sum(nil))
	if b.err != nil {
		return b.err
	}
	return b.out.Flush()
}

// CheckBackup reads a whole backup and says whether it is one, unharmed, that this program can restore.
func CheckBackup(r io.Reader) (Header, error) {
	h, _, err := readBackup(r, func(_, _ []byte) error { return nil })
	return h, err
}

// readBackup reads a backup and visits its records in order. Nothing that visit was shown counts before it returns nil. The slices are
// visit's to keep.
func readBackup(r io.Reader, visit func(key, value []byte) error) (h Header, sum [32]byte, err error) {
	b := &backupReader{in: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	if h, err = b.header(); err != nil {
		return h, sum, damagedBackup(err)
	}
	if h.Schema != schema {
		return h, sum, fmt.Errorf("the backup is of schema %d, and this program reads %d; restore it with the program that wrote it", h.Schema, schema)
	}
	for {
		chunk, err := b.block(maxChunk)
		if err != nil {
			return h, sum, damagedBackup(err)
		}
		if len(chunk) == 0 {
			break
		}
		if err := b.records(chunk, visit); err != nil {
			return h, sum, err
		}
	}
	sum, err = b.end()
	if err != nil {
		return h, sum, damagedBackup(err)
	}
	return h, sum, nil
}

// damagedBackup says of what is wrong that it is the file.
func damagedBackup(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	return fmt.Errorf("the backup is damaged or cut; use another one: %w", err)
}

// backupReader hashes what it reads.
type backupReader struct {
	in    *bufio.Reader
	sum   hash.Hash
	last  []byte // key
	count uint64
}

// bytes reads n octets. They are allocated as they come, for n is what the file claims.
func (b *backupReader) bytes(n int) ([]byte, error) {
	p := bytes.NewBuffer(make([]byte, 0, min(n, 64<<10)))
	if _, err := io.CopyN(p, b.in, int64(n)); err != nil {
		return nil, err
	}
	b.sum.Write(p.Bytes())
	return p.Bytes(), nil
}

func (b *backupReader) block(limit uint32) ([]byte, error) {
	head, err := b.bytes(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > limit {
		return nil, fmt.Errorf("it has a piece of %d octets, the limit is %d", n, limit)
	}
	return b.bytes(int(n))
}

func (b *backupReader) header() (Header, error) {
	magic, err := b.bytes(len(backupMagic))
	if err != nil {
		return Header{}, err
	}
	if string(magic) != backupMagic {
		return Header{}, errors.New("it does not begin as a backup of this version does")
	}
	raw, err := b.block(maxBackupHeader)
	if err != nil {
		return Header{}, err
	}
	return DecodeHeader(raw)
}

func (b *backupReader) records(chunk []byte, visit func(key, value []byte) error) error {
	for len(chunk) > 0 {
		key, rest, ok := cutPiece(chunk)
		value, rest, ok2 := cutPiece(rest)
		if !ok || !ok2 || len(key) == 0 || len(key) > maxKey || b.count > 0 && bytes.Compare(key, b.last) <= 0 {
			return damagedBackup(fmt.Errorf("record %d is malformed, or not after the one before it", b.count+1))
		}
		b.last, chunk = key, rest
		b.count++
		if err := visit(key, value); err != nil {
			return err
		}
	}
	return nil
}

// cutPiece cuts a length and as many octets off.
func cutPiece(b []byte) (piece, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	end := w + int(n)
	return b[w:end:end], b[end:], true
}

func (b *backupReader) end() (sum [32]byte, err error) {
	count, err := b.bytes(8)
	if err != nil {
		return sum, err
	}
	if n := binary.BigEndian.Uint64(count); n != b.count {
		return sum, fmt.Errorf("it says that it has %d records, and has %d", n, b.count)
	}
	b.sum.Sum(sum[:0])
	trailer, err := b.bytes(len(sum))
	if err != nil {
		return sum, err
	}
	if [32]byte(trailer) != sum {
		return sum, errors.New("its checksum does not fit")
	}
	if _, err := b.in.ReadByte(); !errors.Is(err, io.EOF) {
		return sum, errors.Join(errors.New("something follows its end"), err)
	}
	return sum, nil
}
