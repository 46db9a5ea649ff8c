package contrast

import (
	"math"
	"math/rand/v2"
	"testing"
)

func random(rng *rand.Rand, rows, columns int) *matrix {
	m := newMatrix(rows, columns)
	for i := range m.v {
		m.v[i] = float32(rng.NormFloat64())
	}
	return m
}

func TestProductsAndTransposes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range [][3]int{{1, 1, 1}, {2, 3, 5}, {3, 2, 4}, {7, 7, 9}, {8, 6, 100}} {
		x, y := random(rng, size[0], size[2]), random(rng, size[1], size[2])
		got := new(matrix).timesTransposed(x, y)
		back := new(matrix).transpose(got)
		for i := range x.rows {
			for j := range y.rows {
				want := 0.
				for k := range x.columns {
					want += float64(x.row(i)[k]) * float64(y.row(j)[k])
				}
				if v := got.row(i)[j]; math.Abs(float64(v)-want) > 1e-4 || back.row(j)[i] != v {
					t.Errorf("%v: product %d, %d is %f, want %f", size, i, j, v, want)
				}
			}
		}
	}
}

func TestAStepOfAdam(t *testing.T) {
	p := newParameter(3, .5)
	copy(p.value, []float32{1, 1, 1})
	copy(p.gradient, []float32{4, -.25, 0})
	p.step(0)
	for i, want := range []float32{.5, 1.5, 1} { // the first step is the rate, against the gradient's sign
		if math.Abs(float64(p.value[i]-want)) > 1e-5 || p.gradient[i] != 0 {
			t.Errorf("value %d is %f, want %f", i, p.value[i], want)
		}
	}
	p = newParameter(1, .5)
	p.value[0] = 1
	p.step(.1)
	if p.value[0] >= 1 {
		t.Error("the decay does nothing")
	}
}

func TestEightBits(t *testing.T) {
	scales, bytes := quantised([][]float32{{1, -2, .5}, {0, 0, 0}})
	if scales[0] != 2./127 || bytes[1] != -127 || scales[1] != 0 || bytes[3] != 0 {
		t.Errorf("scales %v, rows %v", scales, bytes)
	}
	for k, v := range []float32{1, -2, .5} {
		if off := float32(bytes[k])*scales[0] - v; off > scales[0]/2 || off < -scales[0]/2 {
			t.Errorf("component %d is off by %f", k, off)
		}
	}
}
