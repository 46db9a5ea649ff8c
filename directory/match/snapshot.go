package match

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"agentgw/directory/match/table"
	"agentgw/directory/snapshot"
	"agentgw/directory/taxonomy"
)

// snapshotFormat is the version of the blocks below and of what is in them: tokeniser, stemmer, field weights. A change of any takes the next
// number; TestSnapshotFormat notices one.
const snapshotFormat = 1

// SnapshotID says what a snapshot of this program's index was made by: format, embedder and taxonomy. One of another ID is of no use.
func SnapshotID() string {
	id := table.Builtin.ID()
	return fmt.Sprintf("match/%d %s %s", snapshotFormat, hex.EncodeToString(id[:8]), taxonomy.Version)
}

// The blocks of a snapshot, segment by segment: one of kind BlockSegment, then its documents, terms and pairs. Numbers are uvarints, a text is its
// length and its octets, a list is 0 for none at all or its length plus one and its elements.
//
//	BlockSegment  number of documents, of terms and of pairs; the last two may be more than come
//	BlockDocs     number, dimensions; of each: capability, normalised tags, length in tenths, pairs, scale (float32, little-endian), vector (int8)
//	BlockTerms    number; of each: term, number of postings; of each: distance to the document before, weight in tenths, fields (one octet)
//	BlockPairs    the same
//
// A term with many postings may come again with the next ones. Dead documents are left out.
const (
	BlockSegment = 16 + iota
	BlockDocs
	BlockTerms
	BlockPairs
)

const (
	blockTarget = 512 << 10 // octets, after which a block is closed
	maxRun      = 64 << 10  // postings of a term in one go
	maxDim      = table.MaxDim
)

// Snapshot hands the index out in blocks, in order, as it is when it is called. put must not keep a body. An error of put ends it.
func (x *Index) Snapshot(put func(kind byte, body []byte) error) error {
	for _, p := range x.view().parts {
		if p.live == 0 {
			continue
		}
		w := partWriter{part: p, put: put}
		if err := w.write(); err != nil {
			return err
		}
	}
	return nil
}

type partWriter struct {
	*part
	put   func(kind byte, body []byte) error
	body  []byte // of the block at hand, without its head
	count int
	moved []uint32
}

func (w *partWriter) write() error {
	head := binary.AppendUvarint(nil, uint64(w.live))
	head = binary.AppendUvarint(binary.AppendUvarint(head, uint64(len(w.terms))), uint64(len(w.pairs)))
	if err := w.put(BlockSegment, head); err != nil {
		return err
	}
	if err := w.writeDocs(); err != nil {
		return err
	}
	if err := w.writePostings(BlockTerms, w.terms); err != nil {
		return err
	}
	return w.writePostings(BlockPairs, w.pairs)
}

// flush closes the block at hand where it is long enough, or in any case.
func (w *partWriter) flush(kind byte, always bool, head ...uint64) error {
	if w.count == 0 || len(w.body) < blockTarget && !always {
		return nil
	}
	block := binary.AppendUvarint(make([]byte, 0, len(w.body)+20), uint64(w.count))
	for _, n := range head {
		block = binary.AppendUvarint(block, n)
	}
	err := w.put(kind, append(block, w.body...))
	w.body, w.count = w.body[:0], 0
	return err
}

func (w *partWriter) writeDocs() error {
	w.moved = make([]uint32, len(w.docs))
	next := uint32(0)
	dim := uint64(w.vecs.dim)
	for id := range w.docs {
		if w.isDead(uint32(id)) {
			continue
		}
		w.moved[id] = next
		next++
		w.count++
		w.body = appendDocument(w.body, &w.docs[id], w.sizes[id])
		w.body = binary.LittleEndian.AppendUint32(w.body, math.Float32bits(w.vecs.scales[id]))
		w.body = w.vecs.appendComponents(w.body, uint32(id))
		if err := w.flush(BlockDocs, false, dim); err != nil {
			return err
		}
	}
	return w.flush(BlockDocs, true, dim)
}

func (w *partWriter) writePostings(kind byte, of map[string][]posting) error {
	for term, list := range of {
		for run := range slices.Chunk(list, maxRun) {
			n := w.alive(run)
			if n == 0 {
				continue
			}
			w.count++
			w.body = snapshot.AppendText(w.body, term)
			w.body = binary.AppendUvarint(w.body, uint64(n))
			last := uint32(0)
			for _, e := range run {
				if w.isDead(e.doc) {
					continue
				}
				w.body = binary.AppendUvarint(w.body, uint64(w.moved[e.doc]-last))
				w.body = append(binary.AppendUvarint(w.body, uint64(e.weight)), e.fields)
				last = w.moved[e.doc]
			}
			if err := w.flush(kind, false); err != nil {
				return err
			}
		}
	}
	return w.flush(kind, true)
}

