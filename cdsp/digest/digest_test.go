package digest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

var testKey = bytes.Repeat([]byte{7}, 32)

func weighted(terms ...string) (out []Weighted) {
	for _, t := range terms {
		out = append(out, Weighted{t, 1})
	}
	return out
}

// capsOf are n capabilities that have the terms together.
func capsOf(n int, terms ...string) []Capability {
	caps := make([]Capability, n)
	for i, t := range terms {
		c := &caps[i%n]
		c.Terms = append(c.Terms, Weighted{t, 1})
	}
	return caps
}

func under(weight func(string) float64) Options {
	o := options()
	o.Weight = weight
	return o
}

func (s *Sketch) hasTerm(term string) bool { return s.Terms.has(markOf(testKey, term), termHashes) }

func options() Options {
	return Options{Key: testKey, Level: wire.LevelFull, MaxHops: 7, MaxLabels: 1900, Weight: func(string) float64 { return 5 }}
}

func held(id [8]byte) ([]byte, bool) { return testKey, id == KeyID(testKey) }

func pharmacy() []Capability {
	return []Capability{
		{Tags: []string{"Health", "medicine"}, Terms: weighted("medicin", "throat", "sell"), Out: []string{"application/json"}, Visibility: wire.VisibleAny},
		{Tags: []string{"health"}, Terms: weighted("advic"), Visibility: wire.VisibleAny},
		{Tags: []string{"health", "stock"}, Terms: weighted("stockroom"), Visibility: wire.VisibleDomain},
		{Tags: []string{"secret"}, Terms: weighted("secret"), Private: true},
	}
}

// received builds the digest of a gateway as a neighbour sees it: through the bytes of its items.
func received(t *testing.T, o *Origins, at Origin, caps []Capability) {
	t.Helper()
	groups, err := Build(slices.Values(caps), options())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		for _, it := range g.Items {
			hash, err := it.ContentHash()
			if err != nil {
				t.Fatal(err)
			}
			it.OSeq, it.CHash = 1, hash
			raw, err := it.MarshalCBOR()
			if err != nil {
				t.Fatal(err)
			}
			var back wire.Item
			if err := back.UnmarshalCBOR(raw); err != nil {
				t.Fatalf("own item breaks the protocol: %v", err)
			}
			if g.Scope.Visibility == wire.VisibleAny {
				o.Add(at, &back)
			}
		}
	}
}

