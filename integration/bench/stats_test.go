package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		list []float64
		q    float64
		want float64
	}{
		{nil, .5, 0}, {[]float64{7}, .5, 7}, {[]float64{3, 1, 2}, .5, 2}, {[]float64{4, 1, 3, 2}, .5, 2.5},
		{[]float64{1, 2, 3, 4, 5}, .25, 2}, {[]float64{1, 2, 3, 4, 5}, .75, 4}, {[]float64{1, 2}, 1, 2},
	} {
		if got := quantile(tt.list, tt.q); got != tt.want {
			t.Errorf("quantile %v of %v is %v, want %v", tt.q, tt.list, got, tt.want)
		}
	}
	list := []float64{3, 1, 2}
	quantile(list, .5)
	if list[0] != 3 {
		t.Error("the caller's order changed")
	}
}

// scripted is an op that takes the times of a list in turn, and notes its name.
func scripted(name string, order *[]string, times ...time.Duration) op {
	return func(context.Context) (time.Duration, error) {
		*order = append(*order, name)
		d := times[0]
		if len(times) > 1 {
			times = times[1:]
		}
		return d, nil
	}
}

func TestInterleavedAndWarm(t *testing.T) {
	var order []string
	// The first block of each side is cold; it must not count.
	ours := scripted("A", &order, time.Second, time.Second, 30*time.Microsecond)
	floor := scripted("B", &order, time.Second, time.Second, 10*time.Microsecond)
	blocks, err := measure(t.Context(), ours, floor, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "AABBAABBAABBAABB" {
		t.Errorf("order %s", got)
	}
	got := summarise(row{name: "x", bar: 2}, "1 core", blocks)
	want := result{Name: "x", Mode: "1 core", Ours: 30, Floor: 10, Ratio: 3, Bar: 2, Unit: "µs", Samples: 6}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSpreadIsOfTheBlocks(t *testing.T) {
	var blocks []block
	for _, ours := range []time.Duration{10, 20, 30, 40, 50} { // ratios 1 to 5
		blocks = append(blocks, block{[]time.Duration{ours * time.Microsecond}, []time.Duration{10 * time.Microsecond}})
	}
	got := summarise(row{}, "", blocks)
	if got.Ratio != 3 || got.Spread != 1 {
		t.Errorf("ratio %v ± %v, want 3 ± 1", got.Ratio, got.Spread)
	}
	for i := range blocks { // the machine is slower in the second half, for both alike
		if i > 2 {
			blocks[i].ours, blocks[i].floor = []time.Duration{60 * time.Microsecond}, []time.Duration{20 * time.Microsecond}
		} else {
			blocks[i].ours = []time.Duration{30 * time.Microsecond}
		}
	}
	if got := summarise(row{}, "", blocks); got.Ratio != 3 || got.Spread != 0 {
		t.Errorf("ratio %v ± %v of a machine that slows down, want 3 ± 0", got.Ratio, got.Spread)
	}
}

func TestMeasureStops(t *testing.T) {
	bad := errors.New("gone")
	fails := func(context.Context) (time.Duration, error) { return 0, bad }
	var order []string
	good := scripted("A", &order, time.Microsecond)
	if _, err := measure(t.Context(), good, fails, 1, 1); !errors.Is(err, bad) || !strings.HasPrefix(err.Error(), "floor: ") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(bad)
	if _, err := measure(ctx, good, good, 1, 1); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		ratio, spread float64
		want          string
	}{
		{1.49, 0, met}, {1.5, 0, met}, {1.51, .5, withinTwice}, {3, 0, withinTwice}, {3.1, .2, nearTwice}, {3.1, .05, overTwice},
	} {
		if got := (result{Ratio: tt.ratio, Bar: 1.5, Spread: tt.spread}).verdict(); got != tt.want {
			t.Errorf("%v ± %v: %s, want %s", tt.ratio, tt.spread, got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	rows := []result{
		{Name: "good", Mode: "1 core", Ours: 10.004, Floor: 10, Ratio: 1.0004, Bar: 1.5, Unit: "µs", Samples: 5, Spread: .01},
		{Name: "bad", Mode: "1 core", Ours: 50, Floor: 10, Ratio: 5, Bar: 1.5, Unit: "µs", Samples: 5},
	}
	var out bytes.Buffer
	if err := report(&out, file, rows); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var back []map[string]any
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": "good", "mode": "1 core", "ours": 10., "floor": 10., "ratio": 1., "bar": 1.5, "unit": "µs", "samples": 5., "spread": .01,
	}
	if d := cmp.Diff(want, back[0]); d != "" {
		t.Error(d)
	}
	for _, line := range []string{"| good | 1 core | 10 µs | 10 µs | 1.00 | 0.01 | 1.50 | 3.00 | 5 | met |", "| 5 | missed |"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	if err := missed(rows); err == nil || !strings.HasSuffix(err.Error(), ": bad") {
		t.Errorf("%v", err)
	}
	if err := missed(rows[:1]); err != nil {
		t.Error(err)
	}
}

// A floor that finds nothing would flatter us.
func TestSimpleIndexFinds(t *testing.T) {
	var texts, names []string
	for _, agent := range corpus() {
		for _, k := range agent {
			texts, names = append(texts, k.text()), append(names, k.Name)
		}
	}
	if len(texts) != capOrigin*capSkills {
		t.Fatalf("corpus of %d capabilities", len(texts))
	}
	x := newSimpleIndex(texts)
	for _, doc := range []int{0, 1000, len(texts) - 1} {
		for range 2 { // a search leaves no scores behind
			best, n := x.top10(names[doc])
			if n == 0 || best[0] != uint32(doc) {
				t.Errorf("%q: %v of %d, want %d first", names[doc], best, n, doc)
			}
		}
	}
	if _, n := x.top10("nosuchword"); n != 0 {
		t.Errorf("%d hits of a word that is nowhere", n)
	}
}

func TestFloorSignature(t *testing.T) {
	signed, err := floorSign([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if payload, err := floorVerify(signed); err != nil || string(payload) != "x" {
		t.Errorf("%q, %v", payload, err)
	}
	signed[len(signed)-1] ^= 1
	if _, err := floorVerify(signed); err == nil {
		t.Error("a flipped bit verifies: the floor would be cheaper than it must be")
	}
}