func appendDocument(b []byte, d *document, n size) []byte {
	c := &d.cap
	for _, s := range [...]string{c.AIC, c.CapID, c.SkillID, c.Name, c.Description, c.Parameters, c.AgentName, c.AgentDescription, c.Provider, c.ACSVersion} {
		b = snapshot.AppendText(b, s)
	}
	for _, l := range [...][]string{c.Tags, c.Classes, c.Examples, c.In, c.Out, d.tags} {
		b = snapshot.AppendList(b, l)
	}
	b = binary.AppendUvarint(b, c.EntryVersion)
	b = binary.AppendUvarint(b, uint64(n.length))
	return binary.AppendUvarint(b, uint64(n.bigrams))
}

var errBlock = errors.New("a block of the index snapshot is malformed")

// Piece is a block on its way into an index.
type Piece struct {
	kind    byte
	segment *segment
	from    int // documents of the segment before it
	count   int // documents of it
	terms   []run
}

// run is postings of one term.
type run struct {
	term string
	list []posting
}

// Read takes the block apart, whatever it holds: it allocates a small multiple of its length, and does not keep it. Several pieces may be read at
// a time.
func (p *Piece) Read(body []byte) error {
	var r *snapshot.Cursor
	switch p.kind {
	case BlockSegment:
		return nil // it was read when it came
	case BlockDocs:
		r = snapshot.NewCursor(body)
		p.readDocs(r)
	default:
		r = snapshot.NewSparseCursor(body)
		p.readTerms(r)
	}
	if !r.Done() {
		return errBlock
	}
	return nil
}

const (
	leastDocument = 24 // octets, without its vector
	leastRun      = 5
	leastPosting  = 3
)

func (p *Piece) readDocs(r *snapshot.Cursor) {
	headOfDocs(r)
	s := p.segment
	for id := p.from; id < p.from+p.count; id++ {
		readDocument(r, &s.docs[id], &s.sizes[id])
		scale := r.Octets(4)
		components := r.Octets(s.vecs.dim)
		if r.Bad() {
			return
		}
		f := math.Float32frombits(uint32(scale[0]) | uint32(scale[1])<<8 | uint32(scale[2])<<16 | uint32(scale[3])<<24)
		if f < 0 || f > 1 || f != f {
			r.Fail()
		}
		s.vecs.setComponents(id, components, f)
	}
}

// headOfDocs is how many documents a block has, 0 for one that is malformed.
func headOfDocs(r *snapshot.Cursor) int {
	n := r.Number(r.Len() / leastDocument)
	dim := r.Number(maxDim)
	if r.Bad() || dim != table.Builtin.Dim() || n*(leastDocument+dim) > r.Len() {
		return 0
	}
	return n
}

func (p *Piece) readTerms(r *snapshot.Cursor) {
	n := r.Number(r.Len() / leastRun)
	if r.Bad() {
		return
	}
	p.terms = make([]run, 0, n)
	arena := make([]posting, 0, r.Len()/leastPosting)
	for range n {
		term := r.Text()
		many := r.Number(r.Len() / leastPosting)
		if r.Bad() || many == 0 {
			r.Fail()
			return
		}
		at, last := len(arena), 0
		for i := range many {
			step := r.Number(math.MaxInt32)
			if i > 0 && step == 0 {
				r.Fail()
			}
			last += step
			e := posting{doc: uint32(last), weight: uint16(r.Number(math.MaxUint16))}
			if fields := r.Octets(1); !r.Bad() {
				e.fields = fields[0]
			}
			if r.Bad() || last > math.MaxInt32 || e.fields >= 1<<len(fieldNames) {
				r.Fail()
				return
			}
			arena = append(arena, e)
		}
		p.terms = append(p.terms, run{term, arena[at:len(arena):len(arena)]})
	}
}

