package contrast

import "math"

const (
	temperature = .06
	otherWay    = .5 // what the way from the second texts to the first counts
)

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
