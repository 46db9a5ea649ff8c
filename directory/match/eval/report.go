package main

import (
	"fmt"
	"text/tabwriter"
)

// report prints figures beside their bars and counts those below.
type report struct {
	w     *tabwriter.Writer
	below int
}

func (r *report) line(what string, got, bar float64) {
	verdict := "ok"
	if got < bar {
		verdict = "BELOW"
		r.below++
	}
	fmt.Fprintf(r.w, "%s\t%.2f\t%.2f\t%s\n", what, got, bar, verdict)
}

// note prints a figure that has no bar.
func (r *report) note(what string, got float64) { fmt.Fprintf(r.w, "%s\t%.2f\t\t\n", what, got) }
