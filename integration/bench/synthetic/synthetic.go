// Package synthetic makes the directories that the benches measure matching over: capabilities of stems of the language, as frequent as
// there, and questions about some of them. What the token table does not know has no vector to compare, so words that nobody speaks would
// measure too little.
//
// The contract: the same size gives the same directory in every process and run. Only [Capabilities] reads anything, the rank list of the
// module whose folder it is given.
package synthetic

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
)

const (
	// Questions is how many there are.
	Questions = 64

	nameWords  = 3
	proseWords = 20
	seed       = 20240623
	rankList   = "directory/match/data/bgrank.tsv"
	rarest     = 40_000 // rank of a word that is used
)

// Capabilities is n capabilities of n agents, n at least Questions, and questions about some of them: three words of the name and three of
// the description. root is the folder of the module.
func Capabilities(root string, n int) (caps []directory.Capability, questions []string, err error) {
	words, err := stems(root)
	if err != nil {
		return nil, nil, err
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	zipf := rand.NewZipf(r, 1.1, 10, uint64(len(words)-1))
	phrase := func(n int, next func() int) string {
		out := make([]string, n)
		for i := range out {
			out[i] = words[next()]
		}
		return strings.Join(out, " ")
	}
	common := func() int { return int(zipf.Uint64()) }
	for i := range n {
		aic := fmt.Sprintf("2.999.1.1.1.B.1.1.%d.0000", i)
		caps = append(caps, directory.Capability{
			AIC: aic, CapID: directory.CapID(aic, "s"), SkillID: "s", Provider: aic,
			Name: phrase(nameWords, func() int { return r.IntN(len(words)) }), Description: phrase(proseWords, common), Tags: []string{phrase(1, common)},
		})
	}
	for i := range Questions {
		c := caps[i*(n/Questions)]
		questions = append(questions, c.Name+" "+strings.Join(strings.Fields(c.Description)[:3], " "))
	}
	return caps, questions, nil
}

// Text is all that a capability of this package says.
func Text(c *directory.Capability) string { return c.Name + " " + c.Description + " " + c.Tags[0] }

// stems are the words of the rank list that both the matcher and the token table leave as they are, the commonest first.
func stems(root string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(root, rankList))
	if err != nil {
		return nil, err
	}
	var all [rarest]string
	for line := range strings.Lines(string(raw)) {
		var word string
		var rank int
		if _, err := fmt.Sscan(line, &word, &rank); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", rankList, line, err)
		}
		if _, known := table.Builtin.Row(word); known && rank < rarest {
			if terms := match.Terms(word); len(terms) == 1 && terms[0] == word {
				all[rank] = word
			}
		}
	}
	var out []string
	for _, w := range all {
		if w != "" {
			out = append(out, w)
		}
	}
	return out, nil
}
