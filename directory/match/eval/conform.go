package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
)

// The conformance vectors of a data folder, in model/: each step of the pipeline is held against them before any average is taken. They
// go with a table of their own (vocab.txt, table.i8, scale.f32), so that they check the code and not the table that is shipped.
const (
	vectorTolerance   = 1e-5
	cosineTolerance   = 2e-5
	scoreTolerance    = 1e-4 // of BM25
	standardTolerance = 1e-4 // of what was divided by a deviation, which may be small
	reported          = 20   // differences
)

// conformance collects what differs.
type conformance struct {
	dir    string // with the sets
	tokens *table.Table
	sets   map[string]*toolset.Set
	checks int
	wrong  []string
}

// conform checks all vectors and prints how many there were. A folder without them is told, since they come with no public set.
func conform(w io.Writer, dir string, sets map[string]*toolset.Set) error {
	model := filepath.Join(dir, "model")
	if _, err := os.Stat(model); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w, "conformance vectors: there are none in %s, nothing is checked against them\n\n", model)
		return nil
	}
	tokens, err := readTable(model)
	if err != nil {
		return err
	}
	c := &conformance{dir: model, tokens: tokens, sets: sets}
	for _, step := range []struct {
		file  string
		check func(string) error
	}{
		{"stems.tsv", c.stems}, {"testvectors.jsonl", c.vectors}, {"expected.jsonl", c.answers},
	} {
		before := c.checks
		if err := step.check(filepath.Join(model, step.file)); err != nil {
			return err
		}
		if c.checks == before {
			return fmt.Errorf("%s/%s has no vector", model, step.file)
		}
		fmt.Fprintf(w, "%s: %d checks\n", step.file, c.checks-before)
	}
	fmt.Fprintln(w)
	if n := len(c.wrong); n > 0 {
		return &differences{append(c.wrong[:min(n, reported):n], fmt.Sprintf("in all %d of %d checks", n, c.checks))}
	}
	return nil
}

// differences are what the conformance vectors show.
type differences struct{ list []string }

func (d *differences) Error() string {
	return "the pipeline is not that of the conformance vectors:\n  " + strings.Join(d.list, "\n  ")
}

