package wire

import (
	"github.com/fxamacker/cbor/v2"

	"agentgw/internal/frame"
)

// Entries carries changes of the sender's table, and the batches that they use for the first time on this stream
// (PROTOCOL.md, "ENTRIES"). Entries stay raw here: each is parsed, and refused, for itself.
//
//	ENTRIES { 1 seq, 2 rib_seq, ? 3 [entry…], ? 4 [batch bstr…] }
type Entries struct {
	Seq     uint64            `cbor:"1,keyasint"` // +1 a frame, from 1
	RIBSeq  uint64            `cbor:"2,keyasint"` // every change up to it was sent or superseded
	Entries []cbor.RawMessage `cbor:"3,keyasint,omitempty"`
	Batches [][]byte          `cbor:"4,keyasint,omitempty"`
}

// FrameType implements [frame.Message].
func (*Entries) FrameType() frame.Type { return frame.Entries }

func (m *Entries) check() error {
	if len(m.Entries) > MaxEntries {
		return malformed("%d entries are over the limit of %d", len(m.Entries), MaxEntries)
	}
	if len(m.Batches) > MaxEntries {
		return malformed("%d batches are over the limit of %d", len(m.Batches), MaxEntries)
	}
	return nil
}

// Op is what an entry does.
type Op uint8

// The operations; 3 (TOUCH) is reserved.
const (
	OpPut     Op = 0
	OpDel     Op = 1 // the origin's signed tombstone
	OpUnreach Op = 2 // the sender has no route any more; unsigned
)

// Attrs are what the path adds to an item.
type Attrs struct {
	HopsLeft uint8  `cbor:"1,keyasint"`
	Stale    bool   `cbor:"2,keyasint,omitempty"`
	MetricMS uint32 `cbor:"3,keyasint,omitempty"`
}

// Entry is one change (PROTOCOL.md, "Entry").
//
//	PUT, DEL  [op, [bhash b16, index], path [domain…], {1 hops_left, ? 2 stale, ? 3 metric}]
//	UNREACH   [2, [origin, key b16]]
type Entry struct {
	Op     Op
	Batch  ID16 // PUT, DEL
	Index  uint16
	Path   []string // nearest domain first, the origin's domain last
	Attrs  Attrs
	Origin string // UNREACH: gateway
	Key    ID16
}

type itemRef struct {
	_     struct{} `cbor:",toarray"`
	Batch ID16
	Index uint16
}

type keyRef struct {
	_      struct{} `cbor:",toarray"`
	Origin string
	Key    ID16
}

type fullEntry struct {
	_     struct{} `cbor:",toarray"`
	Op    Op
	Ref   itemRef
	Path  []string
	Attrs Attrs
}

type shortEntry struct {
	_   struct{} `cbor:",toarray"`
	Op  Op
	Ref keyRef
}

// Append appends the entry's bytes.
func (e Entry) Append(b []byte) ([]byte, error) {
	var v any
	if e.Op == OpUnreach {
		v = shortEntry{Op: e.Op, Ref: keyRef{Origin: e.Origin, Key: e.Key}}
	} else {
		path := e.Path
		if path == nil {
			path = []string{} // null has no place in a payload
		}
		v = fullEntry{Op: e.Op, Ref: itemRef{Batch: e.Batch, Index: e.Index}, Path: path, Attrs: e.Attrs}
	}
	raw, err := frame.Marshal(v)
	return append(b, raw...), err
}

// ParseEntry reads one entry of an ENTRIES frame. The error is [frame.Malformed], or [frame.BadPath] for a path that is
// too long.
func ParseEntry(raw []byte) (Entry, error) {
	if len(raw) < 2 {
		return Entry{}, malformed("entry is cut short")
	}
	op := Op(raw[1])
	switch op {
	case OpPut, OpDel:
		return parseFull(raw)
	case OpUnreach:
		return parseShort(raw)
	}
	return Entry{}, malformed("entry has the unknown operation 0x%02x", raw[1])
}

func parseFull(raw []byte) (Entry, error) {
	var w fullEntry
	if err := frame.Unmarshal(raw, &w); err != nil {
		return Entry{}, err
	}
	if w.Ref.Index >= MaxItems {
		return Entry{}, malformed("item index %d is over the limit of %d", w.Ref.Index, MaxItems)
	}
	e := Entry{Op: w.Op, Batch: w.Ref.Batch, Index: w.Ref.Index, Path: w.Path, Attrs: w.Attrs}
	if len(e.Path) > MaxPath {
		return e, frame.Errorf(frame.BadPath, "path of %d domains is over the limit of %d", len(e.Path), MaxPath)
	}
	for _, d := range e.Path {
		if err := checkName("domain in a path", d, MaxDomain); err != nil {
			return e, err
		}
	}
	return e, nil
}

func parseShort(raw []byte) (Entry, error) {
	var w shortEntry
	if err := frame.Unmarshal(raw, &w); err != nil {
		return Entry{}, err
	}
	if err := checkName("entry origin", w.Ref.Origin, MaxAIC); err != nil {
		return Entry{}, err
	}
	return Entry{Op: w.Op, Origin: w.Ref.Origin, Key: w.Ref.Key}, nil
}

// entryRoom is what the head of an ENTRIES frame and the growth of its arrays may take.
const entryRoom = 64

// Builder fills one ENTRIES frame and knows when it is full.
type Builder struct {
	Frame Entries
	size  int
}

// Fits says whether an entry of n octets and, where it is not nil, a batch still fit.
func (b *Builder) Fits(n int, batch []byte) bool {
	if len(b.Frame.Entries) == MaxEntries || len(b.Frame.Batches) == MaxEntries {
		return false
	}
	return b.size+n+len(batch)+8 <= frame.MaxDigest-entryRoom
}

// Add adds an entry and, where it is not nil, the batch that it uses first.
func (b *Builder) Add(raw, batch []byte) {
	b.Frame.Entries = append(b.Frame.Entries, raw)
	b.size += len(raw)
	if batch != nil {
		b.Frame.Batches = append(b.Frame.Batches, batch)
		b.size += len(batch) + 8
	}
}

// Size is about how many octets the frame takes.
func (b *Builder) Size() int { return b.size + entryRoom }
