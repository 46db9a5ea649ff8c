package contrast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
	"agentgw/directory/match/train/glove"
)

// list is a word list of the tests' own, the commonest first.
const list = "the of weather , forecast forecasts rain hotel book room flight airport translate language text umbrella umbrellas city"

func toyWords() *glove.Words {
	rng := rand.New(rand.NewPCG(5, 5))
	words := strings.Fields(list)
	numbers := make([]float32, len(words)*glove.Dim)
	for i := range numbers {
		numbers[i] = float32(rng.NormFloat64())
	}
	w := glove.New(words, numbers)
	w.Normalise()
	return w
}

// reserved are the splits that are for reporting, by set: each of the requests there names a word that nothing else has.
var reserved = map[string][]string{
	"metatool":        {"test", "multi"},
	"sealtools":       {"test_in_domain", "test_out_domain"},
	"stabletoolbench": {"G2_instruction", "G2_category", "G3_instruction"},
	"livemcpbench":    {"test"},
}

// publicSets writes small sets in the form of the public ones, with requests in every split.
func publicSets(t *testing.T) string {
	dir := t.TempDir()
	write := func(name string, lines ...any) {
		t.Helper()
		var b bytes.Buffer
		for _, l := range lines {
			line, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(line, '\n'))
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range toolset.Names() {
		write(name+"/corpus.jsonl",
			toolset.Tool{ID: "w", Name: "weather", Description: "rain forecast", Extra: name + "field quux"}, // quux has no vector: its start is drawn
			toolset.Tool{ID: "h", Name: "hotel", Description: "book room", Category: "city"},
			toolset.Tool{ID: "f", Name: "flight", Description: "airport"},
			toolset.Tool{ID: "l", Name: "translate", Description: "language text"})
		var queries []any
		for _, split := range slices.Concat(Learning(name), reserved[name]) {
			word := "rain"
			if slices.Contains(reserved[name], split) {
				word = "secret" + strings.ReplaceAll(split, "_", "")
			}
			for i := range 4 {
				queries = append(queries, toolset.Query{ID: fmt.Sprint(split, i), Text: fmt.Sprint("umbrellas for ", word, " ", word, " ", word), Gold: []string{"w", "h", "f", "l"}, Split: split})
			}
		}
		write(name+"/queries.jsonl", queries...)
	}
	for _, kind := range []string{"skills", "domains"} {
		write("oasf/"+kind+".jsonl", class{kind + "/translation", "Translation", "Translate text to a language"})
	}
	return dir
}

// TestOnlyLearningSplitsAreRead: no word of a request that is for reporting gets anywhere, and no split is for both.
func TestOnlyLearningSplitsAreRead(t *testing.T) {
	dir := publicSets(t)
	m, err := Read(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range m.texts {
		if strings.Contains(text, "secret") {
			t.Errorf("read: %q", text)
		}
	}
	for _, p := range m.pairs {
		for _, w := range slices.Concat(p.from, p.to) {
			if strings.Contains(w.Stem, "secret") {
				t.Errorf("a pair has %q", w.Stem)
			}
		}
	}
	made, err := Train(toyWords(), m, 0)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := table.Parse(made.File)
	if err != nil {
		t.Fatal(err)
	}
	for set, splits := range reserved {
		for _, split := range splits {
			if slices.Contains(Learning(set), split) {
				t.Errorf("%s %s is for reporting", set, split)
			}
			if _, ok := tokens.Row("secret" + strings.ToLower(strings.ReplaceAll(split, "_", ""))); ok {
				t.Errorf("the table knows a word of %s %s", set, split)
			}
		}
	}
	if _, ok := tokens.Row("umbrella"); !ok {
		t.Error("the table does not know a word of the learning splits")
	}
	// 4 sets with 4 names, 4 requests of each of 5 learning splits with 3 of their 4 answers, 2 classes.
	if want := 4*4 + 5*4*3 + 2; len(m.pairs) != want {
		t.Errorf("%d pairs, want %d", len(m.pairs), want)
	}
}

func TestASetIsLeftOutAsAWhole(t *testing.T) {
	dir := publicSets(t)
	for _, name := range toolset.Names() {
		m, err := Read(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(m.texts, name+"field quux") {
			t.Errorf("a text of %s is read", name)
		}
		for _, p := range m.pairs {
			if strings.HasPrefix(p.tool, name+"/") {
				t.Errorf("there is a pair of %s", name)
			}
		}
	}
	if _, err := Read(dir, "metatoll"); err == nil {
		t.Error("a set that does not exist is left out")
	}
	if err := os.Remove(filepath.Join(dir, "oasf", "domains.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, ""); err == nil {
		t.Error("a file is missing, and nothing says so")
	}
}

func TestSameSeedSameFile(t *testing.T) {
	dir := publicSets(t)
	train := func(seed uint64) *Result {
		m, err := Read(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		made, err := Train(toyWords(), m, seed)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	one, again, other := train(0), train(0), train(1)
	if !bytes.Equal(one.File, again.File) {
		t.Error("two trainings from one seed differ")
	}
	if bytes.Equal(one.File, other.File) {
		t.Error("the seed changes nothing")
	}
	if n := len(one.Losses); n != epochs || one.Losses[n-1] >= one.Losses[0] {
		t.Errorf("losses %v", one.Losses)
	}
}

func TestNothingToLearn(t *testing.T) {
	if _, err := Train(toyWords(), &Material{}, 0); err == nil {
		t.Error("a table was made of nothing")
	}
}

func TestVocabulary(t *testing.T) {
	words := toyWords()
	texts := []string{"umbrella umbrella umbrellas", "Quux quux quux 777 777 777 zork zork", "天气预报 天气预报 天气预报"}
	all := map[string]stem{}
	var names []string
	for _, s := range vocabulary(words, texts, rand.New(rand.NewPCG(6, 6))) {
		all[s.name] = s
		names = append(names, s.name)
		if l := dot(s.start, s.start); math.Abs(float64(l)-1) > 1e-5 {
			t.Errorf("%s starts with length² %f", s.name, l)
		}
	}
	if !slices.IsSorted(names) {
		t.Error("stems are not in byte order")
	}
	for name, want := range map[string]bool{
		"weather": true, "forecast": true, "umbrella": true, // of the word list
		"quux": true, "天气": true, "天气预报": true, // three times in the texts
		"zork": false, "777": false, "the": false, ",": false, "umbrellas": false,
	} {
		if _, ok := all[name]; ok != want {
			t.Errorf("%q is in the table: %v", name, ok)
		}
	}
	// Two forms, at the places 15 and 16 of the list, which the texts have twice and once.
	want := make([]float32, glove.Dim)
	a, b := 1/(15+2.7), 1/(16+2.7)
	addTo(want, float32(a/(a+b)+2./3), words.Vector(15))
	addTo(want, float32(b/(a+b)+1./3), words.Vector(16))
	if d := dot(unit(want), all["umbrella"].start); math.Abs(float64(d)-1) > 1e-5 {
		t.Errorf("umbrella starts at a cosine of %f from the mean of its forms", d)
	}
	p := 1 / ((2 + 2.7) * (math.Log(400_000) + .577))
	if got, want := all["weather"].weight, 1e-3/(1e-3+p); math.Abs(got-want) > 1e-9 {
		t.Errorf("weather counts %g, want %g", got, want)
	}
	if all["quux"].weight < .9 {
		t.Errorf("a word that no list has counts %g", all["quux"].weight)
	}
}
