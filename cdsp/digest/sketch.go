package digest

import (
	"cmp"
	"crypto/sha256"
	"math/bits"
	"slices"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Parameters of the filters. They are part of the format.
const (
	bitsPerTerm = 10
	termHashes  = 7
	bitsPerPair = 8
	pairHashes  = 6
	pairTerms   = 8   // of one capability, the most telling ones: their pairs are told
	maxFill     = 0.6 // a filter over this says yes to too much to be believed
	termsPerCap = 400 // more distinct terms than a capability can have: a fill above it is not explained by n_caps
	pairsPerCap = pairTerms * (pairTerms - 1) / 2

	// CoarseCaps is how many capabilities have a term that is told at the level coarse.
	CoarseCaps    = 2
	coarseMembers = 3 // capabilities that a prototype has there

	// Algorithm is sketch_alg of this format.
	Algorithm = 1
	tokeniser = "agw-porter/1" // how terms are made: package directory/match

	overhead = 160 // of a sketch beside its filters and prototypes
)

// Embedder names what embeddings are made with, by its content; those of another one are not comparable.
type Embedder [8]byte

// Sketch is what a gateway tells of all its public capabilities at once.
type Sketch struct {
	Tokeniser  string `cbor:"2,keyasint"`
	Embedder   []byte `cbor:"4,keyasint,omitempty"`
	KeyID      []byte `cbor:"5,keyasint"` // first 8 octets of the SHA-256 of the hash key
	Level      uint8  `cbor:"6,keyasint"`
	NCaps      uint64 `cbor:"7,keyasint"`            // capabilities, rounded up to a power of two
	Terms      filter `cbor:"8,keyasint"`            // of all stems
	Pairs      filter `cbor:"9,keyasint,omitempty"`  // of stems that one capability has
	Prototypes []byte `cbor:"10,keyasint,omitempty"` // middles of the embeddings, one behind the other: int8 components in steps of the largest one
	Members    []byte `cbor:"11,keyasint,omitempty"` // count bucket of each prototype

	middles [][]float32
}

// KeyID names a hash key.
func KeyID(key []byte) [8]byte {
	sum := sha256.Sum256(key)
	return [8]byte(sum[:8])
}

// newSketch makes the sketch of so many public capabilities, of those among them that say their terms and vectors, and of [Options.Terms].
// What does not fit into an item is left out: pairs of the less telling terms of each capability first, then the terms that are commonest
// in the language, which tell gateways apart least, of each capability alike.
func newSketch(caps []Capability, public int, o Options) *Sketch {
	id := KeyID(o.Key)
	s := &Sketch{Tokeniser: tokeniser, KeyID: id[:], Level: uint8(o.Level), NCaps: powerOfTwo(public)}
	s.addPrototypes(caps, o)
	room := wire.MaxSketch - overhead - len(s.Prototypes) - len(s.Members)
	terms := telling(caps, o)
	if most := room / 8 * 8 * 8 / bitsPerTerm; len(terms) > most {
		terms = inTurns(caps, terms)[:most]
	}
	s.Terms = newFilter(len(terms), bitsPerTerm)
	for _, t := range terms {
		s.Terms.add(markOf(o.Key, t), termHashes)
	}
	if o.Level == wire.LevelFull {
		s.addPairs(caps, o, room-len(s.Terms))
	}
	return s
}

// telling are the distinct terms of capabilities, the rarest in the language first.
func telling(caps []Capability, o Options) []string {
	having := map[string]int{}
	for _, c := range caps {
		for _, t := range c.Terms {
			having[t.Text]++
		}
	}
	for _, t := range o.Terms {
		having[t] += CoarseCaps
	}
	terms := make([]string, 0, len(having))
	for t, n := range having {
		if o.Level == wire.LevelFull || n >= CoarseCaps {
			terms = append(terms, t)
		}
	}
	slices.SortFunc(terms, func(a, b string) int { return cmp.Or(cmp.Compare(o.Weight(b), o.Weight(a)), cmp.Compare(a, b)) })
	return terms
}

// inTurns orders terms, of which the first tell most, as if each capability told its most telling one, then each its next: one that has
// thousands of rare words takes no other's place.
func inTurns(caps []Capability, terms []string) []string {
	place := make(map[string]int, len(terms))
	for i, t := range terms {
		place[t] = i
	}
	turn := map[string]int{}
	for _, c := range caps {
		var own []int
		for _, t := range c.Terms {
			if p, ok := place[t.Text]; ok {
				own = append(own, p)
			}
		}
		slices.Sort(own)
		for i, p := range own {
			if before, ok := turn[terms[p]]; !ok || i < before {
				turn[terms[p]] = i
			}
		}
	}
	out := slices.Clone(terms)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(turn[a], turn[b]) })
	return out
}

