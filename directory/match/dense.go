package match

import (
	"math"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// Field weights of the embedding; they are the token table's, not BM25F's.
const (
	denseName     = 2
	denseText     = 1 // description, tags, classes
	denseRest     = .3
	maxDenseChars = 1500 // code points of a field
)

// quantise turns a vector of length 1, or a zero one, into bytes appended to b.
func quantise(b []int8, v []float32) ([]int8, float32) {
	top := float32(0)
	for _, x := range v {
		top = max(top, x, -x)
	}
	if top == 0 {
		return append(b, make([]int8, len(v))...), 0
	}
	length := 0.
	for _, x := range v {
		q := math.Round(float64(x / top * 127))
		length += q * q
		b = append(b, int8(q))
	}
	return b, float32(1 / math.Sqrt(length))
}

// dot is the sum of products of two byte vectors of one length. [vector.dot] is the fast one, for vectors that are kept.
func dot(x, y []int8) int32 {
	sum := int32(0)
	for i, v := range x {
		sum += int32(v) * int32(y[i])
	}
	return sum
}

const usualTerms = 48 // of a capability

// denseBag is a capability's stems with their weights for the token table.
type denseBag struct {
	stems []table.Weighted
	at    map[string]int
}

func (b *denseBag) add(weight float64, terms []string) {
	if b.at == nil {
		b.stems, b.at = make([]table.Weighted, 0, usualTerms), make(map[string]int, usualTerms)
	}
	for _, t := range terms {
		i, ok := b.at[t]
		if !ok {
			i = len(b.stems)
			b.at[t] = i
			b.stems = append(b.stems, table.Weighted{Stem: t})
		}
		b.stems[i].TF += weight
	}
}

// denseWeight is what the table weighs a field by.
func denseWeight(field uint8) float64 {
	switch field {
	case fieldName:
		return denseName
	case fieldDescription, fieldTags:
		return denseText
	}
	return denseRest
}

// Bag is what of a capability is embedded: its distinct stems, each with its frequency weighted by field, of the first 1,500 characters
// of each field. A text alone is a capability that has a description only.
func Bag(c *directory.Capability) []table.Weighted {
	var bag denseBag
	short := *c
	short.Name, short.Description, short.Parameters = firstChars(c.Name, maxDenseChars), firstChars(c.Description, maxDenseChars), firstChars(c.Parameters, maxDenseChars)
	short.Tags, short.Examples = firstCharsOf(c.Tags), firstCharsOf(c.Examples)
	eachField(&short, Terms, func(terms []string, _ int, field uint8) { bag.add(denseWeight(field), terms) })
	return bag.stems
}

func firstCharsOf(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = firstChars(s, maxDenseChars)
	}
	return out
}

// allDense says whether the table reads a capability's fields to their ends.
func allDense(c *directory.Capability) bool {
	for _, list := range [][]string{{c.Name, c.Description, c.Parameters}, c.Tags, c.Examples} {
		for _, s := range list {
			if len(s) > maxDenseChars {
				return false
			}
		}
	}
	return true
}

// embedQuery is the embedding of a request's terms.
func embedQuery(tokens *table.Table, terms []string) vector {
	bag := make([]table.Weighted, 0, len(terms))
	for i, t := range terms {
		tf := 1.
		for _, u := range terms[:i] {
			if u == t {
				tf = 0 // counted at its first place
			}
		}
		if tf > 0 {
			for _, u := range terms[i+1:] {
				if u == t {
					tf++
				}
			}
			bag = append(bag, table.Weighted{Stem: t, TF: tf})
		}
	}
	return newVector(tokens.Embed(bag))
}

func firstChars(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
