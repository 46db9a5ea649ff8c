package match

import "math"

// scratch is what one request needs of memory for every document of a view. It is kept for the next request.
type scratch struct {
	lex  []float64 // BM25F + bigrams + identifiers + corrected terms
	cos  []float32
	rank []float64 // fused
}

// sized gives room for so many documents; what is in it is left from before.
func (s *scratch) sized(docs int) {
	if cap(s.lex) < docs {
		s.lex, s.cos, s.rank = make([]float64, docs), make([]float32, docs), make([]float64, docs)
	}
	s.lex, s.cos, s.rank = s.lex[:docs], s.cos[:docs], s.rank[:docs]
}

// takeScratch is memory for one request. More readers at a time than the index keeps scratches for make their own.
func (x *Index) takeScratch(docs int) *scratch {
	s := new(scratch)
	for i := range x.scratches {
		if kept := x.scratches[i].Swap(nil); kept != nil {
			s = kept
			break
		}
	}
	s.sized(docs)
	return s
}

// giveBack keeps a scratch for the next request.
func (x *Index) giveBack(s *scratch) {
	for i := range x.scratches {
		if x.scratches[i].CompareAndSwap(nil, s) {
			return
		}
	}
}

// spread is mean and standard deviation of a list of scores. It sums whole numbers, so that the order of the documents, which is
// that of their arrival, changes nothing.
type spread struct{ n, sum, sums int64 }

// unit of the sums: the squares of a million scores of 1,000 stay below 2^63.
const unit = 1 << 10

// add takes a score above -1,000.
func (s *spread) add(v float64) {
	i := int64(v*unit+(1000*unit+.5)) - 1000*unit // rounded
	s.n++
	s.sum += i
	s.sums += i * i
}

const leastDeviation = 1e-9

func (s *spread) meanAndDeviation() (mean, deviation float64) {
	n := float64(max(s.n, 1))
	m := float64(s.sum) / n
	return m / unit, max(math.Sqrt(max(float64(s.sums)/n-m*m, 0))/unit, leastDeviation)
}
