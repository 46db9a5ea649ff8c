package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/control"
)

// explainMatch shows how the gateway's own directory answers a request.
func (o *options) explainMatch(cmd *cobra.Command, c *control.Client, r admin.MatchRequest) error {
	var m admin.Match
	if err := c.Call(cmd.Context(), "/v1/match", r, &m); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), m, func(w io.Writer) { printMatch(w, m) })
}

func printMatch(w io.Writer, m admin.Match) {
	if m.Reduced != "" {
		fmt.Fprintln(w, m.Reduced)
	}
	t := table(w, "", "CONFIDENCE", "SKILL", "WORDS", "PAIRS", "COSINE", "COVERED", "CAPABILITY")
	for i, c := range m.Candidates {
		bar := ""
		if c.Confidence < m.Bar {
			bar = " (below the bar)"
		}
		fmt.Fprintf(t, "%d\t%.1f %%%s\t%s\t%.2f\t%.2f\t%.2f\t%.0f %%\t%s\n", i+1, float64(c.Confidence)/100, bar, c.Name, c.Words, c.Pairs, c.Cosine,
			float64(c.Coverage)/100, c.Capability)
	}
	t.Flush()
	for i, c := range m.Candidates {
		var why []string
		for _, f := range c.Matched {
			why = append(why, f.Field+": "+strings.Join(f.Terms, " "))
		}
		why = append(why, c.Exact...)
		fmt.Fprintf(w, "%d  %s, by %s\n   %s\n", i+1, c.Agent, c.Provider, strings.Join(why, "; "))
	}
	if len(m.Candidates) == 0 {
		fmt.Fprintln(w, "nothing in this directory answers it")
		if len(m.Terms) == 0 {
			fmt.Fprintln(w, "no word of its text is looked for: say what is wanted in words that not every text has")
		}
	}
	if len(m.Refused) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = table(w, "HELD BACK", "WHY", "CAPABILITY")
	for _, f := range m.Refused {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, f.Why, f.Capability)
	}
	t.Flush()
}
