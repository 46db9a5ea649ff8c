package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
	"agentgw/directory/match/train/contrast"
	"agentgw/directory/match/train/glove"
)

const (
	leastUnknown = 77.4 // nDCG@10 over domains that the table does not know
	ofEachTool   = 10   // requests of a learning split that are asked
)

// unknown trains a table without each of three sets and measures that set's learning split with it.
func unknown(w io.Writer, words *glove.Words, dir string) (below int, err error) {
	r := &report{w: tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	fmt.Fprintln(r.w, "what\tmeasured\tat least\t")
	var whole, lexical, dense []figures
	for _, name := range []string{"stabletoolbench", "sealtools", "metatool"} {
		s, err := toolset.Load(filepath.Join(dir, name))
		if err != nil {
			return 0, err
		}
		tokens, err := without(words, dir, name)
		if err != nil {
			return 0, err
		}
		queries := s.Of(contrast.Learning(name)...)
		if name == "metatool" {
			queries = sample(queries)
		}
		whole = append(whole, measure(tokens, s, queries, 0))
		lexical = append(lexical, measure(tokens, s, queries, match.Dense|match.Steps))
		dense = append(dense, measure(tokens, s, queries, match.Words|match.Steps))
		last := len(whole) - 1
		fmt.Fprintf(r.w, "%s: hybrid / BM25F + bigrams / table alone\t%.2f / %.2f / %.2f\n", name, whole[last].NDCG10, lexical[last].NDCG10, dense[last].NDCG10)
	}
	r.line("unknown domains, mean nDCG@10, hybrid", mean(whole).NDCG10, leastUnknown)
	r.line("the same, above BM25F + bigrams of this run", mean(whole).NDCG10, mean(lexical).NDCG10)
	fmt.Fprintf(r.w, "the same, table alone\t%.2f\n", mean(dense).NDCG10)
	return r.below, r.w.Flush()
}

func without(words *glove.Words, dir, name string) (*table.Table, error) {
	m, err := contrast.Read(dir, name)
	if err != nil {
		return nil, err
	}
	made, err := contrast.Train(words, m, 0)
	if err != nil {
		return nil, err
	}
	return table.Parse(made.File)
}

// sample is up to ten requests of each tool, the same ones every time: MetaTool's learning split has thousands of one tool and a few of
// another, and its reported split ten of each.
func sample(queries []toolset.Query) []toolset.Query {
	queries = slices.Clone(queries)
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(queries), func(i, j int) { queries[i], queries[j] = queries[j], queries[i] })
	of := map[string]int{}
	return slices.DeleteFunc(queries, func(q toolset.Query) bool {
		of[q.Gold[0]]++
		return of[q.Gold[0]] > ofEachTool
	})
}
