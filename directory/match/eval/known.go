package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
)

// row is one of the five sets that are reported: the splits that nothing was learned from.
type row struct {
	set, name string
	splits    []string
	r5, ndcg  float64 // bars
}

var rows = []row{
	{"metatool", "metatool test", []string{"test"}, 84.2, 77.3},
	{"metatool", "metatool multi", []string{"multi"}, 73.0, 69.8},
	{"sealtools", "sealtools test", []string{"test_in_domain", "test_out_domain"}, 85.4, 89.4},
	{"stabletoolbench", "stabletoolbench G2/G3", []string{"G2_instruction", "G2_category", "G3_instruction"}, 64.9, 68.4},
	{"livemcpbench", "livemcpbench", nil, 34.3, 36.6},
}

// known measures the public sets, which the built-in table knows, and says how many figures are below their bars.
func known(w io.Writer, tokens *table.Table, dir string) (below int, err error) {
	sets := map[string]*toolset.Set{}
	for _, name := range toolset.Names() {
		if sets[name], err = toolset.Load(filepath.Join(dir, name)); err != nil {
			return 0, err
		}
	}
	if err := conform(w, dir, sets); err != nil {
		return 0, err
	}
	r := &report{w: tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	fmt.Fprintln(r.w, "what\tmeasured\tat least\t")
	var whole, words, dense []figures
	for _, row := range rows {
		s := sets[row.set]
		queries := s.Of(row.splits...)
		f := measure(tokens, s, queries, 0)
		whole = append(whole, f)
		words = append(words, measure(tokens, s, queries, match.Dense|match.Steps))
		dense = append(dense, measure(tokens, s, queries, match.Words|match.Steps))
		r.line(row.name+", R@5", f.R5, row.r5)
		r.line(row.name+", nDCG@10", f.NDCG10, row.ndcg)
	}
	m := mean(whole)
	r.line("mean of the five, acc1", m.Acc1, 65.1)
	r.line("mean of the five, R@5", m.R5, 68.4)
	r.line("mean of the five, R@10", m.R10, 77.4)
	r.line("mean of the five, nDCG@10", m.NDCG10, 68.3)
	r.line("the same, BM25F + bigrams alone, nDCG@10", mean(words).NDCG10, 62.6)
	r.line("the same, table alone, nDCG@10", mean(dense).NDCG10, 59.9)
	taught := withExamples(sets["metatool"])
	r.line("metatool test, 10 examples a tool, BM25F, nDCG@10",
		measure(tokens, taught, taught.Of("test"), match.Dense|match.Pairs|match.Steps).NDCG10, 78.9)
	sum := 0.
	for _, name := range toolset.Names() {
		sum += here(tokens, sets[name])
	}
	r.line("answer here or ask further, AUROC, mean of four", 100*sum/4, 86)
	return r.below, r.w.Flush()
}

// withExamples gives each tool the first ten requests of the learning split that it answers alone.
func withExamples(s *toolset.Set) *toolset.Set {
	out := &toolset.Set{Name: s.Name, Corpus: slices.Clone(s.Corpus), Queries: s.Queries}
	at := map[string]int{}
	for i, c := range out.Corpus {
		at[c.SkillID] = i
	}
	for _, q := range s.Of("train") {
		if c := &out.Corpus[at[q.Gold[0]]]; len(q.Gold) == 1 && len(c.Examples) < 10 {
			c.Examples = append(c.Examples, q.Text)
		}
	}
	return out
}
