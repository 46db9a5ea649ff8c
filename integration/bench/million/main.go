// Command million puts a directory of a million entries through what an operator does with it, against floors of the same run: it makes distinct
// entries, imports them with the real binary, searches with and without changes going on, stops and starts cleanly, kills and starts.
//
//	million [-n 1000000] [-turn 10s] [-dir DIR]
//
// It prints a table, and exits with 1 where a bar is missed:
//
//	start after a clean stop   ≤ 3 × (the database opened and the snapshot's octets read)
//	start after kill -9        ≤ 2 × (all entries decoded, stemmed and embedded in a loop over all cores)
//	p99 of a search while 100 entries a second are replaced   ≤ 3 × the p99 without
//
// It needs some 5 GB of disk and 8 GB of memory for a million. Times are wall time from exec until the control socket answers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"agentgw/integration/proc"
)

const (
	startBar   = 3
	rebuildBar = 2
	putBar     = 3
	turns      = 3 // of searching without and with puts
	rounds     = 3 // of each start, after its floor: the best of each counts, for a slow minute of the machine says nothing of either
)

func main() {
	n := flag.Int("n", 1_000_000, "entries")
	turn := flag.Duration("turn", 10*time.Second, "how long one turn of searches takes")
	dir := flag.String("dir", "", "new folder to work in, which is kept; default: a temporary one")
	flag.Parse()
	if flag.NArg() > 0 || *n < 1 {
		fmt.Fprintln(os.Stderr, "million: it takes flags only, and at least one entry")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *n, *turn, *dir); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "million:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, n int, turn time.Duration, dir string) (err error) {
	if dir == "" {
		if dir, err = proc.TempDir("agentgw-million-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	} else if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	g, err := newGateway(ctx, dir)
	if err != nil {
		return err
	}
	defer g.procs.Stop()
	m := &million{g: g, n: n, turn: turn}
	for _, step := range []func(context.Context) error{m.fill, m.search, m.restart, m.rebuild} {
		if err := step(ctx); err != nil {
			return errors.Join(err, m.report())
		}
	}
	return m.report()
}

// million is one run.
type million struct {
	g      *gateway
	c      corpus
	n      int
	turn   time.Duration
	facts  []string
	rows   []row
	missed []string
}

// row is one bar.
type row struct {
	what        string
	ours, floor time.Duration
	bar         float64
}

func (m *million) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(os.Stderr, text)
	m.facts = append(m.facts, text)
}

func (m *million) hold(what string, ours, floor time.Duration, bar float64) {
	m.rows = append(m.rows, row{what, ours, floor, bar})
	if ours.Seconds() > bar*floor.Seconds() {
		m.missed = append(m.missed, what)
	}
}

// fill makes the entries and imports them.
func (m *million) fill(ctx context.Context) error {
	own, err := m.g.codes()
	if err != nil {
		return err
	}
	m.c = corpus{own}
	file, again := filepath.Join(m.g.dir, "entries.jsonl"), filepath.Join(m.g.dir, "again.jsonl")
	at := time.Now()
	if err := m.c.write(file, m.n); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	m.note("%d entries of %d octets on average made in %v", m.n, info.Size()/int64(m.n), time.Since(at).Round(time.Millisecond))
	took, err := m.g.start(ctx)
	if err != nil {
		return err
	}
	now, _ := m.g.memory()
	m.note("start with an empty directory: %v, %d MB", took.Round(time.Millisecond), now)
	if err := m.imports(ctx, file, m.n, 0); err != nil {
		return err
	}
	now, most := m.g.memory()
	database, _ := m.g.disk()
	m.note("after the import: %d MB of memory, %d at most, %d MB of disk", now, most, database)
	some := min(m.n, 2000)
	if err := m.c.write(again, some); err != nil {
		return err
	}
	return errors.Join(m.imports(ctx, again, 0, some), os.Remove(file))
}

// imports runs the verb, and holds what it has done.
func (m *million) imports(ctx context.Context, file string, registered, unchanged int) error {
	out, err := m.g.verb(ctx, "import", file, "-o", "json", "--config", m.g.config())
	if err != nil {
		return err
	}
	var s struct {
		Lines, Registered, Unchanged int
		Seconds                      float64
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return err
	}
	m.note("import: %d lines in %.1f s (%.0f a second), %d registered, %d unchanged", s.Lines, s.Seconds, float64(s.Lines)/s.Seconds, s.Registered, s.Unchanged)
	if s.Registered != registered || s.Unchanged != unchanged {
		return fmt.Errorf("%d registered and %d unchanged, want %d and %d", s.Registered, s.Unchanged, registered, unchanged)
	}
	return nil
}

func (m *million) search(ctx context.Context) error {
	quiet, busy, samples, rate, err := m.g.p99(ctx, m.c, m.n, m.turn, turns)
	if err != nil {
		return err
	}
	m.note("%d searches each way, %.0f puts a second", samples, rate)
	m.hold("search p99 with puts, to without", busy, quiet, putBar)
	if rate < .9*putsPerSecond {
		m.missed = append(m.missed, fmt.Sprintf("%d puts a second", putsPerSecond))
	}
	now, most := m.g.memory()
	m.note("after the searches: %d MB of memory, %d at most", now, most)
	return nil
}

// restart stops it cleanly and starts it again.
func (m *million) restart(ctx context.Context) error {
	var ours, floor []time.Duration
	for i := range rounds {
		took, err := m.g.end(syscall.SIGTERM)
		if err != nil {
			return err
		}
		if i == 0 {
			database, snapshot := m.g.disk()
			m.note("clean stop: %v; %d MB of disk, and a snapshot of %d MB", took.Round(time.Millisecond), database, snapshot)
		}
		f, err := floorOpen(m.g.database())
		if err != nil {
			return err
		}
		if took, err = m.g.start(ctx); err != nil {
			return err
		}
		ours, floor = append(ours, took), append(floor, f)
	}
	m.hold("start after a clean stop", slices.Min(ours), slices.Min(floor), startBar)
	return m.loaded(ctx, "snapshot")
}

// loaded holds what the running process has loaded, and that it is what is in the store.
func (m *million) loaded(ctx context.Context, from string) error {
	_, most := m.g.memory()
	at := time.Now()
	got, err := m.g.check(ctx, m.n)
	if err != nil {
		return err
	}
	now, _ := m.g.memory()
	m.note("loaded from %s: %d MB of memory at most, %d later; checked against the store in %v: equal", got, most, now, time.Since(at).Round(time.Millisecond))
	if got != from {
		return fmt.Errorf("it has loaded its directory from %s, and not from %s", got, from)
	}
	return nil
}

// rebuild kills it after a change and starts it again.
func (m *million) rebuild(ctx context.Context) error {
	var ours, floor []time.Duration
	for i := range rounds {
		if err := m.g.put(ctx, m.c, 0, 1_000_000_000+i); err != nil {
			return err
		}
		if _, err := m.g.end(syscall.SIGKILL); err != nil {
			return err
		}
		f, entries, err := floorRead(m.g.database())
		if err != nil {
			return err
		}
		if entries != m.n {
			return fmt.Errorf("the floor has read %d entries of %d", entries, m.n)
		}
		took, err := m.g.start(ctx)
		if err != nil {
			return err
		}
		ours, floor = append(ours, took), append(floor, f)
	}
	m.hold("start after kill -9", slices.Min(ours), slices.Min(floor), rebuildBar)
	return m.loaded(ctx, "entries")
}

// report prints everything, and is the error of the bars that were missed.
func (m *million) report() error {
	fmt.Printf("%d entries\n\n", m.n)
	for _, f := range m.facts {
		fmt.Println("- " + f)
	}
	fmt.Print("\n| what | ours | floor | ratio | bar | |\n|---|--:|--:|--:|--:|---|\n")
	for _, r := range m.rows {
		verdict, ratio := "met", r.ours.Seconds()/r.floor.Seconds()
		if ratio > r.bar {
			verdict = "missed"
		}
		fmt.Printf("| %s | %.1f ms | %.1f ms | %.2f | %.0f | %s |\n", r.what, r.ours.Seconds()*1e3, r.floor.Seconds()*1e3, ratio, r.bar, verdict)
	}
	if len(m.missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(m.missed, "; "))
	}
	return nil
}
