package contrast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// toyStems are stems with random starts.
func toyStems(rng *rand.Rand, n int) []stem {
	var out []stem
	for i := range n {
		start := make([]float32, dim)
		for k := range start {
			start[k] = float32(rng.NormFloat64())
		}
		out = append(out, stem{fmt.Sprint("stem", i), unit(start), .2 + .1*float64(i)})
	}
	return out
}

// toyLessons have a tool with two pairs, a request with two pairs, and a stem that comes twice.
func toyLessons() []lesson {
	return []lesson{
		{text{{0, 1}, {1, 1.7}}, text{{2, 1}}, 0, 100},
		{text{{3, 1}}, text{{2, .3}, {4, 1}}, 0, 101},
		{text{{5, 1}, {0, 1}}, text{{6, 1}}, 1, 102},
		{text{{5, 1}, {0, 1}}, text{{1, 1}}, 2, 102},
		{text{{4, 1}}, text{{3, 1}, {3, .5}}, 3, 103},
	}
}

// TestGradients holds the gradient of each kind of parameter against differences of the loss.
func TestGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	m := newModel(toyStems(rng, 7))
	for _, p := range []*parameter{m.rows, m.scales, m.shared} {
		for i := range p.value {
			p.value[i] = float32(rng.NormFloat64()) / 10
		}
	}
	c := newContrast()
	c.batch(m, toyLessons())
	gradients := map[*parameter][]float32{} // further batches add to them
	for _, p := range []*parameter{m.rows, m.scales, m.shared} {
		gradients[p] = slices.Clone(p.gradient)
	}
	for name, p := range map[string]*parameter{"d": m.rows, "u": m.scales, "A": m.shared} {
		gradient := gradients[p]
		top := float32(0)
		for _, g := range gradient {
			top = max(top, g, -g)
		}
		if top == 0 {
			t.Errorf("%s has no gradient", name)
		}
		for range 60 {
			const by = 1e-2
			i := rng.IntN(len(p.value))
			was := p.value[i]
			p.value[i] = was + by
			above := c.batch(m, toyLessons())
			p.value[i] = was - by
			below := c.batch(m, toyLessons())
			p.value[i] = was
			if got, want := float64(gradient[i]), (above-below)/(2*by); math.Abs(got-want) > .01*float64(top) {
				t.Errorf("%s[%d]: gradient %g, by differences %g", name, i, got, want)
			}
		}
	}
}

func TestPairsOfOneToolAreNoCounterExamples(t *testing.T) {
	m := newModel(toyStems(rand.New(rand.NewPCG(3, 3)), 7))
	c := newContrast()
	list := toyLessons()
	alone := c.batch(m, list[:1])
	if same := c.batch(m, []lesson{list[0], {list[0].from, list[0].to, 0, 105}}); alone != 0 || same != 0 {
		t.Errorf("loss of one pair %g, of two pairs of one tool %g", alone, same)
	}
	if two := c.batch(m, []lesson{list[2], list[3]}); two != 0 {
		t.Errorf("loss of a request's two answers %g", two)
	}
	if two := c.batch(m, []lesson{list[0], list[2]}); two <= 0 {
		t.Errorf("loss of two tools %g", two)
	}
}

// TestARowIsWhatIsEmbedded: the embedding by parts is that of the rows that the table will have.
func TestARowIsWhatIsEmbedded(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	stems := toyStems(rng, 3)
	m := newModel(stems)
	for _, p := range []*parameter{m.rows, m.scales, m.shared} {
		for i := range p.value {
			p.value[i] = float32(rng.NormFloat64()) / 10
		}
	}
	x := newTexts()
	x.embed(m, []text{{{0, 1}, {2, .5}}, nil})
	want := make([]float32, dim)
	addTo(want, 1, m.row(stems[0], 0, true))
	addTo(want, .5, m.row(stems[2], 2, true))
	unit(want)
	for k := range want {
		if math.Abs(float64(want[k]-x.unit.row(0)[k])) > 1e-5 || x.unit.row(1)[k] != 0 {
			t.Fatalf("component %d is %f, of the rows %f", k, x.unit.row(0)[k], want[k])
		}
	}
	unlearned := m.row(stems[1], 0, false)
	for k := range unlearned {
		follows := stems[1].start[k]
		for j, v := range stems[1].start {
			follows += v * m.shared.value[j*dim+k]
		}
		if math.Abs(float64(follows)*stems[1].weight-float64(unlearned[k])) > 1e-5 {
			t.Fatalf("a row that no pair has does not follow the map: %f, want %f", unlearned[k], float64(follows)*stems[1].weight)
		}
	}
}
