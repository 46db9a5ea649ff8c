package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
)

// mark is a key as filters see it: two halves of its SHA-256 under a hash key, which together give as many bit places as one wants.
type mark [2]uint64

// markOf is the mark of a term, or of a pair of terms, smaller first: a term has no octet 0.
func markOf(key []byte, term string, other ...string) mark {
	b := make([]byte, 0, 128)
	b = append(append(b, key...), term...)
	for _, o := range other {
		b = append(append(b, 0), o...)
	}
	sum := sha256.Sum256(b)
	return mark{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16]) | 1}
}

// filter is a Bloom filter: its bits in whole 64-bit words, least significant bit of the first octet first.
type filter []byte

// newFilter has room for n keys.
func newFilter(n, bitsPerKey int) filter { return make(filter, filterSize(n, bitsPerKey)) }

// filterSize is a whole number of words, at least one.
func filterSize(n, bitsPerKey int) int { return 8 * max(1, (n*bitsPerKey+63)/64) }

func (f filter) add(m mark, hashes int) {
	for at, n := m[0], uint64(8*len(f)); hashes > 0; hashes-- {
		i := at % n
		f[i/8] |= 1 << (i % 8)
		at += m[1]
	}
}

// has says whether the filter may hold a key. One without bits holds none.
func (f filter) has(m mark, hashes int) bool {
	n := uint64(8 * len(f))
	if n == 0 {
		return false
	}
	for at := m[0]; hashes > 0; hashes-- {
		i := at % n
		if f[i/8]&(1<<(i%8)) == 0 {
			return false
		}
		at += m[1]
	}
	return true
}

// fill is the share of bits that are set.
func (f filter) fill() float64 {
	set := 0
	for _, b := range f {
		set += bits.OnesCount8(b)
	}
	return float64(set) / float64(max(8*len(f), 1))
}

// keys is about how many keys a filter holds.
func (f filter) keys(hashes int) float64 {
	return -math.Log1p(-f.fill()) * float64(8*len(f)) / float64(hashes)
}
