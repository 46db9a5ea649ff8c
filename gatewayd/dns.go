package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
)

func dnsCmd(o *options) *cobra.Command {
	var in admin.DNSRequest
	cmd := &cobra.Command{
		Use: "dns [DOMAIN]", Short: "the gateways that DNS names for a domain (default: the own one), and what the own name server serves", Args: daemon.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Domain = strings.Join(args, "")
			var r admin.DNSReport
			if err := c.Call(cmd.Context(), "/v1/dns", in, &r); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), r, func(w io.Writer) { printDNS(w, r) })
		},
	}
	cmd.Flags().BoolVar(&in.Fresh, "fresh", false, "ask the name servers now, whatever is remembered")
	return cmd
}

func printDNS(w io.Writer, r admin.DNSReport) {
	source := or(r.Source, "nothing found")
	if r.At != nil {
		source += fmt.Sprintf(" of %s, TTL %d s", r.At.UTC().Format(time.RFC3339), r.TTLS)
	}
	if r.Stale {
		source += ", the last good answer"
	}
	fmt.Fprintf(w, "domain   %s\nsource   %s\ndnssec   %s\n", r.Domain, source, r.DNSSEC)
	if r.Error != "" {
		fmt.Fprintf(w, "error    %s\n", r.Error)
	}
	if len(r.Gateways) > 0 {
		fmt.Fprintln(w)
		t := table(w, "PRIORITY", "WEIGHT", "HOST", "PORT", "ADDRESSES")
		for _, g := range r.Gateways {
			addresses := strings.Join(g.Addresses, " ")
			if g.Hints {
				addresses += " (hints)"
			}
			fmt.Fprintf(t, "%d\t%d\t%s\t%d\t%s\n", g.Priority, g.Weight, g.Host, g.Port, addresses)
		}
		t.Flush()
	}
	if s := r.Serves; s != nil {
		fmt.Fprintf(w, "\nserves   %s at %s: %d answered, %d sent to TCP and %d left unanswered for their rate\n", s.Zone, strings.Join(s.Listen, ", "), s.Answered, s.Cut, s.Dropped)
		for _, record := range s.Records {
			fmt.Fprintf(w, "  %s\n", record)
		}
	}
}
