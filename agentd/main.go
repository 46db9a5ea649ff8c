// Command agentd is the daemon beside one or more agents of a machine: it keeps them attached to their gateway and carries
// task contexts between them and other agents. Its other verbs are its user's.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"agentgw/agentd/internal/app"
	"agentgw/agentd/internal/local"
	"agentgw/config"
	"agentgw/directory/semreq"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

func main() { os.Exit(run()) }

// options are the flags of every verb.
type options struct {
	*daemon.CLI
	agent string
}

func run() int {
	cli, root := daemon.NewCLI("agentd", "daemon beside the agents of a machine")
	o := &options{CLI: cli}
	root.PersistentFlags().StringVar(&o.agent, "agent", "", "which of its agents the call is for (default: the only one)")
	root.AddCommand(enrolCmd(o), runCmd(o), resolveCmd(o), taskCmd(o), statusCmd(o), updateCmd(o), rekeyCmd(o), deregisterCmd(o), auditCmd(o))
	return daemon.Execute(root, &cli.Output)
}

// client is the control socket of the running daemon.
func (o *options) client() (*control.Client, error) {
	return o.Client(func(file string) (string, error) {
		cfg, err := config.LoadAgent(file)
		if err != nil {
			return "", err
		}
		return cfg.Control, nil
	})
}

// interruptible ends with Ctrl-C: what the daemon does for this call ends too.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
}

