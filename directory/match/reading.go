package match

import (
	"slices"
	"strings"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// reading is what a segment has beside its documents while they are read. Terms are numbers in it: a word costs one look into a table, a pair of
// words another, and what is done with them afterwards needs none.
type reading struct {
	tokens *table.Table
	terms  counts[string]
	pairs  counts[uint64]    // of two terms' numbers
	rows   []int32           // of each term in the token table; noRow
	known  map[string]uint32 // words and their terms, or stopWord; nil in a segment of few documents, which gains nothing by it

	// The capability at hand.
	texts []string // that have been read: its words and its embedding are made of the same ones
	lists [][]uint32
	list  []uint32 // room of lists
	words []string
	bag   []table.WeightedRow
	bagAt []uint32 // of each term: one more than its place in bag, 0 for none
	vec   []float32

	agent agentTerms[uint32] // of the last one: an agent's skills come one after the other
}

const (
	stopWord = ^uint32(0) // is no term
	noRow    = -1

	// maxKnown is how many words a large segment remembers while it is read. A directory has few thousand that are frequent.
	maxKnown = 1 << 16
)

// add reads one capability, the last of the segment's documents.
func (r *reading) add(id uint32, c *directory.Capability) (n size) {
	var length, bigrams int
	read := func(list []uint32, weight int, field uint8) {
		for _, t := range list {
			r.terms.occur(t, id, weight, field)
		}
		length += weight * len(list)
		if field&pairFields != 0 {
			for i := 1; i < len(list); i++ {
				r.pairs.occur(r.pair(list[i-1], list[i]), id, 1, 0)
				bigrams++
			}
		}
	}
	whole := allDense(c)
	eachField(c, r.of, func(list []uint32, weight int, field uint8) {
		read(list, weight, field)
		if whole {
			r.embed(denseWeight(field), list)
		}
	})
	r.agent.of(c, r.of, read)
	if !whole {
		r.vec = append(r.vec[:0], r.tokens.Embed(Bag(c))...)
	} else {
		r.vec = r.tokens.EmbedRows(r.vec, r.bag)
	}
	r.forget()
	return size{int32(max(length, 1)), int32(max(bigrams, 1))} // one dummy, so that no length is 0
}

// forget ends a capability.
func (r *reading) forget() {
	for _, list := range r.lists {
		for _, t := range list {
			r.bagAt[t] = 0
		}
	}
	r.texts, r.lists, r.list, r.bag = r.texts[:0], r.lists[:0], r.list[:0], r.bag[:0]
	r.terms.flush()
	r.pairs.flush()
}

// of is the terms of a text; they are good for the capability at hand.
func (r *reading) of(text string) []uint32 {
	if i := slices.Index(r.texts, text); i >= 0 {
		return r.lists[i]
	}
	from := len(r.list)
	r.words = appendCut(r.words[:0], plain(text))
	r.list = appendTerms(r.list, r.words, r.word, r.number)
	list := slices.Clip(r.list[from:])
	r.texts, r.lists = append(r.texts, text), append(r.lists, list)
	return list
}

// word is the term of a word, and whether it has one.
func (r *reading) word(word string) (uint32, bool) {
	n, known := r.known[word]
	if !known {
		if stem, ok := stemOf(word); ok {
			n = r.number(stem)
		} else {
			n = stopWord
		}
		if r.known != nil {
			if len(r.known) == maxKnown {
				clear(r.known)
			}
			r.known[strings.Clone(word)] = n // it is cut from a text
		}
	}
	return n, n != stopWord
}

// number is that of a term.
func (r *reading) number(term string) uint32 {
	n, known := r.terms.at[term]
	if !known {
		term = strings.Clone(term) // the tables outlive the text that it is cut from
		n = r.terms.add(term)
		row, ok := r.tokens.Row(term)
		if !ok {
			row = noRow
		}
		r.rows, r.bagAt = append(r.rows, int32(row)), append(r.bagAt, 0)
	}
	return n
}

// pair is the number of two neighbouring terms.
func (r *reading) pair(x, y uint32) uint32 {
	key := uint64(x)<<32 | uint64(y)
	n, known := r.pairs.at[key]
	if !known {
		n = r.pairs.add(key)
	}
	return n
}

// embed puts terms into the bag.
func (r *reading) embed(weight float64, terms []uint32) {
	for _, t := range terms {
		if r.rows[t] == noRow {
			continue
		}
		if r.bagAt[t] == 0 {
			r.bag = append(r.bag, table.WeightedRow{Row: int(r.rows[t])})
			r.bagAt[t] = uint32(len(r.bag))
		}
		r.bag[r.bagAt[t]-1].TF += weight
	}
}

func (r *reading) nameOfTerm(t string) string { return t }

func (r *reading) nameOfPair(p uint64) string {
	return r.terms.keys[p>>32] + " " + r.terms.keys[uint32(p)]
}

// counts is postings while they are counted: in a log, which is sorted by key in the end. An occurrence allocates nothing but for a new key.
type counts[K comparable] struct {
	at   map[K]uint32
	keys []K
	open []occurrence // of the document at hand
	last []uint32     // of each key: one more than its place in open, 0 for none
	log  [][]occurrence
}

// occurrence is one key in one document.
type occurrence struct {
	key uint32
	posting
}

// logPiece is how many occurrences the log has room for at a time: a whole one that grows would be copied over and over.
const logPiece = 1 << 13

func (c *counts[K]) add(key K) uint32 {
	if c.at == nil {
		c.at = map[K]uint32{}
	}
	n := uint32(len(c.keys))
	c.at[key] = n
	c.keys, c.last = append(c.keys, key), append(c.last, 0)
	return n
}

// occur adds an occurrence to the document at hand.
func (c *counts[K]) occur(key, doc uint32, weight int, field uint8) {
	if at := c.last[key]; at > 0 {
		e := &c.open[at-1]
		e.weight, e.fields = uint16(min(int(e.weight)+weight, 1<<16-1)), e.fields|field
		return
	}
	c.open = append(c.open, occurrence{key, posting{doc, uint16(weight), field}})
	c.last[key] = uint32(len(c.open))
}

// flush ends a document.
func (c *counts[K]) flush() {
	for _, o := range c.open {
		c.last[o.key] = 0
	}
	n := len(c.log)
	switch {
	case n == 0:
		c.log = append(c.log, slices.Clone(c.open)) // often there is but one document
	case len(c.log[n-1])+len(c.open) <= cap(c.log[n-1]):
		c.log[n-1] = append(c.log[n-1], c.open...)
	default:
		c.log = append(c.log, append(make([]occurrence, 0, max(logPiece, len(c.open))), c.open...))
	}
	c.open = c.open[:0]
}

// table is the postings by name, of each in the order of documents. It ends the counts.
func (c *counts[K]) table(name func(K) string) map[string][]posting {
	ends, total := make([]int, len(c.keys)), 0
	for _, piece := range c.log {
		total += len(piece)
		for _, o := range piece {
			ends[o.key]++
		}
	}
	from := 0
	for key, n := range ends {
		ends[key], from = from, from+n
	}
	all := make([]posting, total)
	for i, piece := range c.log {
		for _, o := range piece {
			all[ends[o.key]] = o.posting
			ends[o.key]++
		}
		c.log[i] = nil
	}
	c.at = nil
	out := make(map[string][]posting, len(c.keys))
	from = 0
	for i, key := range c.keys {
		out[name(key)] = all[from:ends[i]:ends[i]]
		from = ends[i]
	}
	return out
}
