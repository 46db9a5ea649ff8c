// Command gatewayd is the Agent Gateway: it registers agents, keeps their capabilities, exchanges digests with peer gateways
// and resolves semantic requests. Its other verbs are the operator's.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
)

func main() { os.Exit(run()) }

// options are the flags of every verb.
type options struct{ *daemon.CLI }

func run() int {
	cli, root := daemon.NewCLI("gatewayd", "Agent Gateway for the Internet of Agents")
	o := &options{cli}
	root.AddCommand(initCmd(o), joinCmd(o), runCmd(o), tokenCmd(o), peerCmd(o), peersCmd(o), routesCmd(o), drainCmd(o), monitorCmd(o), siblingCmd(o), bundleCmd(o), agentsCmd(o), importAgentsCmd(o), keysCmd(o), caCmd(o), auditCmd(o), backupCmd(o), restoreCmd(o), digestsCmd(o), clusterCmd(o), membersCmd(o), dnsCmd(o), resolveCmd(o), statusCmd(o))
	return daemon.Execute(root, &cli.Output)
}

// client is the control socket of the running gateway.
func (o *options) client() (*control.Client, error) {
	return o.Client(func(file string) (string, error) {
		cfg, err := config.LoadGateway(file)
		if err != nil {
			return "", err
		}
		return cfg.Control, nil
	})
}

// show asks the gateway one thing without arguments and prints the answer.
func show[T any](o *options, path string, text func(io.Writer, T)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		c, err := o.client()
		if err != nil {
			return err
		}
		var v T
		if err := c.Call(cmd.Context(), path, admin.None{}, &v); err != nil {
			return err
		}
		return o.Print(cmd.OutOrStdout(), v, func(w io.Writer) { text(w, v) })
	}
}

func initCmd(o *options) *cobra.Command {
	var in app.InitOptions
	cmd := &cobra.Command{
		Use: "init --domain NAME", Short: "make a domain: keys, certificates, trust bundle, configuration", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := app.Init(in)
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) { printInit(w, done) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Domain, "domain", "", "name of the Agent Autonomous Domain, such as hospital.example")
	f.StringVar(&in.Dir, "dir", ".", "folder that gets gatewayd.yaml and peers.d")
	f.StringVar(&in.StateDir, "state-dir", "", "folder for keys, certificates and the directory (default: state, beside gatewayd.yaml)")
	f.StringVar(&in.Listen, "listen", "[::]:4433", "UDP address to listen on")
	f.StringSliceVar(&in.Advertise, "advertise", nil, "host:port that agents are told to dial (default: --listen)")
	f.BoolVar(&in.Lab, "lab", false, "admit loopback and private addresses between agents, and lifetimes from a second on")
	f.StringVar(&in.ARSP, "arsp", "", "part of every identity code of this AMC, 1 to 6 of 0-9 and A-Z (default: from the domain's name; a second AMC of a domain needs one of its own)")
	f.StringSliceVar(&in.Roles, "role", nil, "what this process is: gateway, amc (default both; amc alone, and gateways on other hosts join it)")
	cmd.MarkFlagRequired("domain")
	return cmd
}

// printInit says what was made and what comes next: peers are a gateway's, and an AMC alone has gateways to wait for.
func printInit(w io.Writer, done *app.InitResult) {
	fmt.Fprintf(w, "domain       %s\n", done.Domain)
	if done.Gateway != done.AMC {
		fmt.Fprintf(w, "gateway      %s\n", done.Gateway)
	}
	fmt.Fprintf(w, "AMC          %s\nconfig       %s\nbundle       %s\nfingerprint  %s\n\nstart it with:   gatewayd run --config %s\n",
		done.AMC, done.Config, done.Bundle, done.Fingerprint, done.Config)
	if done.Gateway != done.AMC {
		fmt.Fprintln(w, "peers need the bundle file, and should compare the fingerprint by another way")
		return
	}
	fmt.Fprintf(w, `then, for each gateway of the domain:
  here           gatewayd token create --for gateway --config %s
  on its host    gatewayd join --token-file FILE --dir DIR
agents enrol and other domains peer at those gateways, not here
`, done.Config)
}

func joinCmd(o *options) *cobra.Command {
	var in app.JoinOptions
	var tokenFile string
	cmd := &cobra.Command{
		Use: "join --token-file FILE", Short: "make a gateway of a domain whose AMC is on another host", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := daemon.ReadSecret(tokenFile, cmd.InOrStdin())
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			in.Token = text
			done, err := app.Join(cmd.Context(), in)
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
				fmt.Fprintf(w, "domain       %s\ngateway      %s\nAMC          %s\nconfig       %s\n\nstart it with:   gatewayd run --config %s\n",
					done.Domain, done.Gateway, done.AMC, done.Config, done.Config)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&tokenFile, "token-file", "", "file of the token (gatewayd token create --for gateway, at the AMC), - for standard input")
	f.StringVar(&in.Dir, "dir", ".", "folder that gets gatewayd.yaml and peers.d")
	f.StringVar(&in.StateDir, "state-dir", "", "folder for keys, certificates and the directory (default: state, beside gatewayd.yaml)")
	f.StringVar(&in.Listen, "listen", "[::]:4433", "UDP address to listen on")
	f.StringSliceVar(&in.Advertise, "advertise", nil, "host:port that agents are told to dial (default: --listen)")
	f.BoolVar(&in.Lab, "lab", false, "admit loopback and private addresses between agents, and lifetimes from a second on")
	cmd.MarkFlagRequired("token-file")
	return cmd
}

func runCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "run the gateway until SIGINT or SIGTERM", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			return app.Run(cfg, os.Stderr)
		},
	}
}

func tokenCmd(o *options) *cobra.Command {
	var life time.Duration
	var in admin.TokenRequest
	create := &cobra.Command{
		Use: "create", Short: "print a token that enrols one agent, once; it is a secret", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if life < time.Second {
				return daemon.Usagef("--life %s is below a second", life)
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			in.LifeS = int64(life.Seconds())
			var t admin.TokenAnswer
			if err := c.Call(cmd.Context(), "/v1/token", in, &t); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), t, func(w io.Writer) { fmt.Fprintln(w, t.Token) })
		},
	}
	f := create.Flags()
	f.DurationVar(&life, "life", 10*time.Minute, "how long it may be used")
	f.StringSliceVar(&in.Scope, "scope", nil, "what its agent may be granted at most (default agw.discover,acps.skill.invoke:*)")
	f.StringVar(&in.Note, "note", "", "for whom it is")
	f.StringVar(&in.For, "for", "agent", "what it enrols: agent, or gateway (a gateway of this domain on another host)")
	f.StringVar(&in.Gateway, "gateway", "", "AIC of the gateway that the agent shall enrol at (default: this one, or the only one that is attached)")
	f.StringVar(&in.Vendor, "vendor", "", "vendor code of the AIC (default: from the provider's organisation)")
	f.StringVar(&in.Ontology, "ontology", "", "ontology serial of the AIC (default: a new one)")
	return daemon.Group("token", "enrolment tokens", create)
}

func digestsCmd(o *options) *cobra.Command {
	var domain string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "digests", Short: "capability digests known here", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			rows, err := control.Await(cmd.Context(), c, "/v1/digests", wait, func(rows []admin.DigestRow) string {
				if slices.ContainsFunc(rows, func(r admin.DigestRow) bool { return domain == "" || r.Domain == domain }) {
					return ""
				}
				return "no digest of " + domain
			})
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), rows, func(w io.Writer) {
				t := table(w, "DOMAIN", "LEVEL", "NS", "LABEL", "PATH", "STALE")
				for _, r := range rows {
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%v\n", r.Domain, r.Level, r.NS, r.Label, strings.Join(r.Path, " "), r.Stale)
				}
				t.Flush()
			})
		},
	}
	cmd.Flags().StringVar(&domain, "domain", "", "with --wait: the domain that a digest is due of")
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for a digest to be here")
	return cmd
}

func resolveCmd(o *options) *cobra.Command {
	var in semreq.Ask
	var budget time.Duration
	var explain, trace bool
	var as, filter string
	cmd := &cobra.Command{
		Use: "resolve TEXT", Short: "resolve a semantic request in the gateway's own name", Args: daemon.Args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			switch {
			case explain && trace:
				return daemon.Usagef("--explain is of this gateway's own directory, --trace of the way through others: give one of them")
			case as != "" && !explain:
				return daemon.Usagef("--as goes with --explain: a request goes out in this gateway's own name")
			}
			in.Query.Text, in.BudgetMS, in.Query.Filter = strings.Join(args, " "), uint64(budget.Milliseconds()), []byte(filter)
			if err := checkFilter(filter); err != nil {
				return err
			}
			warnOfClasses(cmd.ErrOrStderr(), in.Query.Classes)
			if explain {
				return o.explainMatch(cmd, c, admin.MatchRequest{Ask: in, Domain: as})
			}
			if trace {
				return o.traceRequest(cmd, c, in)
			}
			var a semreq.Outcome
			if err := c.Call(cmd.Context(), "/v1/resolve", in, &a); err != nil {
				return err
			}
			if err := o.Print(cmd.OutOrStdout(), a, func(w io.Writer) {
				for _, r := range a.Results {
					fmt.Fprintf(w, "%5.2f %%  %s  (%s)\n         %s\n", float64(r.Score)/100, r.Skill.Name, r.Domain, r.Capability)
				}
				fmt.Fprintf(w, "%s over %d hop(s) in %.1f ms\n", a.Status, a.Hops, a.ElapsedMS)
			}); err != nil {
				return err
			}
			return daemon.Silent(a.Code, a.Status)
		},
	}
	f := cmd.Flags()
	f.Uint8Var(&in.Want, "want", semreq.DefaultWant, "results wanted")
	f.Uint8Var(&in.Breadth, "breadth", semreq.DefaultBreadth, "neighbours that may be asked in all")
	f.BoolVar(&in.Parallel, "parallel", false, "ask at once, and beside an own match")
	f.BoolVar(&in.LocalOnly, "local", false, "ask nobody else")
	f.DurationVar(&budget, "budget", semreq.DefaultBudgetMS*time.Millisecond, "time that it may take")
	f.StringSliceVar(&in.Query.Caps, "cap", nil, "exact Capability Identifiers")
	f.StringSliceVar(&in.Query.Classes, "class", nil, "classes of the taxonomy (OASF), by path or id")
	f.StringSliceVar(&in.Query.Tags, "tag", nil, "tags that a skill must have")
	f.StringVar(&filter, "filter", "", `ADP filter expression, such as {"conditions":[{"field":"provider.countryCode","op":"eq","value":"DE"}]}`)
	f.BoolVar(&explain, "explain", false, "show how this gateway's own directory answers: candidates, evidence, and what was held back and why")
	f.BoolVar(&trace, "trace", false, "ask one hop further each time until something is found: what each distance answers, why, and in what time")
	f.StringVar(&as, "as", "", "with --explain: as if the request came from this domain")
	f.Uint16Var(&in.Constraints.MinScore, "min-score", 0, "least score, per ten thousand (default: the gateway's bar)")
	return cmd
}

