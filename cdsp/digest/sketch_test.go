package digest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

var testEmbedder = Embedder{1}

// towards is a vector of length 1 near a corner of space.
func towards(rng *rand.Rand, corner int) []float32 {
	v := make([]float32, 20)
	v[corner] = 3
	length := 0.
	for i := range v {
		v[i] += float32(rng.NormFloat64() / 4)
		length += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(length))
	}
	return v
}

func TestPrototypesFindTheGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var vectors [][]float32
	for i := range 200 {
		vectors = append(vectors, towards(rng, i%4))
	}
	vectors = append(vectors, make([]float32, 20)) // of a text that the table knows nothing of
	list := prototypes(vectors, 1)
	found, members := map[int]bool{}, 0
	for _, p := range list {
		for corner := range 4 {
			if p.v[corner] > .9 {
				found[corner] = true
			}
		}
		members += p.members
	}
	if len(found) != 4 || len(list) > maxPrototypes || members != 200 {
		t.Errorf("groups %v in %d prototypes of %d members", found, len(list), members)
	}
	rng.Shuffle(len(vectors), func(i, j int) { vectors[i], vectors[j] = vectors[j], vectors[i] })
	if again := prototypes(vectors, 1); !slices.EqualFunc(list, again, func(a, b prototype) bool { return a.members == b.members && slices.Equal(a.v, b.v) }) {
		t.Error("their order changes the prototypes")
	}
	if len(prototypes(nil, 1)) != 0 || len(prototypes([][]float32{make([]float32, 20)}, 1)) != 0 {
		t.Error("prototypes of nothing")
	}
	same := slices.Repeat([][]float32{towards(rng, 1)}, 50)
	if list := prototypes(same, 1); len(list) != 1 || list[0].members != 50 {
		t.Errorf("%d prototypes of one text", len(list))
	}
	many := make([][]float32, 3*maxSample)
	for i := range many {
		many[i] = towards(rng, i%8)
	}
	members = 0
	for _, p := range prototypes(many, 1) {
		members += p.members
	}
	if d := members - len(many); d > 8 || d < -8 {
		t.Errorf("%d members of %d vectors", members, len(many))
	}
}

// Two gateways have the same words; one of them has them in one capability.
func TestPairsTellWhoHasThemTogether(t *testing.T) {
	var o Origins
	public := func(terms ...string) Capability {
		return Capability{Terms: weighted(terms...), Visibility: wire.VisibleAny}
	}
	received(t, &o, Origin{Gateway: "apart"}, []Capability{public("hotel", "room"), public("flight", "book")})
	received(t, &o, Origin{Gateway: "together"}, []Capability{public("hotel", "book"), public("flight", "room")})
	received(t, &o, Origin{Gateway: "other"}, []Capability{public("weather")})
	got := o.Rank(Query{Terms: []Term{{"hotel", 8}, {"book", 8}}}, held)
	if len(got) != 2 || got[0].Gateway != "together" || got[0].Score <= got[1].Score {
		t.Errorf("%+v", got)
	}
}

func TestLikenessFindsWhatWordsDoNot(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var o Origins
	for corner, name := range []string{"zero", "one", "two"} {
		c := Capability{Terms: weighted("word"), Vector: towards(rng, corner), Visibility: wire.VisibleAny}
		groups, err := Build(slices.Values([]Capability{c}), withEmbedder(wire.LevelFull))
		if err != nil {
			t.Fatal(err)
		}
		o.Add(Origin{Gateway: name}, &groups[0].Items[0])
	}
	q := Query{Terms: []Term{{"synonym", 9}}, Vector: towards(rng, 1), Embedder: testEmbedder}
	if got := o.Rank(q, held); len(got) != 1 || got[0].Gateway != "one" {
		t.Errorf("%+v", got)
	}
	q.Embedder[0]++ // another table
	if got := o.Rank(q, held); len(got) != 0 {
		t.Errorf("vectors of another embedder are compared: %+v", got)
	}
	q.Embedder, q.Vector = testEmbedder, q.Vector[:10]
	if got := o.Rank(q, held); len(got) != 0 {
		t.Errorf("vectors of another length are compared: %+v", got)
	}
}

