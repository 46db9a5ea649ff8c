package match

import (
	"cmp"
	"slices"
	"strings"
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
	count []uint16 // distinct trigrams of each
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
		list := trigrams(t)
		for _, tri := range list {
			g.has[tri] = append(g.has[tri], uint32(i))
		}
		g.count = append(g.count, uint16(min(len(list), 1<<16-1)))
	}
	s.grams.made.Store(g)
	return g
}

type lazyGrams struct {
	turn chan struct{} // has place for the one that makes it
	made atomic.Pointer[grams]
}

// nearTerm is a term of the directory that a word of the request may have meant, 0 to 1 how like it is.
type nearTerm struct {
	located
	dice float64
}

// near are the terms near to the i-th unknown word, the nearest first. They are looked for once.
func (r *ranking) near(i int) []nearTerm {
	for len(r.nearTerms) < len(r.unknown) {
		r.nearTerms = append(r.nearTerms, nil)
	}
	if r.nearTerms[i] == nil {
		r.nearTerms[i] = r.findNear(r.unknown[i])
	}
	return r.nearTerms[i]
}

func (r *ranking) findNear(word queryTerm) []nearTerm {
	tri := trigrams(word.text)
	best := map[string]float64{}
	for _, p := range r.parts {
		g := p.gramsOf()
		shared := make([]uint16, len(g.terms))
		for _, t := range tri {
			for _, i := range g.has[t] {
				shared[i]++
			}
		}
		for i, both := range shared {
			if d := 2 * float64(both) / float64(len(tri)+int(g.count[i])); d >= leastDice {
				best[g.terms[i]] = d
			}
		}
	}
	out := make([]nearTerm, 0, len(best))
	for t, d := range best {
		if l := r.locate(queryTerm{text: t, count: word.count}, termsOf); l.df > 0 {
			out = append(out, nearTerm{l, d})
		}
	}
	slices.SortFunc(out, func(x, y nearTerm) int {
		return cmp.Or(cmp.Compare(y.dice, x.dice), strings.Compare(x.text, y.text))
	})
	return out
}

// meant is a word of a request and what it may have meant.
type meant struct{ word, term string }

// scoreTypos adds what the words that nobody knows may have meant.
func (r *ranking) scoreTypos() {
	for n, t := range r.unknown {
		if i := slices.IndexFunc(r.found, func(f located) bool { return f.text == t.text }); r.found[i].df > 0 {
			continue
		}
		list := r.near(n)
		for _, c := range list[:min(len(list), maxCorrection)] {
			r.meant = append(r.meant, meant{t.text, c.text})
			c.idf *= typoShare * c.dice
			r.scoreTerm(&r.words, &c.located)
		}
	}
}

// nearlyIn is [Prepared.nearly] of a document that is indexed.
func (r *ranking) nearlyIn(d *doc) float64 {
	sum := 0.
	for n, t := range r.unknown {
		i := slices.IndexFunc(r.found, func(f located) bool { return f.text == t.text })
		if _, has := postingOf(r.found[i].lists[d.n], d.id); has {
			continue
		}
		best := 0.
		for _, c := range r.near(n) {
			if p, has := postingOf(c.lists[d.n], d.id); has {
				best = max(best, c.dice*saturate(int(p.weight), int(d.part.sizes[d.id].length)))
			}
		}
		sum += typoTrust * t.bg * best
	}
	return sum
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

// bag is a capability's terms with their weighted frequency in tenths, and the length of all.
func bag(c *directory.Capability) (terms map[string]int, length int) {
	terms = map[string]int{}
	read := func(list []string, weight int, _ uint8) {
		for _, t := range list {
			terms[t] += weight
		}
		length += weight * len(list)
	}
	eachField(c, Terms, read)
	new(agentTerms[string]).of(c, Terms, read)
	return terms, length
}