func enrolCmd(o *options) *cobra.Command {
	in := app.EnrolOptions{}
	var tokenFile string
	cmd := &cobra.Command{
		Use: "enrol --name NAME --acs FILE --token-file FILE", Short: "register an agent with the gateway of a token", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tokenFile == "" {
				in.Token = os.Getenv("AGENTD_TOKEN")
			} else {
				text, err := daemon.ReadSecret(tokenFile, cmd.InOrStdin())
				if err != nil {
					return &daemon.UsageError{Err: err}
				}
				in.Token = text
			}
			if in.Token == "" && in.Gateway == "" && in.GatewayPin == "" {
				return daemon.Usagef("no token: give --token-file FILE, --token-file - for standard input, or AGENTD_TOKEN; where an operator approves, --gateway and --gateway-pin")
			}
			in.Waiting = func(request string, again time.Duration) {
				fmt.Fprintf(cmd.ErrOrStderr(), "request %s waits for approval (gatewayd agents approve %s); asking again in %s\n", request, request, again)
			}
			if in.Dir == "" {
				in.Dir = filepath.Dir(o.Config)
			}
			ctx, cancel := interruptible(cmd)
			defer cancel()
			done, err := app.Enrol(ctx, in)
			if err != nil {
				return err
			}
			if cfg, err := config.LoadAgent(done.Config); err == nil {
				done.Running = control.NewClient(cfg.Control).Call(ctx, "/v1/reload", local.None{}, &local.None{}) == nil
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
				fmt.Fprintf(w, "agent    %s\nAIC      %s\ndomain   %s\ngateway  %s\n", done.Name, done.AIC, done.Domain, done.Gateway)
				if len(done.Command) > 0 {
					fmt.Fprintf(w, "program  %q\n", done.Command)
				}
				for _, c := range done.Capabilities {
					fmt.Fprintf(w, "offers   %s\n", c)
				}
				for _, r := range done.Removed {
					fmt.Fprintf(w, "not granted: %s\n", r)
				}
				for _, m := range done.Warnings {
					fmt.Fprintf(w, "warning: %s\n", m)
				}
				if done.Before != "" {
					fmt.Fprintf(w, "AIC %s is still registered, unless it was revoked: ask the operator of its domain to revoke it (gatewayd agents revoke %s)\n", done.Before, done.Before)
				}
				if done.Running {
					fmt.Fprintln(w, "the running agentd serves it")
				} else {
					fmt.Fprintf(w, "start it with:  agentd run --config %s\n", done.Config)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", "", "folder of agentd.yaml and the state (default: the folder of --config)")
	f.StringVar(&in.Name, "name", "", "local name of the agent")
	f.StringVar(&in.ACS, "acs", "", "file, or https URL, of the draft capability specification (ACS, JSON) or of an A2A Agent Card")
	f.BoolVar(&in.Private, "allow-private", false, "the URL of --acs may lead to a private or loopback address")
	f.StringVar(&tokenFile, "token-file", "", "file of the enrolment token, - for standard input (default: AGENTD_TOKEN)")
	f.StringVar(&in.Gateway, "gateway", "", "host:port of the gateway, where an operator or a rule decides instead of a token")
	f.StringVar(&in.GatewayPin, "gateway-pin", "", "sha256:… of that gateway's key, as its operator told you (pin of gatewayd status)")
	f.DurationVar(&in.Wait, "wait", 24*time.Hour, "how long to wait for an operator's approval")
	f.BoolVar(&in.Replace, "replace", false, "give an agent of this name a new identity; its old credential is kept beside it, its file in agents.d as it is")
	f.StringVar(&in.Visibility, "visibility", "public", "who may find it: public, listed, domain or private")
	f.StringSliceVar(&in.Allow, "allow", nil, "domains, with --visibility listed")
	f.StringVar(&in.Listen, "listen", "[::]:4434", "UDP address for sessions, when agentd.yaml is written")
	f.StringVar(&in.Program, "stdio", "", "program of the agent, which speaks JSON-RPC on standard input and output; its absolute path is written down")
	f.StringArrayVar(&in.Args, "stdio-arg", nil, "argument of that program; of a file from here the absolute path is written down; may be repeated")
	cmd.MarkFlagRequired("name")
	cmd.MarkFlagRequired("acs")
	return cmd
}

func updateCmd(o *options) *cobra.Command {
	var in local.UpdateRequest
	var source string
	var private bool
	cmd := &cobra.Command{
		Use: "update FILE", Short: "replace an agent's capability specification (ACS or A2A Agent Card, JSON), whole; FILE may be an https URL", Args: daemon.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && source == "":
				source = args[0]
			case len(args) == 1 || source == "":
				return daemon.Usagef("name one file or URL of the new specification")
			}
			raw, err := app.ReadDraft(cmd.Context(), source, private)
			if err != nil {
				return err
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Agent, in.ACS = o.agent, string(raw)
			var out local.UpdateAnswer
			if err := c.Call(cmd.Context(), "/v1/agent/update", in, &out); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), out, func(w io.Writer) {
				fmt.Fprintf(w, "%s is at version %d\n", out.AIC, out.Version)
				for _, c := range out.Capabilities {
					fmt.Fprintf(w, "offers   %s\n", c)
				}
				for _, r := range out.Removed {
					fmt.Fprintf(w, "not granted: %s\n", r)
				}
				for _, m := range out.Warnings {
					fmt.Fprintf(w, "warning: %s\n", m)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&source, "acs", "", "the same as FILE")
	f.BoolVar(&private, "allow-private", false, "a URL may lead to a private or loopback address")
	f.StringVar(&in.Visibility, "visibility", "", "who may find it: public, listed, domain or private (default: as it was)")
	f.StringSliceVar(&in.Allow, "allow", nil, "domains, with --visibility listed")
	return cmd
}

func rekeyCmd(o *options) *cobra.Command {
	return o.agentVerb("rekey", "give an agent a new key under its AIC; running sessions move to it", "/v1/agent/rekey", "has a new key", &local.AgentRequest{})
}

func deregisterCmd(o *options) *cobra.Command {
	in := &local.AgentRequest{}
	cmd := o.agentVerb("deregister", "end an agent's registration for good; its AIC is never used again", "/v1/agent/deregister", "is registered no more", in)
	cmd.Flags().StringVar(&in.Reason, "reason", "", "kept with the tombstone")
	return cmd
}

// agentVerb is a verb that asks the daemon one thing about one agent.
func (o *options) agentVerb(use, short, path, done string, in *local.AgentRequest) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Agent = o.agent
			var out local.AgentAnswer
			if err := c.Call(cmd.Context(), path, in, &out); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), out, func(w io.Writer) { fmt.Fprintf(w, "agent %s (%s) %s\n", out.Agent, out.AIC, done) })
		},
	}
}

func runCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "serve the enrolled agents until SIGINT or SIGTERM", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadAgent(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			return app.Run(cfg, os.Stderr)
		},
	}
}

func resolveCmd(o *options) *cobra.Command {
	var in local.ResolveRequest
	var budget time.Duration
	cmd := &cobra.Command{
		Use: "resolve TEXT", Short: "ask which agents can do something", Args: daemon.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Agent, in.Query.Text, in.BudgetMS = o.agent, strings.Join(args, " "), uint64(budget.Milliseconds())
			ctx, cancel := interruptible(cmd)
			defer cancel()
			var a semreq.Outcome
			if err := c.Call(ctx, "/v1/resolve", in, &a); err != nil {
				return err
			}
			if err := o.Print(cmd.OutOrStdout(), a, func(w io.Writer) { printAnswer(w, a) }); err != nil {
				return err
			}
			return daemon.Silent(a.Code, a.Status)
		},
	}
	f := cmd.Flags()
	f.Uint8Var(&in.Want, "want", semreq.DefaultWant, "results wanted")
	f.Uint8Var(&in.Breadth, "breadth", semreq.DefaultBreadth, "gateways that may be asked in all")
	f.BoolVar(&in.Parallel, "parallel", false, "ask at once, and beside an own match")
	f.BoolVar(&in.LocalOnly, "local", false, "ask the own gateway only")
	f.DurationVar(&budget, "budget", 0, "time that it may take (default: budget_ms of the agent)")
	f.Uint16Var(&in.Constraints.MinScore, "min-score", 0, "least score, per ten thousand (default: the gateways' bar)")
	f.StringSliceVar(&in.Constraints.AllowDomains, "allow-domain", nil, "only these domains may answer")
	f.StringSliceVar(&in.Constraints.DenyDomains, "deny-domain", nil, "these domains shall not see the request")
	f.StringSliceVar(&in.Query.Tags, "tag", nil, "tag that the capability must carry")
	return cmd
}

func printAnswer(w io.Writer, a semreq.Outcome) {
	for _, r := range a.Results {
		fmt.Fprintf(w, "%5.2f %%  %s\n         %s\n", float64(r.Score)/100, r.Skill.Name, r.Capability)
	}
	fmt.Fprintf(w, "%s over %d hop(s) in %.1f ms\n", a.Status, a.Hops, a.ElapsedMS)
	for _, r := range a.Reasons {
		fmt.Fprintf(w, "  %s: %s\n", or(r.Gateway, "a gateway further on"), r.Name)
	}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// taskDone is what `task run -o json` prints last.
type taskDone struct {
	Task   string          `json:"task"`
	State  json.RawMessage `json:"state"`
	Failed *local.Failure  `json:"failed,omitempty"`
}

func taskCmd(o *options) *cobra.Command {
	var in local.TaskRequest
	run := &cobra.Command{
		Use: "run PLAN.yaml", Short: "run a plan to its end, or with --resume go on with one that was cut short", Args: daemon.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (in.Resume != "") {
				return daemon.Usagef("give a plan, or --resume with the id of a task; usage: %s", cmd.UseLine())
			}
			if len(args) == 1 {
				plan, err := os.ReadFile(args[0])
				if err != nil {
					return &daemon.UsageError{Err: err}
				}
				in.Plan = string(plan)
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Agent = o.agent
			ctx, cancel := interruptible(cmd)
			defer cancel()
			return o.runTask(ctx, cmd.OutOrStdout(), c, in)
		},
	}
	run.Flags().StringVar(&in.Resume, "resume", "", "id of a task: what ended stays, what ran then runs again")
	return daemon.Group("task", "tasks that an agent has others do", run)
}

func (o *options) runTask(ctx context.Context, w io.Writer, c *control.Client, in local.TaskRequest) error {
	var done *taskDone
	told := false
	err := c.Stream(ctx, "/v1/tasks/run", in, func(line json.RawMessage) error {
		var e local.TaskEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Event == "done" {
			done = &taskDone{Task: e.Task, State: e.State, Failed: e.Failed}
			return nil
		}
		if !o.JSON() {
			if !told {
				fmt.Fprintf(w, "task %s\n", e.Task)
				told = true
			}
			printEvent(w, e)
		}
		return nil
	})
	if frame.CodeOf(err) == frame.Cancelled {
		return frame.Errorf(frame.Cancelled, "you stopped it: the task is cancelled, with what had not ended")
	}
	if err != nil {
		return err
	}
	if done == nil {
		return frame.Errorf(frame.UpstreamFailed, "the daemon ended before the task did; `agentd task run --resume ID` goes on with it")
	}
	if err := o.Print(w, done, func(w io.Writer) { printTask(w, done) }); err != nil {
		return err
	}
	if done.Failed != nil {
		return daemon.Silent(done.Failed.Code, done.Failed.Message)
	}
	return nil
}

// subtask is what people are told of one.
type subtask struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	AgentName string `json:"agent_name"`
	Hops      int    `json:"hops"`
	ElapsedMS int64  `json:"elapsed_ms"`
	Reason    *local.Failure
}

