package match

import (
	"context"
	"math"
	"slices"
	"testing"

	"agentgw/directory"
)

// meanings is an embedder of our own making: one component a theme, the last for everything.
var themes = map[string][]float32{
	"pharmacy.sell": {1, 0, 0, .3}, "clinic.diagnose": {.7, 0, 0, .5}, "travel.hotel.book": {0, 1, 0, .3}, "travel.flight.book": {0, .9, .1, .3},
	"weather.forecast": {0, .1, .9, .3}, "finance.invoice.extract": {0, 0, 0, 1}, "garden.advice": {0, 0, .6, .6},
}

func themed(caps []directory.Capability, id string) (changes []Change) {
	for _, c := range caps {
		i := slices.IndexFunc(changes, func(k Change) bool { return k.AIC == c.AIC })
		if i < 0 {
			changes = append(changes, Change{AIC: c.AIC, Embedded: Embedded{ID: id}})
			i = len(changes) - 1
		}
		changes[i].Caps = append(changes[i].Caps, c)
		changes[i].Embedded.Vectors = append(changes[i].Embedded.Vectors, themes[c.SkillID])
	}
	return changes
}

func about(theme int, id string) Embedded {
	v := []float32{0, 0, 0, .2}
	v[theme] = 1
	return Embedded{ID: id, Vectors: [][]float32{v}}
}

func TestAnotherEmbedderRanksAndTheTableJudges(t *testing.T) {
	var x Index
	x.Use("themes", 4)
	x.Apply(themed(town(), "themes")...)
	plain := index(town())
	const nobodyKnows = "zzyzx" // no term of the directory, so that only meanings rank
	got := x.Resolve(Query{Text: nobodyKnows, Embedded: about(1, "themes")})
	if !slices.Equal(skills(got), []string{"travel.hotel.book"}) && !slices.Equal(skills(got), []string{"travel.hotel.book", "travel.flight.book"}) {
		t.Errorf("by meaning alone: %v", skills(got))
	}
	got = x.Resolve(Query{Text: "sells medicine", Embedded: about(0, "themes")})
	table := plain.Resolve(Query{Text: "sells medicine"})
	if got[0].SkillID != "pharmacy.sell" || got[0].Evidence.Cosine < .95 || got[0].Evidence.Cosine == table[0].Evidence.Cosine {
		t.Errorf("%v, cosine %f", skills(got), got[0].Evidence.Cosine)
	}
	if got[0].Confidence != table[0].Confidence {
		t.Errorf("the confidence follows the embedder: %d, by the table %d", got[0].Confidence, table[0].Confidence)
	}
	if again := x.Resolve(Query{Text: "sells medicine"}); again[0].Evidence.Cosine != table[0].Evidence.Cosine || again[0].Score != table[0].Score {
		t.Errorf("without the request's vectors it is not ranked by the table: %+v", again[0])
	}
}

// TestVectorsOfAnotherEmbedderAreNeverCompared: the request falls back to its words.
func TestVectorsOfAnotherEmbedderAreNeverCompared(t *testing.T) {
	words := index(town()).Resolve(Query{Text: "sells medicine", Without: Dense})
	same := func(name string, got []directory.Candidate) {
		t.Helper()
		if !slices.Equal(skills(got), skills(words)) || got[0].Score != words[0].Score || got[0].Evidence.Cosine != 0 {
			t.Errorf("%s: %v with %f, by words alone %v with %f", name, skills(got), got[0].Score, skills(words), words[0].Score)
		}
	}
	var x Index
	x.Use("themes", 4)
	x.Apply(themed(town(), "themes")...)
	nan := about(0, "themes")
	nan.Vectors[0][2] = float32(math.NaN())
	short := Embedded{ID: "themes", Vectors: [][]float32{{1, 2}}}
	for name, e := range map[string]Embedded{"another id": about(0, "others"), "no number": nan, "another dimension": short, "none": {ID: "themes"}} {
		same(name, x.Resolve(Query{Text: "sells medicine", Embedded: e}))
	}
	same("an index without one", index(town()).Resolve(Query{Text: "sells medicine", Embedded: about(0, "themes")}))
	var foreign Index
	foreign.Use("themes", 4)
	foreign.Apply(themed(town(), "others")...)
	for _, c := range foreign.Resolve(Query{Text: "sells medicine", Embedded: about(0, "themes")}) {
		if c.Evidence.Cosine != 0 {
			t.Errorf("%s was compared by vectors of another embedder", c.SkillID)
		}
	}
}

// TestEntriesWithoutVectors: who waits for its vectors is neither first nor last for that.
func TestEntriesWithoutVectors(t *testing.T) {
	var x Index
	x.Use("themes", 4)
	x.Load(town()) // all without
	changes := themed(town(), "themes")
	x.Apply(changes[1:]...)
	got := x.Resolve(Query{Text: "sells medicine and remedies for a sore throat", Embedded: about(0, "themes")})
	if got[0].SkillID != "pharmacy.sell" || got[0].Evidence.Cosine != 0 || math.IsNaN(got[0].Score) {
		t.Errorf("%v, %+v", skills(got), got[0])
	}
	x.Apply(changes[0])
	if got := x.Resolve(Query{Text: "sells medicine", Embedded: about(0, "themes")}); got[0].Evidence.Cosine < .9 {
		t.Errorf("its vector came and is not compared: %+v", got[0].Evidence)
	}
	if x.Len() != len(town()) {
		t.Errorf("%d capabilities", x.Len())
	}
}

func TestPassagesAndTheBuiltInEmbedder(t *testing.T) {
	text := " Book a hotel in the city. Then translate the whole letter; finally pay "
	got := Passages(text)
	if len(got) != 1+len(steps(text)) || len(got) != 3 || got[1] != "Book a hotel in the city" || got[2] != "Then translate the whole letter finally pay" {
		t.Errorf("%q", got)
	}
	if Passages("  ") != nil {
		t.Error("nothing has a passage")
	}
	c := town()[0]
	vectors, err := Builtin.Embed(context.Background(), []string{Passage(&c), "medicine against a sore throat", "flights between airports"})
	if err != nil || len(vectors) != 3 || len(vectors[0]) != Builtin.Dim() || Builtin.ID() == "" {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	like := func(i, j int) (sum float32) {
		for k := range vectors[i] {
			sum += vectors[i][k] * vectors[j][k]
		}
		return sum
	}
	if like(0, 1) < .5 || like(0, 2) > like(0, 1)/2 {
		t.Errorf("likeness %f and %f", like(0, 1), like(0, 2))
	}
}