func (c *conformance) check(ok bool, format string, args ...any) {
	c.checks++
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// readTable reads the vectors' own table.
func readTable(dir string) (*table.Table, error) {
	var files [3][]byte
	for i, name := range []string{"vocab.txt", "table.i8", "scale.f32"} {
		var err error
		if files[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	stems := strings.Split(strings.TrimSuffix(string(files[0]), "\n"), "\n")
	if len(files[2]) != 4*len(stems) || len(files[1])%len(stems) != 0 {
		return nil, fmt.Errorf("%s: vocab.txt, table.i8 and scale.f32 are not of one table", dir)
	}
	scales, rows := make([]float32, len(stems)), make([]int8, len(files[1]))
	for i := range scales {
		scales[i] = math.Float32frombits(binary.LittleEndian.Uint32(files[2][4*i:]))
	}
	for i, v := range files[1] {
		rows[i] = int8(v)
	}
	return table.Parse(table.Append(nil, stems, scales, rows, len(rows)/len(stems)))
}

// stems checks lines of word, tab, stem.
func (c *conformance) stems(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		word, want, ok := strings.Cut(in.Text(), "\t")
		got := match.Stem(word)
		c.check(ok && got == want, "%s: the stem of %q is %q, not %q", filepath.Base(file), word, want, got)
	}
	return in.Err()
}

// vector is one line of testvectors.jsonl: a text or a capability of a set, with what each step makes of it.
type vector struct {
	Kind  string       `json:"kind"`
	Text  string       `json:"text"`
	Words []string     `json:"words"`
	Stems []string     `json:"stems"`
	Set   string       `json:"set"`
	ID    string       `json:"id"`
	Rows  [][2]float64 `json:"rows"` // row, weighted frequency
	Vec   []float64    `json:"vec"`
}

func (c *conformance) vectors(file string) error {
	return toolset.Lines(file, func(v *vector) error {
		switch v.Kind {
		case "query":
			words, stems := match.Cut(v.Text), referenceTerms(v.Text)
			c.check(slices.Equal(words, v.Words), "%q: words %q, not %q", v.Text, v.Words, words)
			c.check(slices.Equal(stems, v.Stems), "%q: stems %q, not %q", v.Text, v.Stems, stems)
			if utf8.RuneCountInString(v.Text) == len(v.Text) { // ASCII, of which the matcher makes the same
				terms := match.Terms(v.Text)
				c.check(slices.Equal(terms, v.Stems), "%q: the matcher's terms %q, not %q", v.Text, v.Stems, terms)
			}
			c.embedding(v, fmt.Sprintf("%q", v.Text), referenceQuery(v.Text))
		case "capability":
			tool, err := c.tool(v.Set, v.ID)
			if err != nil {
				return err
			}
			c.embedding(v, v.Set+" "+v.ID, referenceBag(tool))
		default:
			return fmt.Errorf("there is no kind of vector %q", v.Kind)
		}
		return nil
	})
}

func (c *conformance) tool(set, id string) (*directory.Capability, error) {
	if s := c.sets[set]; s != nil {
		for i := range s.Corpus {
			if s.Corpus[i].SkillID == id {
				return &s.Corpus[i], nil
			}
		}
	}
	return nil, fmt.Errorf("there is no tool %s in the set %s", id, set)
}

func (c *conformance) embedding(v *vector, what string, bag []table.Weighted) {
	rows := map[int]float64{}
	for _, w := range bag {
		if row, ok := c.tokens.Row(w.Stem); ok {
			rows[row] = w.TF
		}
	}
	same := len(rows) == len(v.Rows)
	for _, r := range v.Rows {
		same = same && math.Abs(rows[int(r[0])]-r[1]) < vectorTolerance
	}
	c.check(same, "%s: rows %v, not %v", what, v.Rows, rows)
	got := c.tokens.Embed(bag)
	worst := 0.
	for i := range got {
		if i < len(v.Vec) {
			worst = max(worst, math.Abs(float64(got[i])-v.Vec[i]))
		}
	}
	c.check(len(got) == len(v.Vec) && worst <= vectorTolerance, "%s: a component of its vector is off by %g", what, worst)
}

// answer is one line of expected.jsonl: the best ten of a request with their scores, by each method.
type answer struct {
	Set    string   `json:"set"`
	Query  string   `json:"query"`
	BM25F  []scored `json:"bm25f"`
	Bigram []scored `json:"bm25f_bigram"`
	Table  []scored `json:"table"`
	Hybrid []scored `json:"hybrid"`
}

// answers checks the best ten of the four methods.
func (c *conformance) answers(file string) error {
	indexes := map[string]*reference{}
	return toolset.Lines(file, func(a *answer) error {
		s := c.sets[a.Set]
		if s == nil {
			return fmt.Errorf("there is no set %q", a.Set)
		}
		if indexes[a.Set] == nil {
			indexes[a.Set] = newReference(c.tokens, s.Corpus)
		}
		at := slices.IndexFunc(s.Queries, func(q toolset.Query) bool { return q.ID == a.Query })
		if at < 0 {
			return fmt.Errorf("there is no request %s in the set %s", a.Query, a.Set)
		}
		got := indexes[a.Set].ask(s.Queries[at].Text)
		what := a.Set + " " + a.Query
		c.best(what+", BM25F", a.BM25F, got.words, s, scoreTolerance)
		c.best(what+", BM25F + bigrams", a.Bigram, got.pairs, s, scoreTolerance)
		c.best(what+", table", a.Table, got.cosines, s, cosineTolerance)
		c.best(what+", hybrid", a.Hybrid, got.hybrid, s, standardTolerance)
		return nil
	})
}

// best compares a list of the best with scores of all: the same tools, but for ties that rounding decides, with the same scores.
func (c *conformance) best(what string, want []scored, scores []float64, s *toolset.Set, tolerance float64) {
	order := make([]int, len(scores))
	place := make(map[string]int, len(scores))
	for i := range order {
		order[i] = i
		place[s.Corpus[i].SkillID] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		switch {
		case scores[x] > scores[y]:
			return -1
		case scores[x] < scores[y]:
			return 1
		}
		return 0
	})
	for i, w := range want {
		at, ok := place[w.id]
		if !ok || i >= len(order) || math.Abs(scores[at]-w.score) > tolerance || math.Abs(scores[order[i]]-w.score) > tolerance {
			c.check(false, "%s: place %d is %s with %.5f, not %s with %.5f", what, i+1, w.id, w.score, s.Corpus[order[i]].SkillID, scores[order[i]])
			return
		}
	}
	c.check(len(want) > 0, "%s: no answer is expected", what)
}
