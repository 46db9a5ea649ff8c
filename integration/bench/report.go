package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// report writes the results to a file, and as a Markdown table.
func report(w io.Writer, file string, results []result) error {
	for i := range results {
		r := &results[i]
		for _, v := range []*float64{&r.Ours, &r.Floor, &r.Ratio, &r.Spread} {
			*v = math.Round(*v*100) / 100
		}
	}
	raw, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	fmt.Fprintln(w, "| operation | mode | ours p50 | floor p50 | ratio | ± | bar | 2 × bar | samples | verdict |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|--:|--:|---|")
	for _, r := range results {
		bar, twice := "–", "–"
		if r.Bar > 0 {
			bar, twice = fmt.Sprintf("%.2f", r.Bar), fmt.Sprintf("%.2f", 2*r.Bar)
		}
		fmt.Fprintf(w, "| %s | %s | %.0f %s | %.0f %s | %.2f | %.2f | %s | %s | %d | %s |\n",
			r.Name, r.Mode, r.Ours, r.Unit, r.Floor, r.Unit, r.Ratio, r.Spread, bar, twice, r.Samples, r.verdict())
	}
	return nil
}

// missed is the error of rows above twice their bar.
func missed(results []result) error {
	var names []string
	for _, r := range results {
		if r.verdict() == overTwice {
			names = append(names, r.Name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("above twice the bar by more than the spread: %s", strings.Join(names, "; "))
}
