package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/monitor"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

func routesCmd(o *options) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "routes [LABEL|DOMAIN]", Short: "from which neighbours each digest is known, which way is the best and why, and who was told",
		Args: daemon.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return daemon.Usagef("--limit %d is below 0", limit)
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			in, rows := admin.RoutesRequest{Name: strings.Join(args, "")}, []admin.KnownRow{}
			for {
				in.Limit = admin.MaxPage
				if limit > 0 {
					in.Limit = min(limit-len(rows), admin.MaxPage)
				}
				var page admin.RoutesPage
				if err := c.Call(cmd.Context(), "/v1/routes", in, &page); err != nil {
					return err
				}
				rows, in.After = append(rows, page.Routes...), page.Next
				if page.Next == "" || limit > 0 && len(rows) >= limit {
					break
				}
			}
			if err := o.Print(cmd.OutOrStdout(), rows, func(w io.Writer) { printRoutes(w, rows) }); err != nil || in.After == "" {
				return err
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "more follow: --limit 0 shows all")
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 200, "digests to show at most; 0 shows all")
	return cmd
}

// printRoutes writes each digest and behind it the ways to it, the best with a star.
func printRoutes(w io.Writer, rows []admin.KnownRow) {
	for _, k := range rows {
		name := k.Label
		if name == "" {
			name = "(" + k.NS + ")"
		}
		fmt.Fprintf(w, "%s  %s  %s, level %s, of %s, version %s, %s left", name, k.Domain, k.NS, k.Level, k.Origin, k.Version, ago(k.LeftS))
		if k.Quarantined {
			fmt.Fprint(w, ", quarantined: its origin says two things under one version")
		}
		fmt.Fprintln(w)
		if k.Own {
			fmt.Fprintln(w, "  * own")
		}
		for _, r := range k.Routes {
			fmt.Fprintf(w, "  %s via %s %s (%s)  path [%s]  %d ms  age %s%s\n", map[bool]string{true: "*", false: " "}[r.Best], r.Domain, r.Gateway, r.Role,
				strings.Join(r.Path, " "), r.MetricMS, ago(r.AgeS), routeMarks(r, len(k.Routes)))
		}
		if len(k.ToldTo) > 0 {
			fmt.Fprintf(w, "    told to %s\n", strings.Join(k.ToldTo, ", "))
		}
	}
}

func routeMarks(r admin.RouteRow, of int) (text string) {
	if r.Stale {
		text += "  stale"
	}
	if r.Lame {
		text += "  closed: the neighbour takes nothing new, or is drained here"
	}
	switch {
	case r.Best && of == 1:
		text += "  best: the only one"
	case r.Best:
		text += "  best by " + r.By
	case r.By != "":
		text += "  behind the best by " + r.By
	}
	return text
}

// ago is a time in whole seconds.
func ago(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }

// peerVerb is a verb that does something to one neighbour.
func peerVerb[T any](o *options, use, short, path string, told func(T) string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var out T
			if err := c.Call(cmd.Context(), path, admin.PeerRequest{Peer: args[0]}, &out); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), out, func(w io.Writer) { fmt.Fprintln(w, told(out)) })
		},
	}
}

func resetPeerCmd(o *options) *cobra.Command {
	return peerVerb(o, "reset PEER", "end the session with a peer, by domain or AIC, and dial it anew at once", "/v1/peers/reset", func(r admin.PeerReset) string {
		text := fmt.Sprintf("%d session(s) with %s ended", r.Ended, r.Peer)
		if r.Dials {
			return text + "; it is dialled now"
		}
		return text + "; its row names no address: it has to dial"
	})
}

func refreshPeerCmd(o *options) *cobra.Command {
	return peerVerb(o, "refresh PEER", "ask a peer, by domain or AIC, for its whole table anew; the session goes on", "/v1/peers/refresh", func(r admin.PeerRefresh) string {
		return fmt.Sprintf("%d gateway(s) of %s were asked for everything", r.Asked, r.Peer)
	})
}

func drainPeerCmd(o *options) *cobra.Command {
	var in admin.PeerRequest
	cmd := &cobra.Command{
		Use: "drain PEER", Short: "take what was told to a peer back and send it nothing new, until undone or restarted; the session goes on, and what runs ends",
		Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Peer = args[0]
			return o.drain(cmd, "/v1/peers/drain", in, in.Undo, in.Peer)
		},
	}
	cmd.Flags().BoolVar(&in.Undo, "undo", false, "take part with it again")
	return cmd
}

func drainCmd(o *options) *cobra.Command {
	var in admin.DrainRequest
	cmd := &cobra.Command{
		Use: "drain", Short: "make this gateway a lame duck, until undone or restarted: agents and requests go elsewhere, what runs ends, nothing new is taken",
		Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.drain(cmd, "/v1/drain", in, in.Undo, "this gateway")
		},
	}
	cmd.Flags().BoolVar(&in.Undo, "undo", false, "take part again")
	return cmd
}

// drain has something drained and says so.
func (o *options) drain(cmd *cobra.Command, path string, in any, undo bool, what string) error {
	c, err := o.client()
	if err != nil {
		return err
	}
	if err := c.Call(cmd.Context(), path, in, &admin.None{}); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), map[string]any{"drained": !undo, "what": what}, func(w io.Writer) {
		fmt.Fprintf(w, "%s is %s\n", what, map[bool]string{true: "drained no more", false: "drained: nothing new is taken, what runs ends"}[undo])
	})
}

