// Command eval measures how well digests find the gateway that has an answer, over StableToolBench's tools dealt to 64 gateways:
//
//	eval -data DIR
//
// Each gateway's digest is built, encoded, decoded and scored by the packages that gateways run, with real filters. DIR is a folder of
// public sets (package directory/match/toolset); the set stabletoolbench has the dealing in gateways64.jsonl of {id, gateway}, one gateway a
// seed. The figures are shares of requests whose best, or one of whose three or eight best, gateways has an answer, in percent, and the
// mean size of a digest. The command exits with 1 where one misses its target (MATCHING, section 4), and with 2 without the sets.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"agentgw/directory/match/toolset"
)

func main() {
	data := flag.String("data", "", "folder of the public sets")
	flag.Parse()
	os.Exit(run(*data))
}

func run(data string) int {
	if data == "" || toolset.Present(data) != nil {
		fmt.Fprintln(os.Stderr, "eval: give -data DIR;", toolset.WhereFrom)
		return 2
	}
	set, err := toolset.Load(filepath.Join(data, "stabletoolbench"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "eval:", err)
		return 2
	}
	met, err := report(set, filepath.Join(data, "stabletoolbench", "gateways64.jsonl"))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "eval:", err)
		return 2
	case !met:
		return 1
	}
	return 0
}

// row is one target: a figure and the least, or the most, that it may be.
type row struct {
	name           string
	figure, target float64
	atMost         bool
}

func (r row) met() bool {
	if r.atMost {
		return r.figure <= r.target
	}
	return r.figure >= r.target
}

func report(set *toolset.Set, dealing string) (bool, error) {
	homes, err := readDealing(dealing, set)
	if err != nil {
		return false, err
	}
	var all, hard tally
	for seed := range seeds {
		d := build(set, homes, seed)
		d.count(&all, set.Queries)
		d.count(&hard, set.Of("G2_instruction", "G2_category", "G3_instruction"))
	}
	met := true
	fmt.Printf("%-50s %9s %9s\n", "64 gateways, mean of the seeds 0 to 2", "measured", "target")
	for _, r := range []row{
		{name: "digest, all requests: right gateway first, %", figure: all.within(1), target: 71.7},
		{name: "digest, all requests: within 3, %", figure: all.within(3), target: 90.4},
		{name: "digest, octets a gateway", figure: all.size(), target: 2100, atMost: true},
		{name: "digest, G2/G3: right gateway first, %", figure: hard.within(1), target: 71.9},
		{name: "digest, G2/G3: within 3, %", figure: hard.within(3), target: 93.4},
		{name: "hop by hop, digests known: within 3 visits, %", figure: all.within(3), target: 91},
		{name: "hop by hop, digests known: within 8 visits, %", figure: all.within(8), target: 97},
	} {
		verdict := "ok"
		if !r.met() {
			verdict, met = "missed", false
		}
		fmt.Printf("%-50s %9.1f %9.1f %s\n", r.name, r.figure, r.target, verdict)
	}
	return met, nil
}
