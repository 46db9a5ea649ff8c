package contrast

import (
	"math"
	"math/rand/v2"
	"slices"
	"unicode"

	"agentgw/directory/match"
	"agentgw/directory/match/train/glove"
)

const (
	commonWords  = 40_000 // whose stems are in every table
	zipfOffset   = 2.7
	listedWords  = 400_000 // of the word list in which ranks count; also the rank of a stem that has none
	euler        = .577
	startsRandom = 3 // times that the texts must have a stem without a word vector
	halfWeight   = 1e-3
)

// stem is one row at the start.
type stem struct {
	name   string
	start  []float32 // of length 1
	weight float64
}

// forms are the surface forms of one stem.
type forms struct {
	common []int          // their places in the word list, commonest first, of the commonWords
	texts  map[string]int // how often the texts have each
}

// vocabulary is the stems of a table in byte order, each as it starts. Words must be normalised.
func vocabulary(words *glove.Words, texts []string, rng *rand.Rand) []stem {
	all := map[string]*forms{}
	of := func(name string) *forms {
		if all[name] == nil {
			all[name] = &forms{texts: map[string]int{}}
		}
		return all[name]
	}
	taken := 0
	place := make(map[string]int, len(words.List))
	for i, w := range words.List {
		place[w] = i
		if taken < commonWords && isOneWord(w) {
			f := of(match.Stem(w))
			f.common = append(f.common, i)
			taken++
		}
	}
	for _, text := range texts {
		for _, w := range match.WordsOf(text) {
			for i, name := range match.Terms(w) {
				if i > 0 {
					w = name // two characters of a run
				}
				of(name).texts[w]++
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names) // so that what is drawn does not depend on a map's order
	out := make([]stem, 0, len(names))
	for _, name := range names {
		f := all[name]
		start := f.start(words, place)
		if start == nil {
			if f.inTexts() < startsRandom || isNumber(name) {
				continue
			}
			start = make([]float32, glove.Dim)
			for j := range start {
				start[j] = float32(rng.NormFloat64())
			}
		}
		out = append(out, stem{name, unit(start), f.weight(place)})
	}
	return out
}

// isOneWord says whether an entry of the word list is a term by itself, in the form in which a text has it.
func isOneWord(w string) bool {
	list := match.WordsOf(w)
	return len(list) == 1 && list[0] == w && len(match.Terms(w)) > 0
}

func isNumber(s string) bool {
	for _, r := range s {
		if !unicode.IsNumber(r) {
			return false
		}
	}
	return true
}

func (f *forms) inTexts() (n int) {
	for _, k := range f.texts {
		n += k
	}
	return n
}

// start is the mean of the forms' vectors: half by their commonness in the language, half by the texts; one half alone where the other
// has no vector, nil where none has.
func (f *forms) start(words *glove.Words, place map[string]int) []float32 {
	language, texts := make([]float64, glove.Dim), make([]float64, glove.Dim)
	total, counted := 0., 0.
	for _, i := range f.common {
		total += addScaled(language, 1/(float64(i)+zipfOffset), words.Vector(i))
	}
	inOrder := make([]string, 0, len(f.texts)) // sums depend on it
	for w := range f.texts {
		inOrder = append(inOrder, w)
	}
	slices.Sort(inOrder)
	for _, w := range inOrder {
		if i, ok := place[w]; ok {
			counted += addScaled(texts, float64(f.texts[w]), words.Vector(i))
		}
	}
	if total == 0 && counted == 0 {
		return nil
	}
	out := make([]float32, glove.Dim)
	for j := range out {
		switch {
		case counted == 0:
			out[j] = float32(language[j] / total)
		case total == 0:
			out[j] = float32(texts[j] / counted)
		default:
			out[j] = float32((language[j]/total + texts[j]/counted) / 2)
		}
	}
	return out
}

func addScaled(sum []float64, by float64, v []float32) float64 {
	for j, x := range v {
		sum[j] += by * float64(x)
	}
	return by
}

// weight is what a stem counts at the start: little where its commonest form is one of the commonest words.
func (f *forms) weight(place map[string]int) float64 {
	rank := listedWords
	if len(f.common) > 0 {
		rank = f.common[0]
	}
	for w := range f.texts {
		if i, ok := place[w]; ok {
			rank = min(rank, i)
		}
	}
	p := 1 / ((float64(rank) + zipfOffset) * (math.Log(listedWords) + euler))
	return halfWeight / (halfWeight + p)
}

// unit brings a vector to length 1, in place.
func unit(v []float32) []float32 {
	sum := 0.
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum > 0 {
		for j := range v {
			v[j] = float32(float64(v[j]) / math.Sqrt(sum))
		}
	}
	return v
}
