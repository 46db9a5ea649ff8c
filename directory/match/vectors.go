package match

import "math"

// vectors are embeddings of one dimension in bytes, one behind the other. A byte is a component plus 128, and a vector's room is a whole
// number of 8 bytes, so that a scan takes eight components from one word.
type vectors struct {
	dim    int
	bytes  []byte
	scales []float32 // 1/length of each; 0 for a text without an embedding
}

const zeroByte = 128 // of a component

// room is what a vector of so many components takes.
func room(dim int) int { return (dim + 7) / 8 * 8 }

// add appends a vector of length 1, or a zero one. All have the dimension of the first.
func (v *vectors) add(x []float32) {
	var quantised [256]int8
	q, scale := quantise(quantised[:0], x)
	v.dim = len(x)
	for _, c := range q {
		v.bytes = append(v.bytes, byte(c)^zeroByte)
	}
	for range room(v.dim) - v.dim {
		v.bytes = append(v.bytes, zeroByte)
	}
	v.scales = append(v.scales, scale)
}

// addFrom appends the i-th vector of others.
func (v *vectors) addFrom(others *vectors, i uint32) {
	size := room(others.dim)
	v.dim = others.dim
	v.bytes = append(v.bytes, others.bytes[int(i)*size:(int(i)+1)*size]...)
	v.scales = append(v.scales, others.scales[i])
}

// newVectors is n vectors that are to be set.
func newVectors(dim, n int) vectors {
	return vectors{dim: dim, bytes: make([]byte, n*room(dim)), scales: make([]float32, n)}
}

// appendComponents appends the i-th vector as signed octets.
func (v *vectors) appendComponents(b []byte, i uint32) []byte {
	size := room(v.dim)
	for _, c := range v.bytes[int(i)*size : int(i)*size+v.dim] {
		b = append(b, c^zeroByte)
	}
	return b
}

// setComponents sets the i-th vector to signed octets, as appendComponents has them.
func (v *vectors) setComponents(i int, components string, scale float32) {
	to := v.bytes[i*room(v.dim) : (i+1)*room(v.dim)]
	for n := range len(components) {
		to[n] = components[n] ^ zeroByte
	}
	for n := len(components); n < len(to); n++ {
		to[n] = zeroByte
	}
	v.scales[i] = scale
}

// missing is the likeness of a document that has no vector of an outside embedder: it is no number, and so neither above nor below any.
var missing = float32(math.NaN())

// markMissing writes missing where there is no vector.
func (v *vectors) markMissing(from int, out []float32) {
	if v.dim == 0 {
		for i := range out {
			out[i] = missing
		}
		return
	}
	for i, scale := range v.scales[from : from+len(out)] {
		if scale == 0 {
			out[i] = missing
		}
	}
}

// likeness is what cosines writes, or missing.
func (v *vectors) likeness(q *vector, i uint32) float32 {
	one := [1]float32{missing}
	if v.dim > 0 {
		v.cosines(q, int(i), one[:])
		v.markMissing(int(i), one[:])
	}
	return one[0]
}

// cosine is the similarity of the i-th vector and a request's.
func (v *vectors) cosine(q *vector, i uint32) float32 {
	var one [1]float32
	v.cosines(q, int(i), one[:])
	return one[0]
}

// cosines writes the similarities of a request's vector and of those from one on.
func (v *vectors) cosines(q *vector, from int, out []float32) {
	size := room(v.dim)
	rows, scales := v.bytes[from*size:(from+len(out))*size], v.scales[from:from+len(out)]
	for i := range out {
		out[i] = float32(q.dot(rows[i*size:(i+1)*size])) * q.scale * scales[i]
	}
}

// vector is a text's embedding in bytes, with what brings its length to 1.
type vector struct {
	v     []int8
	scale float32 // 1/length; 0 for a text without known stems
	lanes []uint64
	bias  int32 // what the 128 in each byte of the others adds to a product
}

// unitLength is a vector brought to length 1; a zero one stays.
func unitLength(v []float32) []float32 {
	sum := 0.
	for _, c := range v {
		sum += float64(c) * float64(c)
	}
	if sum == 0 {
		return v
	}
	out, length := make([]float32, len(v)), math.Sqrt(sum)
	for i, c := range v {
		out[i] = float32(float64(c) / length)
	}
	return out
}

// bundle is up to four requests' vectors of one dimension that are compared at once: each word of the others is taken apart once, and four
// of them take twice the time of one.
type bundle struct {
	of    []*vector
	lanes []uint64 // the four's in turn
}

