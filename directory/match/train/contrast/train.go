package contrast

import (
	"errors"
	"math"
	"math/rand/v2"

	"agentgw/directory/match/table"
	"agentgw/directory/match/train/glove"
)

const (
	epochs      = 5
	batchSize   = 512
	temperature = .06
	otherWay    = .5 // what the way from the second texts to the first counts
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

// contrast is the loss of one batch, with the memory that it needs.
type contrast struct {
	first, second       *texts
	likeness, likenessT *matrix
	firstT, secondT     *matrix
	byFirst, bySecond   *matrix
	memory              *memory
	rowSums, columnSums []float64
	froms, tos          []text
}

func newContrast() *contrast {
	return &contrast{
		first: newTexts(), second: newTexts(), likeness: &matrix{}, likenessT: &matrix{}, firstT: &matrix{}, secondT: &matrix{},
		byFirst: &matrix{}, bySecond: &matrix{}, memory: newMemory(),
	}
}

// batch computes the loss of some lessons and adds its gradients to the model's.
func (c *contrast) batch(m *model, lessons []lesson) float64 {
	c.froms, c.tos = c.froms[:0], c.tos[:0]
	for _, l := range lessons {
		c.froms, c.tos = append(c.froms, l.from), append(c.tos, l.to)
	}
	c.first.embed(m, c.froms)
	c.second.embed(m, c.tos)
	loss := c.compare(lessons)
	c.likenessT.transpose(c.likeness)
	c.byFirst.timesTransposed(c.likeness, c.secondT.transpose(c.second.unit))
	c.bySecond.timesTransposed(c.likenessT, c.firstT.transpose(c.first.unit))
	c.first.learn(m, c.byFirst, c.memory)
	c.second.learn(m, c.bySecond, c.memory)
	return loss
}

// compare computes the loss of the embeddings, and leaves in likeness the loss's gradient by each of the dot products. A dot product is
// at most 1, so its exponential at the temperature needs no care.
func (c *contrast) compare(lessons []lesson) (loss float64) {
	n := len(lessons)
	s := c.likeness.timesTransposed(c.first.unit, c.second.unit)
	c.rowSums, c.columnSums = append(c.rowSums[:0], make([]float64, n)...), append(c.columnSums[:0], make([]float64, n)...)
	for i := range n {
		row := s.row(i)
		for j, v := range row {
			if i == j {
				loss -= (1 + otherWay) * float64(v) / temperature
			} else if lessons[i].tool == lessons[j].tool || lessons[i].request == lessons[j].request {
				row[j] = 0
				continue
			}
			e := math.Exp(float64(v) / temperature)
			row[j] = float32(e)
			c.rowSums[i] += e
			c.columnSums[j] += e
		}
	}
	for i := range n {
		loss += math.Log(c.rowSums[i]) + otherWay*math.Log(c.columnSums[i])
		row := s.row(i)
		for j, e := range row {
			g := float64(e) * (1/c.rowSums[i] + otherWay/c.columnSums[j])
			if i == j {
				g -= 1 + otherWay
			}
			row[j] = float32(g / (temperature * float64(n)))
		}
	}
	return loss / float64(n)
}
