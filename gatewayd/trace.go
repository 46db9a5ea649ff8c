package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/directory/semreq"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
)

// traced is what a request came to that went so many gateways far.
type traced struct {
	Hops    uint8          `json:"hops"`
	Outcome semreq.Outcome `json:"outcome"`
}

// traceRequest asks again and again, one gateway further each time, until something is found or nothing is for good: what is learned of
// gateways of other domains is what they tell anybody.
func (o *options) traceRequest(cmd *cobra.Command, c *control.Client, in semreq.Ask) error {
	var rows []traced
	in.NoCache = true
	for hops := uint8(0); hops <= semreq.DefaultHops; hops++ {
		in.Hops = &hops
		row := traced{Hops: hops}
		if err := c.Call(cmd.Context(), "/v1/resolve", in, &row.Outcome); err != nil {
			return err
		}
		rows = append(rows, row)
		if len(row.Outcome.Results) > 0 || row.Outcome.Definitive {
			break
		}
	}
	if err := o.Print(cmd.OutOrStdout(), rows, func(w io.Writer) { printTrace(w, rows) }); err != nil {
		return err
	}
	last := rows[len(rows)-1].Outcome
	return daemon.Silent(last.Code, last.Status)
}

func printTrace(w io.Writer, rows []traced) {
	t := table(w, "HOPS", "STATUS", "TIME", "WHY")
	for _, r := range rows {
		var why []string
		for _, reason := range r.Outcome.Reasons {
			who := reason.Gateway
			if who == "" {
				who = "beyond"
			}
			why = append(why, who+" "+reason.Name)
		}
		fmt.Fprintf(t, "%d\t%s\t%.1f ms\t%s\n", r.Hops, r.Outcome.Status, r.Outcome.ElapsedMS, strings.Join(why, ", "))
	}
	t.Flush()
	last := rows[len(rows)-1].Outcome
	if len(last.Route) > 0 {
		for i := len(last.Route) - 1; i >= 0; i-- {
			fmt.Fprintf(w, "%2d  %s\n", len(last.Route)-1-i, last.Route[i])
		}
	}
	for _, f := range last.Results {
		fmt.Fprintf(w, "%5.2f %%  %s  (%s)\n         %s\n", float64(f.Score)/100, f.Skill.Name, f.Domain, f.Capability)
	}
	if len(last.Results) == 0 && last.Definitive {
		fmt.Fprintln(w, "nobody that is known of has it: all whose digests fit were asked")
	}
}
