package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
)

// Matching: our index in this process beside the shortest thing that finds as much. The corpus is of stems of the language, as frequent
// as there, for what the token table does not know has no vector to compare.

const (
	matchAnswers   = 10
	matchQuestions = 64
	smallMatch     = 4_000
	largeMatch     = 100_000
	matchProse     = 20 // words of a description
	rankList       = "directory/match/data/bgrank.tsv"
)

// matchCorpus is n capabilities of n agents and questions about some of them: three words of the name and three of the description.
func matchCorpus(root string, n int) (caps []directory.Capability, questions []string, err error) {
	words, err := stems(root)
	if err != nil {
		return nil, nil, err
	}
	r := rand.New(rand.NewPCG(corpusSeed, uint64(n)))
	zipf := rand.NewZipf(r, 1.1, 10, uint64(len(words)-1))
	for i := range n {
		aic := fmt.Sprintf("2.999.1.1.1.B.1.1.%d.0000", i)
		caps = append(caps, directory.Capability{
			AIC: aic, CapID: directory.CapID(aic, "s"), SkillID: "s", Provider: aic,
			Name:        phrase(nameWords, func() string { return words[r.IntN(len(words))] }),
			Description: phrase(matchProse, func() string { return words[zipf.Uint64()] }),
			Tags:        []string{words[zipf.Uint64()]},
		})
	}
	for i := range matchQuestions {
		c := caps[i*(n/matchQuestions)]
		questions = append(questions, c.Name+" "+strings.Join(strings.Fields(c.Description)[:3], " "))
	}
	return caps, questions, nil
}

// stems are the words of the rank list that both its reader and the token table leave as they are, the commonest first.
func stems(root string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(root, rankList))
	if err != nil {
		return nil, err
	}
	var all [40_000]string
	for line := range strings.Lines(string(raw)) {
		var word string
		var rank int
		if _, err := fmt.Sscan(line, &word, &rank); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", rankList, line, err)
		}
		if _, known := table.Builtin.Row(word); known && rank < len(all) && len(match.Terms(word)) == 1 && match.Terms(word)[0] == word {
			all[rank] = word
		}
	}
	var out []string
	for _, w := range all {
		if w != "" {
			out = append(out, w)
		}
	}
	return out, nil
}

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
	caps, questions, err := matchCorpus(m.root, m.size)
	if err != nil {
		return err
	}
	texts := make([]string, len(caps))
	for i, c := range caps {
		texts[i] = c.Name + " " + c.Description + " " + c.Tags[0]
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
	}
}
