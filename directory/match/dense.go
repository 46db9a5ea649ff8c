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

// embedCapability is the embedding of a capability by the built-in table.
func embedCapability(c *directory.Capability) []float32 {
	var bag []table.Weighted
	at := map[string]int{}
	add := func(weight float64, terms []string) {
		for _, t := range terms {
			i, ok := at[t]
			if !ok {
				i = len(bag)
				at[t] = i
				bag = append(bag, table.Weighted{Stem: t})
			}
			bag[i].TF += weight
		}
	}
	add(denseName, distinct(Terms(firstChars(c.Name, maxDenseChars))))
	add(denseText, Terms(firstChars(c.Description, maxDenseChars)))
	for _, t := range c.Tags {
		add(denseText, Terms(firstChars(t, maxDenseChars)))
	}
	for _, e := range c.Examples {
		add(denseRest, Terms(firstChars(e, maxDenseChars)))
	}
	add(denseRest, Terms(firstChars(c.Parameters, maxDenseChars)))
	return table.Builtin.Embed(bag)
}

// embedQuery is the embedding of a request's terms.
func embedQuery(terms []string) vector {
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
	return newVector(table.Builtin.Embed(bag))
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