// addPairs tells the pairs of as many terms of each capability as there is room for.
func (s *Sketch) addPairs(caps []Capability, o Options, room int) {
	best := make([][]string, len(caps))
	for i, c := range caps {
		best[i] = mostTelling(c.Terms, o.Weight)
	}
	for k := pairTerms; k > 1; k-- {
		pairs := map[[2]string]bool{}
		for _, list := range best {
			list = list[:min(len(list), k)]
			for i, a := range list {
				for _, b := range list[i+1:] {
					pairs[[2]string{min(a, b), max(a, b)}] = true
				}
			}
		}
		if len(pairs) == 0 || filterSize(len(pairs), bitsPerPair) > room {
			continue
		}
		s.Pairs = newFilter(len(pairs), bitsPerPair)
		for p := range pairs {
			s.Pairs.add(markOf(o.Key, p[0], p[1]), pairHashes)
		}
		return
	}
}

// mostTelling are at most 8 terms of one capability by how rare and how frequent they are.
func mostTelling(terms []Weighted, weight func(string) float64) []string {
	terms = slices.Clone(terms)
	value := func(t Weighted) float64 { return (1 + .25*min(t.Count, 4)) * weight(t.Text) }
	slices.SortFunc(terms, func(a, b Weighted) int { return cmp.Or(cmp.Compare(value(b), value(a)), cmp.Compare(a.Text, b.Text)) })
	out := make([]string, min(len(terms), pairTerms))
	for i := range out {
		out[i] = terms[i].Text
	}
	return out
}

func (s *Sketch) addPrototypes(caps []Capability, o Options) {
	var vectors [][]float32
	for _, c := range caps {
		if len(c.Vector) > 0 && len(c.Vector) <= MaxDim {
			vectors = append(vectors, c.Vector)
		}
	}
	each := 1
	if o.Level < wire.LevelFull { // the middle of one text is that text
		each = coarseMembers
	}
	for _, p := range prototypes(vectors, each) {
		if p.members >= each {
			s.Prototypes = append(s.Prototypes, toBytes(p.v)...)
			s.Members = append(s.Members, wire.Bucket(p.members))
		}
	}
	if len(s.Prototypes) > 0 {
		s.Embedder = slices.Clone(o.Embedder[:])
	}
}

// powerOfTwo is n rounded up: exact counts are nobody's business.
func powerOfTwo(n int) uint64 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// ParseSketch reads a sketch and refuses one that lies: a filter too full to tell anything, or fuller than its number of
// capabilities explains. The error says which; whoever sees it should raise an alarm.
func ParseSketch(b []byte) (*Sketch, error) {
	s := new(Sketch)
	if err := frame.Unmarshal(b, s); err != nil {
		return nil, err
	}
	if len(s.KeyID) != 8 || len(s.Terms) == 0 || len(s.Terms)%8 != 0 || len(s.Pairs)%8 != 0 || len(b) > wire.MaxSketch {
		return nil, frame.Errorf(frame.Malformed, "sketch of %d and %d octets with a key id of %d", len(s.Terms), len(s.Pairs), len(s.KeyID))
	}
	if s.Tokeniser != tokeniser {
		return nil, frame.Errorf(frame.Version, "sketch was made with the tokeniser %q, not %q", s.Tokeniser, tokeniser)
	}
	if err := s.readPrototypes(); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		filter
		what           string
		hashes, perCap int
	}{{s.Terms, "terms", termHashes, termsPerCap}, {s.Pairs, "pairs", pairHashes, pairsPerCap}} {
		if fill := f.fill(); fill > maxFill {
			return nil, frame.Errorf(frame.Policy, "sketch is %.0f %% full of %s: it would match everything", 100*fill, f.what)
		}
		if n := f.keys(f.hashes); n > slack+float64(f.perCap)*float64(s.NCaps) {
			return nil, frame.Errorf(frame.Policy, "sketch holds about %.0f %s for %d capabilities", n, f.what, s.NCaps)
		}
	}
	return s, nil
}

// slack is by how much a small filter's number of keys may be guessed too large.
const slack = 16

func (s *Sketch) readPrototypes() error {
	n := len(s.Members)
	if n == 0 && len(s.Prototypes) == 0 {
		return nil
	}
	if n == 0 || n > maxPrototypes || len(s.Prototypes)%n != 0 || len(s.Prototypes) > n*MaxDim || len(s.Embedder) != 8 {
		return frame.Errorf(frame.Malformed, "sketch of %d prototypes in %d octets, with an embedder's id of %d", n, len(s.Prototypes), len(s.Embedder))
	}
	dim := len(s.Prototypes) / n
	for i := range n {
		v := fromBytes(s.Prototypes[i*dim : (i+1)*dim])
		if v == nil {
			return frame.Errorf(frame.Malformed, "sketch has a prototype without a direction")
		}
		s.middles = append(s.middles, v)
	}
	return nil
}

// madeBy says whether the prototypes are of an embedder.
func (s *Sketch) madeBy(e Embedder) bool { return len(s.middles) > 0 && [8]byte(s.Embedder) == e }
