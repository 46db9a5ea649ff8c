package digest

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"agentgw/cdsp/wire"
)

// Origin is the digest of one gateway as its items tell it.
type Origin struct {
	Gateway  string // AIC
	Domain   string
	Via      string   // AIC of the neighbour to ask
	Others   []string // AICs of others that know a way, the best first
	Distance int      // domains on the way
	Stale    bool
	Level    wire.Level // at which the item at hand discloses
	labels   map[label]bool
	cut      map[string]bool // classes that stand for those below them too, which the level does not tell
	sketch   *Sketch
}

// Origins collects origins item by item.
type Origins struct {
	list  []*Origin
	byGW  map[string]*Origin
	Alarm func(gateway string, err error) // told of sketches that lie; may be nil
}

// Add takes one item of an origin; the first item of an origin says how it is reached.
func (o *Origins) Add(at Origin, it *wire.Item) {
	if o.byGW == nil {
		o.byGW = map[string]*Origin{}
	}
	origin := o.byGW[at.Gateway]
	if origin == nil {
		at.labels, at.cut, at.sketch = map[label]bool{}, map[string]bool{}, nil
		origin = &at
		o.byGW[at.Gateway] = origin
		o.list = append(o.list, origin)
	}
	if it.NS == NSTaxonomy && at.Level < wire.LevelFull && strings.Count(it.Label, "/") == classDepth-1 {
		origin.cut[it.Label] = true
	}
	if it.Label != "" {
		name := it.Label
		for range maxLevels { // a class stands for those above it
			origin.labels[label{it.NS, name}] = true
			above := strings.LastIndexByte(name, '/')
			if it.NS != NSTaxonomy || above < 0 {
				break
			}
			name = name[:above]
		}
	}
	if len(it.Sketch) == 0 || it.SketchAlg != Algorithm {
		return
	}
	s, err := ParseSketch(it.Sketch)
	if err != nil {
		if o.Alarm != nil {
			o.Alarm(at.Gateway, err)
		}
		return
	}
	origin.sketch = s
}

// maxLevels is how many classes one label stands for, itself among them; taxonomies have three.
const maxLevels = 8

// Len is the number of origins.
func (o *Origins) Len() int { return len(o.list) }

// Term is a term of a request with its background idf.
type Term struct {
	Text   string
	Weight float64
}

// Query is a request as digests see it.
type Query struct {
	Terms   []Term   // distinct, in the order of the request: the pairs of the first 40 count
	Tags    []string // lower case
	Classes []string
	// Vector is the embedding of the text, of length 1, and Embedder what made it; nil for none.
	Vector   []float32
	Embedder Embedder
}

// Ranked is an origin that may hold an answer.
type Ranked struct {
	*Origin
	Exact bool    // it has every class and tag that the request names
	Score float64 // an order of one list; it may be negative
}

// Constants of the score (MATCHING, section 3).
const (
	maxPairTerms = 40
	termShare    = .2
	pairShare    = .5
	likeShare    = .3
	leastLike    = .4 // cosine from which an origin that has no term of the request is worth asking at all
	perHop       = .05
	stalePenalty = .5
)

// Rank scores the origins for a request and leaves out those that hold nothing of it. Three things count, each as z-scores over the
// origins: terms, by their background idf and by how few origins have them; pairs of them that one capability has; the likeness of the
// nearest prototype. A match of the whole structured part goes first. keys finds a hash key by its id: filters under a key that is not held
// say nothing, nor do prototypes of another embedder.
func (o *Origins) Rank(q Query, keys func(id [8]byte) ([]byte, bool)) []Ranked {
	m := measure(o.list, q, keys)
	terms, pairs, like := zScores(m.terms), zScores(m.pairs), zScores(m.like)
	var out []Ranked
	for i, origin := range o.list {
		exact := origin.hasAll(q)
		if !exact && m.terms[i] == 0 && m.like[i] < leastLike {
			continue
		}
		score := pairShare*pairs[i] + termShare*terms[i] + likeShare*like[i] - perHop*float64(origin.Distance)
		if origin.Stale {
			score -= stalePenalty
		}
		out = append(out, Ranked{Origin: origin, Exact: exact, Score: score})
	}
	slices.SortFunc(out, func(a, b Ranked) int {
		if a.Exact != b.Exact {
			if a.Exact {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Gateway, b.Gateway))
	})
	return out
}

