package match

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/directory"

	"github.com/google/go-cmp/cmp"
)

// english is a directory of n capabilities of words that the token table knows, some of which are filed under classes.
func english(n int) []directory.Capability {
	rng := rand.New(rand.NewPCG(7, 7))
	words := strings.Fields(`river bridge tower market station garden museum ferry tram library harbour school bakery cinema weather rain
		hotel flight train booking ticket price invoice tax report currency exchange stock news music song film recipe cook doctor patient
		medicine pharmacy disease symptom translate language letter email message calendar meeting reminder map route traffic car bicycle
		repair insurance bank account payment order delivery shop product review photo image video convert compress search database query`)
	phrase := func(n int) string {
		out := make([]string, n)
		for i := range out {
			r := rng.Float64()
			out[i] = words[int(r*r*float64(len(words)))]
		}
		return strings.Join(out, " ")
	}
	classes := []string{"geo/weather", "health/pharmacy", "health", "finance/invoice/tax"}
	var caps []directory.Capability
	for i := range n {
		c := capability(i/2, fmt.Sprintf("s%d.%s", i%2, words[i%len(words)]), phrase(1+rng.IntN(3)), phrase(3+rng.IntN(25)), phrase(1))
		if i%9 == 0 {
			c.Classes = []string{classes[rng.IntN(len(classes))]}
		}
		if i%7 == 0 {
			c.Examples = []string{phrase(5)}
		}
		caps = append(caps, c)
	}
	return caps
}

// TestAnswersStayAsTheyAre compares whole answers with those kept in testdata/answers.txt, scores and cosines to nine digits: what makes
// the matcher faster may not change what it says.
func TestAnswersStayAsTheyAre(t *testing.T) {
	x := index(english(3000))
	for agent := range 200 { // some documents are dead, and there are several segments
		c := english(2*agent + 2)[2*agent:]
		if agent%3 == 0 {
			c = nil
		}
		x.Apply(Change{AIC: capability(agent, "", "", "").AIC, Caps: c})
	}
	var b strings.Builder
	for _, q := range []Query{
		{Text: "medicine for a disease of the patient"},
		{Text: "Book a hotel near the harbour. Then translate the letter into another language and email it; finally pay the invoice"},
		{Text: "1. find the route to the museum 2. check the weather and rain there 3. compare ticket price of the train"},
		{Text: "wether forcast for the harbor, hottel bookking"},
		{Text: "please call s1.bridge for me"},
		{Text: "automobile and physician"},
		{Text: "rain", Classes: []string{"geo/weather"}},
		{Text: "pay. Then convert currency exchange price", Classes: []string{"finance/invoice", "health"}, Limit: 30},
		{Classes: []string{"health/pharmacy"}},
		{Tags: []string{"river"}, Limit: 5},
		{All: true, Limit: 3},
		{Text: "music song film", Tags: []string{"river"}},
		{Text: "music song film", MinScore: 4000},
		{Text: "photo image video", After: &Place{Score: 3, CapID: "acps"}},
		{Text: "photo image video", Without: Words},
		{Text: "photo image video converts", Without: Dense},
		{Text: "medicinne for a diseasee of the pattient fofomap"},
		{Text: "medicinne for a diseasee", MinScore: 30},
		{Text: "medicine for a diseasee", MinScore: 1500, Limit: 60, PerAIC: 2},
		{Caps: []string{english(40)[38].CapID, english(40)[3].CapID}},
		{Caps: []string{english(40)[38].CapID, english(40)[3].CapID, english(40)[20].CapID}, Classes: []string{"finance", "health"}},
		{Text: "tram", Caps: []string{english(40)[31].CapID, english(40)[3].CapID}},
	} {
		fmt.Fprintf(&b, "%q %v %v %v %d\n", q.Text, q.Classes, q.Tags, len(q.Caps), q.Without)
		for _, c := range x.Resolve(q) {
			e := c.Evidence
			fmt.Fprintf(&b, "\t%s %.9g %d %.9g %.9g %.9g %d %v %v\n", c.CapID, c.Score, c.Confidence, e.Cosine, e.Text, e.Bigram, e.Coverage, e.Matched, e.Structured)
		}
	}
	file := filepath.Join("testdata", "answers.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("answers (-kept +now):\n%s", diff)
	}
}

