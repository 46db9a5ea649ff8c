// Command bench measures the main path against its floors: each operation beside the shortest program that does what the design
// demands of it and nothing else, in the same run, interleaved in small blocks (A B A B …), so that a slow minute of the machine
// is slow for both. A bar is a ratio, never a time.
//
//	bench [-quick] [-out bench.json] [-rows REGEXP]
//
// It builds gatewayd, makes two domains, runs their gateways as processes on loopback, enrols the agents of a synthetic corpus
// and plays one of them over real QUIC: what is measured is the gateway and not a command line. Sessions run between an agent
// in this process and one in a child process; the matcher and the directory alone are measured in this process, first; the floors' servers are child processes too, so that both sides of a ratio cross
// processes alike. Everything is pinned to one core, but for what many do at once, and the mode is reported.
//
// It writes bench.json, a list of {"name","mode","ours","floor","ratio","bar","unit","samples","spread"}, and prints the same as
// a Markdown table. Times are the medians in microseconds; spread is half the interquartile range of the blocks' own ratios. It
// exits with 1 where a ratio that has a bar is above twice its bar by more than the spread, or where something could not be measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"agentgw/integration/proc"
)

const (
	runLimit   = 4 * time.Minute // of the whole bench
	rowLimit   = time.Minute     // of one row; well below it otherwise
	blockSize  = 10              // samples of each side before the other side's turn
	capOrigin  = 32              // agents of the corpus, each with
	capSkills  = 128             // skills: 4096 capabilities
	initiators = 100             // a target takes 5 SESSION_INIT a second of each
)

type options struct {
	quick bool
	out   string
	rows  *regexp.Regexp // of the names that are measured
	serve string         // what a child process is
	next  string         // address of the next floor server, of a child
}

func main() {
	o := options{rows: regexp.MustCompile("")}
	flag.BoolVar(&o.quick, "quick", false, "fewer samples: at most a minute")
	flag.StringVar(&o.out, "out", "bench.json", "file of the results")
	flag.Func("rows", "measure only the rows whose `name` matches this regular expression", func(s string) (err error) {
		o.rows, err = regexp.Compile(s)
		return err
	})
	flag.StringVar(&o.serve, "serve", "", "for the bench itself: be its child (floor, agent)")
	flag.StringVar(&o.next, "next", "", "for the bench itself: the floor server behind this one")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: argument %q: it takes flags only\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not done within %v", runLimit))
	defer cancel()
	var err error
	switch o.serve {
	case "":
		err = bench(ctx, o)
	case "floor":
		err = serveFloor(ctx, o.next)
	case "agent":
		err = serveAgent(ctx)
	default:
		err = fmt.Errorf("-serve %s: nobody is that", o.serve)
	}
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench builds, starts, measures, stops and reports.
func bench(ctx context.Context, o options) error {
	dir, err := proc.TempDir("agentgw-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	at := time.Now()
	gatewayd, root, err := build(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Printf("built gatewayd in %v\n", time.Since(at).Round(time.Millisecond))
	at = time.Now()
	local, done, err := localRows(ctx, dir, root, o.rows)
	if err != nil {
		return err
	}
	defer done()
	fmt.Printf("filled the directories of this process in %v\n", time.Since(at).Round(time.Millisecond))
	at = time.Now()
	mode, err := pin()
	if err != nil {
		return err
	}
	results, err := measureAll(ctx, o, filepath.Join(dir, "w"), gatewayd, local, mode)
	if err != nil {
		return err
	}
	fmt.Printf("measured in %v\n\n", time.Since(at).Round(time.Millisecond))
	if err := report(os.Stdout, o.out, results); err != nil {
		return err
	}
	return missed(results)
}

// row is one operation beside its floor.
type row struct {
	name        string
	bar         float64 // 0: it is only told
	blocks      int     // of a full run
	ours, floor op
	wide        bool // on all cores: many at once; such rows come last
}

// measureAll runs the rows of what is in this process, then those between processes: nothing waits meanwhile that could time out.
func measureAll(ctx context.Context, o options, dir, gatewayd string, local []row, mode string) ([]result, error) {
	results, err := measureRows(ctx, o, local, func() (string, error) { return mode, nil }, mode)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(dir, gatewayd)
	if err != nil {
		return nil, err
	}
	defer w.close()
	at := time.Now()
	rows, err := w.rows(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, w.tails())
	}
	fmt.Printf("started and enrolled %d agents with %d capabilities in %v\n", capOrigin+2, capOrigin*capSkills+2, time.Since(at).Round(time.Millisecond))
	more, err := measureRows(ctx, o, rows, func() (string, error) { return spread(w.pids()) }, mode)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, w.tails())
	}
	return append(results, more...), nil
}

// measureRows runs the rows one after the other. widen moves everything to all cores, before the first row that is wide.
func measureRows(ctx context.Context, o options, rows []row, widen func() (string, error), mode string) (results []result, err error) {
	wide := false
	for _, r := range rows {
		if !o.rows.MatchString(r.name) {
			continue
		}
		if o.quick {
			r.blocks /= 4
		}
		if r.wide && !wide {
			if mode, err = widen(); err != nil {
				return nil, err
			}
			wide = true
		}
		rowCtx, cancel := context.WithTimeoutCause(ctx, rowLimit, fmt.Errorf("not done within %v", rowLimit))
		blocks, err := measure(rowCtx, r.ours, r.floor, r.blocks, blockSize)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.name, err)
		}
		results = append(results, summarise(r, mode, blocks))
	}
	return results, nil
}