func monitorCmd(o *options) *cobra.Command {
	var in admin.MonitorRequest
	cmd := &cobra.Command{
		Use: "monitor", Short: "what happens in the running gateway, a line each, until interrupted", Args: daemon.Args(cobra.NoArgs),
		Long: "Prints events as they happen until it is interrupted: peers that come up or go down, synchronisations, digests, routes, alarms, members of the\n" +
			"cluster, agents. With -o json each is an object on a line of its own. If they come faster than they are read some are left out, and an event\n" +
			"`lost` says how many. Kinds: " + strings.Join(monitor.Kinds, ", ") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := monitor.ParseKinds(in.Kinds); err != nil {
				return &daemon.UsageError{Err: err}
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			err = c.Stream(ctx, "/v1/monitor", in, func(line json.RawMessage) error {
				var e monitor.Event
				if err := json.Unmarshal(line, &e); err != nil {
					return fmt.Errorf("answer of the daemon: %w", err)
				}
				return o.Print(cmd.OutOrStdout(), line, func(w io.Writer) { fmt.Fprintln(w, eventText(e)) })
			})
			switch {
			case frame.CodeOf(err) == frame.Cancelled: // that is how it ends
				return nil
			case err == nil:
				return frame.Errorf(frame.UpstreamFailed, "the gateway has stopped")
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&in.Kinds, "kind", nil, "only events of this kind, such as peer.up, or peer for all of peers; may be given again (default: all)")
	return cmd
}

// eventText is an event on one line: when, what, who, then what it is about.
func eventText(e monitor.Event) string {
	parts := []string{e.Time.Local().Format("15:04:05.000"), fmt.Sprintf("%-16s", e.Kind)}
	add := func(format string, value string) {
		if value != "" {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("%s", e.Domain)
	add("%s", e.Gateway)
	add("agent %s", e.Agent)
	if e.Origin != "" {
		parts = append(parts, fmt.Sprintf("%q of %s", strings.TrimSpace(e.NS+" "+e.Label), strings.TrimSpace(e.Of+" "+e.Origin)))
	}
	if e.Kind == monitor.RouteChanged {
		parts = append(parts, "from "+orNobody(e.From)+" to "+orNobody(e.To))
	}
	add("%s", e.Code)
	add("%s", e.Text)
	if e.Kind == monitor.SyncEnded {
		parts = append(parts, fmt.Sprintf("%d digests held", e.Count))
	}
	return strings.Join(parts, "  ")
}

func orNobody(gateway string) string {
	if gateway == "" {
		return "nobody"
	}
	return gateway
}

// listPeersCmd is `gatewayd peer list`, and `gatewayd peers`.
func listPeersCmd(o *options, use string) *cobra.Command {
	return &cobra.Command{
		Use: use + " [PEER]", Short: "neighbours and how they stand; of one, by domain or AIC, everything that is known of the session",
		Args: daemon.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			rows, text := []admin.PeerRow{}, printPeers
			if len(args) == 0 {
				err = c.Call(cmd.Context(), "/v1/peers", admin.None{}, &rows)
			} else {
				text = printPeerDetails
				err = c.Call(cmd.Context(), "/v1/peers/show", admin.PeerRequest{Peer: args[0]}, &rows)
			}
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), rows, func(w io.Writer) { text(w, rows) })
		},
	}
}

// printPeerDetails writes a block for each row.
func printPeerDetails(w io.Writer, rows []admin.PeerRow) {
	for i, p := range rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		line := func(name, format string, args ...any) {
			fmt.Fprintf(w, "%-13s%s\n", name, fmt.Sprintf(format, args...))
		}
		line("peer", "%s %s, role %s", p.Domain, p.Gateway, p.Role)
		state := peerState(p)
		if p.Since != nil {
			state += " since " + p.Since.Format(time.RFC3339)
		}
		line("state", "%s", state)
		line("received", "%d digests held, %d of them stale; %d entries taken%s", p.Entries, p.Stale, p.Accepted, reasons(", refused", p.Rejected))
		line("sent", "%d digests it holds, all acknowledged: %v%s", p.Sent, p.Acked, reasons(", it refused", p.Refused))
		if p.LastAck != nil {
			line("last ack", "%s", p.LastAck.Format(time.RFC3339))
		}
		if p.EndedAt != nil {
			line("last end", "%s: %s", p.EndedAt.Format(time.RFC3339), p.Ended)
		}
		if p.Error != "" {
			line("last error", "%s", p.Error)
		}
		if p.Until != nil {
			line("certificates", "end %s", p.Until.Format(time.RFC3339))
		}
	}
}

// peerState is the state with what the operators on either side have made of it.
func peerState(p admin.PeerRow) string {
	text := p.State
	if p.Drained {
		text += ", drained"
	}
	if p.Lame {
		text += ", lame"
	}
	return text
}

// reasons are counts by their codes, behind a word; "" for none.
func reasons(word string, counts map[string]uint64) string {
	if len(counts) == 0 {
		return ""
	}
	var list []string
	for _, code := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%d %s", counts[code], code))
	}
	return word + " " + strings.Join(list, ", ")
}
