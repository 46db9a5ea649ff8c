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

	// While it is built.
	agent   agentTerms // of the last document: an agent's skills come one after the other
	key     []byte     // of a pair
	stemmed stemmed
	counted [2]counts // terms and pairs, until it is sealed
}

func newSegment() *segment {
	return &segment{terms: map[string][]posting{}, pairs: map[string][]posting{}, idents: map[string][]uint32{}, under: map[string][]uint32{},
		byAIC: map[string][]uint32{}, byCap: map[string]uint32{}, grams: lazyGrams{turn: make(chan struct{}, 1)}}
}

// fieldReader takes the terms of one field.
type fieldReader func(terms []string, weight int, field uint8)

// eachField reads a capability's own fields; terms is [Terms]. A name counts each of its words once, so that repeating one gains nothing.
func eachField(c *directory.Capability, terms func(string) []string, read fieldReader) {
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

// stemmed is the terms of the texts of the capability at hand: its words and its embedding are made of the same ones, and stemming is the
// dearest part of both.
type stemmed struct {
	texts []string
	terms [][]string
	known map[string]string // words and their stems; nil in a segment of few documents, which gains nothing by it
}

// maxKnown is how many words a large segment remembers while it is built. A directory has few thousand that are frequent.
const maxKnown = 1 << 16

func (s *stemmed) stem(word string) string {
	if s.known == nil {
		return Stem(word)
	}
	t, ok := s.known[word]
	if !ok {
		if len(s.known) == maxKnown {
			clear(s.known)
		}
		word = strings.Clone(word) // it is cut from a text
		t = Stem(word)
		s.known[word] = t
	}
	return t
}

func (s *stemmed) of(text string) []string {
	if i := slices.Index(s.texts, text); i >= 0 {
		return s.terms[i]
	}
	list := termsBy(text, s.stem)
	s.texts, s.terms = append(s.texts, text), append(s.terms, list)
	return list
}

func (s *stemmed) forget() { s.texts, s.terms = s.texts[:0], s.terms[:0] }

// agentTerms are the terms of what an agent says of itself beside its skills.
type agentTerms struct {
	name, description string
	inName, inText    []string
}

// of reads an agent's fields, unless they are those that it has read.
func (a *agentTerms) of(c *directory.Capability, read fieldReader) {
	if c.AgentName != a.name || c.AgentDescription != a.description {
		*a = agentTerms{c.AgentName, c.AgentDescription, distinct(Terms(c.AgentName)), Terms(c.AgentDescription)}
	}
	read(a.inName, weightAgentName, fieldAgent)
	read(a.inText, weightAgentText, fieldAgent)
}

// pairFields are the fields whose neighbouring pairs count.
const pairFields = fieldName | fieldDescription

func distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// add appends one capability; it is called only while the segment is built.
func (s *segment) add(tokens *table.Table, c directory.Capability) {
	id := uint32(len(s.docs))
	var length, bigrams int
	read := func(list []string, weight int, field uint8) {
		for _, t := range list {
			s.count(id, t, weight, field)
		}
		length += weight * len(list)
		if field&pairFields != 0 {
			for i := 1; i < len(list); i++ {
				s.countPair(id, list[i-1], list[i])
				bigrams++
			}
		}
	}
	defer s.stemmed.forget()
	var bag denseBag
	whole := allDense(&c)
	eachField(&c, s.stemmed.of, func(list []string, weight int, field uint8) {
		read(list, weight, field)
		if whole {
			bag.add(denseWeight(field), list)
		}
	})
	s.agent.of(&c, read)
	s.docs = append(s.docs, document{cap: c, tags: normaliseTags(c.Tags)})
	s.sizes = append(s.sizes, size{int32(max(length, 1)), int32(max(bigrams, 1))}) // one dummy, so that no length is 0
	if whole {
		s.vecs.add(tokens.Embed(bag.stems))
	} else {
		s.vecs.add(tokens.Embed(bagBy(&c, s.stemmed.of)))
	}
	s.index(id)
}

// count adds one occurrence of a term to the document at hand, the last one.
func (s *segment) count(id uint32, term string, weight int, field uint8) {
	c := &s.counted[0]
	at, known := c.at[term]
	if !known {
		at = c.add(strings.Clone(term)) // the table outlives the text that the term is cut from
	}
	c.occur(at, id, weight, field)
}

// countPair adds one occurrence of two neighbouring terms.
func (s *segment) countPair(id uint32, x, y string) {
	s.key = append(append(append(s.key[:0], x...), ' '), y...)
	c := &s.counted[1]
	at, known := c.at[string(s.key)]
	if !known {
		at = c.add(string(s.key))
	}
	c.occur(at, id, 1, 0)
}

// counts is postings while they are counted: an occurrence costs one look into a table, and allocates nothing but for a new term.
type counts struct {
	at    map[string]uint32 // in lists
	lists [][]posting
}

func (c *counts) add(term string) uint32 {
	if c.at == nil {
		c.at = map[string]uint32{}
	}
	at := uint32(len(c.lists))
	c.at[term] = at
	c.lists = append(c.lists, nil)
	return at
}

func (c *counts) occur(at, id uint32, weight int, field uint8) {
	if list := &c.lists[at]; !again(*list, id, weight, field) {
		*list = append(*list, posting{id, uint16(weight), field})
	}
}

// seal makes the tables that readers use of what was counted.
func (s *segment) seal() {
	for i, to := range [2]*map[string][]posting{&s.terms, &s.pairs} {
		if c := &s.counted[i]; c.at != nil {
			*to = make(map[string][]posting, len(c.at))
			for term, at := range c.at {
				(*to)[term] = c.lists[at]
			}
		}
	}
	s.counted, s.stemmed = [2]counts{}, stemmed{}
}

// again adds an occurrence to a document's posting, which is the last one if there is one.
func again(list []posting, id uint32, weight int, field uint8) bool {
	n := len(list)
	if n == 0 || list[n-1].doc != id {
		return false
	}
	e := &list[n-1]
	e.weight, e.fields = uint16(min(int(e.weight)+weight, 1<<16-1)), e.fields|field
	return true
}

// index enters a document into the tables by name.
func (s *segment) index(id uint32) {
	s.indexIDs(id)
	s.indexNames(id)
}

// indexIDs enters a document under its identifiers.
func (s *segment) indexIDs(id uint32) {
	c := &s.docs[id].cap
	s.byAIC[c.AIC] = append(s.byAIC[c.AIC], id)
	s.byCap[c.CapID] = id
}

// indexNames enters a document under its raw names and its classes.
func (s *segment) indexNames(id uint32) {
	c := &s.docs[id].cap
	named := rawName(c.SkillID)
	if named != "" {
		s.idents[named] = append(s.idents[named], id)
	}
	if raw := rawName(c.Name); raw != "" && raw != named {
		s.idents[raw] = append(s.idents[raw], id)
	}
	if len(c.Classes) == 0 {
		return
	}
	var under []string
	for _, class := range c.Classes {
		under = append(under, taxonomy.Ancestors(class)...)
	}
	for _, class := range distinct(under) {
		s.under[class] = append(s.under[class], id)
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
	s.seal()
	if s.order == nil {
		s.putInOrder()
	}
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
	s.byAIC, s.byCap, s.idents = make(map[string][]uint32, room), make(map[string]uint32, room), make(map[string][]uint32, room)
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
				s.index(moved[id])
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
