package match

import (
	"slices"
	"sync/atomic"
	"unicode"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// The net for typing errors: a word of a request that neither the language nor the directory knows is compared with the words that the
// directory has, by their character trigrams.
const (
	typoShare     = .1 // of a term that is met only nearly, in the text part
	leastDice     = .5
	shortestTypo  = 4 // characters
	maxTypos      = 4 // of a request
	maxCorrection = 3 // terms for one
	typoTrust     = .5
)

// unknownWord says whether a term may be a typing error: no language list and no table has it.
func unknownWord(tokens *table.Table, term string) bool {
	n := 0
	for _, r := range term {
		if !unicode.IsLetter(r) || unspaced(r) {
			return false
		}
		n++
	}
	if n < shortestTypo {
		return false
	}
	_, known := tokens.Row(term)
	return !known && rank(term) == unlistedRank
}

// trigrams are the distinct character trigrams of a word, its ends marked.
func trigrams(word string) []string {
	runes := []rune("^" + word + "$")
	out := make([]string, 0, len(runes))
	for i := 3; i <= len(runes); i++ {
		out = append(out, string(runes[i-3:i]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// dice is the likeness of two lists of trigrams in order, 0 to 1.
func dice(x, y []string) float64 {
	if len(x)+len(y) == 0 {
		return 0
	}
	both := 0
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] == y[j]:
			both++
			i++
			j++
		case x[i] < y[j]:
			i++
		default:
			j++
		}
	}
	return 2 * float64(both) / float64(len(x)+len(y))
}

// grams finds the terms of a segment that have a trigram.
type grams struct {
	terms []string // in order
	has   map[string][]uint32
}

// gramsOf makes the table at the first typing error that meets the segment: most never do. Who comes meanwhile waits: of a large segment it
// takes tens of MiB.
func (s *segment) gramsOf() *grams {
	if g := s.grams.made.Load(); g != nil {
		return g
	}
	s.grams.turn <- struct{}{}
	defer func() { <-s.grams.turn }()
	if g := s.grams.made.Load(); g != nil {
		return g
	}
	g := &grams{terms: make([]string, 0, len(s.terms)), has: map[string][]uint32{}}
	for t := range s.terms {
		g.terms = append(g.terms, t)
	}
	slices.Sort(g.terms)
	for i, t := range g.terms {
		for _, tri := range trigrams(t) {
			g.has[tri] = append(g.has[tri], uint32(i))
		}
	}
	s.grams.made.Store(g)
	return g
}

type lazyGrams struct {
	turn chan struct{} // has place for the one that makes it
	made atomic.Pointer[grams]
}

// correction is a term of the directory that a word of the request may have meant.
type correction struct {
	meant string
	dice  float64
}

// near are the terms of a segment that a word may have meant, in no order.
func (s *segment) near(tri []string) (out []correction) {
	g := s.gramsOf()
	shared := map[uint32]int{}
	for _, t := range tri {
		for _, i := range g.has[t] {
			shared[i]++
		}
	}
	for i, n := range shared {
		if 2*n < len(tri)/2 { // no way to be near enough
			continue
		}
		if d := dice(tri, trigrams(g.terms[i])); d >= leastDice {
			out = append(out, correction{g.terms[i], d})
		}
	}
	return out
}

// corrections are the terms nearest to a word, the nearest first.
func (v *view) corrections(word string) []correction {
	tri := trigrams(word)
	best := map[string]float64{}
	for _, p := range v.parts {
		for _, c := range p.near(tri) {
			if p.alive(p.terms[c.meant]) > 0 {
				best[c.meant] = c.dice
			}
		}
	}
	out := make([]correction, 0, len(best))
	for t, d := range best {
		out = append(out, correction{t, d})
	}
	slices.SortFunc(out, func(x, y correction) int {
		switch {
		case x.dice > y.dice || x.dice == y.dice && x.meant < y.meant:
			return -1
		default:
			return 1
		}
	})
	return out[:min(len(out), maxCorrection)]
}

// meant is a word of a request and what it may have meant.
type meant struct{ word, term string }

// scoreTypos adds what the words that nobody knows may have meant.
func (r *ranking) scoreTypos() {
	for _, t := range r.unknown {
		if r.frequency(func(p *part) []posting { return p.terms[t.text] }) > 0 {
			continue
		}
		for _, c := range r.corrections(t.text) {
			r.meant = append(r.meant, meant{t.text, c.meant})
			idf := r.termIDF(c.meant) * typoShare * c.dice
			for i, p := range r.parts {
				for _, e := range p.terms[c.meant] {
					r.lex[r.first[i]+int(e.doc)] += r.termScore(idf, t, e, &p.docs[e.doc])
				}
			}
		}
	}
}

// nearly is what the unknown words of a request are worth in a capability that has a term which each may have meant, as a sum of
// background idf. It looks at the capability alone, so that every directory says the same.
func (p *Prepared) nearly(c *directory.Capability) float64 {
	if len(p.unknown) == 0 {
		return 0
	}
	terms, length := bag(c)
	sum := 0.
	for _, t := range p.unknown {
		if _, has := terms[t.text]; has {
			continue
		}
		tri, best := trigrams(t.text), 0.
		for term, weight := range terms {
			if d := dice(tri, trigrams(term)); d >= leastDice {
				best = max(best, d*saturate(weight, length))
			}
		}
		sum += typoTrust * t.bg * best
	}
	return sum
}

// nearlyAll is [Prepared.nearly] of every document, by its place, from the postings: a request that many capabilities are judged for
// would read the text of each.
func (r *ranking) nearlyAll() map[int]float64 {
	sums := map[int]float64{}
	for _, t := range r.unknown {
		tri, best := trigrams(t.text), map[int]float64{}
		for i, p := range r.parts {
			for _, c := range p.near(tri) {
				for _, e := range p.terms[c.meant] {
					at := r.first[i] + int(e.doc)
					best[at] = max(best[at], c.dice*saturate(int(e.weight), p.docs[e.doc].length))
				}
			}
			for _, e := range p.terms[t.text] {
				delete(best, r.first[i]+int(e.doc))
			}
		}
		for at, b := range best {
			sums[at] += typoTrust * t.bg * b
		}
	}
	return sums
}

// bag is a capability's terms with their weighted frequency in tenths, and the length of all.
func bag(c *directory.Capability) (terms map[string]int, length int) {
	terms = map[string]int{}
	read := func(list []string, weight int, _ uint8) {
		for _, t := range list {
			terms[t] += weight
		}
		length += weight * len(list)
	}
	eachField(c, read)
	new(agentTerms).of(c, read)
	return terms, length
}
