package main

import (
	"math"
	"strings"
)

// simpleIndex is BM25 over words and nothing else: the floor of a resolution by text.
type simpleIndex struct {
	terms   map[string][]posting
	lengths []float32
	average float32
	scores  []float32 // of one search at a time
}

type posting struct {
	doc   uint32
	count float32
}

func newSimpleIndex(texts []string) *simpleIndex {
	x := &simpleIndex{terms: map[string][]posting{}, scores: make([]float32, len(texts))}
	for doc, text := range texts {
		words := strings.Fields(text)
		counts := map[string]float32{}
		for _, w := range words {
			counts[w]++
		}
		for w, n := range counts {
			x.terms[w] = append(x.terms[w], posting{uint32(doc), n})
		}
		x.lengths = append(x.lengths, float32(len(words)))
		x.average += float32(len(words)) / float32(len(texts))
	}
	return x
}

// top10 is the best documents of a request, best first.
func (x *simpleIndex) top10(query string) (best [10]uint32, n int) {
	var touched []uint32
	for _, w := range strings.Fields(query) {
		list := x.terms[w]
		idf := float32(math.Log(1 + (float64(len(x.lengths))-float64(len(list))+.5)/(float64(len(list))+.5)))
		for _, p := range list {
			if x.scores[p.doc] == 0 {
				touched = append(touched, p.doc)
			}
			x.scores[p.doc] += idf * p.count * 2.2 / (p.count + 1.2*(.25+.75*x.lengths[p.doc]/x.average))
		}
	}
	for _, doc := range touched {
		at := n
		for at > 0 && x.scores[best[at-1]] < x.scores[doc] {
			at--
		}
		if at == len(best) {
			continue
		}
		n = min(n+1, len(best))
		copy(best[at+1:n], best[at:n-1])
		best[at] = doc
	}
	for _, doc := range touched {
		x.scores[doc] = 0
	}
	return best, n
}
