package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/match/table"
	"agentgw/directory/store"
)

// floorOpen is what no start can do without: the database opened, and the snapshot's octets in memory.
func floorOpen(dir string) (time.Duration, error) {
	at := time.Now()
	s, err := store.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	_, err = os.ReadFile(filepath.Join(dir, "index.snapshot"))
	took := time.Since(at)
	if e := s.Close(); err == nil {
		err = e
	}
	return took, err
}

// floorChunk is how many encoded entries the floor of a rebuild has in memory at a time.
const floorChunk = 20_000

// floorRead is what no rebuild can do without: each entry decoded, its texts stemmed once and embedded, over all cores; nothing is kept. Reading
// the database is not counted.
func floorRead(dir string) (took time.Duration, entries int, err error) {
	s, err := store.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	var chunk [][]byte
	run := func() error {
		d, err := readAll(chunk)
		took += d
		entries += len(chunk)
		chunk = chunk[:0]
		return err
	}
	err = s.All(func(e directory.Entry) error {
		raw, err := directory.EncodeEntry(e)
		if err != nil {
			return err
		}
		if chunk = append(chunk, raw); len(chunk) < floorChunk {
			return nil
		}
		return run()
	})
	if err == nil {
		err = run()
	}
	return took, entries, err
}

func readAll(chunk [][]byte) (time.Duration, error) {
	cores := runtime.GOMAXPROCS(0)
	errs := make([]error, cores)
	at := time.Now()
	var running sync.WaitGroup
	for c := range cores {
		running.Go(func() {
			for i := c; i < len(chunk) && errs[c] == nil; i += cores {
				errs[c] = readOne(chunk[i])
			}
		})
	}
	running.Wait()
	took := time.Since(at)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

func readOne(raw []byte) error {
	e, err := directory.DecodeEntry(raw)
	if err != nil {
		return err
	}
	caps, err := directory.Capabilities(e)
	if err != nil {
		return err
	}
	for _, c := range caps {
		weights := map[string]float64{}
		read := func(text string, weight float64) {
			for _, t := range match.Terms(text) {
				weights[t] += weight
			}
		}
		read(c.Name, 2)
		read(c.Description, 1)
		for _, t := range c.Tags {
			read(t, 1)
		}
		for _, x := range c.Examples {
			read(x, .3)
		}
		read(c.AgentName, 0)
		read(c.AgentDescription, 0)
		bag := make([]table.Weighted, 0, len(weights))
		for t, w := range weights {
			bag = append(bag, table.Weighted{Stem: t, TF: w})
		}
		table.Builtin.Embed(bag)
	}
	return nil
}
