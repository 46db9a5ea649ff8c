package main

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/search/query"
	index "github.com/blevesearch/bleve_index_api"
)

// looked is how many places of an answer count.
const looked = 10

// engine answers a request with the numbers of capabilities, best first.
type engine func(text string) ([]int, error)

// open fills both indexes with the same capabilities.
func open(caps []directory.Capability) (engines [engineCount]engine, done func(), err error) {
	ours := new(match.Index)
	ours.Load(caps)
	number := map[string]int{}
	for i := range caps {
		number[caps[i].CapID] = i
	}
	by := func(parts match.Parts) engine {
		return func(text string) (out []int, _ error) {
			for _, c := range ours.Resolve(match.Query{Text: text, Limit: looked, PerAIC: 1, Without: parts}) {
				out = append(out, number[c.CapID])
			}
			return out, nil
		}
	}
	engines[wholePipeline], engines[textPart] = by(0), by(without)
	dir, err := os.MkdirTemp("", "agentgw-peers-")
	if err != nil {
		return engines, nil, err
	}
	theirs, err := fill(dir, caps)
	if err != nil {
		return engines, nil, errors.Join(err, os.RemoveAll(dir))
	}
	engines[bleveSearch] = func(text string) ([]int, error) { return search(theirs, text) }
	return engines, func() { theirs.Close(); os.RemoveAll(dir) }, nil
}

// fields of a capability as bleve gets them, with the weights that BM25F has.
var fields = []struct {
	name   string
	weight float64
	of     func(*directory.Capability) string
}{
	{"name", 3, func(c *directory.Capability) string { return c.Name }},
	{"description", 1, func(c *directory.Capability) string { return c.Description }},
	{"tags", 1, func(c *directory.Capability) string { return strings.Join(c.Tags, " ") }},
	{"parameters", .5, func(c *directory.Capability) string { return c.Parameters }},
}

const batchSize = 1000

// fill makes bleve's index in a folder, in its own form for production: scorch, BM25, nothing stored.
func fill(dir string, caps []directory.Capability) (bleve.Index, error) {
	m := bleve.NewIndexMapping()
	m.DefaultAnalyzer, m.ScoringModel = en.AnalyzerName, index.BM25Scoring
	text := bleve.NewTextFieldMapping()
	text.Store, text.IncludeInAll, text.IncludeTermVectors, text.DocValues = false, false, false, false
	for _, f := range fields {
		m.DefaultMapping.AddFieldMappingsAt(f.name, text)
	}
	x, err := bleve.New(dir+"/bleve", m)
	if err != nil {
		return nil, err
	}
	at := 0
	for chunk := range slices.Chunk(caps, batchSize) {
		b := x.NewBatch()
		for i := range chunk {
			doc := map[string]string{}
			for _, f := range fields {
				doc[f.name] = f.of(&chunk[i])
			}
			if err := b.Index(strconv.Itoa(at), doc); err != nil {
				return nil, errors.Join(err, x.Close())
			}
			at++
		}
		if err := x.Batch(b); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	return x, nil
}

func search(x bleve.Index, text string) ([]int, error) {
	var any []query.Query
	for _, f := range fields {
		q := bleve.NewMatchQuery(text)
		q.SetField(f.name)
		q.SetBoost(f.weight)
		any = append(any, q)
	}
	found, err := x.Search(bleve.NewSearchRequestOptions(bleve.NewDisjunctionQuery(any...), looked, 0, false))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, hit := range found.Hits {
		n, err := strconv.Atoi(hit.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

const (
	rounds    = 12 // of a race, the first of which warms up
	blockSize = 10 // requests of one engine before the next one's turn
)

// race asks every engine the same questions in turn, on one core, and gives each one's median in microseconds.
func race(engines [engineCount]engine, questions []string) (whole, words, theirs float64, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var times [engineCount][]float64
	for round := range rounds {
		for from := 0; from < len(questions); from += blockSize {
			for n, ask := range engines {
				for _, q := range questions[from:min(from+blockSize, len(questions))] {
					at := time.Now()
					if _, err := ask(q); err != nil {
						return 0, 0, 0, err
					}
					if round > 0 {
						times[n] = append(times[n], micros(time.Since(at)))
					}
				}
			}
		}
	}
	return median(times[wholePipeline]), median(times[textPart]), median(times[bleveSearch]), nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
