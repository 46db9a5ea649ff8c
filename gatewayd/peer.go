package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

func peerCmd(o *options) *cobra.Command {
	return daemon.Group("peer", "peer domains", addCmd(o), listPeersCmd(o, "list"), removeCmd(o), approveCmd(o), explainCmd(o),
		resetPeerCmd(o), refreshPeerCmd(o), drainPeerCmd(o))
}

// peersCmd is what may be done to neighbours that are there, under the name that other routing daemons have for it; alone it lists them.
func peersCmd(o *options) *cobra.Command {
	cmd := listPeersCmd(o, "peers")
	cmd.AddCommand(resetPeerCmd(o), refreshPeerCmd(o), drainPeerCmd(o))
	return cmd
}

func addCmd(o *options) *cobra.Command {
	var in app.PeerOptions
	var yes bool
	add := &cobra.Command{
		Use: "add --bundle FILE", Short: "trust a peer domain and exchange digests with it", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			if o.interactive(cmd) && !yes {
				plan, err := app.PlanPeer(cfg, in)
				if err != nil {
					return err
				}
				if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), plan); err != nil {
					return err
				}
				in.Fingerprint = plan.Fingerprint // whatever becomes of the file meanwhile
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
	f.StringSliceVar(&in.Addresses, "address", nil, "host:port of its gateway; without one, and without --discover, this gateway waits to be dialled")
	f.BoolVar(&in.Discover, "discover", false, "dial the gateways that its domain's DNS records name, then --address")
	f.StringVar(&in.Role, "role", "peer", "what the peer is to us: peer, customer or provider")
	f.BoolVar(&in.Transit, "transit", false, "pass on to it what we learn from others")
	f.StringVar(&in.Disclose, "disclose", "", "how much our digests tell it: full, coarse or classes (default: full)")
	f.StringSliceVar(&in.Introduces, "introduces", nil, "domains whose bundles we take from it, such as *.example")
	f.StringVar(&in.FirstUse, "first-use", "", "domains that it introduces: auto believes them at first sight, ask once approved (default: ask)")
	f.BoolVar(&in.Upstream, "upstream", false, "ask it as the last resort")
	f.BoolVar(&yes, "yes", false, "do not ask on a terminal: the fingerprint was compared")
	f.BoolVar(&in.Replace, "replace", false, "write the row anew where there is one: what was edited in it by hand is lost")
	add.MarkFlagRequired("bundle")
	return add
}

func removeCmd(o *options) *cobra.Command {
	return &cobra.Command{
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
}

// interactive says whether somebody sits at a terminal to be asked.
func (o *options) interactive(cmd *cobra.Command) bool {
	f, ok := cmd.InOrStdin().(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// maxAnswer bounds what a question reads.
const maxAnswer = 256

// confirm shows what a policy row would do and asks. The answer is yes, or better the fingerprint as the peer's operator tells it.
func confirm(in io.Reader, out io.Writer, p *app.PeerPlan) error {
	fmt.Fprintf(out, "domain       %s\nfingerprint  %s\n\nwhat this allows:\n", p.Domain, p.Fingerprint)
	for _, g := range p.Grants {
		fmt.Fprintln(out, "  - "+g)
	}
	fmt.Fprint(out, "\nAsk the peer's operator for the fingerprint, by another way than the file came.\n")
	fmt.Fprint(out, "Trust this domain? Type yes, or the fingerprint that you were told: ")
	line, err := bufio.NewReader(io.LimitReader(in, maxAnswer)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch answer := strings.TrimSpace(line); {
	case strings.EqualFold(answer, "yes"), strings.EqualFold(answer, p.Fingerprint):
		return nil
	case strings.HasPrefix(strings.ToLower(answer), "sha256:"):
		return frame.Errorf(frame.TrustDenied, "the bundle is signed by %s, not by %s: it is not the peer's, do not use it", p.Fingerprint, answer)
	}
	return frame.Errorf(frame.TrustDenied, "%s is not added", p.Domain)
}

func explainCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "explain DOMAIN", Short: "what would pass between this domain and another, and why", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var e admin.Explanation
			if err := c.Call(cmd.Context(), "/v1/peers/explain", admin.ExplainRequest{Domain: args[0]}, &e); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), e, func(w io.Writer) { printExplanation(w, e) })
		},
	}
}

func printExplanation(w io.Writer, e admin.Explanation) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("domain", "%s (%s)", e.Domain, e.Kind)
	if r := e.Row; r != nil {
		line("row", "role %s, export %s, disclose %s, may_query [%s], introduces [%s], first_use %s", r.Role, r.Export, r.Disclose,
			strings.Join(r.MayQuery, " "), strings.Join(r.Introduces, " "), r.FirstUse)
	}
	if b := e.Bundle; b != nil {
		source := b.Source
		if len(b.By) > 0 {
			source += " by " + strings.Join(b.By, ", ")
		}
		line("bundle", "%d of %s, %s", b.Seq, b.Issued.Format(time.RFC3339), source)
		line("signed by", "%s", b.Fingerprint)
		if b.FetchedAt != nil {
			line("fetched", "%s at %s %s", b.URL, b.FetchedAt.Format(time.RFC3339), b.FetchError)
		}
	}
	if e.Missing != "" {
		line("missing", "%s", e.Missing)
	}
	if s := e.Status; s != nil {
		line("status list", "%d, %s %s", s.Seq, s.State, s.Why)
	}
	for _, f := range e.Further {
		if f.Seq == 0 {
			line("other AMC", "%s: its bundle has not come yet", f.Issuer)
			continue
		}
		line("other AMC", "%s: bundle %d, prefixes %s, status list %d, %s %s", f.Issuer, f.Seq, strings.Join(f.Prefixes, " "), f.Status.Seq, f.Status.State, f.Status.Why)
	}
	if h := e.HoldsOfOurs; h != nil {
		line("it holds of us", "bundle %d%s, status list %d%s", h.BundleSeq, behind(h.BundleBehind), h.StatusSeq, behind(h.StatusBehind))
	}
	for _, p := range e.Pending {
		line("pending", "%s %s", p.Domain, p.Fingerprint)
	}
	t.Flush()
	if len(e.Verdicts) == 0 {
		return
	}
	fmt.Fprintln(w)
	t = table(w, "WHAT", "PASSES", "WHY")
	for _, v := range e.Verdicts {
		fmt.Fprintf(t, "%s\t%s\t%s\n", v.What, map[bool]string{true: "yes", false: "no"}[v.Passes], v.Why)
	}
	t.Flush()
}

func behind(yes bool) string {
	if yes {
		return " (ours is newer)"
	}
	return ""
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
	t := table(w, "PEER", "ROLE", "STATE", "SINCE", "ACKED", "RECEIVED", "STALE", "REFUSED", "SENT", "RTT", "CLOCK", "LAST ERROR OR END")
	for _, p := range rows {
		rtt, clock, since, last := "-", "-", "-", p.Error
		if p.Since != nil {
			since = time.Since(*p.Since).Round(time.Second).String()
		}
		if last == "" {
			last = p.Ended
		}
		refused := uint64(0)
		for _, n := range p.Rejected {
			refused += n
		}
		if p.Gateway != "" {
			clock = fmt.Sprintf("%+d s", p.ClockS)
		}
		if p.State == "up" {
			rtt = fmt.Sprintf("%d ms", p.RTTMS)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%v\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n",
			p.Domain, p.Role, peerState(p), since, p.Acked, p.Entries, p.Stale, refused, p.Sent, rtt, clock, last)
	}
	t.Flush()
}
