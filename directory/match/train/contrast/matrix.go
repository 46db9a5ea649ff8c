package contrast

// matrix is rows of float32 of one length, one behind the other.
type matrix struct {
	rows, columns int
	v             []float32
}

func newMatrix(rows, columns int) *matrix {
	return &matrix{rows, columns, make([]float32, rows*columns)}
}

func (m *matrix) row(i int) []float32 { return m.v[i*m.columns : (i+1)*m.columns : (i+1)*m.columns] }

// resized gives m other dimensions in the memory that it has; what is in it is left from before.
func (m *matrix) resized(rows, columns int) *matrix {
	if n := rows * columns; cap(m.v) < n {
		m.v = make([]float32, n)
	} else {
		m.v = m.v[:n]
	}
	m.rows, m.columns = rows, columns
	return m
}

// transpose makes m the transpose of x.
func (m *matrix) transpose(x *matrix) *matrix {
	m.resized(x.columns, x.rows)
	for i := range x.rows {
		for j, v := range x.row(i) {
			m.v[j*m.columns+i] = v
		}
	}
	return m
}

// timesTransposed makes m the product x·yᵀ: the dot products of all rows of x with all rows of y. Two rows of each are taken at a time,
// so that a number is read once for two products: three times as fast as one by one.
func (m *matrix) timesTransposed(x, y *matrix) *matrix {
	m.resized(x.rows, y.rows)
	for i := 0; i < x.rows; i += 2 {
		x0, x1 := x.row(i), x.row(min(i+1, x.rows-1))
		m0, m1 := m.row(i), m.row(min(i+1, x.rows-1))
		for j := 0; j < y.rows; j += 2 {
			last := min(j+1, y.rows-1)
			m0[j], m0[last], m1[j], m1[last] = dots(x0, x1, y.row(j), y.row(last))
		}
	}
	return m
}

// dots are the four dot products of two vectors with two others, all of one length.
func dots(x0, x1, y0, y1 []float32) (a00, a01, a10, a11 float32) {
	x1, y0, y1 = x1[:len(x0)], y0[:len(x0)], y1[:len(x0)]
	var b00, b01, b10, b11 float32
	k := 0
	for ; k+1 < len(x0); k += 2 {
		p, q, r, s := x0[k], x1[k], y0[k], y1[k]
		a00 += p * r
		a01 += p * s
		a10 += q * r
		a11 += q * s
		p, q, r, s = x0[k+1], x1[k+1], y0[k+1], y1[k+1]
		b00 += p * r
		b01 += p * s
		b10 += q * r
		b11 += q * s
	}
	if k < len(x0) {
		a00 += x0[k] * y0[k]
		a01 += x0[k] * y1[k]
		a10 += x1[k] * y0[k]
		a11 += x1[k] * y1[k]
	}
	return a00 + b00, a01 + b01, a10 + b10, a11 + b11
}

func dot(x, y []float32) float32 {
	y = y[:len(x)]
	var a, b float32
	k := 0
	for ; k+1 < len(x); k += 2 {
		a += x[k] * y[k]
		b += x[k+1] * y[k+1]
	}
	if k < len(x) {
		a += x[k] * y[k]
	}
	return a + b
}

// addTo adds by·x to sum.
func addTo(sum []float32, by float32, x []float32) {
	sum = sum[:len(x)]
	for k, v := range x {
		sum[k] += by * v
	}
}
