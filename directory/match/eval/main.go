// Command eval measures how well the matcher finds what a request asks for, over folders of capabilities with labelled requests:
// corpus.jsonl with {id, name, description, category, extra} and queries.jsonl with {id, text, gold, split}, one a line.
//
//	eval -set DIR [-split NAME,…]   one folder; prints {set, queries, acc1, r5, r10, ndcg10, p50_us}
//	eval -data DIR                  the public sets; prints a table and fails below what the matcher has reached
//
// Figures are percent: acc1 how often the first one is right, r5 and r10 the share of the right ones among the first 5 and 10, ndcg10
// the same with places counted. Exit status: 0, 1 where a figure is below its bar, 2 where the data is missing or wrong.
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

const whereFrom = `the public sets are not part of this project: get MetaTool, Seal-Tools, StableToolBench and LiveMCPBench from their
authors (github.com/HowieHwong/MetaTool, github.com/fairyshine/Seal-Tools, github.com/THUNLP-MT/StableToolBench,
github.com/icip-cas/LiveMCPBench), bring each into the form that this command's documentation gives, as folders metatool, sealtools,
stabletoolbench and livemcpbench of one folder, and name that: make eval DATA=DIR`

func main() {
	dir := flag.String("set", "", "folder with corpus.jsonl and queries.jsonl")
	splits := flag.String("split", "", "with -set: splits of the queries, by comma (default all)")
	data := flag.String("data", "", "folder of the public sets")
	loo := flag.String("loo", "", "")
	file := flag.String("table", "", "")
	flag.Parse()
	var err error
	var tokens *table.Table
	if *file != "" {
		b, _ := os.ReadFile(*file)
		if tokens, err = table.Parse(b); err != nil {
			panic(err)
		}
	}
	switch {
	case flag.NArg() > 0 || (*dir == "") == (*data == ""):
		err = fmt.Errorf("give -set DIR or -data DIR; %s", whereFrom)
	case *dir != "":
		err = one(*dir, *splits)
	case *loo != "":
		f, _ := os.Open(*loo)
		w, err := glove.Read(f)
		if err != nil {
			panic(err)
		}
		w.Normalise()
		fmt.Println(unknown(os.Stdout, w, *data))
	default:
		var below int
		if below, err = known(os.Stdout, tokens, *data); err == nil && below > 0 {
			fmt.Fprintf(os.Stderr, "eval: %d figures are below their bars\n", below)
			os.Exit(1)
		}
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && *data != "" {
			err = fmt.Errorf("%w; %s", err, whereFrom)
		}
		fmt.Fprintln(os.Stderr, "eval:", err)
		os.Exit(2)
	}
}

func one(dir, splits string) error {
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
	return json.NewEncoder(os.Stdout).Encode(measure(nil, s, queries, 0).rounded(s.Name))
}
