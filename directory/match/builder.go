package match

import (
	"slices"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// Builder reads capabilities for [Index.LoadBuilt]. One goroutine uses one at a time; several builders may run beside each other, so that a
// large directory is read over all cores. The zero Builder is ready. An agent's capabilities belong into one builder.
type Builder struct {
	s      *segment
	tokens *table.Table // nil is the built-in one
	tables bool         // are made, or about to be
}

// Add reads one more capability.
func (b *Builder) Add(c directory.Capability) {
	if b.tokens == nil {
		b.tokens = table.Builtin
	}
	if b.s == nil {
		b.s = newSegment()
		b.s.reading = &reading{tokens: b.tokens, known: map[string]uint32{}}
	}
	b.s.add(b.tokens, c)
}

// Len is how many it has read.
func (b *Builder) Len() int {
	if b.s == nil {
		return 0
	}
	return len(b.s.docs)
}

// Tables are what is left to do once all capabilities are read: any number of goroutines may run them beside each other. LoadBuilt does what nobody
// has asked for.
func (b *Builder) Tables() []func() {
	if b.Len() == 0 || b.tables {
		return nil
	}
	b.tables = true
	return b.s.tables()
}

// LoadBuilt replaces everything by what the builders have read, which end with it. They stay parts of their own: making one of them would
// cost about as much as reading them. One writer at a time.
func (x *Index) LoadBuilt(builders ...*Builder) {
	var parts []*part
	for _, b := range builders {
		if b.Len() > 0 {
			for _, table := range b.Tables() {
				table()
			}
			parts = append(parts, wholePart(b.s))
		}
		*b = Builder{}
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return len(b.docs) - len(a.docs) }) // as compact has them
	x.show(parts)
}

// Of is what an AIC offers, in the order in which it was given; nil for nothing. The slice is the caller's.
func (x *Index) Of(aic string) []directory.Capability {
	for _, p := range x.view().parts {
		if ids := p.byAIC[aic]; len(ids) > 0 && !p.isDead(ids[0]) {
			out := make([]directory.Capability, len(ids))
			for i, id := range ids {
				out[i] = p.docs[id].cap
			}
			return out
		}
	}
	return nil
}

// Each visits every capability, as the index is when it is called, until f says no. They must not be changed.
func (x *Index) Each(f func(*directory.Capability) bool) {
	for _, p := range x.view().parts {
		for id := range p.docs {
			if !p.isDead(uint32(id)) && !f(&p.docs[id].cap) {
				return
			}
		}
	}
}

// Vocabulary is the distinct terms that at least so many of the kept capabilities have, in order: of the union of their [DigestTerms],
// without reading their texts again.
func (x *Index) Vocabulary(atLeast int, keep func(*directory.Capability) bool) []string {
	having := map[string]int{}
	for _, p := range x.view().parts {
		kept := make([]bool, len(p.docs))
		for id := range p.docs {
			kept[id] = !p.isDead(uint32(id)) && keep(&p.docs[id].cap)
		}
		for term, list := range p.terms {
			n := having[term]
			for _, e := range list {
				if n == atLeast {
					break
				}
				if kept[e.doc] {
					n++
				}
			}
			if n > 0 {
				having[term] = n
			}
		}
	}
	out := make([]string, 0, len(having))
	for term, n := range having {
		if n == atLeast {
			out = append(out, term)
		}
	}
	slices.Sort(out)
	return out
}
