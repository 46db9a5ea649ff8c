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
	Via      string // AIC of the neighbour to ask
	Distance int    // domains on the way
	Stale    bool
	labels   map[label]bool
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
		at.labels, at.sketch = map[label]bool{}, nil
		origin = &at
		o.byGW[at.Gateway] = origin
		o.list = append(o.list, origin)
	}
	if it.Label != "" {
		for name := it.Label; ; name = name[:strings.LastIndexByte(name, '/')] { // a class stands for those above it
			origin.labels[label{it.NS, name}] = true
			if it.NS != NSTaxonomy || !strings.Contains(name, "/") {
				break
			}
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

// Len is the number of origins.
func (o *Origins) Len() int { return len(o.list) }

// Term is a term of a request with its background idf.
type Term struct {
	Text   string
	Weight float64
}

// Query is a request as digests see it.
type Query struct {
	Terms   []Term
	Tags    []string // lower case
	Classes []string
}

// Ranked is an origin that may hold an answer.
type Ranked struct {
	*Origin
	Exact bool    // it has every class and tag that the request names
	Score float64 // above 0
}

// Penalties of the score.
const (
	perHop       = 0.95
	stalePenalty = 0.5
)

// Rank scores the origins for a request and leaves out those that hold nothing of it. Each term counts by its background
// idf and by how few origins have it; an exact match of the structured part goes first. keys finds a hash key by its id: a
// sketch under a key that is not held says nothing.
func (o *Origins) Rank(q Query, keys func(id [8]byte) ([]byte, bool)) []Ranked {
	hits := make([][]bool, len(q.Terms)) // term, origin
	for i, t := range q.Terms {
		hits[i] = make([]bool, len(o.list))
		for j, origin := range o.list {
			if origin.sketch == nil {
				continue
			}
			if key, ok := keys([8]byte(origin.sketch.KeyID)); ok {
				hits[i][j] = origin.sketch.has(t.Text, key)
			}
		}
	}
	scores := o.weigh(q, hits)
	var out []Ranked
	for j, origin := range o.list {
		exact := origin.hasAll(q)
		score := scores[j]
		if exact && len(q.Terms) == 0 {
			score = 1
		}
		if score == 0 && !exact {
			continue
		}
		score *= math.Pow(perHop, float64(origin.Distance))
		if origin.Stale {
			score *= stalePenalty
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

// weigh adds up idf · icf: icf(x) = ln((G + .5)/g) / ln(G + 1), g the origins whose filter has x.
func (o *Origins) weigh(q Query, hits [][]bool) []float64 {
	scores := make([]float64, len(o.list))
	total := float64(len(o.list))
	for i, t := range q.Terms {
		having := 0
		for _, h := range hits[i] {
			if h {
				having++
			}
		}
		if having == 0 {
			continue
		}
		icf := math.Log((total+.5)/float64(having)) / math.Log(total+1)
		for j, h := range hits[i] {
			if h {
				scores[j] += t.Weight * icf / 8
			}
		}
	}
	return scores
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
		if !o.labels[label{NSTaxonomy, c}] {
			return false
		}
	}
	return true
}
