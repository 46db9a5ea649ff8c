package contrast

import (
	"math"

	"agentgw/directory/match/table"
)

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
func (t *texts) learn(m *model, gradient *matrix, spare *memory) {
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
	a := spare.product.timesTransposed(spare.left.transpose(t.starts), spare.right.transpose(gradient))
	addTo(m.shared.gradient, 1, a.v)
	byStart := spare.product.timesTransposed(gradient, &matrix{dim, dim, m.shared.value})
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

// compiled is a bag of stems as rows; those that where does not know are left out.
func compiled(bag []table.Weighted, where func(string) (int32, bool)) text {
	var out text
	for _, w := range bag {
		if row, ok := where(w.Stem); ok {
			out = append(out, word{row, float32(table.Damped(w.TF))})
		}
	}
	return out
}
