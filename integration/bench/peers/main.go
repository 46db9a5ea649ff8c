package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"agentgw/directory/match"
	"agentgw/integration/bench/synthetic"
)

// bar is how much faster than bleve the text part has to be (PERFORMANCE); the stretch is 15.
const bar = 5

var sets = []string{"metatool", "sealtools", "stabletoolbench", "livemcpbench"}

func main() {
	data := flag.String("data", "", "folder of the public sets")
	size := flag.Int("size", 100_000, "generated capabilities")
	root := flag.String("root", "../../..", "folder of the agentgw module")
	flag.Parse()
	if *data == "" || flag.NArg() > 0 || *size < synthetic.Questions {
		fmt.Fprintln(os.Stderr, "peers: name the folder of the public sets: make bench-peers DATA=DIR; `make eval` says where they come from")
		os.Exit(2)
	}
	faster, err := run(*data, *root, *size)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(2)
	}
	if faster < bar {
		fmt.Fprintf(os.Stderr, "peers: the text part is %.1f times as fast as bleve, %d is due\n", faster, bar)
		os.Exit(1)
	}
}

// run prints both tables and says how many times as fast as bleve the text part is.
func run(data, root string, size int) (faster float64, err error) {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "set\tqueries\t| nDCG@10\tours\ttext part\tbleve\t| R@5\tours\ttext part\tbleve\t| p50 µs\tours\ttext part\tbleve\t")
	for _, name := range sets {
		s, err := load(filepath.Join(data, name))
		if err != nil {
			return 0, err
		}
		if err := quality(w, s); err != nil {
			return 0, err
		}
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	caps, questions, err := synthetic.Capabilities(root, size)
	if err != nil {
		return 0, err
	}
	engines, done, err := open(caps)
	if err != nil {
		return 0, err
	}
	defer done()
	runtime.GC()
	whole, words, theirs, err := race(engines, questions)
	if err != nil {
		return 0, err
	}
	fmt.Printf("\n%d generated capabilities, p50: text part %.0f µs, whole pipeline %.0f µs, bleve %.0f µs; the text part is %.1f times as fast as bleve (at least %d)\n",
		size, words, whole, theirs, theirs/words, bar)
	return theirs / words, nil
}

// parts of our pipeline that are measured, and bleve.
const (
	wholePipeline = iota
	textPart
	bleveSearch
	engineCount
)

// without is what the text part leaves out.
const without = match.Dense | match.Steps
