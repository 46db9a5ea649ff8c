// Command eval measures how well the matcher finds what a request asks for, over folders of capabilities with labelled requests.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"agentgw/directory/match"
	"math"
)

func main() {
	dir := flag.String("set", "", "folder with corpus.jsonl and queries.jsonl")
	splits := flag.String("split", "", "splits, by comma")
	flag.Parse()
	s, err := load(*dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "eval:", err)
		os.Exit(2)
	}
	var names []string
	if *splits != "" {
		names = strings.Split(*splits, ",")
	}
	out := measure(s, s.of(names...))
	json.NewEncoder(os.Stdout).Encode(out)
}

type figures struct {
	Set     string  `json:"set"`
	Queries int     `json:"queries"`
	Acc1    float64 `json:"acc1"`
	R5      float64 `json:"r5"`
	R10     float64 `json:"r10"`
	NDCG10  float64 `json:"ndcg10"`
	P50     float64 `json:"p50_us"`
}

func measure(s *set, queries []query) figures {
	x := new(match.Index)
	x.Load(s.corpus)
	f := figures{Set: s.name, Queries: len(queries)}
	var times []float64
	for _, q := range queries {
		began := time.Now()
		list := x.Resolve(match.Query{Text: q.Text, Limit: 10, PerAIC: 1})
		times = append(times, float64(time.Since(began).Microseconds()))
		var ids []string
		for _, c := range list {
			ids = append(ids, c.SkillID)
		}
		f.score(ids, q.Gold)
	}
	n := float64(max(len(queries), 1)) / 100
	f.Acc1, f.R5, f.R10, f.NDCG10 = f.Acc1/n, f.R5/n, f.R10/n, f.NDCG10/n
	slices.Sort(times)
	if len(times) > 0 {
		f.P50 = times[len(times)/2]
	}
	return f
}

func (f *figures) score(ids, gold []string) {
	found5, found10, dcg, best := 0., 0., 0., 0.
	for i := range 10 {
		gain := 1 / math.Log2(float64(i+2))
		if i < len(gold) {
			best += gain
		}
		if i >= len(ids) || !slices.Contains(gold, ids[i]) {
			continue
		}
		if i == 0 {
			f.Acc1++
		}
		if i < 5 {
			found5++
		}
		found10++
		dcg += gain
	}
	f.R5 += found5 / float64(len(gold))
	f.R10 += found10 / float64(len(gold))
	f.NDCG10 += dcg / best
}
