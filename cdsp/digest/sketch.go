package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Parameters of the term filter. They are part of the format.
const (
	bitsPerTerm = 10
	hashes      = 7
	maxBits     = 62 << 10 // the filter and its header stay below wire.MaxSketch
	maxTerms    = maxBits / bitsPerTerm
	maxFill     = 0.6 // a filter over this says yes to too much to be believed
	termsPerCap = 400 // more distinct terms than a capability can have: a fill above it is not explained by n_caps

	// Algorithm is sketch_alg of this format.
	Algorithm = 1
	tokeniser = "agw-porter/1" // how terms are made: package directory/match
)

// Sketch is a gateway's term filter.
type Sketch struct {
	Taxonomy  string `cbor:"1,keyasint,omitempty"`
	Tokeniser string `cbor:"2,keyasint"`
	KeyID     []byte `cbor:"5,keyasint"` // first 8 octets of the SHA-256 of the hash key
	Level     uint8  `cbor:"6,keyasint"`
	NCaps     uint64 `cbor:"7,keyasint"` // capabilities, rounded up to a power of two
	Bits      []byte `cbor:"8,keyasint"` // a whole number of 64-bit words
}

// KeyID names a hash key.
func KeyID(key []byte) [8]byte {
	sum := sha256.Sum256(key)
	return [8]byte(sum[:8])
}

// newSketch makes the filter of terms under a hash key. When there are more terms than fit, the commonest of the language
// are left out: they tell gateways apart least.
func newSketch(terms []string, nCaps int, key []byte, level wire.Level, weight func(string) float64) *Sketch {
	if len(terms) > maxTerms {
		terms = slices.Clone(terms)
		slices.SortStableFunc(terms, func(a, b string) int {
			switch wa, wb := weight(a), weight(b); {
			case wa > wb:
				return -1
			case wa < wb:
				return 1
			}
			return 0
		})
		terms = terms[:maxTerms]
	}
	words := max(1, (len(terms)*bitsPerTerm+63)/64)
	id := KeyID(key)
	s := &Sketch{Tokeniser: tokeniser, KeyID: id[:], Level: uint8(level), NCaps: powerOfTwo(nCaps), Bits: make([]byte, 8*words)}
	for _, t := range terms {
		s.visit(t, key, func(at uint64) bool {
			s.Bits[at/8] |= 1 << (at % 8)
			return true
		})
	}
	return s
}

// powerOfTwo is n rounded up: exact counts are nobody's business.
func powerOfTwo(n int) uint64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// visit calls f for each bit of a term until f returns false.
func (s *Sketch) visit(term string, key []byte, f func(bit uint64) bool) {
	sum := sha256.Sum256(append(slices.Clone(key), term...))
	h1, h2 := binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])|1
	n := uint64(8 * len(s.Bits))
	for i := range uint64(hashes) {
		if !f((h1 + i*h2) % n) {
			return
		}
	}
}

// has says whether the filter may hold a term.
func (s *Sketch) has(term string, key []byte) bool {
	all := true
	s.visit(term, key, func(at uint64) bool {
		all = s.Bits[at/8]&(1<<(at%8)) != 0
		return all
	})
	return all
}

// fill is the share of bits that are set.
func (s *Sketch) fill() float64 {
	set := 0
	for _, b := range s.Bits {
		set += bits.OnesCount8(b)
	}
	return float64(set) / float64(8*len(s.Bits))
}

// ParseSketch reads a sketch and refuses one that lies: a filter too full to tell anything, or fuller than its number of
// capabilities explains. The error says which; whoever sees it should raise an alarm.
func ParseSketch(b []byte) (*Sketch, error) {
	s := new(Sketch)
	if err := frame.Unmarshal(b, s); err != nil {
		return nil, err
	}
	if len(s.KeyID) != 8 || len(s.Bits) == 0 || len(s.Bits)%8 != 0 || len(s.Bits) > wire.MaxSketch {
		return nil, frame.Errorf(frame.Malformed, "sketch of %d octets with a key id of %d", len(s.Bits), len(s.KeyID))
	}
	if s.Tokeniser != tokeniser {
		return nil, frame.Errorf(frame.Version, "sketch was made with the tokeniser %q, not %q", s.Tokeniser, tokeniser)
	}
	fill := s.fill()
	if fill > maxFill {
		return nil, frame.Errorf(frame.Policy, "sketch is %.0f %% full: it would match everything", 100*fill)
	}
	terms := -math.Log1p(-fill) * float64(8*len(s.Bits)) / hashes
	if terms > float64(termsPerCap)*float64(s.NCaps) {
		return nil, frame.Errorf(frame.Policy, "sketch holds about %.0f terms for %d capabilities", terms, s.NCaps)
	}
	return s, nil
}