func TestBuild(t *testing.T) {
	groups, err := Build(slices.Values(pharmacy()), options())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups {
		for _, it := range g.Items {
			got = append(got, fmt.Sprintf("visibility %d %s %q count %d", g.Scope.Visibility, it.NS, it.Label, it.Count))
		}
	}
	want := []string{
		`visibility 2 tag "health" count 1`, `visibility 2 tag "medicine" count 0`,
		`visibility 0 tag "stock" count 0`, `visibility 2 sketch "" count 1`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	shuffled := pharmacy()
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	again, _ := Build(slices.Values(shuffled), options())
	if d := cmp.Diff(groups, again, cmp.AllowUnexported(wire.Modes{})); d != "" {
		t.Errorf("order of capabilities changes the digest: %s", d)
	}
	for _, g := range groups {
		for _, it := range g.Items {
			if bytes.Contains(it.Sketch, []byte("secret")) || it.Label == "secret" {
				t.Error("a private capability is told")
			}
		}
	}
}

// Whatever a directory holds, neighbours accept every group.
func TestBuildKeepsToTheProtocol(t *testing.T) {
	many := make([]string, wire.MaxAllow+1)
	for i := range many {
		many[i] = fmt.Sprintf("d%02d.example", i)
	}
	long := string(bytes.Repeat([]byte("x"), 254))
	capability := func(tag string, allow ...string) Capability {
		return Capability{Tags: []string{tag, long, "", "\xff"}, In: []string{"", long, "\xff", "text/plain"}, Visibility: wire.VisibleListed, Allow: allow}
	}
	groups, err := Build(slices.Values([]Capability{
		capability("nobody"), capability("too many", many...), capability("long", long), capability("empty", ""), capability("no text", "\xff"),
		capability("at the limit", many[1:]...), capability("twice", "b", "a", "b"), capability("twice too", "a", "b"),
		capability("one name", "a b"),
	}), options())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups {
		if err := g.Scope.Check(); err != nil {
			t.Error(err)
		}
		for _, it := range g.Items {
			got = append(got, fmt.Sprintf("%d %d %s %q", g.Scope.Visibility, len(g.Scope.Allow), it.Label, it.Modes.In))
		}
	}
	want := []string{
		`1 1 one name ["text/plain"]`, `1 2 twice ["text/plain"]`, `1 2 twice too ["text/plain"]`, `1 64 at the limit ["text/plain"]`,
		`0 0 empty ["text/plain"]`, `0 0 long ["text/plain"]`, `0 0 no text ["text/plain"]`, `0 0 nobody ["text/plain"]`,
		`0 0 too many ["text/plain"]`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestRank(t *testing.T) {
	var o Origins
	received(t, &o, Origin{Gateway: "pharmacy", Via: "hub", Distance: 2}, pharmacy())
	received(t, &o, Origin{Gateway: "airport", Via: "hub", Distance: 1}, []Capability{{Tags: []string{"travel"}, Terms: weighted("flight"), Visibility: wire.VisibleAny}})
	names := func(r []Ranked) (out []string) {
		for _, x := range r {
			out = append(out, x.Gateway)
		}
		return out
	}
	for _, c := range []struct {
		what string
		q    Query
		want []string
	}{
		{"a term of one", Query{Terms: []Term{{"throat", 9}, {"medicin", 8}}}, []string{"pharmacy"}},
		{"a term of nobody", Query{Terms: []Term{{"submarin", 9}}}, nil},
		{"terms of both, the rarer decides", Query{Terms: []Term{{"throat", 9}, {"flight", 3}}}, []string{"pharmacy", "airport"}},
		{"a tag", Query{Tags: []string{"Travel"}}, []string{"airport"}},
		{"an exact tag goes before terms", Query{Terms: []Term{{"throat", 9}}, Tags: []string{"travel"}}, []string{"airport", "pharmacy"}},
		{"a tag of nobody", Query{Tags: []string{"war"}}, nil},
		{"a term that is told in the domain only", Query{Terms: []Term{{"stockroom", 9}}}, nil},
	} {
		if got := names(o.Rank(c.q, held)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	nobody := func([8]byte) ([]byte, bool) { return nil, false }
	if got := o.Rank(Query{Terms: []Term{{"throat", 9}}}, nobody); len(got) != 0 {
		t.Errorf("scored without the hash key: %v", names(got))
	}
}

// Below the level full a class is told to its second step, and whoever asks for one further down is right there.
func TestRankOfClassesThatAreCut(t *testing.T) {
	for _, level := range []wire.Level{wire.LevelFull, wire.LevelCoarse, wire.LevelClasses} {
		o := options()
		o.Level = level
		groups, err := Build(slices.Values([]Capability{{Classes: []string{"language/text/summary"}, Visibility: wire.VisibleAny}, {Classes: []string{"images"}, Visibility: wire.VisibleAny}}), o)
		if err != nil {
			t.Fatal(err)
		}
		var heard Origins
		for _, g := range groups {
			for _, it := range g.Items {
				heard.Add(Origin{Gateway: "a", Level: level}, &it)
			}
		}
		for class, want := range map[string]bool{
			"language": true, "language/text": true, "language/text/summary": true, "language/text/other": level < wire.LevelFull,
			"language/speech/summary": false, "images": true, "images/faces/count": false, "lang": false,
		} {
			if got := len(heard.Rank(Query{Classes: []string{class}}, held)) > 0; got != want {
				t.Errorf("%s at level %v: asked %v", class, level, got)
			}
		}
	}
}

func TestDistanceAndStalenessCost(t *testing.T) {
	var o Origins
	caps := pharmacy()
	received(t, &o, Origin{Gateway: "a-stale", Stale: true}, caps)
	received(t, &o, Origin{Gateway: "b-far", Distance: 3}, caps)
	received(t, &o, Origin{Gateway: "c-near", Distance: 1}, caps)
	got := o.Rank(Query{Terms: []Term{{"throat", 9}}}, held)
	if len(got) != 3 || got[0].Gateway != "c-near" || got[1].Gateway != "b-far" || got[2].Gateway != "a-stale" {
		t.Errorf("%+v", got)
	}
}

func TestFalsePositives(t *testing.T) {
	var terms []string
	for i := range 3000 {
		terms = append(terms, fmt.Sprintf("term%d", i))
	}
	s := newSketch(capsOf(100, terms...), 100, under(func(string) float64 { return 1 }))
	for _, term := range terms {
		if !s.hasTerm(term) {
			t.Fatalf("%s is missing", term)
		}
	}
	wrong := 0
	for i := range 10_000 {
		if s.hasTerm(fmt.Sprintf("other%d", i)) {
			wrong++
		}
	}
	if wrong > 200 { // 10 bits a term and 7 hashes: 0.8 %
		t.Errorf("%d of 10000 terms are found that were never put in", wrong)
	}
	if raw, err := frame.Marshal(s); err != nil || len(raw) > wire.MaxSketch {
		t.Errorf("%d octets, %v", len(raw), err)
	}
}

func TestSketchFitsWhateverTheTerms(t *testing.T) {
	var terms []string
	for i := range 50_000 {
		terms = append(terms, fmt.Sprintf("term%05d", i))
	}
	rare := func(term string) float64 {
		if term >= "term49000" {
			return 12
		}
		return 3
	}
	s := newSketch(capsOf(4000, terms...), 4000, under(rare))
	raw, err := frame.Marshal(s)
	if err != nil || len(raw) > wire.MaxSketch {
		t.Fatalf("%d octets, %v", len(raw), err)
	}
	if _, err := ParseSketch(raw); err != nil {
		t.Error(err)
	}
	if !s.hasTerm("term49999") {
		t.Error("a rare term was left out before the common ones")
	}
}

func TestCase68LyingSketches(t *testing.T) {
	honest := newSketch(capsOf(2, "a", "b"), 2, options())
	ones := *honest
	ones.Terms = bytes.Repeat([]byte{0xff}, 64)
	var terms []string
	for i := range 2000 {
		terms = append(terms, fmt.Sprint(i))
	}
	fuller := *newSketch(capsOf(2, terms...), 2, options())
	odd := *honest
	odd.Terms = odd.Terms[:7]
	for name, s := range map[string]Sketch{"every bit set": ones, "fuller than its capabilities": fuller, "no whole words": odd} {
		raw, err := frame.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		alarmed := false
		o := Origins{Alarm: func(string, error) { alarmed = true }}
		o.Add(Origin{Gateway: "liar"}, &wire.Item{NS: NSSketch, Sketch: raw, SketchAlg: Algorithm})
		if !alarmed || len(o.Rank(Query{Terms: []Term{{"a", 9}}}, held)) != 0 {
			t.Errorf("%s: alarmed %v", name, alarmed)
		}
	}
}

func FuzzSketch(f *testing.F) {
	raw, err := frame.Marshal(newSketch(capsOf(1, "a"), 1, options()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := ParseSketch(in)
		if err != nil {
			return
		}
		s.hasTerm("a")
		if s.Terms.fill() > maxFill || s.Pairs.fill() > maxFill || len(s.middles) > maxPrototypes {
			t.Fatal("a filter over its fill was accepted")
		}
	})
}

// Where there are more labels than may be told, those of the taxonomy and those that most capabilities have are: else one agent whose tags
// and classes come first in the alphabet would take the places of all others.
func TestLabelsThatAreTold(t *testing.T) {
	caps := []Capability{{Classes: []string{"z/known"}}, {Tags: []string{"zebra"}}, {Tags: []string{"zebra"}}, {Tags: []string{"yak"}, Classes: []string{"y/known"}}}
	for i := range 200 {
		caps = append(caps, Capability{Tags: []string{fmt.Sprint("!", i)}, Classes: []string{fmt.Sprint("!/", i)}})
	}
	o := options()
	o.MaxLabels, o.Known = 10, func(class string) bool { return strings.HasSuffix(class, "/known") }
	groups, err := Build(slices.Values(caps), o)
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, it := range groups[0].Items {
		labels = append(labels, it.Label)
	}
	for _, want := range []string{"y/known", "z/known", "zebra"} {
		if !slices.Contains(labels, want) {
			t.Errorf("%s is not told: %q", want, labels)
		}
	}
	if len(labels) != o.MaxLabels {
		t.Errorf("%d labels, %d may be told", len(labels), o.MaxLabels)
	}
}

func TestClassesAreOfSoManyLevels(t *testing.T) {
	var o Origins
	deep := strings.TrimSuffix(strings.Repeat("a/", 60), "/")
	o.Add(Origin{Gateway: "deep"}, &wire.Item{NS: NSTaxonomy, Label: deep})
	if n := len(o.list[0].labels); n != maxLevels {
		t.Errorf("%d labels of one class", n)
	}
}
