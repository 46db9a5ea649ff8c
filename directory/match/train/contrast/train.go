package contrast

import (
	"errors"
	"math/rand/v2"

	"agentgw/directory/match/table"
	"agentgw/directory/match/train/glove"
)

const (
	epochs    = 5
	batchSize = 512 // pairs
)

// Result is a table as its file, with what it took.
type Result struct {
	File    []byte
	Pairs   int // of texts whose stems are known
	Stems   int
	Learned int       // stems that a pair has
	Losses  []float64 // mean of each epoch
}

// lesson is a pair in rows.
type lesson struct {
	from, to      text
	tool, request int32 // numbered; request is unique where there is none
}

// Train makes a table of normalised word vectors and material. Seed decides the order of pairs and the start of stems without a vector.
func Train(words *glove.Words, m *Material, seed uint64) (*Result, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	stems := vocabulary(words, m.texts, rng)
	lessons, learned := m.lessons(stems)
	if len(lessons) == 0 {
		return nil, errors.New("the material has no pair whose stems are known")
	}
	model := newModel(learned.stems)
	out := &Result{Pairs: len(lessons), Stems: len(stems), Learned: len(learned.stems)}
	c := newContrast()
	for range epochs {
		rng.Shuffle(len(lessons), func(i, j int) { lessons[i], lessons[j] = lessons[j], lessons[i] })
		sum, steps := 0., 0.
		for at := 0; at < len(lessons); at += batchSize {
			sum += c.batch(model, lessons[at:min(at+batchSize, len(lessons))])
			model.step()
			steps++
		}
		out.Losses = append(out.Losses, sum/steps)
	}
	names, rows := make([]string, len(stems)), make([][]float32, len(stems))
	for i, s := range stems {
		place, ok := learned.place[s.name]
		names[i], rows[i] = s.name, model.row(s, int(place), ok)
	}
	scales, bytes := quantised(rows)
	out.File = table.Append(nil, names, scales, bytes, dim)
	return out, nil
}

// learnedStems are the stems that pairs have, in the order in which they come.
type learnedStems struct {
	stems []stem
	place map[string]int32
}

// lessons are the pairs that have known stems on both sides.
func (m *Material) lessons(stems []stem) ([]lesson, *learnedStems) {
	known := make(map[string]int, len(stems))
	for i, s := range stems {
		known[s.name] = i
	}
	learned := &learnedStems{place: map[string]int32{}}
	where := func(name string) (int32, bool) {
		i, ok := known[name]
		if !ok {
			return 0, false
		}
		at, ok := learned.place[name]
		if !ok {
			at = int32(len(learned.stems))
			learned.place[name], learned.stems = at, append(learned.stems, stems[i])
		}
		return at, true
	}
	var out []lesson
	numbers := map[string]int32{}
	number := func(s string) int32 {
		if _, ok := numbers[s]; !ok {
			numbers[s] = int32(len(numbers))
		}
		return numbers[s]
	}
	for i, p := range m.pairs {
		l := lesson{from: compiled(p.from, where), to: compiled(p.to, where), tool: number(p.tool), request: int32(-1 - i)}
		if p.request != "" {
			l.request = number(p.request)
		}
		if len(l.from) > 0 && len(l.to) > 0 {
			out = append(out, l)
		}
	}
	return out, learned
}
