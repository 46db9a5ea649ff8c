package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

func peerCmd(o *options) *cobra.Command {
	var in app.PeerOptions
	add := &cobra.Command{
		Use: "add --bundle FILE", Short: "trust a peer domain and exchange digests with it", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			done, err := app.AddPeer(cfg, in)
			if err != nil {
				return err
			}
			if done.Running, err = o.reload(cmd, cfg); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
				fmt.Fprintf(w, "peer %s added in %s\nits bundle is signed by %s: compare it with the peer's operator\n", done.Domain, done.File, done.Fingerprint)
				if !done.Running {
					fmt.Fprintln(w, "no gateway is running on this configuration; it will be used at the next start")
				}
			})
		},
	}
	f := add.Flags()
	f.StringVar(&in.Bundle, "bundle", "", "the peer's bundle file (bundle.cbor of its state folder)")
	f.StringVar(&in.Fingerprint, "fingerprint", "", "sha256:… of the key that signed it, as its operator told you")
	f.StringVar(&in.BundleURL, "bundle-url", "", "https URL on its domain from which newer bundles are fetched")
	f.StringSliceVar(&in.Addresses, "address", nil, "host:port of its gateway; without one this gateway waits to be dialled")
	f.StringVar(&in.Role, "role", "peer", "what the peer is to us: peer, customer or provider")
	f.BoolVar(&in.Transit, "transit", false, "pass on to it what we learn from others")
	f.StringSliceVar(&in.Introduces, "introduces", nil, "domains whose bundles we take from it, such as *.example")
	f.StringVar(&in.FirstUse, "first-use", "", "domains that it introduces: auto believes them at first sight, ask once approved (default: ask, where it may query for more than agw.discover)")
	f.BoolVar(&in.Upstream, "upstream", false, "ask it as the last resort")
	f.BoolVar(&in.Replace, "replace", false, "write the row anew where there is one: what was edited in it by hand is lost")
	add.MarkFlagRequired("bundle")
	ls := &cobra.Command{
		Use: "list", Short: "neighbours and how they stand", Args: daemon.Args(cobra.NoArgs),
		RunE: show(o, "/v1/peers", printPeers),
	}
	remove := &cobra.Command{
		Use: "remove DOMAIN", Short: "trust a peer domain no more", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			if err := app.RemovePeer(cfg, args[0]); err != nil {
				return err
			}
			running, err := o.reload(cmd, cfg)
			if err != nil {
				return err
			}
			done := map[string]any{"domain": args[0], "running": running}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) { fmt.Fprintf(w, "peer %s removed\n", args[0]) })
		},
	}
	return daemon.Group("peer", "peer domains", add, ls, remove, approveCmd(o))
}

func approveCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "approve DOMAIN FINGERPRINT", Short: "believe a domain that a peer has introduced; `gatewayd status` shows those that wait", Args: daemon.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in := admin.ApproveRequest{Domain: args[0], Fingerprint: args[1]}
			if err := c.Call(cmd.Context(), "/v1/peers/approve", in, &admin.None{}); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), in, func(w io.Writer) { fmt.Fprintf(w, "%s is trusted under %s\n", in.Domain, in.Fingerprint) })
		},
	}
}

// reload has a running gateway read its policy rows again; without one they count at the next start.
func (o *options) reload(cmd *cobra.Command, cfg *config.Gateway) (running bool, err error) {
	socket := cfg.Control
	if o.Control != "" {
		socket = o.Control
	}
	err = control.NewClient(socket).Call(cmd.Context(), "/v1/peers/reload", admin.None{}, &admin.None{})
	if frame.CodeOf(err) == frame.UpstreamFailed {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("the files are written, but the running gateway does not take them: %w", err)
	}
	return true, nil
}

func printPeers(w io.Writer, rows []admin.PeerRow) {
	t := table(w, "PEER", "ROLE", "STATE", "ACKED", "ENTRIES", "RTT", "CLOCK", "LAST ERROR")
	for _, p := range rows {
		rtt := "-"
		if p.State == "up" {
			rtt = fmt.Sprintf("%d ms", p.RTTMS)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%v\t%d\t%s\t%+d s\t%s\n", p.Domain, p.Role, p.State, p.Acked, p.Entries, rtt, p.ClockS, p.Error)
	}
	t.Flush()
}
