package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// op does one operation and says how long the part that counts took.
type op func(ctx context.Context) (time.Duration, error)

// timed is an op all of which counts.
func timed(do func(ctx context.Context) error) op {
	return func(ctx context.Context) (time.Duration, error) {
		at := time.Now()
		err := do(ctx)
		return time.Since(at), err
	}
}

// block is one turn of each side.
type block struct{ ours, floor []time.Duration }

// measure runs both sides in turn. The first block warms up and is not counted.
func measure(ctx context.Context, ours, floor op, blocks, size int) ([]block, error) {
	var out []block
	for i := range blocks + 1 {
		var b block
		var err error
		if b.ours, err = repeat(ctx, ours, size); err != nil {
			return nil, fmt.Errorf("ours: %w", err)
		}
		if b.floor, err = repeat(ctx, floor, size); err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
		if i > 0 {
			out = append(out, b)
		}
	}
	return out, nil
}

func repeat(ctx context.Context, do op, n int) ([]time.Duration, error) {
	out := make([]time.Duration, 0, n)
	for range n {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		d, err := do(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// result is one row of bench.json.
type result struct {
	Name    string  `json:"name"`
	Mode    string  `json:"mode"`
	Ours    float64 `json:"ours"`  // median
	Floor   float64 `json:"floor"` // median
	Ratio   float64 `json:"ratio"` // of the medians
	Bar     float64 `json:"bar"`
	Unit    string  `json:"unit"`
	Samples int     `json:"samples"` // of each side
	Spread  float64 `json:"spread"`  // of the ratio, ±
}

func summarise(r row, mode string, blocks []block) result {
	var ours, floor, ratios []float64
	for _, b := range blocks {
		o, f := micros(b.ours), micros(b.floor)
		ours, floor = append(ours, o...), append(floor, f...)
		ratios = append(ratios, quantile(o, .5)/quantile(f, .5))
	}
	out := result{Name: r.name, Mode: mode, Ours: quantile(ours, .5), Floor: quantile(floor, .5), Bar: r.bar, Unit: "µs", Samples: len(ours)}
	out.Ratio = out.Ours / out.Floor
	out.Spread = (quantile(ratios, .75) - quantile(ratios, .25)) / 2
	return out
}

func micros(list []time.Duration) []float64 {
	out := make([]float64, len(list))
	for i, d := range list {
		out[i] = float64(d) / float64(time.Microsecond)
	}
	return out
}

// quantile is the value below which a share q of the list lies, between two values where none lies there; 0 of nothing.
func quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// Verdicts of a row.
const (
	met         = "met"
	told        = "no bar"
	withinTwice = "within twice"
	nearTwice   = "over twice, within the spread"
	overTwice   = "missed"
)

// verdict holds a ratio against its bar. Twice the bar is what must hold today. A ratio that only the spread keeps from failing is
// not called within it: on a noisy machine the spread is wide.
func (r result) verdict() string {
	switch {
	case r.Bar == 0:
		return told
	case r.Ratio <= r.Bar:
		return met
	case r.Ratio <= 2*r.Bar:
		return withinTwice
	case r.Ratio <= 2*r.Bar+r.Spread:
		return nearTwice
	}
	return overTwice
}