// TestLargeDirectory: above denseAll capabilities only the best of the text part are compared by their embeddings, whatever order the
// capabilities came in; what comes first is among the best ten of all, with the same confidence.
func TestLargeDirectory(t *testing.T) {
	caps := english(1500)
	shuffled := slices.Clone(caps)
	rand.New(rand.NewPCG(3, 3)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	all, few, other := index(caps), index(caps), new(Index)
	few.few, other.few = true, true
	for part := range slices.Chunk(shuffled, 97) {
		for _, c := range part { // an agent's capabilities come and go together
			own := slices.DeleteFunc(slices.Clone(caps), func(o directory.Capability) bool { return o.AIC != c.AIC })
			other.Apply(Change{AIC: c.AIC, Caps: own})
		}
	}
	for _, q := range []Query{
		{Text: "medicine for a disease of the patient", Limit: 500, PerAIC: 9},
		{Text: "Translate the letter into another language. Then pay the invoice; book a hotel", Limit: 500, PerAIC: 9},
		{Text: "rain", Classes: []string{"geo/weather"}, Limit: 500, PerAIC: 9},
	} {
		got := few.Resolve(q)
		if diff := cmp.Diff(got, other.Resolve(q)); diff != "" {
			t.Errorf("%q: the order of arrival counts:\n%.600s", q.Text, diff)
		}
		if len(got) != few.denseBest() {
			t.Errorf("%q: %d candidates, want %d", q.Text, len(got), few.denseBest())
		}
		want := all.Resolve(q)[:10]
		at := slices.IndexFunc(want, func(c directory.Candidate) bool { return c.CapID == got[0].CapID })
		if at < 0 || got[0].Confidence != want[at].Confidence || got[0].Evidence.Cosine == 0 {
			t.Errorf("%q: %s with %d first, and it is not among the ten best of all", q.Text, got[0].CapID, got[0].Confidence)
		}
	}
	named := caps[77]
	got := few.Resolve(Query{Text: "rain", Caps: []string{named.CapID}})
	if len(got) != 1 || got[0].Confidence != fullMyriad {
		t.Errorf("a named capability of a large directory: %v", got)
	}
}

// In a large directory whose best are not offered, what is offered is found all the same.
func TestOfferedOfALargeDirectory(t *testing.T) {
	x := index(english(1500))
	x.few = true
	q := Query{Text: "medicine for a disease of the patient", Limit: 500, PerAIC: 9}
	best := map[string]bool{}
	for _, c := range x.Resolve(q) {
		best[c.CapID] = true
	}
	q.Offered = func(c *directory.Capability) bool { return !best[c.CapID] }
	q.Refuse = func(c *directory.Capability) string {
		if q.Offered(c) {
			return ""
		}
		return "is away"
	}
	if got := x.Resolve(q); len(got) != x.denseBest() || best[got[0].CapID] {
		t.Errorf("%d found", len(got))
	}
}

// TestDotIsExact compares the product of eight components at a time with the plain one.
func TestDotIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, dim := range []int{1, 7, 8, 100, 1536, maxVectorDim} {
		for _, extreme := range []bool{false, true} {
			x, y := make([]float32, dim), make([]float32, dim)
			for i := range x {
				x[i], y[i] = rng.Float32()-.5, rng.Float32()-.5
				if extreme {
					x[i], y[i] = -1, float32(i%2*2-1)
				}
			}
			if extreme {
				y[0], x[0] = -1, 1
			}
			var kept vectors
			kept.add(x)
			kept.add(y)
			q := newVector(y)
			plain, _ := quantise(nil, x)
			if got, want := q.dot(kept.bytes[:room(dim)]), dot(q.v, plain); got != want {
				t.Errorf("%d components: %d, want %d", dim, got, want)
			}
			other := newVector(x)
			for _, of := range [][]*vector{{&q, &other, &q}, {&other, &other, &other, &q}} {
				sums := newBundle(of).sums(kept.bytes[room(dim):])
				for i, v := range of {
					if got, want := v.upper(sums[i]), v.dot(kept.bytes[room(dim):]); got != want {
						t.Errorf("%d components, %d of %d at once: %d, want %d", dim, i, len(of), got, want)
					}
				}
			}
			if got := kept.cosine(&q, 1); got < .999 || got > 1.001 {
				t.Errorf("%d components: a vector is %f like itself", dim, got)
			}
		}
	}
}

// TestLoadBreaksTies and nothing more, and a list goes on behind a place among equals.
func TestLoadBreaksTies(t *testing.T) {
	var caps []directory.Capability
	for i := range 9 {
		caps = append(caps, capability(i, "s", "Tide table", "tides of the harbour"))
	}
	caps = append(caps, capability(50, "s", "Tide table of the tides", "tide table, tide table"))
	x := index(caps)
	load := func(c *directory.Capability) uint16 {
		if c.AIC == caps[9].AIC {
			return 256
		}
		return uint16(c.AIC[len("2.999.1.1.1.A.1.1.")]-'0') / 3 * 100
	}
	q := Query{Text: "tide table", Limit: 20, Load: load}
	all := x.Resolve(q)
	plain := x.Resolve(Query{Text: "tide table", Limit: 20})
	if len(all) != 10 || len(plain) != 10 {
		t.Fatalf("%d and %d candidates", len(all), len(plain))
	}
	for i := range all {
		if all[i].Score != plain[i].Score {
			t.Errorf("the load is in the score of place %d", i)
		}
		if i > 0 && all[i].Score == all[i-1].Score && (all[i].Load < all[i-1].Load || all[i].Load == all[i-1].Load && all[i].CapID <= all[i-1].CapID) {
			t.Errorf("place %d: %d %s after %d %s", i, all[i].Load, all[i].CapID, all[i-1].Load, all[i-1].CapID)
		}
	}
	if all[0].Load == all[8].Load && all[1].Load == all[8].Load {
		t.Error("every load is the same: nothing is tested")
	}
	var got []directory.Candidate
	for q.Limit = 4; ; {
		list := x.Resolve(q)
		if len(list) == 0 {
			break
		}
		got = append(got, list...)
		last := list[len(list)-1]
		q.After = &Place{last.Score, last.Load, last.CapID}
	}
	if diff := cmp.Diff(capIDs(all), capIDs(got)); diff != "" {
		t.Errorf("in pages (-at once +in pages):\n%s", diff)
	}
}

func capIDs(list []directory.Candidate) (out []string) {
	for _, c := range list {
		out = append(out, c.CapID)
	}
	return out
}
