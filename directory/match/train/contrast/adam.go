package contrast

import "math"

// Adam's usual constants (D. P. Kingma, J. Ba, 2015).
const (
	beta1   = .9
	beta2   = .999
	epsilon = 1e-8
)

// parameter is numbers that are learned, with their gradient and Adam's two moments.
type parameter struct {
	rate                     float64
	value, gradient          []float32
	moment, secondMoment     []float32
	correction1, correction2 float64 // beta1 and beta2 to the number of steps
}

func newParameter(n int, rate float64) *parameter {
	return &parameter{
		rate: rate, value: make([]float32, n), gradient: make([]float32, n), moment: make([]float32, n), secondMoment: make([]float32, n),
		correction1: 1, correction2: 1,
	}
}

// step goes against the gradient, and against decay times the values, and clears it.
func (p *parameter) step(decay float32) {
	p.correction1 *= beta1
	p.correction2 *= beta2
	rate := float32(p.rate / (1 - p.correction1))
	scale := float32(1 / (1 - p.correction2))
	value, moment, second := p.value[:len(p.gradient)], p.moment[:len(p.gradient)], p.secondMoment[:len(p.gradient)]
	for i, g := range p.gradient {
		g += decay * value[i]
		m := beta1*moment[i] + (1-beta1)*g
		s := beta2*second[i] + (1-beta2)*g*g
		moment[i], second[i] = m, s
		value[i] -= rate * m / (float32(math.Sqrt(float64(s*scale))) + epsilon)
	}
	clear(p.gradient)
}