func newBundle(of []*vector) *bundle {
	b := &bundle{of: of, lanes: make([]uint64, 4*len(of[0].lanes))}
	for n, v := range of {
		for i, lane := range v.lanes {
			b.lanes[4*i+n] = lane
		}
	}
	return b
}

// cosines writes the similarities of each of the bundle's vectors and of those from one on.
func (b *bundle) cosines(v *vectors, from int, out [][]float32) {
	size := room(v.dim)
	rows, scales := v.bytes[from*size:(from+len(out[0]))*size], v.scales[from:from+len(out[0])]
	for i, scale := range scales {
		sums := b.sums(rows[i*size : (i+1)*size])
		for n, q := range b.of {
			out[n][i] = float32(q.upper(sums[n])) * q.scale * scale
		}
	}
}

// sums are those of [vector.dot], of four vectors.
func (b *bundle) sums(row []byte) [4]uint64 {
	const two = 0x000000FF_000000FF
	lanes := b.lanes
	var s0, s1, s2, s3 uint64
	for len(row) >= 8 && len(lanes) >= 16 {
		w := uint64(row[0]) | uint64(row[1])<<8 | uint64(row[2])<<16 | uint64(row[3])<<24 |
			uint64(row[4])<<32 | uint64(row[5])<<40 | uint64(row[6])<<48 | uint64(row[7])<<56 // one load
		u := w & two
		s0, s1, s2, s3 = s0+u*lanes[0], s1+u*lanes[1], s2+u*lanes[2], s3+u*lanes[3]
		u = w >> 8 & two
		s0, s1, s2, s3 = s0+u*lanes[4], s1+u*lanes[5], s2+u*lanes[6], s3+u*lanes[7]
		u = w >> 16 & two
		s0, s1, s2, s3 = s0+u*lanes[8], s1+u*lanes[9], s2+u*lanes[10], s3+u*lanes[11]
		u = w >> 24 & two
		s0, s1, s2, s3 = s0+u*lanes[12], s1+u*lanes[13], s2+u*lanes[14], s3+u*lanes[15]
		row, lanes = row[8:], lanes[16:]
	}
	return [4]uint64{s0, s1, s2, s3}
}

// newVector makes a vector ready to be compared.
//
// Two of a vector's bytes in one word, lo + hi·2³², times two components a + b·2³² of the request are, modulo 2⁶⁴,
//
//	lo·a + (lo·b + hi·a)·2³²
//
// so that one multiplication gives two products of the sum that is wanted, in the upper half, where b belongs to lo and a to hi. The
// lower half is taken off at the end. Both halves fit for up to [maxVectorDim] components: each product is below 255·127.
func newVector(x []float32) vector {
	out := vector{}
	out.v, out.scale = quantise(nil, x)
	padded := append(make([]int8, 0, room(len(x))), out.v...)
	padded = padded[:room(len(x))]
	for i := 0; i < len(padded); i += 8 {
		for j := range 4 {
			lo, hi := padded[i+j], padded[i+j+4]
			out.lanes = append(out.lanes, uint64(int64(hi))+uint64(int64(lo))<<32)
		}
	}
	for _, c := range out.v {
		out.bias += zeroByte * int32(c)
	}
	return out
}

// maxVectorDim bounds the dimension of a vector.
const maxVectorDim = 1 << 15

// dot is the sum of products with a vector of this dimension as [vectors] keeps it.
func (q *vector) dot(row []byte) int32 {
	const two = 0x000000FF_000000FF
	lanes := q.lanes
	var even, odd uint64
	for len(row) >= 8 && len(lanes) >= 4 {
		w := uint64(row[0]) | uint64(row[1])<<8 | uint64(row[2])<<16 | uint64(row[3])<<24 |
			uint64(row[4])<<32 | uint64(row[5])<<40 | uint64(row[6])<<48 | uint64(row[7])<<56 // one load
		even += (w & two) * lanes[0]
		odd += (w >> 8 & two) * lanes[1]
		even += (w >> 16 & two) * lanes[2]
		odd += (w >> 24 & two) * lanes[3]
		row, lanes = row[8:], lanes[4:]
	}
	return q.upper(even + odd)
}

// upper is the product in the upper half of a sum.
func (q *vector) upper(sum uint64) int32 {
	lower := int64(int32(sum))
	return int32((int64(sum)-lower)>>32) - q.bias
}
