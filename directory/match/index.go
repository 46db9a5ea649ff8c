package match

import (
	"slices"
	"sync/atomic"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// Index is the matcher's capabilities. It is a list of immutable segments, up to three of about a size, and the next ones a quarter of that: a change
// adds a small segment or marks documents dead, and now and then the last segments become one. So an agent costs the logarithm
// of the directory's size on average, and a reader only loads a pointer. The zero Index is empty and ready.
type Index struct {
	// Table embeds the texts of capabilities and of the requests of Resolve; nil is the built-in one. It is for measuring another one: it is
	// set before the first capability comes, and never after.
	Table *table.Table

	now       atomic.Pointer[view]
	scratches [4]atomic.Pointer[scratch] // not in use by a reader

	// Of an embedder other than the built-in table, whose vectors are kept; "" and 0 where there is none.
	embedder string
	dim      int

	few bool // a test's: denseAll and denseBest are small
}

// Above denseAll capabilities the dense part runs over the denseBest best of the text part alone (MATCHING, section 2).
func (x *Index) denseAll() int {
	if x.few {
		return 1_000
	}
	return 100_000
}

func (x *Index) denseBest() int {
	if x.few {
		return 100
	}
	return 2_000
}

// view is one state of the index.
type view struct {
	parts   []*part
	first   []int // of each part: how many documents are in the parts before it
	docs    int   // in all parts, the dead too
	live    int
	length  int64
	bigrams int64
	norms   atomic.Pointer[norms] // made when they are needed
}

func (x *Index) view() *view {
	if v := x.now.Load(); v != nil {
		return v
	}
	return &view{}
}

func (x *Index) tokens() *table.Table {
	if x.Table != nil {
		return x.Table
	}
	return table.Builtin
}

// Len is the number of capabilities.
func (x *Index) Len() int { return x.view().live }

// Agents is the number of AICs with at least one capability.
func (x *Index) Agents() int {
	n := 0
	for _, p := range x.view().parts {
		n += p.liveAICs
	}
	return n
}

// Use says whose vectors the index keeps and ranks by, beside the built-in table: those of an embedder of this id and dimension. It is
// called once, before there are readers or vectors.
func (x *Index) Use(id string, dim int) { x.embedder, x.dim = id, dim }

// Change is what one AIC offers from now on.
type Change struct {
	AIC  string
	Caps []directory.Capability // none: it is forgotten
	// Embedded are the capabilities' vectors ([Passage]) by the embedder that the index uses. Others, and another number of them, are
	// ignored; a capability without one is ranked by its words, as one of usual likeness.
	Embedded Embedded
}

// Apply makes changes of different AICs at once: cheaper than one after the other, since they share a segment. One writer at a time.
func (x *Index) Apply(changes ...Change) {
	parts := without(x.view().parts, changes)
	s := newSegment()
	for _, c := range changes {
		embedded := c.Embedded.fits(len(c.Caps), x.embedder, x.dim)
		for i, k := range c.Caps {
			k.AIC = c.AIC
			s.add(x.tokens(), k)
			switch {
			case embedded:
				s.outside.add(unitLength(c.Embedded.Vectors[i]))
			case x.dim > 0:
				s.outside.add(make([]float32, x.dim))
			}
		}
	}
	if len(s.docs) > 0 {
		parts = append(parts, newPart(s))
	}
	x.publish(parts)
}

// Load replaces everything at once. One writer at a time.
func (x *Index) Load(caps []directory.Capability) {
	b := Builder{tokens: x.tokens()}
	for _, c := range caps {
		b.Add(c)
	}
	x.LoadBuilt(&b)
}

func without(parts []*part, changes []Change) []*part {
	out := make([]*part, 0, len(parts)+1)
	for _, p := range parts {
		out = append(out, p.without(changes))
	}
	return out
}

func (x *Index) publish(parts []*part) { x.show(compact(parts)) }

// show makes a list of parts what readers see.
func (x *Index) show(parts []*part) {
	v := &view{parts: parts}
	for _, p := range v.parts {
		v.first = append(v.first, v.docs)
		v.docs += len(p.docs)
		v.live += p.live
		v.length += p.length
		v.bigrams += p.bigrams
	}
	x.now.Store(v)
}

// fanIn is how many parts of one size become one. More would make changes cheaper, and each request look into more tables.
const fanIn = 4

// compact drops empty parts, rewrites one that is more than half dead, and joins the last ones when there are fanIn of one size.
func compact(parts []*part) []*part {
	parts = slices.DeleteFunc(parts, func(p *part) bool { return p.live == 0 })
	for i, p := range parts {
		if p.live*2 < len(p.docs) {
			parts[i] = newPart(merge(p))
		}
	}
	for {
		n, same := len(parts), 1
		if n < 2 {
			return parts
		}
		last := parts[n-1].sizeClass()
		for same < n && parts[n-1-same].sizeClass() == last {
			same++
		}
		switch {
		case same < n && parts[n-1-same].sizeClass() < last:
			same++ // a small one before larger ones
		case same < fanIn:
			return parts
		}
		parts = append(parts[:n-same], newPart(merge(parts[n-same:]...)))
	}
}