// measures are what the digests say of a request, an origin each.
type measures struct{ terms, pairs, like []float64 }

// measure asks every sketch. What a filter has counts the more, the fewer filters have it: icf(x) = ln((G + .5)/g) / ln(G + 1).
func measure(list []*Origin, q Query, keys func(id [8]byte) ([]byte, bool)) measures {
	m := measures{make([]float64, len(list)), make([]float64, len(list)), make([]float64, len(list))}
	marks := map[[8]byte]*marked{}
	hits := make([][]int, len(q.Terms)) // by term: the origins that have it
	both := map[[2]int][]int{}          // by pair of terms
	for i, origin := range list {
		s := origin.sketch
		if s == nil {
			continue
		}
		if len(q.Vector) > 0 && s.madeBy(q.Embedder) && len(s.middles[0]) == len(q.Vector) {
			for _, v := range s.middles {
				m.like[i] = max(m.like[i], float64(dot(v, q.Vector)))
			}
		}
		id := [8]byte(s.KeyID)
		under, known := marks[id]
		if !known {
			if key, ok := keys(id); ok {
				under = newMarked(q.Terms, key)
			}
			marks[id] = under
		}
		if under != nil {
			under.ask(s, func(a int) { hits[a] = append(hits[a], i) }, func(a, b int) { both[[2]int{a, b}] = append(both[[2]int{a, b}], i) })
		}
	}
	icf := func(having int) float64 {
		return math.Log((float64(len(list))+.5)/float64(having)) / math.Log(float64(len(list))+1)
	}
	for a, origins := range hits {
		for _, i := range origins {
			m.terms[i] += q.Terms[a].Weight * icf(len(origins)) / 8
		}
	}
	for p, origins := range both {
		for _, i := range origins {
			m.pairs[i] += q.Terms[p[0]].Weight * q.Terms[p[1]].Weight * icf(len(origins)) / 64
		}
	}
	return m
}

// marked are the marks of a request's terms under one hash key; those of pairs are made when they are first asked for.
type marked struct {
	key   []byte
	terms []Term
	marks []mark
	pairs map[[2]int]mark
	have  []int // terms that the sketch at hand has
}

func newMarked(terms []Term, key []byte) *marked {
	m := &marked{key: key, terms: terms, marks: make([]mark, len(terms)), pairs: map[[2]int]mark{}}
	for i, t := range terms {
		m.marks[i] = markOf(key, t.Text)
	}
	return m
}

// ask tells which terms a sketch has, and which pairs. A pair counts only if both its terms are there: a false one has to pass three times.
func (m *marked) ask(s *Sketch, term func(int), pair func(a, b int)) {
	m.have = m.have[:0]
	for i := range m.marks {
		if s.Terms.has(m.marks[i], termHashes) {
			term(i)
			if i < maxPairTerms {
				m.have = append(m.have, i)
			}
		}
	}
	if len(s.Pairs) == 0 {
		return
	}
	for n, a := range m.have {
		for _, b := range m.have[n+1:] {
			mk, ok := m.pairs[[2]int{a, b}]
			if !ok {
				x, y := m.terms[a].Text, m.terms[b].Text
				mk = markOf(m.key, min(x, y), max(x, y))
				m.pairs[[2]int{a, b}] = mk
			}
			if s.Pairs.has(mk, pairHashes) {
				pair(a, b)
			}
		}
	}
}

// zScores are by how many standard deviations each value is above the mean.
func zScores(x []float64) []float64 {
	mean, square := 0., 0.
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = (v - mean) / max(math.Sqrt(square), 1e-9)
	}
	return out
}

// hasAll says whether the origin has each class and tag of a structured request; a request without any matches none.
func (o *Origin) hasAll(q Query) bool {
	if len(q.Tags)+len(q.Classes) == 0 {
		return false
	}
	for _, t := range q.Tags {
		if !o.labels[label{NSTag, strings.ToLower(t)}] {
			return false
		}
	}
	for _, c := range q.Classes {
		if !o.labels[label{NSTaxonomy, c}] && !o.cut[upTo(c, classDepth)] {
			return false
		}
	}
	return true
}
