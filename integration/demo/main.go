// Command demo shows the whole system at work with one command: it builds gatewayd, agentd and the demo's agents, starts three
// gateways of three domains and their agentds on this machine, and has two tasks done, see a doctor and plan a tour
// (seed 000, section 3). It stands on the binaries alone and imports neither daemon.
//
// AG1 and AG2 are connected through AG3 only; each link runs through a UDP relay of the demo, which -break silences. What is
// told to people goes to stdout; with -o json it goes to stderr, and stdout gets one JSON object as its last line. Everything
// that was started is stopped before the demo ends, also on SIGINT, SIGTERM and failure. Durations are milliseconds in JSON.
// Exit codes: 0 all is complete, 1 something failed, 2 usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// options are the command line.
type options struct {
	json    bool
	keep    bool
	cut     string // link to silence
	corpus  string
	queries string
}

func main() { os.Exit(mainExit(os.Args[1:], os.Stdout, os.Stderr)) }

func mainExit(args []string, stdout, stderr io.Writer) int {
	o, err := parseArgs(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitUsage
	}
	in, err := readInput(o)
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchParent(ctx, cancel)
	out := &narrator{w: stdout}
	if o.json {
		out.w = stderr
	}
	return play(ctx, o, in, out, stdout, stderr)
}

func parseArgs(args []string, stderr io.Writer) (options, error) {
	var o options
	var format string
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&format, "o", "text", "`FORMAT`: text, or json for one JSON object as the last line")
	f.StringVar(&o.cut, "break", "", "silence the `LINK` AG1-AG3 or AG3-AG2 before the tasks run")
	f.BoolVar(&o.keep, "keep", false, "stay until SIGINT or SIGTERM when all is shown, to look around")
	f.StringVar(&o.corpus, "corpus", "", "register the tools of this JSONL `FILE` instead of running the tasks")
	f.StringVar(&o.queries, "queries", "", "ask the queries of this JSONL `FILE` of the corpus")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.json = format == "json"
	switch {
	case format != "text" && format != "json":
		return o, fmt.Errorf("-o %s: use text or json", format)
	case f.NArg() > 0:
		return o, fmt.Errorf("%q is no argument of the demo; -h lists its flags", f.Arg(0))
	case o.cut != "" && linkNamed(o.cut) < 0:
		return o, fmt.Errorf("-break %s: the links are AG1-AG3 and AG3-AG2", o.cut)
	case o.queries != "" && o.corpus == "":
		return o, errors.New("-queries needs the -corpus that its gold ids are of")
	case o.cut != "" && o.corpus != "":
		return o, errors.New("-break is for the two tasks; leave it or -corpus out")
	}
	return o, nil
}

// linkNamed is the index of a link, -1 for none.
func linkNamed(s string) int {
	for i, l := range links {
		if l.is(s) {
			return i
		}
	}
	return -1
}

// watchParent ends the demo when `go run` is killed, which does not pass SIGTERM on: nothing may be left running.
func watchParent(ctx context.Context, cancel context.CancelCauseFunc) {
	parent := os.Getppid()
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || string(name) != "go\n" {
		return // started by hand: outliving its parent is its user's wish
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if os.Getppid() != parent {
				cancel(errors.New("`go run` was ended"))
				return
			}
		}
	}
}

// play builds, runs and shows everything, and returns the exit code.
func play(ctx context.Context, o options, in *input, out *narrator, stdout, stderr io.Writer) int {
	w, err := newWorld(out)
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitFailed
	}
	defer w.close() // also when something panics
	r := &report{}
	err = w.perform(ctx, o, in, r)
	if o.keep && err == nil {
		r.Keep = w.kept()
		w.invite(o)
		printReport(o, stdout, r)
		<-ctx.Done()
	}
	if ctx.Err() != nil && err == nil && !o.keep {
		err = context.Cause(ctx)
	}
	stopping := time.Now()
	w.close()
	if r.run > 0 {
		r.RunMS += time.Since(stopping).Milliseconds()
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		r.Error = failureOf(err)
	}
	if !o.keep || err != nil {
		out.end(r)
		printReport(o, stdout, r)
	} else if !o.json { // the object stays the last line
		out.end(r)
	}
	if err != nil || !r.complete() {
		return exitFailed
	}
	return exitDone
}

func printReport(o options, stdout io.Writer, r *report) {
	if o.json {
		json.NewEncoder(stdout).Encode(r)
	}
}

// perform is the demo from the build to the last result.
func (w *world) perform(ctx context.Context, o options, in *input, r *report) error {
	w.out.headline("Building gatewayd, agentd and the demo's agents")
	began := time.Now()
	if err := build(ctx, w.bin); err != nil {
		return err
	}
	r.BuildMS = time.Since(began).Milliseconds()
	w.out.begin(fmt.Sprintf("built in %.1f s; from here on the clock of the run counts", time.Since(began).Seconds()))
	began = time.Now()
	defer func() { r.run = time.Since(began); r.RunMS = r.run.Milliseconds() }()
	if in.corpus != nil {
		return w.showCorpus(ctx, in, r)
	}
	return w.showTasks(ctx, o, r)
}

// showTasks is the demo proper: three domains, two tasks.
func (w *world) showTasks(ctx context.Context, o options, r *report) error {
	if err := w.startGateways(ctx, ""); err != nil {
		return err
	}
	if err := w.startAgents(ctx, append([]agent{assistant}, cast...)); err != nil {
		return err
	}
	if err := w.awaitDigests(ctx, labelsOf(cast)); err != nil {
		return err
	}
	r.Digests = &digestReport{Acked: true}
	if o.cut == "" {
		return w.runPlans(ctx, r)
	}
	l := linkNamed(o.cut)
	w.relays[l].silence()
	w.out.headline(fmt.Sprintf("The link %s goes silent: from here on it carries no datagram", links[l].name()))
	err := w.runPlans(ctx, r)
	w.out.say(fmt.Sprintf("the silent link %s swallowed %s", links[l].name(), count(int(w.relays[l].dropped.Load()), "datagram")))
	return err
}
