package contrast

import (
	"math"

	"agentgw/directory/match/table"
	"agentgw/directory/match/train/glove"
)

const dim = glove.Dim

// Learning rates and the penalty on d of one step: .1·|d|²/512.
const (
	rateOfRows    = 2e-3
	rateOfWeights = 1e-2
	rateOfMap     = 1e-3
	decayOfRows   = 2 * .1 / 512
)

// model is the rows that are learned: those of stems that a pair has.
type model struct {
	start   *matrix    // e
	weights []float32  // ln w
	rows    *parameter // d
	scales  *parameter // u
	shared  *parameter // A, row-major
}

func newModel(stems []stem) *model {
	m := &model{
		start: newMatrix(len(stems), dim), weights: make([]float32, len(stems)),
		rows: newParameter(len(stems)*dim, rateOfRows), scales: newParameter(len(stems), rateOfWeights), shared: newParameter(dim*dim, rateOfMap),
	}
	for i, s := range stems {
		copy(m.start.row(i), s.start)
		m.weights[i] = float32(math.Log(s.weight))
	}
	return m
}

func (m *model) step() {
	m.rows.step(decayOfRows)
	m.scales.step(0)
	m.shared.step(0)
}

// row is a stem's row as it is learned by now: (e + e·A + d)·exp(ln w + u). A stem that no pair has is not the model's: its d and u are 0.
func (m *model) row(s stem, place int, learned bool) []float32 {
	out := append([]float32(nil), s.start...)
	for k, x := range s.start {
		addTo(out, x, m.shared.value[k*dim:(k+1)*dim])
	}
	weight := math.Log(s.weight)
	if learned {
		addTo(out, 1, m.rows.value[place*dim:(place+1)*dim])
		weight += float64(m.scales.value[place])
	}
	by := float32(math.Exp(weight))
	for k := range out {
		out[k] *= by
	}
	return out
}

// word is a stem of a text by its row, with its dampened frequency.
type word struct {
	row  int32
	gain float32
}

// text is what is embedded.
type text []word

// texts are embeddings of some texts with what their gradients need.
type texts struct {
	of      []text
	lengths []float32 // of the sums; 0 where a text has no stem
	starts  *matrix   // sums of e, weighted
	sums    *matrix   // of whole rows
	unit    *matrix   // brought to length 1: the embeddings
	mapT    *matrix
}

func newTexts() *texts {
	return &texts{starts: &matrix{}, sums: &matrix{}, unit: &matrix{}, mapT: &matrix{}}
}

// embed computes the embeddings of texts. The map is applied to a text's sum, and not to each of its rows: it is linear.
func (t *texts) embed(m *model, of []text) {
	t.of = of
	n := len(of)
	t.starts.resized(n, dim)
	clear(t.starts.v)
	t.mapT.transpose(&matrix{dim, dim, m.shared.value})
	for i, x := range of {
		start := t.starts.row(i)
		for _, w := range x {
			addTo(start, m.scaled(w), m.start.row(int(w.row)))
		}
	}
	t.sums.timesTransposed(t.starts, t.mapT)
	t.unit.resized(n, dim)
	t.lengths = append(t.lengths[:0], make([]float32, n)...)
	for i, x := range of {
		sum := t.sums.row(i)
		addTo(sum, 1, t.starts.row(i))
		for _, w := range x {
			addTo(sum, m.scaled(w), m.rows.value[int(w.row)*dim:(int(w.row)+1)*dim])
		}
		length := float32(math.Sqrt(float64(dot(sum, sum))))
		t.lengths[i] = length
		unit := t.unit.row(i)
		clear(unit)
		if length > 0 {
			addTo(unit, 1/length, sum)
		}
	}
}

// scaled is how much a stem counts in a text.
func (m *model) scaled(w word) float32 {
	return w.gain * float32(math.Exp(float64(m.weights[w.row]+m.scales.value[w.row])))
}

// learn adds to the model's gradients what the gradient by the embeddings, which it overwrites, comes to.
func (t *texts) learn(m *model, gradient *matrix, memory *memory) {
	for i := range t.of {
		g, unit := gradient.row(i), t.unit.row(i)
		if t.lengths[i] == 0 {
			clear(g)
			continue
		}
		addTo(g, -dot(g, unit), unit)
		for k := range g {
			g[k] /= t.lengths[i]
		}
	}
	// By A: startsᵀ·gradient. By the sums of e: gradient + gradient·Aᵀ.
	a := memory.product.timesTransposed(memory.left.transpose(t.starts), memory.right.transpose(gradient))
	addTo(m.shared.gradient, 1, a.v)
	byStart := memory.product.timesTransposed(gradient, &matrix{dim, dim, m.shared.value})
	addTo(byStart.v, 1, gradient.v)
	for i, x := range t.of {
		g, gs := gradient.row(i), byStart.row(i)
		for _, w := range x {
			scale, at := m.scaled(w), int(w.row)*dim
			row := m.rows.value[at : at+dim]
			m.scales.gradient[w.row] += scale * (dot(m.start.row(int(w.row)), gs) + dot(row, g))
			addTo(m.rows.gradient[at:at+dim], scale, g)
		}
	}
}

// memory is matrices that are computed and forgotten.
type memory struct{ left, right, product *matrix }

func newMemory() *memory { return &memory{&matrix{}, &matrix{}, &matrix{}} }

// quantised is rows in eight bits a component with one scale each.
func quantised(rows [][]float32) (scales []float32, bytes []int8) {
	for _, row := range rows {
		top := float32(0)
		for _, v := range row {
			top = max(top, v, -v)
		}
		scale := top / 127
		scales = append(scales, scale)
		for _, v := range row {
			if scale == 0 {
				bytes = append(bytes, 0)
			} else {
				bytes = append(bytes, int8(math.RoundToEven(float64(v/scale))))
			}
		}
	}
	return scales, bytes
}

// compiled are pairs with their stems as rows; where has the row of a stem.
func compiled(bag []table.Weighted, where func(string) (int32, bool)) text {
	var out text
	for _, w := range bag {
		if row, ok := where(w.Stem); ok {
			out = append(out, word{row, float32(table.Damped(w.TF))})
		}
	}
	return out
}