func withEmbedder(level wire.Level) Options {
	o := options()
	o.Level, o.Embedder = level, testEmbedder
	return o
}

// What a level may not disclose is in none of its octets: no tag, no deep class and none that the taxonomy has not, no media type, no term
// that one capability alone has.
func TestLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var caps []Capability
	for i := range 6 {
		c := Capability{
			Classes: []string{"language/text/summary", "merger/initech"}, Tags: []string{"acme"}, Terms: weighted("common", fmt.Sprint("own", i)),
			In: []string{"application/vnd.acme"}, Vector: towards(rng, i/5), Visibility: wire.VisibleAny,
		}
		caps = append(caps, c)
	}
	for level, want := range map[wire.Level]struct {
		labels       []string
		sketch       bool
		terms, pairs bool
		prototypes   int
	}{
		wire.LevelClasses: {labels: []string{"language/text"}},
		wire.LevelCoarse:  {labels: []string{"language/text"}, sketch: true, prototypes: 1},
		wire.LevelFull:    {labels: []string{"language/text/summary", "merger/initech", "acme"}, sketch: true, terms: true, pairs: true, prototypes: 2},
	} {
		o := withEmbedder(level)
		o.Known = func(class string) bool { return strings.HasPrefix(class, "language/") }
		groups, err := Build(slices.Values(caps), o)
		if err != nil {
			t.Fatal(err)
		}
		var labels []string
		var s *Sketch
		for _, g := range groups {
			for _, it := range g.Items {
				if it.Key != wire.ItemKey(it.Label, it.NS, level) || g.Scope.Level != level {
					t.Errorf("%v: an item of another level", level)
				}
				if it.Label != "" && (it.Modes != nil) != (level == wire.LevelFull) {
					t.Errorf("%v: %s has the media types %v", level, it.Label, it.Modes)
				}
				if it.Label != "" {
					labels = append(labels, it.Label)
				} else if s, err = ParseSketch(it.Sketch); err != nil {
					t.Fatal(level, err)
				}
			}
		}
		if !slices.Equal(labels, want.labels) || (s != nil) != want.sketch {
			t.Errorf("%v: labels %q, a sketch %v", level, labels, s != nil)
		}
		if s == nil {
			continue
		}
		if !s.hasTerm("common") || s.hasTerm("own3") != want.terms || len(s.Pairs) > 0 != want.pairs {
			t.Errorf("%v: the common term %v, one's own %v, %d octets of pairs", level, s.hasTerm("common"), s.hasTerm("own3"), len(s.Pairs))
		}
		big := 0
		for _, m := range s.Members {
			if level == wire.LevelFull || m >= wire.Bucket(coarseMembers) {
				big++
			}
		}
		if big != len(s.Members) || len(s.Members) < want.prototypes {
			t.Errorf("%v: prototypes of %v", level, s.Members)
		}
	}
}

// However large a directory is, its sketch fits, and says what tells it apart.
func TestLargeSketchesFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 39, 400, 3000} {
		caps := make([]Capability, n)
		for i := range caps {
			for range 20 {
				caps[i].Terms = append(caps[i].Terms, Weighted{fmt.Sprint("t", rng.IntN(1+8*n)), 1})
			}
			caps[i].Vector = make([]float32, MaxDim)
			caps[i].Vector[i%MaxDim], caps[i].Vector[rng.IntN(MaxDim)] = .8, .6
		}
		s := newSketch(caps, len(caps), withEmbedder(wire.LevelFull))
		raw, err := frame.Marshal(s)
		if err != nil || len(raw) > wire.MaxSketch {
			t.Fatalf("%d capabilities: %d octets, %v", n, len(raw), err)
		}
		if back, err := ParseSketch(raw); err != nil || len(back.middles) != min(n, maxPrototypes) {
			t.Errorf("%d capabilities: %v", n, err)
		}
		if n <= 400 && len(s.Pairs) == 0 {
			t.Errorf("%d capabilities: no room for a pair", n)
		}
	}
}

func TestMalformedPrototypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	caps := capsOf(2, "a", "b", "c", "d")
	caps[0].Vector, caps[1].Vector = towards(rng, 0), towards(rng, 9)
	for name, spoil := range map[string]func(*Sketch){
		"no direction":             func(s *Sketch) { clear(s.Prototypes[:20]) },
		"empty":                    func(s *Sketch) { s.Prototypes = nil },
		"of two lengths":           func(s *Sketch) { s.Prototypes = s.Prototypes[1:] },
		"too long":                 func(s *Sketch) { s.Prototypes, s.Members = bytes.Repeat([]byte{1}, MaxDim+1), s.Members[:1] },
		"without a count":          func(s *Sketch) { s.Members = nil },
		"of nobody's embedder":     func(s *Sketch) { s.Embedder = nil },
		"too many":                 func(s *Sketch) { s.Prototypes, s.Members = slices.Repeat(s.Prototypes, 5), slices.Repeat(s.Members, 5) },
		"pairs of no whole words":  func(s *Sketch) { s.Pairs = s.Pairs[1:] },
		"every pair":               func(s *Sketch) { s.Pairs = bytes.Repeat([]byte{0xff}, 64) },
		"more pairs than it can":   func(s *Sketch) { s.Pairs = newFilter(9000, bitsPerPair); manyPairs(s.Pairs, 4000) },
		"more terms than it can":   func(s *Sketch) { s.Terms = newFilter(5000, bitsPerTerm); manyPairs(s.Terms, 3000) },
		"pairs alone, but no term": func(s *Sketch) { s.Terms = nil },
	} {
		s := newSketch(caps, len(caps), withEmbedder(wire.LevelFull))
		spoil(s)
		raw, err := frame.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseSketch(raw); err == nil {
			t.Errorf("%s: believed", name)
		}
	}
}

func manyPairs(f filter, n int) {
	for i := range n {
		f.add(markOf(testKey, fmt.Sprint(i)), 6)
	}
}

// BenchmarkRank is a thousand digests of 39 capabilities, asked for a request of twelve terms.
func BenchmarkRank(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var o Origins
	for g := range 1000 {
		caps := make([]Capability, 39)
		for i := range caps {
			for range 12 {
				caps[i].Terms = append(caps[i].Terms, Weighted{fmt.Sprint("t", rng.IntN(5000)), 1})
			}
			caps[i].Vector = towards(rng, rng.IntN(20))
		}
		raw, err := frame.Marshal(newSketch(caps, len(caps), withEmbedder(wire.LevelFull)))
		if err != nil {
			b.Fatal(err)
		}
		o.Add(Origin{Gateway: fmt.Sprint(g)}, &wire.Item{NS: NSSketch, Sketch: raw, SketchAlg: Algorithm})
	}
	q := Query{Vector: towards(rng, 3), Embedder: testEmbedder}
	for i := range 12 {
		q.Terms = append(q.Terms, Term{fmt.Sprint("t", i*300), 7})
	}
	for b.Loop() {
		o.Rank(q, held)
	}
}

// One agent with thousands of words that no language has leaves room for the words of the others.
func TestRareWordsOfOneLeaveRoomForOthers(t *testing.T) {
	var caps []Capability
	for i := range 40 {
		caps = append(caps, Capability{Terms: weighted("usual", fmt.Sprint("word", i)), Visibility: wire.VisibleAny})
	}
	for i := range 128 {
		var words []string
		for j := range 80 {
			words = append(words, fmt.Sprint("zz", i, "x", j))
		}
		caps = append(caps, Capability{Terms: weighted(words...), Visibility: wire.VisibleAny})
	}
	o := options()
	o.Weight = func(term string) float64 {
		if strings.HasPrefix(term, "zz") {
			return 14
		}
		return 5
	}
	s := newSketch(caps, len(caps), o)
	missing := 0
	for i := range 40 {
		if !s.hasTerm(fmt.Sprint("word", i)) {
			missing++
		}
	}
	if missing > 0 || !s.hasTerm("usual") {
		t.Errorf("%d of 40 words are not told, and the one that all have %v", missing, s.hasTerm("usual"))
	}
}
