package match

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"

	"agentgw/directory"
	"agentgw/directory/match/table"
	"agentgw/directory/taxonomy"
)

// Field weights of BM25F, in tenths so that lengths are whole numbers and their sums do not depend on the order of changes.
const (
	weightName        = 30
	weightDescription = 10
	weightTags        = 10
	weightExamples    = 5
	weightParameters  = 5
	weightAgentName   = 10
	weightAgentText   = 3
)

// Fields as bits of a posting, and their names in evidence.
const (
	fieldName = 1 << iota
	fieldDescription
	fieldTags
	fieldExamples
	fieldAgent
	fieldParameters
)

var fieldNames = [...]string{"name", "description", "tags", "examples", "agent", "parameters"}

// posting is one term in one document: its weighted frequency in tenths and the fields that have it.
type posting struct {
	doc    uint32
	weight uint16
	fields uint8
}

type document struct {
	cap  directory.Capability
	tags []string // normalised
}

// size is how long a document is.
type size struct {
	length  int32 // of all fields, in tenths
	bigrams int32
}

// segment is an immutable part of the index. Postings are in the order of documents.
type segment struct {
	docs   []document
	sizes  []size   // of each
	order  []uint32 // the place of each among all by Capability Identifier: ties are broken by it
	terms  map[string][]posting
	pairs  map[string][]posting // weight counts the pair
	idents map[string][]uint32  // raw names and skill ids, lower case
	under  map[string][]uint32  // documents of a class and of those below it
	byAIC  map[string][]uint32
	byCap  map[string]uint32
	vecs   vectors // by the built-in table

	outside vectors // by another embedder, as many as there are documents; none where the index uses no other
	grams   lazyGrams

	reading *reading // while it is built
}

func newSegment() *segment {
	return &segment{grams: lazyGrams{turn: make(chan struct{}, 1)}}
}

// fieldReader takes the terms of one field.
type fieldReader[T any] func(terms []T, weight int, field uint8)

// eachField reads a capability's own fields; terms is [Terms]. A name counts each of its words once, so that repeating one gains nothing.
func eachField[T comparable](c *directory.Capability, terms func(string) []T, read fieldReader[T]) {
	read(distinct(terms(c.Name)), weightName, fieldName)
	read(terms(c.Description), weightDescription, fieldDescription)
	for _, t := range c.Tags {
		read(terms(t), weightTags, fieldTags)
	}
	for _, e := range c.Examples {
		read(terms(e), weightExamples, fieldExamples)
	}
	read(terms(c.Parameters), weightParameters, fieldParameters)
}

// agentTerms are the terms of what an agent says of itself beside its skills.
type agentTerms[T comparable] struct {
	name, description string
	inName, inText    []T
}

// of reads an agent's fields, unless they are those that it has read.
func (a *agentTerms[T]) of(c *directory.Capability, terms func(string) []T, read fieldReader[T]) {
	if c.AgentName != a.name || c.AgentDescription != a.description {
		*a = agentTerms[T]{c.AgentName, c.AgentDescription, distinct(terms(c.AgentName)), slices.Clone(terms(c.AgentDescription))}
	}
	read(a.inName, weightAgentName, fieldAgent)
	read(a.inText, weightAgentText, fieldAgent)
}

// pairFields are the fields whose neighbouring pairs count.
const pairFields = fieldName | fieldDescription

