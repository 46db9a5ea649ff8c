package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"agentgw/directory"
)

// set is one folder of capabilities with labelled requests.
type set struct {
	name    string
	caps    []directory.Capability
	queries []request
}

// request is a request and the numbers of the capabilities that answer it.
type request struct {
	text string
	gold []int
}

// reported are the splits that nothing was learned from; a set without splits is reported whole.
var reported = []string{"", "test", "multi", "test_in_domain", "test_out_domain", "G2_instruction", "G2_category", "G3_instruction"}

func load(dir string) (*set, error) {
	s := &set{name: filepath.Base(dir)}
	number := map[string]int{}
	err := lines(filepath.Join(dir, "corpus.jsonl"), func(t *struct{ ID, Name, Description, Category, Extra string }) error {
		number[t.ID] = len(s.caps)
		c := directory.Capability{
			AIC: t.ID, CapID: fmt.Sprintf("%08d", len(s.caps)), SkillID: t.ID, Name: t.Name, Description: t.Description, Parameters: t.Extra, Provider: t.ID,
		}
		if t.Category != "" {
			c.Tags = []string{t.Category}
		}
		s.caps = append(s.caps, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, lines(filepath.Join(dir, "queries.jsonl"), func(q *struct {
		Text, Split string
		Gold        []string
	}) error {
		if s.name != "livemcpbench" && !slices.Contains(reported, q.Split) {
			return nil
		}
		out := request{text: q.Text}
		for _, id := range q.Gold {
			n, known := number[id]
			if !known {
				return fmt.Errorf("the answer %q is not in the corpus", id)
			}
			out.gold = append(out.gold, n)
		}
		s.queries = append(s.queries, out)
		return nil
	})
}

const maxLine = 4 << 20

// lines reads one JSON value a line.
func lines[T any](file string, each func(*T) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(nil, maxLine)
	for n := 1; in.Scan(); n++ {
		if len(in.Bytes()) == 0 {
			continue
		}
		v := new(T)
		err := json.Unmarshal(in.Bytes(), v)
		if err == nil {
			err = each(v)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	return in.Err()
}

// quality asks both the queries of a set and prints how well and how fast they answer.
func quality(w io.Writer, s *set) error {
	engines, done, err := open(s.caps)
	if err != nil {
		return err
	}
	defer done()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ndcg, r5 [engineCount]float64
	var times [engineCount][]float64
	for _, q := range s.queries {
		for n, ask := range engines {
			at := time.Now()
			list, err := ask(q.text)
			times[n] = append(times[n], micros(time.Since(at)))
			if err != nil {
				return err
			}
			gain, found := judge(list, q.gold)
			ndcg[n] += 100 * gain / float64(len(s.queries))
			r5[n] += 100 * found / float64(len(s.queries))
		}
	}
	fmt.Fprintf(w, "%s\t%d\t|\t%.1f\t%.1f\t%.1f\t|\t%.1f\t%.1f\t%.1f\t|\t%.0f\t%.0f\t%.0f\t\n", s.name, len(s.queries),
		ndcg[wholePipeline], ndcg[textPart], ndcg[bleveSearch], r5[wholePipeline], r5[textPart], r5[bleveSearch],
		median(times[wholePipeline]), median(times[textPart]), median(times[bleveSearch]))
	return nil
}

// judge is nDCG@10 and R@5 of one answer.
func judge(list, gold []int) (ndcg, r5 float64) {
	got, best := 0., 0.
	for i := range looked {
		worth := 1 / math.Log2(float64(i+2))
		if i < len(gold) {
			best += worth
		}
		if i < len(list) && slices.Contains(gold, list[i]) {
			got += worth
			if i < 5 {
				r5 += 1 / float64(len(gold))
			}
		}
	}
	return got / best, r5
}
