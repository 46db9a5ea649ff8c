package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
)

func historyCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "history AIC", Short: "what an agent's entry has said: its last editions, and what changed", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var h admin.AgentHistory
			if err := c.Call(cmd.Context(), "/v1/agents/history", admin.AgentRequest{AIC: args[0]}, &h); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), h, func(w io.Writer) { printHistory(w, h) })
		},
	}
}

func printHistory(w io.Writer, h admin.AgentHistory) {
	t := table(w, "VERSIONS", "SINCE", "STATE", "VISIBILITY", "SKILLS", "CHANGED")
	for _, e := range h.Editions {
		versions := fmt.Sprintf("%d-%d", e.First, e.Last)
		if e.First == 0 {
			versions = fmt.Sprintf("-%d", e.Last)
		} else if e.First == e.Last {
			versions = strconv.FormatUint(e.Last, 10)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", versions, e.Since.Format(time.RFC3339), e.State, e.Visibility, strings.Join(e.Skills, " "), strings.Join(e.Changed, " "))
	}
	t.Flush()
	if e := h.Ended; e != nil {
		fmt.Fprintf(w, "%s at %s %s\n", e.State, e.At.Format(time.RFC3339), e.Reason)
	}
}

func diffCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "diff AIC [FROM [TO]]", Short: "what differs between two versions of an agent's entry; default: what the last change was",
		Args: daemon.Args(cobra.RangeArgs(1, 3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := admin.DiffRequest{AIC: args[0]}
			for i, to := range []*uint64{&in.From, &in.To} {
				if len(args) < i+2 {
					break
				}
				n, err := strconv.ParseUint(args[i+1], 10, 64)
				if err != nil || n == 0 {
					return daemon.Usagef("version %q is not a number from 1 on: `gatewayd agents history` lists them", args[i+1])
				}
				*to = n
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			var d admin.AgentDiff
			if err := c.Call(cmd.Context(), "/v1/agents/diff", in, &d); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), d, func(w io.Writer) { printDiff(w, d) })
		},
	}
}

func printDiff(w io.Writer, d admin.AgentDiff) {
	if len(d.Changes) == 0 {
		fmt.Fprintf(w, "versions %d and %d say the same\n", d.From, d.To)
		return
	}
	fmt.Fprintf(w, "version %d to %d\n", d.From, d.To)
	for _, c := range d.Changes {
		fmt.Fprintln(w, c.Path)
		for _, side := range []struct {
			sign  string
			value json.RawMessage
		}{{"-", c.Old}, {"+", c.New}} {
			if side.value != nil {
				fmt.Fprintf(w, "  %s %s\n", side.sign, side.value)
			}
		}
	}
}