func distinct[T comparable](list []T) []T {
	var out []T
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// add appends one capability; it is called only while the segment is built.
func (s *segment) add(tokens *table.Table, c directory.Capability) {
	if s.reading == nil {
		s.reading = &reading{tokens: tokens}
	}
	id := uint32(len(s.docs))
	s.docs = append(twice(s.docs), document{cap: c, tags: normaliseTags(c.Tags)})
	s.sizes = append(twice(s.sizes), s.reading.add(id, &c))
	s.vecs.add(s.reading.vec)
}

// twice is a list with room for one more; a full one gets as much again. Of a quarter more at a time, as append takes, a long list is copied
// five times over.
func twice[T any](list []T) []T {
	if len(list) < cap(list) {
		return list
	}
	return slices.Grow(list, max(len(list), 1))
}

// tables make what a segment needs beside its documents before it is searched; any number of goroutines may run them beside each other.
func (s *segment) tables() []func() {
	todo := []func(){s.putInOrder, s.indexIDs, s.indexNames}
	if r := s.reading; r != nil {
		s.reading = nil
		todo = append(todo, func() { s.pairs = r.pairs.table(r.nameOfPair) }, func() { s.terms = r.terms.table(r.nameOfTerm) })
	}
	return todo
}

// indexIDs enters the documents under their identifiers.
func (s *segment) indexIDs() {
	s.byAIC, s.byCap = make(map[string][]uint32, len(s.docs)), make(map[string]uint32, len(s.docs))
	places := s.places()
	for id := range s.docs {
		c := &s.docs[id].cap
		places.enter(s.byAIC, c.AIC, uint32(id))
		s.byCap[c.CapID] = uint32(id)
	}
}

// indexNames enters the documents under their raw names and their classes.
func (s *segment) indexNames() {
	s.idents, s.under = make(map[string][]uint32, len(s.docs)), map[string][]uint32{}
	places := s.places()
	for id := range s.docs {
		c := &s.docs[id].cap
		named := rawName(c.SkillID)
		if named != "" {
			places.enter(s.idents, named, uint32(id))
		}
		if raw := rawName(c.Name); raw != "" && raw != named {
			places.enter(s.idents, raw, uint32(id))
		}
		if len(c.Classes) == 0 {
			continue
		}
		var under []string
		for _, class := range c.Classes {
			under = append(under, taxonomy.Ancestors(class)...)
		}
		for _, class := range distinct(under) {
			places.enter(s.under, class, uint32(id))
		}
	}
}

// places is the numbers of all documents in a row: most lists of documents have one, or some that follow each other, and are parts of it.
type places []uint32

func (s *segment) places() places {
	p := make(places, len(s.docs))
	for i := range p {
		p[i] = uint32(i)
	}
	return p
}

func (p places) enter(to map[string][]uint32, key string, id uint32) {
	list := to[key]
	if n := len(list); n == 0 || list[n-1] == id-1 && &list[n-1] == &p[id-1] {
		to[key] = p[int(id)-n : id+1 : id+1]
	} else {
		to[key] = append(list, id)
	}
}

// rawName is a name as identifiers are compared, "" for one that is none.
func rawName(name string) string {
	if len(name) > 128 || strings.ContainsAny(name, " \t\n") {
		return ""
	}
	return strings.ToLower(name)
}

// part is a segment as one view sees it: some of its documents are gone. Parts are immutable; a removal makes a new one.
type part struct {
	*segment
	dead     []uint64 // bitmap; nil if nothing is dead
	live     int
	length   int64 // sums over the living
	bigrams  int64
	liveAICs int
}

func newPart(s *segment) *part {
	for _, table := range s.tables() {
		table()
	}
	return wholePart(s)
}

// wholePart is that of a segment whose tables are made.
func wholePart(s *segment) *part {
	p := &part{segment: s, live: len(s.docs), liveAICs: len(s.byAIC)}
	for _, d := range s.sizes {
		p.length += int64(d.length)
		p.bigrams += int64(d.bigrams)
	}
	return p
}

// putInOrder completes a segment. Of most Capability Identifiers the eight octets behind what all have in common decide: to sort by these
// keeps a million texts out of the way.
func (s *segment) putInOrder() {
	type place struct {
		key uint64
		doc uint32
	}
	places := make([]place, len(s.docs))
	skip := s.commonPrefix()
	for i := range places {
		var key [8]byte
		copy(key[:], s.docs[i].cap.CapID[skip:])
		places[i] = place{binary.BigEndian.Uint64(key[:]), uint32(i)}
	}
	slices.SortFunc(places, func(x, y place) int {
		if c := cmp.Compare(x.key, y.key); c != 0 {
			return c
		}
		return strings.Compare(s.docs[x.doc].cap.CapID, s.docs[y.doc].cap.CapID)
	})
	s.order = make([]uint32, len(s.docs))
	for at, p := range places {
		s.order[p.doc] = uint32(at)
	}
}

// commonPrefix is how many octets all Capability Identifiers begin with.
func (s *segment) commonPrefix() int {
	if len(s.docs) == 0 {
		return 0
	}
	same := s.docs[0].cap.CapID
	for i := range s.docs {
		for !strings.HasPrefix(s.docs[i].cap.CapID, same) {
			same = same[:len(same)-1]
		}
	}
	return len(same)
}

func (p *part) isDead(doc uint32) bool {
	return p.dead != nil && p.dead[doc/64]&(1<<(doc%64)) != 0
}

// without is the part less the AICs that change; the same part if it has none of them.
func (p *part) without(changes []Change) *part {
	q := p
	for _, c := range changes {
		ids := p.byAIC[c.AIC]
		if len(ids) == 0 || q.isDead(ids[0]) {
			continue
		}
		if q == p {
			q = p.clone()
		}
		q.kill(ids)
	}
	return q
}

// clone is a part that may be changed until it is published.
func (p *part) clone() *part {
	q := *p
	q.dead = make([]uint64, (len(p.docs)+63)/64)
	copy(q.dead, p.dead)
	return &q
}

// kill removes the documents of one AIC.
func (p *part) kill(ids []uint32) {
	for _, id := range ids {
		p.dead[id/64] |= 1 << (id % 64)
		p.length -= int64(p.sizes[id].length)
		p.bigrams -= int64(p.sizes[id].bigrams)
	}
	p.live -= len(ids)
	p.liveAICs--
}

// alive counts the living among postings.
func (p *part) alive(list []posting) int {
	if p.dead == nil {
		return len(list)
	}
	n := 0
	for _, e := range list {
		if !p.isDead(e.doc) {
			n++
		}
	}
	return n
}

// merge builds one segment of the living documents of several parts, in order.
func merge(parts ...*part) *segment {
	s := newSegment()
	room, dim, terms, pairs := 0, 0, 0, 0
	for _, p := range parts {
		room, dim, terms, pairs = room+p.live, max(dim, p.outside.dim), max(terms, len(p.terms)), max(pairs, len(p.pairs))
	}
	s.docs = make([]document, 0, room)
	s.terms, s.pairs = make(map[string][]posting, terms), make(map[string][]posting, pairs)
	for _, p := range parts {
		moved := make([]uint32, len(p.docs))
		for id := range p.docs {
			if !p.isDead(uint32(id)) {
				moved[id] = uint32(len(s.docs))
				s.docs = append(s.docs, p.docs[id])
				s.sizes = append(s.sizes, p.sizes[id])
				s.vecs.addFrom(&p.vecs, uint32(id))
				switch {
				case p.outside.dim > 0:
					s.outside.addFrom(&p.outside, uint32(id))
				case dim > 0: // it was loaded before the index used the embedder
					s.outside.add(make([]float32, dim))
				}
			}
		}
		move(s.terms, p.terms, p, moved)
		move(s.pairs, p.pairs, p, moved)
	}
	return s
}

func move(to, from map[string][]posting, p *part, moved []uint32) {
	for term, list := range from {
		n := p.alive(list)
		if n == 0 {
			continue
		}
		out := to[term]
		out = slices.Grow(out, n)
		for _, e := range list {
			if !p.isDead(e.doc) {
				e.doc = moved[e.doc]
				out = append(out, e)
			}
		}
		to[term] = out
	}
}

// sizeClass orders parts for merging: each is four times as wide as the one below.
func (p *part) sizeClass() int { return (bits.Len(uint(len(p.docs))) + 1) / 2 }
