package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/integration/bench/synthetic"
)

// Matching: our index in this process beside the shortest thing that finds as much.

const (
	matchAnswers = 10
	smallMatch   = 4_000
	largeMatch   = 100_000
)

// vectorScan is a scan of embeddings in bytes and nothing else.
type vectorScan struct {
	dim    int
	rows   []int8
	scales []float32
}

func newVectorScan(texts []string) *vectorScan {
	x := &vectorScan{dim: table.Builtin.Dim()}
	for _, t := range texts {
		row, scale := embed(t)
		x.rows, x.scales = append(x.rows, row...), append(x.scales, scale)
	}
	return x
}

// embed is a text's vector by the table, in bytes.
func embed(text string) ([]int8, float32) {
	var bag []table.Weighted
	for _, w := range strings.Fields(text) {
		bag = append(bag, table.Weighted{Stem: w, TF: 1})
	}
	v := table.Builtin.Embed(bag)
	top, length := float32(0), 0.
	for _, c := range v {
		top = max(top, c, -c)
	}
	out := make([]int8, len(v))
	for i, c := range v {
		if top > 0 {
			out[i] = int8(math.Round(float64(c / top * 127)))
		}
		length += float64(out[i]) * float64(out[i])
	}
	return out, float32(1 / math.Sqrt(max(length, 1)))
}

// best10 is the ten documents most like a text, best first.
func (x *vectorScan) best10(text string) (best [10]uint32, n int) {
	q, scale := embed(text)
	var scores [10]float32
	for doc := range x.scales {
		row, sum := x.rows[doc*x.dim:(doc+1)*x.dim], int32(0)
		for i, v := range row {
			sum += int32(v) * int32(q[i])
		}
		score := float32(sum) * scale * x.scales[doc]
		if n == len(best) && score <= scores[n-1] {
			continue
		}
		n = min(n+1, len(best))
		at := n - 1
		for ; at > 0 && scores[at-1] < score; at-- {
			best[at], scores[at] = best[at-1], scores[at-1]
		}
		best[at], scores[at] = uint32(doc), score
	}
	return best, n
}

// matching is a directory of one size and its floors.
type matching struct {
	root      string
	size      int
	ours      *match.Index
	words     *simpleIndex
	vectors   *vectorScan
	questions []string
}

// load fills them, all at once.
func (m *matching) load() error {
	caps, questions, err := synthetic.Capabilities(m.root, m.size)
	if err != nil {
		return err
	}
	texts := make([]string, len(caps))
	for i := range caps {
		texts[i] = synthetic.Text(&caps[i])
	}
	m.questions = questions
	var running sync.WaitGroup
	running.Go(func() { m.words, m.vectors = newSimpleIndex(texts), newVectorScan(texts) })
	m.ours = new(match.Index)
	m.ours.Load(caps)
	running.Wait()
	return nil
}

// each is an op that asks one question after the other.
func (m *matching) each(ask func(question string) int) op {
	next := 0
	return func(context.Context) (time.Duration, error) {
		q := m.questions[next%len(m.questions)]
		next++
		at := time.Now()
		n := ask(q)
		took := time.Since(at)
		if n == 0 {
			return 0, fmt.Errorf("%q has no answer", q)
		}
		return took, nil
	}
}

// rows are the text part alone and the whole pipeline.
func (m *matching) rows() []row {
	textBar, blocks := 0., 60
	if m.size >= largeMatch { // in a small directory reading the request is most of it, and the floor reads none
		textBar, blocks = 3, 24
	}
	ask := func(without match.Parts) op {
		return m.each(func(q string) int {
			return len(m.ours.Resolve(match.Query{Text: q, Limit: matchAnswers, Without: without}))
		})
	}
	three := func(q string) int { // requests of three steps: the questions from this one on
		i := slices.Index(m.questions, q)
		next := func(n int) string { return m.questions[(i+n)%len(m.questions)] }
		return len(m.ours.Resolve(match.Query{Text: q + ". Then " + next(1) + ". Then " + next(2), Limit: matchAnswers}))
	}
	words := func(q string) int { _, n := m.words.top10(q); return n }
	return []row{
		{
			name: fmt.Sprintf("match, text part, %d capabilities", m.size), bar: textBar, blocks: blocks,
			ours: ask(match.Dense), floor: m.each(words),
		},
		{
			name: fmt.Sprintf("match, whole pipeline, %d capabilities", m.size), bar: 1.5, blocks: blocks,
			ours: ask(0), floor: m.each(func(q string) int { words(q); _, n := m.vectors.best10(q); return n }),
		},
		{ // no bar: how many of the scans of one request a request of four vectors costs
			name: fmt.Sprintf("match, three steps, %d capabilities, to a request of one", m.size), blocks: blocks,
			ours: m.each(three), floor: m.each(func(q string) int { words(q); _, n := m.vectors.best10(q); return n }),
		},
	}
}
