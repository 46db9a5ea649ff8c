package main

import (
	"encoding/json"
	"fmt"
	"math"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
)

// The four methods of the conformance vectors, over the matcher's own terms, weights of terms, and embeddings. The matcher that is shipped
// does otherwise where that was measured to be better or safer: texts are normalised, and Chinese and the like give character pairs too; a
// name's words count once; requests are cut at 96 terms and have steps; identifiers and typing errors count. So its lists are not these,
// and its parts are.
const (
	ofName, ofDescription, ofCategory, ofExtra     = 3, 1, 1, .5 // BM25F
	inName, inDescription, inCategory, inParameter = 2, 1, 1, .3 // embedding
	pairsShare                                     = .4
	mostOfAQuery                                   = 2
	embeddedChars                                  = 1500 // code points of a field
)

// reference is a corpus as the reference pipeline sees it.
type reference struct {
	words, pairs bags
	vectors      [][]float32
	tokens       *table.Table
}

// bags are documents as weighted terms.
type bags struct {
	docs    []map[string]float64
	lengths []float64
	average float64
	df      map[string]int
}

func newReference(tokens *table.Table, corpus []directory.Capability) *reference {
	r := &reference{tokens: tokens}
	for i := range corpus {
		c := &corpus[i]
		words, pairs := map[string]float64{}, map[string]float64{}
		count(words, referenceTerms(c.Name), ofName)
		count(words, referenceTerms(c.Description), ofDescription)
		for _, t := range c.Tags {
			count(words, referenceTerms(t), ofCategory)
		}
		count(words, referenceTerms(c.Parameters), ofExtra)
		count(pairs, neighbours(referenceTerms(c.Name)), 1)
		count(pairs, neighbours(referenceTerms(c.Description)), 1)
		r.words.add(words)
		r.pairs.add(pairs)
		r.vectors = append(r.vectors, tokens.Embed(referenceBag(c)))
	}
	r.words.finish()
	r.pairs.finish()
	return r
}

// add takes a document; one without terms has a dummy term.
func (b *bags) add(doc map[string]float64) {
	if len(doc) == 0 {
		doc[""] = 1
	}
	length := 0.
	for _, f := range doc {
		length += f
	}
	b.docs, b.lengths = append(b.docs, doc), append(b.lengths, length)
}

func (b *bags) finish() {
	b.df = map[string]int{}
	for i, doc := range b.docs {
		b.average += b.lengths[i] / float64(len(b.docs))
		for t := range doc {
			b.df[t]++
		}
	}
}

// scores is BM25 of all documents.
func (b *bags) scores(query []string) []float64 {
	out := make([]float64, len(b.docs))
	counted := map[string]float64{}
	for _, t := range query {
		if counted[t]++; counted[t] > mostOfAQuery {
			continue
		}
		idf := match.IDF(b.df[t], len(b.docs))
		for i, doc := range b.docs {
			if f := doc[t]; f > 0 {
				out[i] += idf * match.BM25(f, b.lengths[i], b.average)
			}
		}
	}
	return out
}

// answered are the scores of all documents by each method.
type answered struct{ words, pairs, cosines, hybrid []float64 }

func (r *reference) ask(text string) answered {
	terms := referenceTerms(text)
	a := answered{words: r.words.scores(terms), pairs: r.pairs.scores(neighbours(terms))}
	query := r.tokens.Embed(referenceQuery(text))
	for i := range a.words {
		a.pairs[i] = a.words[i] + pairsShare*a.pairs[i]
		cosine := 0.
		for k, v := range r.vectors[i] {
			cosine += float64(v) * float64(query[k])
		}
		a.cosines = append(a.cosines, cosine)
	}
	x, y := standardised(a.pairs), standardised(a.cosines)
	for i := range x {
		a.hybrid = append(a.hybrid, (x[i]+y[i])/2)
	}
	return a
}

// standardised is a list in population standard deviations from its mean.
func standardised(list []float64) []float64 {
	mean, square := 0., 0.
	for _, v := range list {
		mean += v / float64(len(list))
	}
	for _, v := range list {
		square += (v - mean) * (v - mean) / float64(len(list))
	}
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = (v - mean) / max(math.Sqrt(square), 1e-9)
	}
	return out
}

func neighbours(terms []string) []string {
	var out []string
	for i := 1; i < len(terms); i++ {
		out = append(out, terms[i-1]+" "+terms[i])
	}
	return out
}

func count(bag map[string]float64, terms []string, weight float64) {
	for _, t := range terms {
		bag[t] += weight
	}
}

// referenceTerms are a text's terms without the two steps that the matcher has more: NFKC, and the character pairs of scripts that write no
// spaces.
func referenceTerms(text string) []string {
	var out []string
	for _, w := range match.Cut(text) {
		if len(match.Terms(w)) > 0 { // no stop word
			out = append(out, match.Stem(w))
		}
	}
	return out
}

// referenceBag is a capability as it is embedded, the words of its name with their repeats.
func referenceBag(c *directory.Capability) []table.Weighted {
	bag := map[string]float64{}
	count(bag, referenceTerms(cut(c.Name)), inName)
	count(bag, referenceTerms(cut(c.Description)), inDescription)
	for _, t := range c.Tags {
		count(bag, referenceTerms(cut(t)), inCategory)
	}
	count(bag, referenceTerms(cut(c.Parameters)), inParameter)
	return weighted(bag)
}

func referenceQuery(text string) []table.Weighted {
	bag := map[string]float64{}
	count(bag, referenceTerms(text), 1)
	return weighted(bag)
}

func weighted(bag map[string]float64) []table.Weighted {
	var out []table.Weighted
	for t, f := range bag {
		out = append(out, table.Weighted{Stem: t, TF: f})
	}
	return out
}

func cut(s string) string {
	if r := []rune(s); len(r) > embeddedChars {
		return string(r[:embeddedChars])
	}
	return s
}

// scored is a tool with its score, as [id, score].
type scored struct {
	id    string
	score float64
}

// UnmarshalJSON reads [id, score].
func (s *scored) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return fmt.Errorf("[id, score] is due, not %s", b)
	}
	if err := json.Unmarshal(list[0], &s.id); err != nil {
		return err
	}
	return json.Unmarshal(list[1], &s.score)
}
