package match

import (
	"math"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// Field weights of the embedding; they are the token table's, not BM25F's.
const (
	denseName       = 2
	denseText       = 1 // description, tags, classes
	denseRest       = .3
	maxDenseChars   = 1500 // code points of a field
	denseCandidates = 2000 // above denseAll documents the dense part runs over so many of the text part's best only
	denseAll        = 100_000
)

// vector is a text's embedding in bytes, with what brings its length to 1.
type vector struct {
	v     []int8
	scale float32 // 1/length; 0 for a text without known stems
}

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

// dot is the sum of products of two byte vectors of one length.
func dot(x, y []int8) int32 {
	y = y[:len(x)]
	var a, b, c, d int32
	i := 0
	for ; i+4 <= len(x); i += 4 {
		p, q := x[i:i+4:i+4], y[i:i+4:i+4]
		a += int32(p[0]) * int32(q[0])
		b += int32(p[1]) * int32(q[1])
		c += int32(p[2]) * int32(q[2])
		d += int32(p[3]) * int32(q[3])
	}
	for ; i < len(x); i++ {
		a += int32(x[i]) * int32(y[i])
	}
	return a + b + c + d
}

const usualTerms = 48 // of a capability

// embedCapability is the embedding of a capability by the built-in table; terms is [Terms].
func embedCapability(c *directory.Capability, terms func(string) []string) []float32 {
	bag, at := make([]table.Weighted, 0, usualTerms), make(map[string]int, usualTerms)
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
	add(denseName, distinct(terms(firstChars(c.Name, maxDenseChars))))
	add(denseText, terms(firstChars(c.Description, maxDenseChars)))
	for _, t := range c.Tags {
		add(denseText, terms(firstChars(t, maxDenseChars)))
	}
	for _, e := range c.Examples {
		add(denseRest, terms(firstChars(e, maxDenseChars)))
	}
	add(denseRest, terms(firstChars(c.Parameters, maxDenseChars)))
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
	v, scale := quantise(nil, table.Builtin.Embed(bag))
	return vector{v, scale}
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
