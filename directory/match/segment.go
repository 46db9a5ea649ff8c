package match

import (
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
	cap     directory.Capability
	tags    []string // normalised
	length  int      // of all fields, in tenths
	bigrams int
}

// segment is an immutable part of the index. Postings are in the order of documents.
type segment struct {
	docs   []document
	terms  map[string][]posting
	pairs  map[string][]posting // weight counts the pair
	idents map[string][]uint32  // raw names and skill ids, lower case
	under  map[string][]uint32  // documents of a class and of those below it
	byAIC  map[string][]uint32
	byCap  map[string]uint32
	vecs   []int8    // embeddings, one behind the other
	scales []float32 // of each
	grams  lazyGrams

	// While it is built.
	agent agentTerms // of the last document: an agent's skills come one after the other
	key   []byte     // of a pair
}

func newSegment() *segment {
	return &segment{terms: map[string][]posting{}, pairs: map[string][]posting{}, idents: map[string][]uint32{}, under: map[string][]uint32{},
		byAIC: map[string][]uint32{}, byCap: map[string]uint32{}, grams: lazyGrams{turn: make(chan struct{}, 1)}}
}

// fieldReader takes the terms of one field.
type fieldReader func(terms []string, weight int, field uint8)

// eachField reads a capability's own fields. A name counts each of its words once, so that repeating one gains nothing.
func eachField(c *directory.Capability, read fieldReader) {
	read(distinct(Terms(c.Name)), weightName, fieldName)
	read(Terms(c.Description), weightDescription, fieldDescription)
	for _, t := range c.Tags {
		read(Terms(t), weightTags, fieldTags)
	}
	for _, e := range c.Examples {
		read(Terms(e), weightExamples, fieldExamples)
	}
	read(Terms(c.Parameters), weightParameters, fieldParameters)
}

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
	d := document{cap: c, tags: normaliseTags(c.Tags)}
	read := func(list []string, weight int, field uint8) {
		for _, t := range list {
			s.count(id, t, weight, field)
		}
		d.length += weight * len(list)
		if field&pairFields != 0 {
			for i := 1; i < len(list); i++ {
				s.countPair(id, list[i-1], list[i])
				d.bigrams++
			}
		}
	}
	eachField(&c, read)
	s.agent.of(&c, read)
	d.length, d.bigrams = max(d.length, 1), max(d.bigrams, 1) // one dummy, so that no length is 0
	s.docs = append(s.docs, d)
	var scale float32
	s.vecs, scale = quantise(s.vecs, tokens.Embed(Bag(&c)))
	s.scales = append(s.scales, scale)
	s.index(id)
}

// count adds one occurrence of a term to the document at hand, the last one.
func (s *segment) count(id uint32, term string, weight int, field uint8) {
	list, known := s.terms[term]
	if again(list, id, weight, field) {
		return
	}
	if !known {
		term = strings.Clone(term) // the table outlives the text that the term is cut from
	}
	s.terms[term] = append(list, posting{id, uint16(weight), field})
}

// countPair adds one occurrence of two neighbouring terms.
func (s *segment) countPair(id uint32, x, y string) {
	s.key = append(append(append(s.key[:0], x...), ' '), y...)
	list := s.pairs[string(s.key)]
	if !again(list, id, 1, 0) {
		s.pairs[string(s.key)] = append(list, posting{doc: id, weight: 1})
	}
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
	c := &s.docs[id].cap
	for _, raw := range distinct([]string{strings.ToLower(c.SkillID), strings.ToLower(c.Name)}) {
		if raw != "" && len(raw) <= 128 && !strings.ContainsAny(raw, " \t\n") {
			s.idents[raw] = append(s.idents[raw], id)
		}
	}
	var under []string
	for _, class := range c.Classes {
		under = append(under, taxonomy.Ancestors(class)...)
	}
	for _, class := range distinct(under) {
		s.under[class] = append(s.under[class], id)
	}
	s.byAIC[c.AIC] = append(s.byAIC[c.AIC], id)
	s.byCap[c.CapID] = id
}

// vec is a document's embedding.
func (s *segment) vec(id uint32) []int8 {
	dim := len(s.vecs) / len(s.docs)
	return s.vecs[int(id)*dim : (int(id)+1)*dim]
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
	p := &part{segment: s, live: len(s.docs), liveAICs: len(s.byAIC)}
	for i := range s.docs {
		p.length += int64(s.docs[i].length)
		p.bigrams += int64(s.docs[i].bigrams)
	}
	return p
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
		p.length -= int64(p.docs[id].length)
		p.bigrams -= int64(p.docs[id].bigrams)
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
	room := 0
	for _, p := range parts {
		room += p.live
	}
	s.docs = make([]document, 0, room)
	for _, p := range parts {
		moved := make([]uint32, len(p.docs))
		for id := range p.docs {
			if !p.isDead(uint32(id)) {
				moved[id] = uint32(len(s.docs))
				s.docs = append(s.docs, p.docs[id])
				s.vecs = append(s.vecs, p.vec(uint32(id))...)
				s.scales = append(s.scales, p.scales[id])
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

// sizeClass orders parts for merging: two of one class become one of the next.
func (p *part) sizeClass() int { return bits.Len(uint(len(p.docs))) }
