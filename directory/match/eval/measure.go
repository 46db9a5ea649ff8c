package main

import (
	"math"
	"slices"
	"time"

	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
)

// figures are how well queries were answered, in percent.
type figures struct {
	Set     string  `json:"set"`
	Queries int     `json:"queries"`
	Acc1    float64 `json:"acc1"`
	R5      float64 `json:"r5"`
	R10     float64 `json:"r10"`
	NDCG10  float64 `json:"ndcg10"`
	P50     float64 `json:"p50_us"`
}

const looked = 10 // places of an answer

// measure asks every query of an index of the whole corpus, which embeds with a table; nil is the built-in one.
func measure(tokens *table.Table, s *toolset.Set, queries []toolset.Query, without match.Parts) figures {
	x := &match.Index{Table: tokens}
	x.Load(s.Corpus)
	f := figures{Set: s.Name, Queries: len(queries)}
	var times []float64
	for _, q := range queries {
		began := time.Now()
		list := x.Resolve(match.Query{Text: q.Text, Limit: looked, PerAIC: 1, Without: without})
		times = append(times, float64(time.Since(began).Nanoseconds())/1e3)
		var ids []string
		for _, c := range list {
			ids = append(ids, c.SkillID)
		}
		f.add(ids, q.Gold)
	}
	n := float64(max(len(queries), 1)) / 100
	f.Acc1, f.R5, f.R10, f.NDCG10 = f.Acc1/n, f.R5/n, f.R10/n, f.NDCG10/n
	slices.Sort(times)
	if len(times) > 0 {
		f.P50 = times[len(times)/2]
	}
	return f
}

// add counts one answer.
func (f *figures) add(ids, gold []string) {
	found, gain, best := 0., 0., 0.
	for i := range looked {
		worth := 1 / math.Log2(float64(i+2))
		if i < len(gold) {
			best += worth
		}
		if i < len(ids) && slices.Contains(gold, ids[i]) {
			found++
			gain += worth
			if i == 0 {
				f.Acc1++
			}
		}
		if i == 4 {
			f.R5 += found / float64(len(gold))
		}
	}
	f.R10 += found / float64(len(gold))
	f.NDCG10 += gain / best
}

func (f figures) rounded(name string) figures {
	round := func(v float64) float64 { return math.Round(v*100) / 100 }
	return figures{name, f.Queries, round(f.Acc1), round(f.R5), round(f.R10), round(f.NDCG10), round(f.P50)}
}

// mean is that of several rows.
func mean(rows []figures) figures {
	out := figures{Set: "mean"}
	n := float64(len(rows))
	for _, r := range rows {
		out.Queries += r.Queries
		out.Acc1 += r.Acc1 / n
		out.R5 += r.R5 / n
		out.R10 += r.R10 / n
		out.NDCG10 += r.NDCG10 / n
	}
	return out
}
