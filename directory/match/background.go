package match

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
)

// ranks is how common a stem is in general English: `stem TAB rank LF` in byte order (data/NOTICE). It is searched in place,
// because a table would cost every start of every program what few of them need.
//
//go:embed data/bgrank.tsv
var ranks string

const unlistedRank = 400_000

// Background is the background idf of a term: ln(rank+20), its rarity in the language and not in this directory. It is 3.0
// for the commonest word and 12.9 for one that is not listed.
func Background(term string) float64 { return math.Log(float64(rank(term) + 20)) }

func rank(term string) int {
	lo, hi := 0, len(ranks) // both at the start of a line
	for lo < hi {
		mid := (lo + hi) / 2
		start := strings.LastIndexByte(ranks[:mid], '\n') + 1
		if start < lo {
			start = lo
		}
		line, _, _ := strings.Cut(ranks[start:], "\n")
		stem, number, _ := strings.Cut(line, "\t")
		switch strings.Compare(term, stem) {
		case 0:
			n, err := strconv.Atoi(number)
			if err != nil {
				return unlistedRank
			}
			return n
		case -1:
			hi = start
		default:
			lo = start + len(line) + 1
		}
	}
	return unlistedRank
}
