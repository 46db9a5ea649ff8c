package glove

import "math"

// What is removed of every vector: what all common words share says nothing about their meaning (J. Mu, P. Viswanath, "All-but-the-top",
// 2018).
const (
	commonest  = 30_000
	components = 2
	iterations = 500 // of the power method; the first components are well apart
)

// Normalise removes the mean and the first two principal components of the 30,000 commonest words from all vectors, and scales each to
// length 1. It changes w.
func (w *Words) Normalise() {
	n := min(commonest, len(w.List))
	mean := make([]float64, Dim)
	for i := range n {
		for j, v := range w.Vector(i) {
			mean[j] += float64(v) / float64(n)
		}
	}
	axes := w.principal(n, mean)
	var x [Dim]float64
	for i := range w.List {
		v := w.Vector(i)
		for j := range x {
			x[j] = float64(v[j]) - mean[j]
		}
		for _, axis := range axes {
			removeAlong(x[:], axis)
		}
		length := norm(x[:])
		for j := range x {
			if length > 0 {
				x[j] /= length
			}
			v[j] = float32(x[j])
		}
	}
}

// principal are the first axes of the n commonest words' covariance, each of length 1, by the power method.
func (w *Words) principal(n int, mean []float64) [][]float64 {
	var covariance [Dim][Dim]float64
	var x [Dim]float64
	for i := range n {
		for j, v := range w.Vector(i) {
			x[j] = float64(v) - mean[j]
		}
		for a := range x {
			row := &covariance[a]
			for b := range a + 1 {
				row[b] += x[a] * x[b]
			}
		}
	}
	for a := range covariance {
		for b := range a {
			covariance[b][a] = covariance[a][b]
		}
	}
	var axes [][]float64
	for range components {
		axis := make([]float64, Dim)
		for j := range axis {
			axis[j] = 1 / float64(j+1) // any start that is not orthogonal to what is sought
		}
		for range iterations {
			next := make([]float64, Dim)
			for a := range covariance {
				next[a] = dot(covariance[a][:], axis)
			}
			for _, found := range axes {
				removeAlong(next, found)
			}
			length := norm(next)
			if length == 0 { // all words alike
				return axes
			}
			for j := range next {
				axis[j] = next[j] / length
			}
		}
		axes = append(axes, axis)
	}
	return axes
}

// removeAlong takes from x what lies along an axis of length 1.
func removeAlong(x, axis []float64) {
	along := dot(x, axis)
	for j := range x {
		x[j] -= along * axis[j]
	}
}

func dot(x, y []float64) float64 {
	sum := 0.
	for j := range x {
		sum += x[j] * y[j]
	}
	return sum
}

func norm(x []float64) float64 { return math.Sqrt(dot(x, x)) }
