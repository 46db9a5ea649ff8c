// Command eval measures how well the matcher finds what a request asks for, over folders of capabilities with labelled requests:
// corpus.jsonl with {id, name, description, category, extra} and queries.jsonl with {id, text, gold, split}, one a line.
//
//	eval -set DIR [-split NAME,…]   one folder; prints {set, queries, acc1, r5, r10, ndcg10, p50_us}
//	eval -data DIR                  the public sets; prints a table and fails below what the matcher has reached
//	eval -loo -data DIR             domains that the token table does not know: three tables are trained, each with one set left out
//
// With -data the conformance vectors in DIR/model, where there are any, are checked first, step by step. -table FILE measures with another
// token table than the one that is shipped. -loo takes the public word vectors from the folder -cache, and fetches them with npm if they are
// not there (118 MB, once).
//
// Figures are percent: acc1 how often the first one is right, r5 and r10 the share of the right ones among the first 5 and 10, ndcg10
// the same with places counted. Exit status: 0, 1 where a figure is below its bar or a vector is not met, 2 where the data is missing or
// wrong.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"agentgw/directory/match/table"
	"agentgw/directory/match/toolset"
	"agentgw/directory/match/train/glove"
)

type options struct {
	set, splits, data, table, cache string
	loo                             bool
}

func main() {
	var o options
	flag.StringVar(&o.set, "set", "", "folder with corpus.jsonl and queries.jsonl")
	flag.StringVar(&o.splits, "split", "", "with -set: splits of the queries, by comma (default all)")
	flag.StringVar(&o.data, "data", "", "folder of the public sets")
	flag.BoolVar(&o.loo, "loo", false, "with -data: train tables without one set each, and measure that set")
	flag.StringVar(&o.cache, "cache", ".cache", "with -loo: folder of the word vectors")
	flag.StringVar(&o.table, "table", "", "token table to measure with (default the one that is shipped)")
	flag.Parse()
	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "eval:", err)
		os.Exit(status(err))
	}
}

// run does what the options ask for.
func run(o options, rest []string) error {
	if len(rest) > 0 || (o.set == "") == (o.data == "") || o.loo && (o.data == "" || o.table != "") {
		return fmt.Errorf("give -set DIR or -data DIR; %s", toolset.WhereFrom)
	}
	tokens := table.Builtin
	if o.table != "" {
		file, err := os.ReadFile(o.table)
		if err != nil {
			return err
		}
		if tokens, err = table.Parse(file); err != nil {
			return fmt.Errorf("%s: %w", o.table, err)
		}
	}
	var below int
	var err error
	switch {
	case o.set != "":
		return one(tokens, o.set, o.splits)
	case o.loo:
		var words *glove.Words
		if err = toolset.Present(o.data); err != nil { // before 118 MB are fetched for nothing
			break
		}
		if words, err = glove.Load(o.cache); err == nil {
			below, err = unknown(os.Stdout, words, o.data)
		}
	default:
		below, err = known(os.Stdout, tokens, o.data)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w; %s", err, toolset.WhereFrom)
	case err == nil && below > 0:
		return belowBar(below)
	}
	return err
}

// belowBar is how many figures are below their bars.
type belowBar int

func (n belowBar) Error() string { return fmt.Sprintf("%d figures are below their bars", int(n)) }

func status(err error) int {
	var below belowBar
	var different *differences
	if errors.As(err, &below) || errors.As(err, &different) {
		return 1
	}
	return 2
}

func one(tokens *table.Table, dir, splits string) error {
	s, err := toolset.Load(dir)
	if err != nil {
		return err
	}
	var names []string
	if splits != "" {
		names = strings.Split(splits, ",")
	}
	queries := s.Of(names...)
	if len(queries) == 0 {
		return fmt.Errorf("%s has no queries of the splits %q", dir, splits)
	}
	return json.NewEncoder(os.Stdout).Encode(measure(tokens, s, queries, 0).rounded(s.Name))
}