func statusCmd(o *options) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "how the running gateway stands", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			s, err := control.Await(cmd.Context(), c, "/v1/status", wait, func(s admin.Status) string {
				for _, p := range s.Peers {
					if p.State != "up" || !p.Acked {
						return "peer " + p.Domain + " is " + p.State
					}
				}
				return ""
			})
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), s, func(w io.Writer) { printStatus(w, s) })
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for the gateway to answer and for every peer to be up and acked")
	return cmd
}

func printStatus(w io.Writer, s admin.Status) {
	fmt.Fprintf(w, "gateway   %s\ndomain    %s\nversion   %s\nlisten    %s\npin       %s\nup        %s\nagents    %d registered, %d attached\nrequests  %d answered, %d forwarded\naudit     %s\namc       %s\n",
		s.Gateway, s.Domain, s.Version, s.Listen, s.Pin, time.Duration(s.UptimeS)*time.Second, s.Agents, s.Attached, s.Requests.Answered, s.Requests.Forwarded, s.Audit, s.AMC)
	if s.Restored > 0 {
		fmt.Fprintf(w, "kept      %d digests of peers were known at the start\n", s.Restored)
	}
	if e := s.Embedder; e != nil {
		fmt.Fprintf(w, "embedder  %s, model %s: %s\n", e.Endpoint, e.Model, embedderText(e))
	}
	for _, g := range s.Gateways {
		fmt.Fprintf(w, "gateway   %s, attached\n", g)
	}
	for _, r := range s.Siblings {
		fmt.Fprintf(w, "sibling   %s at %s, %s\n", r.Issuer, r.Address, r.State)
	}
	if s.Drained != nil {
		fmt.Fprintf(w, "drained   since %s: it takes nothing new; `gatewayd drain --undo` ends that\n", s.Drained.Format(time.RFC3339))
	}
	if s.Waiting > 0 {
		fmt.Fprintf(w, "waiting   %d registrations: gatewayd agents pending\n", s.Waiting)
	}
	fmt.Fprintln(w)
	printPeers(w, s.Peers)
	fmt.Fprintln(w)
	t := table(w, "TRUSTED DOMAIN", "ISSUER", "SOURCE", "FINGERPRINT")
	for _, d := range append(s.Domains, s.Pending...) {
		source := d.Source
		if len(d.By) > 0 {
			source += " by " + strings.Join(d.By, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", d.Domain, d.Issuer, source, d.Fingerprint)
	}
	t.Flush()
}

// embedderText is how an embeddings endpoint does, in words.
func embedderText(e *admin.EmbedderStatus) string {
	switch {
	case e.State == "failing" && e.Since != nil && e.Tried != nil:
		return fmt.Sprintf("failing since %s, last tried %s, %d of %d vectors filled; requests are ranked by their words alone meanwhile (%s)",
			e.Since.Format(time.RFC3339), e.Tried.Format(time.RFC3339), e.Vectors, e.Of, e.Error)
	case e.State == "filling":
		text := fmt.Sprintf("filling %d of %d vectors; entries without theirs are ranked by their words meanwhile", e.Vectors, e.Of)
		if e.Error != "" {
			text += " (the last round left some out: " + e.Error + ")"
		}
		return text
	}
	return fmt.Sprintf("%s, %d vectors", e.State, e.Vectors)
}

func table(w io.Writer, head ...string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	return t
}
