package match

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/directory"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata anew; review it as a diff")

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
		x.Apply(Change{capability(agent, "", "", "").AIC, c})
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
		{Text: "tram", Caps: []string{english(40)[31].CapID, english(40)[3].CapID}},
	} {
		fmt.Fprintf(&b, "%q %v %v %v %d\n", q.Text, q.Classes, q.Tags, len(q.Caps), q.Without)
		for _, c := range x.Resolve(q) {
			e := c.Evidence
			fmt.Fprintf(&b, "\t%s %.9g %d %.9g %.9g %.9g %d %v %v\n", c.CapID, c.Score, c.Confidence, e.Cosine, e.Text, e.Bigram, e.Coverage, e.Matched, e.Structured)
		}
	}
	file := filepath.Join("testdata", "answers.txt")
	if *update {
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