func printEvent(w io.Writer, e local.TaskEvent) {
	var s subtask
	if json.Unmarshal(e.Subtask, &s) != nil {
		return
	}
	switch e.Event {
	case "started":
		fmt.Fprintf(w, "%s: looking for an agent\n", s.Name)
	case "progress":
		fmt.Fprintf(w, "%s: %s\n", s.Name, or(e.Note, "goes on"))
	case "ended":
		fmt.Fprintf(w, "%s: %s in %d ms", s.Name, s.Status, s.ElapsedMS)
		if s.AgentName != "" {
			fmt.Fprintf(w, " by %s, %d hop(s) away", s.AgentName, s.Hops)
		}
		if s.Reason != nil {
			fmt.Fprintf(w, ": %s (%s)", s.Reason.Message, s.Reason.Code)
		}
		fmt.Fprintln(w)
	}
}

func printTask(w io.Writer, done *taskDone) {
	var s struct {
		TaskContext json.RawMessage `json:"TaskContext"`
	}
	if json.Unmarshal(done.State, &s) != nil {
		return
	}
	pretty, err := json.MarshalIndent(s.TaskContext, "", "  ")
	if err == nil {
		fmt.Fprintf(w, "\nTaskContext %s\n", pretty)
	}
	if done.Failed != nil {
		fmt.Fprintf(w, "failed: %s (%s)\n", done.Failed.Message, done.Failed.Code)
	}
}

func statusCmd(o *options) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "status", Short: "how the running daemon and its agents stand", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			s, err := control.Await(cmd.Context(), c, "/v1/status", wait, func(s local.Status) string {
				for _, a := range s.Agents {
					if !a.Attached || a.Backend == "stopped" {
						return "agent " + a.Name + " is not ready: " + or(a.Error, "its program does not run"+because(a.BackendError))
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
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long for the daemon to answer and for every agent to be attached")
	return cmd
}

func printStatus(w io.Writer, s local.Status) {
	fmt.Fprintf(w, "version  %s\nlisten   %s\nup       %s\naudit    %s\n", s.Version, s.Listen, time.Duration(s.UptimeS)*time.Second, s.Audit)
	for _, a := range s.Agents {
		fmt.Fprintf(w, "\n%s  %s\n  gateway   %s (%s)\n  attached  %s\n  program   %s%s\n  sessions  %d\n  valid     until %s\n",
			a.Name, a.AIC, a.Gateway, a.Domain, attached(a), a.Backend, because(a.BackendError), a.Sessions, a.CredentialUntil.Format(time.RFC3339))
	}
}

// because is a reason after what it is the reason of, empty for none.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func attached(a local.AgentStatus) string {
	if a.Attached {
		return "yes"
	}
	return "no: " + or(a.Error, "not yet")
}
