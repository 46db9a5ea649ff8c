package contrast

import (
	"math"

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
