package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

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

// leftOut are the sets that are left out in turn. What is asked is their learning splits, which the table of that turn has not seen: the
// reported splits stay unseen, so a recipe may be chosen by these figures.
var leftOut = []struct {
	set, name string
	sampled   bool // where a tool has thousands of requests
}{
	{"stabletoolbench", "stabletoolbench G1", false},
	{"sealtools", "sealtools dev", false},
	{"metatool", "metatool train, ten of each tool", true},
}

// unknown trains a table without each of three sets, table and vocabulary, and measures that set with it.
func unknown(w io.Writer, words *glove.Words, dir string) (below int, err error) {
	r := &report{w: tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	fmt.Fprintln(r.w, "what\tmeasured\tat least\t")
	var whole, lexical, dense []figures
	for _, out := range leftOut {
		s, err := toolset.Load(filepath.Join(dir, out.set))
		if err != nil {
			return 0, err
		}
		tokens, err := trainedWithout(w, words, dir, out.set)
		if err != nil {
			return 0, err
		}
		queries := s.Of(contrast.Learning(out.set)...)
		if out.sampled {
			queries = sample(queries)
		}
		f, l, d := measure(tokens, s, queries, 0), measure(tokens, s, queries, match.Dense|match.Steps), measure(tokens, s, queries, match.Words|match.Steps)
		whole, lexical, dense = append(whole, f), append(lexical, l), append(dense, d)
		r.note(out.name+", nDCG@10, hybrid", f.NDCG10)
		r.note("the same, BM25F + bigrams alone", l.NDCG10)
		r.note("the same, table alone", d.NDCG10)
	}
	r.line("unknown domains, mean nDCG@10, hybrid", mean(whole).NDCG10, leastUnknown)
	r.line("the same, more than BM25F + bigrams alone", mean(whole).NDCG10, mean(lexical).NDCG10)
	r.note("the same, table alone", mean(dense).NDCG10)
	fmt.Fprintln(w)
	return r.below, r.w.Flush()
}

func trainedWithout(w io.Writer, words *glove.Words, dir, set string) (*table.Table, error) {
	m, err := contrast.Read(dir, set)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	made, err := contrast.Train(words, m, 0)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "without %s: %d pairs of texts, %d stems, trained in %.0f s\n", set, made.Pairs, made.Stems, time.Since(began).Seconds())
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
