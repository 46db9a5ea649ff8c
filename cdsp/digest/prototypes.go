package digest

import (
	"math"
	"slices"
)

// Prototypes of a directory's embeddings.
const (
	maxPrototypes = 8
	maxSample     = 4096 // embeddings that are looked at
	maxRounds     = 20
	starts        = 4 // of which the best counts
	// MaxDim is the most components that an embedding of a sketch may have: prototypes leave room for the filters.
	MaxDim = 256
)

// prototype is the middle of some embeddings, and how many.
type prototype struct {
	v       []float32 // of length 1
	members int
}

// prototypes are at most 8 middles of vectors of length 1, by spherical k-means, and one for each `each` vectors at most. Zero vectors, of texts that the table knows nothing of,
// belong to none. The same vectors give the same prototypes in whatever order they come.
func prototypes(vectors [][]float32, each int) []prototype {
	vectors = slices.DeleteFunc(slices.Clone(vectors), func(v []float32) bool { return dot(v, v) == 0 })
	slices.SortFunc(vectors, slices.Compare)
	share := float64(len(vectors)) / float64(min(len(vectors), maxSample)) // of all that each looked at stands for
	if len(vectors) > maxSample {
		sample := make([][]float32, maxSample)
		for i := range sample {
			sample[i] = vectors[i*len(vectors)/maxSample]
		}
		vectors = sample
	}
	k := min(maxPrototypes, len(vectors)/each)
	if k == 0 {
		return nil
	}
	var middles [][]float32
	var nearest []int
	best := math.Inf(-1)
	for start := range starts {
		m, n := cluster(vectors, firstMiddles(vectors, k, draws(start)))
		sum := 0.
		for i, v := range vectors {
			sum += float64(dot(m[n[i]], v))
		}
		if sum > best {
			best, middles, nearest = sum, m, n
		}
	}
	out := make([]prototype, len(middles))
	for i, m := range middles {
		out[i].v = m
	}
	for _, n := range nearest {
		out[n].members++
	}
	out = slices.DeleteFunc(out, func(p prototype) bool { return p.members == 0 })
	for i := range out {
		out[i].members = int(math.Round(float64(out[i].members) * share))
	}
	return out
}

// cluster moves middles to where the vectors near them are, until they stay there.
func cluster(vectors, middles [][]float32) (_ [][]float32, nearest []int) {
	nearest = make([]int, len(vectors))
	for range maxRounds {
		moved := false
		for i, v := range vectors {
			if n := nearestOf(middles, v); n != nearest[i] {
				nearest[i], moved = n, true
			}
		}
		next := gather(vectors, nearest, middles)
		if !moved && slices.EqualFunc(next, middles, slices.Equal) {
			break
		}
		middles = next
	}
	return middles, nearest
}

// draws are numbers of [0, 1) that look like chance and are the same in every process (splitmix64).
type draws uint64

func (d *draws) draw() float64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// firstMiddles chooses at most k vectors that lie apart: each next one with a chance that grows with its distance from those before.
func firstMiddles(vectors [][]float32, k int, next draws) [][]float32 {
	middles := [][]float32{vectors[int(next.draw()*float64(len(vectors)))]}
	far := make([]float64, len(vectors))
	for i := range far {
		far[i] = 2
	}
	for len(middles) < k {
		sum := 0.
		for i, v := range vectors {
			d := max(0, 1-float64(dot(v, middles[len(middles)-1])))
			far[i] = min(far[i], d*d)
			sum += far[i]
		}
		if sum < 1e-6 { // the rest says what is there already
			break
		}
		at, i := next.draw()*sum, 0
		for ; i < len(vectors)-1 && at >= far[i]; i++ {
			at -= far[i]
		}
		middles = append(middles, vectors[i])
	}
	return middles
}

func nearestOf(middles [][]float32, v []float32) int {
	best, at := float32(-2), 0
	for i, m := range middles {
		if d := dot(m, v); d > best {
			best, at = d, i
		}
	}
	return at
}

// gather is the middle of each group; a group of nobody keeps the one that it had.
func gather(vectors [][]float32, nearest []int, middles [][]float32) [][]float32 {
	sums := make([][]float64, len(middles))
	for i, v := range vectors {
		s := sums[nearest[i]]
		if s == nil {
			s = make([]float64, len(v))
			sums[nearest[i]] = s
		}
		for j, x := range v {
			s[j] += float64(x)
		}
	}
	out := slices.Clone(middles)
	for i, s := range sums {
		length := 0.
		for _, x := range s {
			length += x * x
		}
		if length == 0 {
			continue
		}
		out[i] = make([]float32, len(s))
		for j, x := range s {
			out[i][j] = float32(x / math.Sqrt(length))
		}
	}
	return out
}

func dot(x, y []float32) float32 {
	y = y[:len(x)]
	sum := float32(0)
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// toBytes is a vector in steps of its largest component; its length does not count.
func toBytes(v []float32) []byte {
	top := float32(0)
	for _, x := range v {
		top = max(top, x, -x)
	}
	out := make([]byte, len(v))
	for i, x := range v {
		if top > 0 {
			out[i] = byte(int8(math.Round(float64(x / top * 127))))
		}
	}
	return out
}

// fromBytes is a vector of length 1, nil for one without a direction.
func fromBytes(b []byte) []float32 {
	length := 0.
	for _, x := range b {
		length += float64(int8(x)) * float64(int8(x))
	}
	if length == 0 {
		return nil
	}
	scale := 1 / math.Sqrt(length)
	out := make([]float32, len(b))
	for i, x := range b {
		out[i] = float32(float64(int8(x)) * scale)
	}
	return out
}
