package main

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
)

// here says how well the confidence of the best answer tells whether a directory has one at all: the area under its receiver operating
// characteristic. A corpus is dealt to directories of about forty capabilities, those of one category together where it has
// categories; each reported query is asked where its first answer is, and once where none is.
func here(tokens *table.Table, s *toolset.Set) float64 {
	rng := rand.New(rand.NewPCG(1, 1))
	many := max(2, len(s.Corpus)/40)
	where := map[string]int{}
	dealt := make([][]directory.Capability, many)
	for _, c := range s.Corpus {
		to := rng.IntN(many)
		if len(c.Tags) > 0 {
			h := fnv.New32a()
			h.Write([]byte(c.Tags[0]))
			to = int(h.Sum32() % uint32(many))
		}
		where[c.SkillID] = to
		dealt[to] = append(dealt[to], c)
	}
	indexes := make([]match.Index, many)
	for i := range indexes {
		indexes[i].Table = tokens
		indexes[i].Load(dealt[i])
	}
	best := func(i int, text string) float64 {
		if list := indexes[i].Resolve(match.Query{Text: text, Limit: 1}); len(list) > 0 {
			return float64(list[0].Confidence)
		}
		return 0
	}
	var yes, no []float64
	for _, row := range rows {
		if row.set != s.Name {
			continue
		}
		for _, q := range s.Of(row.splits...) {
			away := rng.IntN(many)
			for slices.ContainsFunc(q.Gold, func(id string) bool { return where[id] == away }) {
				away = (away + 1) % many
			}
			yes, no = append(yes, best(where[q.Gold[0]], q.Text)), append(no, best(away, q.Text))
		}
	}
	return area(yes, no)
}

// area is the chance that one of yes is above one of no; equal ones count half.
func area(yes, no []float64) float64 {
	slices.Sort(no)
	sum := 0.
	for _, v := range yes {
		below, _ := slices.BinarySearch(no, v)
		upTo, _ := slices.BinarySearchFunc(no, v, func(e, v float64) int {
			if e <= v {
				return -1
			}
			return 1
		})
		sum += float64(below+upTo) / 2
	}
	return sum / float64(max(1, len(yes)*len(no)))
}
