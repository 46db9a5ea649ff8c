package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/toolset"
)

func TestFigures(t *testing.T) {
	var f figures
	f.add([]string{"a", "x", "b"}, []string{"a", "b"})
	f.add([]string{"x", "y"}, []string{"a"})
	want := (1 + .5) / (1 + 1/math.Log2(3)) // places 1 and 3 of 1 and 2
	if f.Acc1 != 1 || f.R5 != 1 || f.R10 != 1 || math.Abs(f.NDCG10-want) > 1e-9 {
		t.Errorf("figures %+v, want nDCG %f", f, want)
	}
}

func TestSampleIsTenOfEachToolAndTheSame(t *testing.T) {
	var queries []toolset.Query
	for i := range 100 {
		queries = append(queries, toolset.Query{ID: fmt.Sprint(i), Gold: []string{"many"}})
	}
	queries = append(queries, toolset.Query{ID: "few", Gold: []string{"few"}})
	of := map[string]int{}
	for _, q := range sample(queries) {
		of[q.Gold[0]]++
	}
	if of["many"] != ofEachTool || of["few"] != 1 || queries[0].ID != "0" || len(queries) != 101 {
		t.Errorf("sample %v", of)
	}
	if !slices.EqualFunc(sample(queries), sample(queries), func(x, y toolset.Query) bool { return x.ID == y.ID }) {
		t.Error("two samples differ")
	}
}

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"below a bar":         {belowBar(2), 1},
		"vectors are not met": {fmt.Errorf("x: %w", &differences{}), 1},
		"no data":             {fs.ErrNotExist, 2},
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for name, o := range map[string]options{
		"nothing": {}, "both": {set: "x", data: "y"}, "a set's without training": {set: "x", loo: true}, "another table, trained": {data: "x", loo: true, table: "y"},
		"no folder": {data: "/does/not/exist"}, "no folder to learn from": {data: "/does/not/exist", loo: true},
	} {
		err := run(o, nil)
		if err == nil || status(err) != 2 || !strings.Contains(err.Error(), "github.com/HowieHwong/MetaTool") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// town is a set of our own making.
func town() *toolset.Set {
	s := &toolset.Set{Name: "town"}
	for id, description := range map[string]string{"weather": "the forecast of rain", "hotel": "books a room", "zip zip": "the zip code"} {
		s.Corpus = append(s.Corpus, directory.Capability{SkillID: id, Name: id, Description: description})
	}
	slices.SortFunc(s.Corpus, func(x, y directory.Capability) int { return strings.Compare(x.SkillID, y.SkillID) })
	s.Queries = []toolset.Query{{ID: "q", Text: "a room in a hotel", Gold: []string{"hotel"}}}
	return s
}

// vectorsOf writes conformance vectors of town, by hand, with a table of two stems and two dimensions.
func vectorsOf(t *testing.T) string {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if err := os.Mkdir(model, 0o755); err != nil {
		t.Fatal(err)
	}
	// BM25F: one document of three has the terms, hotel in its name (3) and room in its description (1). Lengths: 3 + book, room; 3 + forecast,
	// rain; 2·3 + zip, code; so 5 of 6 on average. No neighbours of the request are neighbours there.
	saturated := func(f float64) float64 { return f * 2.2 / (f + 1.2*(1-.4+.4*5/6)) }
	words := math.Log(1+(3-1+.5)/(1+.5)) * (saturated(1) + saturated(3))
	// The hotel's vector: (1 + ln 2)·(3, 4) + (4, 3), brought to length 1.
	x, y := (1+math.Ln2)*3+4, (1+math.Ln2)*4+3
	x, y = x/math.Hypot(x, y), y/math.Hypot(x, y)
	// Deviations of one that differs from two that are alike, the same for words and cosines.
	best, others := math.Sqrt2, -math.Sqrt2/2
	for name, content := range map[string]string{
		"stems.tsv": "hotels\thotel\nrooms\troom\n",
		"vocab.txt": "hotel\nroom\n",
		"table.i8":  string([]byte{3, 4, 4, 3}),
		"scale.f32": "\x00\x00\x80\x3f\x00\x00\x80\x3f",
		"testvectors.jsonl": fmt.Sprintf(`{"kind":"query","text":"a room","words":["a","room"],"stems":["room"],"rows":[[1,1]],"vec":[0.8,0.6]}
{"kind":"capability","set":"town","id":"hotel","rows":[[0,2],[1,1]],"vec":[%f,%f]}
`, x, y),
		"expected.jsonl": fmt.Sprintf(`{"set":"town","query":"q","bm25f":[["hotel",%[1]f],["weather",0],["zip zip",0]],"bm25f_bigram":[["hotel",%[1]f]],"table":[["hotel",%[2]f]],"hybrid":[["hotel",%[3]f],["zip zip",%[4]f]]}
`, words, (x+y)/math.Sqrt2, best, others),
	} {
		if err := os.WriteFile(filepath.Join(model, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConformance(t *testing.T) {
	dir := vectorsOf(t)
	sets := map[string]*toolset.Set{"town": town()}
	var out bytes.Buffer
	if err := conform(&out, dir, sets); err != nil {
		t.Fatal(err)
	}
	for file, change := range map[string][2]string{
		"stems.tsv":         {"rooms\troom", "rooms\trooms"},
		"testvectors.jsonl": {"[0.8,0.6]", "[0.8,0.60002]"},
		"expected.jsonl":    {`"bm25f":[["hotel"`, `"bm25f":[["weather"`},
		"table.i8":          {"\x03\x04", "\x03\x05"},
	} {
		path := filepath.Join(dir, "model", file)
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Replace(was, []byte(change[0]), []byte(change[1]), 1), 0o644); err != nil {
			t.Fatal(err)
		}
		var different *differences
		if err := conform(&out, dir, sets); !errors.As(err, &different) {
			t.Errorf("%s has other vectors: %v", file, err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := conform(&out, dir, sets); err == nil || errors.As(err, &different) {
			t.Errorf("%s is empty: %v", file, err)
		}
		if err := os.WriteFile(path, was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out.Reset()
	if err := conform(&out, t.TempDir(), sets); err != nil || !strings.Contains(out.String(), "nothing is checked") {
		t.Errorf("a folder without vectors: %v, %q", err, &out)
	}
}

// TestReferenceTerms: what the matcher has more, the reference pipeline has not.
func TestReferenceTerms(t *testing.T) {
	for _, text := range []string{"天气预报 weather", "x² + ½y"} {
		if got, own := referenceTerms(text), match.Terms(text); slices.Equal(got, own) {
			t.Errorf("%q: both have %q", text, got)
		}
	}
	if got := referenceTerms("getTheWeather"); !slices.Equal(got, []string{"weather"}) {
		t.Errorf("terms %q", got)
	}
}