func readDocument(r *snapshot.Cursor, d *document, n *size) {
	c := &d.cap
	for _, s := range [...]*string{&c.AIC, &c.CapID, &c.SkillID, &c.Name, &c.Description, &c.Parameters, &c.AgentName, &c.AgentDescription, &c.Provider, &c.ACSVersion} {
		*s = r.Text()
	}
	for _, l := range [...]*[]string{&c.Tags, &c.Classes, &c.Examples, &c.In, &c.Out, &d.tags} {
		*l = r.List()
	}
	c.EntryVersion = uint64(r.Number(math.MaxInt64))
	n.length, n.bigrams = int32(r.Number(math.MaxInt32)), int32(r.Number(math.MaxInt32))
	if c.AIC == "" || n.length == 0 || n.bigrams == 0 {
		r.Fail()
	}
}

// Loader makes an index of the blocks of a snapshot: [Loader.Next] takes each in the order of the snapshot, [Piece.Read] takes them apart, as
// many at a time as one likes, and [Loader.Add] puts them together in their order again. Next and Add are for one goroutine each.
type Loader struct {
	// Octets is how long the snapshot is in all: no room is made for more than these can hold.
	Octets   int64
	segments []*segment
	due      int   // documents of the last segment that have not come
	claimed  int64 // documents, terms and pairs that room was made for, in the octets that they take at least
}

// Next says where a block belongs.
func (l *Loader) Next(kind byte, body []byte) (*Piece, error) {
	if kind == BlockSegment {
		return l.begin(body)
	}
	if len(l.segments) == 0 {
		return nil, errBlock
	}
	p := &Piece{kind: kind, segment: l.segments[len(l.segments)-1]}
	switch kind {
	case BlockDocs:
		p.count = headOfDocs(snapshot.NewSparseCursor(body))
		if p.count == 0 || p.count > l.due {
			return nil, errBlock
		}
		p.from = len(p.segment.docs) - l.due
		l.due -= p.count
		return p, nil
	case BlockTerms, BlockPairs:
		if l.due == 0 {
			return p, nil
		}
	}
	return nil, errBlock
}

// begin makes a segment, with room for its documents.
func (l *Loader) begin(body []byte) (*Piece, error) {
	r := snapshot.NewSparseCursor(body)
	docs, terms, pairs := r.Number(math.MaxInt32), r.Number(math.MaxInt32), r.Number(math.MaxInt32)
	dim := table.Builtin.Dim()
	if !r.Done() || l.due != 0 || docs == 0 || !l.claim(docs, leastDocument+dim) {
		return nil, errBlock
	}
	s := newSegment()
	s.docs, s.sizes, s.vecs = make([]document, docs), make([]size, docs), newVectors(dim, docs)
	s.terms, s.pairs = l.room(terms), l.room(pairs)
	l.segments, l.due = append(l.segments, s), docs
	return &Piece{kind: BlockSegment, segment: s}, nil
}

// claim says whether the snapshot can hold n more of what takes so many octets at least.
func (l *Loader) claim(n, least int) bool {
	if more := int64(n) * int64(least); more <= l.Octets-l.claimed {
		l.claimed += more
		return true
	}
	return false
}

// room is a table for so many terms, if the snapshot can hold as many.
func (l *Loader) room(terms int) map[string][]posting {
	if !l.claim(terms, leastRun) {
		terms = 0
	}
	return make(map[string][]posting, terms)
}

// Add takes what was read of a block.
func (l *Loader) Add(p *Piece) error {
	switch p.kind {
	case BlockTerms:
		return p.addTerms(p.segment.terms)
	case BlockPairs:
		return p.addTerms(p.segment.pairs)
	}
	return nil // documents were put in their place when they were read
}

func (p *Piece) addTerms(to map[string][]posting) error {
	for _, r := range p.terms {
		before, known := to[r.term]
		if int(r.list[len(r.list)-1].doc) >= len(p.segment.docs) || known && before[len(before)-1].doc >= r.list[0].doc {
			return errBlock
		}
		if known {
			r.list = append(before, r.list...)
		}
		to[r.term] = r.list
	}
	return nil
}

// Tables are what is left to do once all pieces are there: any number of goroutines may run them beside each other.
func (l *Loader) Tables() []func() {
	var out []func()
	for _, s := range l.segments {
		out = append(out, s.tables()...)
	}
	return out
}

// LoadSnapshot replaces everything by what a loader has, whose tables are made. One writer at a time.
func (x *Index) LoadSnapshot(l *Loader) error {
	if l.due != 0 {
		return errBlock
	}
	var parts []*part
	for _, s := range l.segments {
		parts = append(parts, wholePart(s))
	}
	x.show(parts)
	return nil
}
