package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	putsPerSecond = 100
)

// latencies has the gateway search for a time, one request after the other, and returns how long each took.
func (g *gateway) latencies(ctx context.Context, c corpus, from int, d time.Duration) ([]time.Duration, error) {
	var out []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end); from++ {
		at := time.Now()
		ask := map[string]any{"ask": map[string]any{"query": map[string]any{"text": c.query(from)}}, "offline": true}
		var found struct{ Candidates []json.RawMessage }
		if err := g.socket.Call(ctx, "/v1/match", ask, &found); err != nil {
			return nil, err
		}
		out = append(out, time.Since(at))
		if len(found.Candidates) == 0 {
			return nil, fmt.Errorf("nothing found for %q", c.query(from))
		}
	}
	return out, nil
}

// puts replaces entries, a hundred a second as far as maxPuts at a time go, until ctx ends; it returns how many it has replaced.
func (g *gateway) puts(ctx context.Context, c corpus, entries, version int) (int, error) {
	tick := time.NewTicker(time.Second / putsPerSecond)
	defer tick.Stop()
	var putting sync.WaitGroup
	free, errs := make(chan struct{}, maxPuts), make(chan error, 1)
	done := 0
	for ; ; done++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			putting.Wait()
			select {
			case err := <-errs:
				return done, err
			default:
				return done, nil
			}
		}
		version := version + done
		free <- struct{}{}
		putting.Go(func() {
			defer func() { <-free }()
			if err := g.put(context.WithoutCancel(ctx), c, version*7919%entries, version); err != nil {
				select {
				case errs <- err:
				default: // the first one tells enough
				}
			}
		})
	}
}

// maxPuts is how many puts may wait for their answers.
const maxPuts = 32

func (g *gateway) put(ctx context.Context, c corpus, entry, version int) error {
	line, err := c.line(entry, version)
	if err != nil {
		return err
	}
	var done struct{ Updated int }
	in := map[string]any{"file": "put", "update": true, "lines": []map[string]any{{"line": 1, "entry": json.RawMessage(line)}}}
	if err := g.socket.Call(ctx, "/v1/agents/import", in, &done); err != nil {
		return err
	}
	if done.Updated != 1 {
		return fmt.Errorf("put of entry %d: not updated", entry)
	}
	return nil
}

// p99 measures resolves without and with puts, in turn, so that a slow minute of the machine is slow for both.
func (g *gateway) p99(ctx context.Context, c corpus, entries int, turn time.Duration, turns int) (quiet, busy time.Duration, samples int, rate float64, err error) {
	if _, err := g.latencies(ctx, c, 1<<20, time.Second); err != nil {
		return 0, 0, 0, 0, err
	}
	var without, with []time.Duration
	put := 0
	for i := range turns {
		l, err := g.latencies(ctx, c, i*100_000, turn)
		if err != nil {
			return 0, 0, 0, 0, err
		}
		without = append(without, l...)
		during, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			n, err := g.puts(during, c, entries, 2+put)
			put += n
			ended <- err
		}()
		l, err = g.latencies(ctx, c, i*100_000+50_000, turn)
		stop()
		if e := <-ended; e != nil {
			err = e
		}
		if err != nil {
			return 0, 0, 0, 0, err
		}
		with = append(with, l...)
	}
	rate = float64(put) / (time.Duration(turns) * turn).Seconds()
	return quantile(without, .99), quantile(with, .99), min(len(with), len(without)), rate, nil
}

// quantile is the value that a share q of the list does not exceed.
func quantile(list []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
