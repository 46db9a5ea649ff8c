package match

import (
	"math"
	"slices"
)

// Constants of BM25F; they are flat optima and not tuned per directory (MATCHING, section 1).
const (
	k1          = 1.2
	b           = .4
	bigramShare = .4
	maxQueryTF  = 2
	identWeight = 3 // an identifier counts as a word of the name
)

// queryTerm is one distinct term of a request.
type queryTerm struct {
	text  string
	count float64 // at most maxQueryTF
	bg    float64
}

// readTerms is the distinct terms of a list in order, with their background idf.
func readTerms(list []string, bg func(string) float64) []queryTerm {
	out := make([]queryTerm, 0, len(list))
	for _, t := range list {
		if i := indexTerm(out, t); i >= 0 {
			out[i].count = min(out[i].count+1, maxQueryTF)
		} else {
			out = append(out, queryTerm{t, 1, bg(t)})
		}
	}
	return out
}

func indexTerm(list []queryTerm, term string) int {
	return slices.IndexFunc(list, func(q queryTerm) bool { return q.text == term })
}

// located is a term of a request where a view has it.
type located struct {
	queryTerm
	df    int // living documents that have it
	idf   float64
	lists [][]posting // of each part
}

// locate finds a term. of is which table of a part has it.
func (r *ranking) locate(t queryTerm, of func(*part) map[string][]posting) located {
	out := located{queryTerm: t, lists: make([][]posting, len(r.parts))}
	for i, p := range r.parts {
		out.lists[i] = of(p)[t.text]
		out.df += p.alive(out.lists[i])
	}
	out.idf = r.idf(out.df)
	return out
}

func termsOf(p *part) map[string][]posting { return p.terms }
func pairsOf(p *part) map[string][]posting { return p.pairs }

// locateAll finds the terms and pairs of a step.
func (r *ranking) locateAll(s *step) (terms, pairs []located) {
	terms, pairs = make([]located, 0, len(s.terms)), make([]located, 0, len(s.pairs))
	for _, t := range s.terms {
		terms = append(terms, r.locate(t, termsOf))
	}
	for _, t := range s.pairs {
		pairs = append(pairs, r.locate(t, pairsOf))
	}
	return terms, pairs
}

func (v *view) idf(df int) float64 { return IDF(df, v.live) }

// IDF is how much a term says that df of n documents have.
func IDF(df, n int) float64 {
	f := float64(df)
	return math.Log(1 + (float64(n)-f+.5)/(f+.5))
}

// BM25 is one term's part, times its IDF: f occurrences in a document of some length, which is compared with the average.
func BM25(f, length, average float64) float64 { return bm25(f, lengthNorm(length, average)) }

// bm25 is one term's part of a score: f occurrences in a document whose length gives norm.
func bm25(f, norm float64) float64 { return f * (k1 + 1) / (f + norm) }

// lengthNorm is the norm of a length relative to the average.
func lengthNorm(length, average float64) float64 { return k1 * (1 - b + b*length/average) }

// norms are those of the usual lengths, so that a posting costs no division for it.
type norms [2048]float64

// norms makes the table at a view's first request by text. Two readers may make it at a time.
func (v *view) termNorms() *norms {
	if n := v.norms.Load(); n != nil {
		return n
	}
	n := new(norms)
	average := v.averageLength()
	for length := range n {
		n[length] = lengthNorm(float64(length)/10, average)
	}
	v.norms.Store(n)
	return n
}

func (v *view) averageLength() float64  { return float64(v.length) / 10 / float64(max(v.live, 1)) }
func (v *view) averageBigrams() float64 { return float64(v.bigrams) / float64(max(v.live, 1)) }

func (r *ranking) norm(length int32) float64 {
	if int(length) < len(r.norms) {
		return r.norms[length]
	}
	return lengthNorm(float64(length)/10, r.average)
}

func (r *ranking) termScore(t *located, e posting, d size) float64 {
	return t.count * t.idf * bm25(tenths(e.weight), r.norm(d.length))
}

func (r *ranking) pairScore(t *located, e posting, d size) float64 {
	return bigramShare * t.count * t.idf * bm25(float64(e.weight), lengthNorm(float64(d.bigrams), r.averagePairs))
}

// scoreWords adds what the terms and pairs of a step are worth.
func (r *ranking) scoreWords(to *sparse, terms, pairs []located) {
	if r.Without&Words != 0 {
		return
	}
	for i := range terms {
		r.scoreTerm(to, &terms[i])
	}
	if r.Without&Pairs != 0 {
		return
	}
	for i := range pairs {
		for n, p := range r.parts {
			for _, e := range pairs[i].lists[n] {
				to.add(r.first[n]+int(e.doc), r.pairScore(&pairs[i], e, p.sizes[e.doc]))
			}
		}
	}
}

// scoreTerm adds what one term is worth: [ranking.termScore] for each of its postings, and where nearly all the time of a request's text
// part goes.
func (r *ranking) scoreTerm(to *sparse, t *located) {
	worth, norms, touched := t.count*t.idf, r.norms, to.touched
	for n, p := range r.parts {
		of, sizes := to.of[r.first[n]:][:len(p.docs)], p.sizes[:len(p.docs)]
		first := uint32(r.first[n])
		for _, e := range t.lists[n] {
			length := sizes[e.doc].length
			norm := norms[uint(length)%uint(len(norms))]
			if int(length) >= len(norms) {
				norm = r.norm(length)
			}
			score := of[e.doc]
			if score == 0 {
				touched = append(touched, first+e.doc)
			}
			of[e.doc] = score + worth*bm25(tenths(e.weight), norm)
		}
	}
	to.touched = touched
}

// tenths is a weight as a number.
func tenths(weight uint16) float64 {
	if int(weight) < len(usualWeights) {
		return usualWeights[weight]
	}
	return float64(weight) / 10
}

// usualWeights spare a division a posting.
var usualWeights = func() (out [256]float64) {
	for i := range out {
		out[i] = float64(i) / 10
	}
	return out
}()

// scoreIdentifiers adds what an exact raw name or skill id in the request is worth, whatever the length of the text around it.
func (r *ranking) scoreIdentifiers(to *sparse) {
	for _, raw := range r.idents {
		df := 0
		for _, p := range r.parts {
			df += len(p.idents[raw])
		}
		for i, p := range r.parts {
			for _, id := range p.idents[raw] {
				to.add(r.first[i]+int(id), r.idf(min(df, r.live))*identWeight*(k1+1)/(identWeight+k1))
			}
		}
	}
}

// postingOf is a document's posting in a list.
func postingOf(list []posting, id uint32) (posting, bool) {
	i, ok := slices.BinarySearchFunc(list, id, func(e posting, id uint32) int { return int(e.doc) - int(id) })
	if !ok {
		return posting{}, false
	}
	return list[i], true
}
