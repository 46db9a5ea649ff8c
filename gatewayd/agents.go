package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/daemon"
)

func agentsCmd(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "agents", Short: "agents of this gateway's directory; at an AMC alone, whom it has issued credentials to"}
	ls := listAgentsCmd(o)
	cmd.Args, cmd.RunE = ls.Args, ls.RunE
	cmd.Flags().AddFlagSet(ls.Flags())
	var in admin.WithdrawRequest
	withdraw := &cobra.Command{
		Use: "delist AIC", Aliases: []string{"withdraw"}, Short: "take an agent out of the directory for good; its AIC is never used again", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in.AIC = args[0]
			if err := c.Call(cmd.Context(), "/v1/agents/withdraw", in, &admin.None{}); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), in, func(w io.Writer) { fmt.Fprintf(w, "%s is withdrawn\n", in.AIC) })
		},
	}
	var out admin.DeprecateRequest
	deprecate := &cobra.Command{
		Use: "deprecate AIC", Short: "mark an agent as on its way out: it is offered on, and lists say so", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			out.AIC = args[0]
			if err := c.Call(cmd.Context(), "/v1/agents/deprecate", out, &admin.None{}); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), out, func(w io.Writer) {
				fmt.Fprintf(w, "%s is %s\n", out.AIC, map[bool]string{false: "deprecated", true: "active"}[out.Undo])
			})
		},
	}
	deprecate.Flags().BoolVar(&out.Undo, "undo", false, "it stays after all")
	withdraw.Flags().StringVar(&in.Reason, "reason", "", "kept with the tombstone")
	cmd.AddCommand(ls, withdraw, deprecate, showAgentCmd(o), historyCmd(o), diffCmd(o), searchAgentsCmd(o), exportAgentsCmd(o), checkAgentsCmd(o),
		standingCmd(o, "suspend AIC", "take an agent out of service until it is resumed: connections, sessions and digests of it end", "suspended"),
		standingCmd(o, "resume AIC", "lift a suspension", "good"),
		standingCmd(o, "revoke AIC", "revoke an agent's credentials for good", "revoked"),
		pendingCmd(o), decideCmd(o, true), decideCmd(o, false))
	return cmd
}

func standingCmd(o *options, use, short, state string) *cobra.Command {
	in := admin.StandingRequest{State: state}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in.AIC = strings.ToUpper(args[0])
			if err := c.Call(cmd.Context(), "/v1/agents/standing", in, &admin.None{}); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), in, func(w io.Writer) { fmt.Fprintf(w, "%s is %s\n", in.AIC, state) })
		},
	}
	cmd.Flags().StringVar(&in.Reason, "reason", "", "kept with the decision, in the audit log too")
	if state == "revoked" {
		cmd.Flags().BoolVar(&in.KeyCompromised, "key-compromised", false, "its key is in other hands: CRL and OCSP say so")
	}
	return cmd
}

func pendingCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "pending", Short: "registrations that wait for approval", Args: daemon.Args(cobra.NoArgs),
		RunE: show(o, "/v1/agents/pending", func(w io.Writer, rows []amc.PendingRequest) {
			t := table(w, "REQUEST", "ASKED", "FROM", "ORGANIZATION", "NAME", "SKILLS", "KEY")
			for _, r := range rows {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Asked.Format(time.RFC3339), r.Attributes.Address,
					r.Attributes.Organization, r.Attributes.Name, strings.Join(r.Skills, " "), r.SPKI)
			}
			t.Flush()
		}),
	}
}

func decideCmd(o *options, approve bool) *cobra.Command {
	in := admin.DecideRequest{Approve: approve}
	use, short, done := "approve REQUEST", "approve a registration that waits", "approved"
	if !approve {
		use, short, done = "deny REQUEST", "deny a registration that waits", "denied"
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Request = args[0]
			if err := c.Call(cmd.Context(), "/v1/agents/decide", in, &admin.None{}); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), in, func(w io.Writer) { fmt.Fprintf(w, "request %s is %s\n", in.Request, done) })
		},
	}
	if approve {
		cmd.Flags().StringSliceVar(&in.Scope, "scope", nil, "what the agent is granted at most (default agw.discover,acps.skill.invoke:*)")
	} else {
		cmd.Flags().StringVar(&in.Reason, "reason", "", "told to the agent's people")
	}
	return cmd
}

func showAgentCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show AIC", Short: "one agent as the directory and the AMC know it", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var d admin.AgentDetail
			if err := c.Call(cmd.Context(), "/v1/agents/show", admin.AgentRequest{AIC: args[0]}, &d); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), d, func(w io.Writer) { printAgent(w, d) })
		},
	}
}

func printAgent(w io.Writer, d admin.AgentDetail) {
	fmt.Fprintf(w, "AIC          %s\n", d.AIC)
	if e := d.Entry; e != nil {
		is, visibility := fmt.Sprint("attached ", e.Attached), e.Visibility
		if e.Imported {
			is = "imported (it has no credential, and cannot attach)"
		}
		if e.Bound != "" {
			visibility += " (at most " + e.Bound + ", as the operator has set it)"
		}
		fmt.Fprintf(w, "name         %s\nentry        %s, version %d, %s, visibility %s\nskills      %s\n",
			e.Name, e.State, e.Version, is, visibility, strings.Join(e.Skills, " "))
	}
	if e := d.Ended; e != nil {
		fmt.Fprintf(w, "entry        %s at %s %s\n", e.State, e.At.Format(time.RFC3339), e.Reason)
	}
	if s := d.Standing; s != nil {
		fmt.Fprintf(w, "standing     %s %s\nauthorised   by %s, scope %s, until %s\ncertificate  until %s\n",
			s.State, s.Why, s.Decider, strings.Join(s.Scope, " "), s.GrantUntil.Format(time.RFC3339), s.CertificateUntil.Format(time.RFC3339))
	}
}
