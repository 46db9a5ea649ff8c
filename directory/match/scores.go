package match

import "math"

// scratch is what one request needs of memory. It is kept for the next request.
type scratch struct {
	words     sparse      // BM25F + bigrams + identifiers + corrected terms, of the whole request
	stepWords sparse      // BM25F + bigrams of one of its steps
	cos       [][]float32 // of each embedding: the whole request's, then those of its steps
	list      []candidate
	best      []candidate
}

// takeScratch is memory for one request. More readers at a time than the index keeps scratches for make their own.
func (x *Index) takeScratch() *scratch {
	for i := range x.scratches {
		if kept := x.scratches[i].Swap(nil); kept != nil {
			return kept
		}
	}
	return new(scratch)
}

// giveBack keeps a scratch for the next request.
func (x *Index) giveBack(s *scratch) {
	s.words.clear()
	s.stepWords.clear()
	for i := range x.scratches {
		if x.scratches[i].CompareAndSwap(nil, s) {
			return
		}
	}
}

// cosines is room for so many lists of so many similarities; what is in it is left from before.
func (s *scratch) cosines(lists, docs int) [][]float32 {
	for len(s.cos) < lists {
		s.cos = append(s.cos, nil)
	}
	for i := range lists {
		if cap(s.cos[i]) < docs {
			s.cos[i] = make([]float32, docs+docs/8)
		}
		s.cos[i] = s.cos[i][:docs]
	}
	return s.cos[:lists]
}

// sparse is a score for each document of a view, nearly all of them 0.
type sparse struct {
	of      []float64
	touched []uint32 // those that are not 0
}

// sized gives room for so many documents, all 0.
func (s *sparse) sized(docs int) {
	if cap(s.of) < docs {
		s.of = make([]float64, docs+docs/8)
	}
	s.of = s.of[:cap(s.of)]
}

// add adds a score, which is above 0.
func (s *sparse) add(at int, score float64) {
	if s.of[at] == 0 {
		s.touched = append(s.touched, uint32(at))
	}
	s.of[at] += score
}

func (s *sparse) clear() {
	for _, at := range s.touched {
		s.of[at] = 0
	}
	s.touched = s.touched[:0]
}

// fusion makes one score of both lists: each in standard deviations from its mean over all living documents. What a filter holds back
// counts in mean and deviation too: they are the directory's, the same for every asker.
type fusion struct{ lex, cos, mean, lexMean float64 }

const lexShare = .5 // of the fused score; the rest is the dense part's

// cosUnits brings cosines to the size of the other scores, for the whole numbers that are summed.
const cosUnits = 16

func fuse(lex, cos spread) fusion {
	lm, ld := lex.meanAndDeviation()
	cm, cd := cos.meanAndDeviation()
	f := fusion{lex: lexShare / ld, cos: (1 - lexShare) * cosUnits / cd}
	f.mean, f.lexMean = lexShare*lm/ld+(1-lexShare)*cm/cd, lexShare*lm/ld
	return f
}

// of is the score of a document. One whose likeness is missing is taken to be as like as they are on average.
func (f fusion) of(lex float64, cos float32) float64 {
	if cos != cos {
		return f.lex*lex - f.lexMean
	}
	return f.lex*lex + f.cos*float64(cos) - f.mean
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

func (s spread) meanAndDeviation() (mean, deviation float64) {
	n := float64(max(s.n, 1))
	m := float64(s.sum) / n
	return m / unit, max(math.Sqrt(max(float64(s.sums)/n-m*m, 0))/unit, leastDeviation)
}
