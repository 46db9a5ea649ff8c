package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

// offlineLog is for verbs that open the state folder themselves.
func offlineLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// auditCmd is about the audit log.
func auditCmd(o *options) *cobra.Command {
	return daemon.Group("audit", "the audit log", auditVerifyCmd(o), auditShowCmd(o))
}

func auditVerifyCmd(o *options) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "verify", Short: "prove that the audit log is what the gateway wrote: nothing changed, moved or missing", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			if dir == "" {
				dir = app.AuditDir(cfg)
			}
			running, err := o.auditState(cmd, cfg)
			if err != nil {
				return err
			}
			report, err := app.VerifyAudit(cfg, dir, running, offlineLog())
			if err != nil {
				return err
			}
			if err := o.Print(cmd.OutOrStdout(), report, func(w io.Writer) { printAudit(w, report) }); err != nil {
				return err
			}
			if !report.OK {
				return &daemon.SilentError{Err: fmt.Errorf("audit log: %s", report.Damage.What)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder of the log, or of a copy (default: audit in the state folder)")
	return cmd
}

// auditState asks the running gateway; nil when none runs.
func (o *options) auditState(cmd *cobra.Command, cfg *config.Gateway) (*admin.AuditState, error) {
	socket := cfg.Control
	if o.Control != "" {
		socket = o.Control
	}
	var s admin.AuditState
	err := control.NewClient(socket).Call(cmd.Context(), "/v1/audit", admin.None{}, &s)
	if frame.CodeOf(err) == frame.UpstreamFailed {
		return nil, nil
	}
	return &s, err
}

func printAudit(w io.Writer, r *app.AuditReport) {
	if d := r.Damage; d != nil {
		fmt.Fprintf(w, "the audit log in %s is DAMAGED\n", r.Dir)
		if d.File != "" {
			fmt.Fprintf(w, "%s, line %d: ", d.File, d.Line)
		}
		fmt.Fprintf(w, "%s\nkeep the folder as evidence", d.What)
		if !r.Copy {
			fmt.Fprint(w, ": stop the gateway, move the folder away, and start; a new log is begun")
		}
		fmt.Fprintln(w)
		return
	}
	if r.Later > 0 {
		fmt.Fprintf(w, "the copy ends at record %d of %s, the gateway's log is at %d: THE END OF THE COPY IS NOT PROVED\n"+
			"nothing is missing if the copy was taken at that time; if it was taken later, its end was cut\nup to there it is ",
			r.Report.Records, r.Report.LastAt.Format(time.RFC3339), r.Later)
	}
	fmt.Fprintf(w, "ok: %d records in %d file(s), %d checkpoints, compared with %s\n", r.Report.Records, r.Report.Files, r.Report.Checkpoints, r.Against)
	if r.Report.Began != nil {
		fmt.Fprintf(w, "%v\n", r.Report.Began)
	}
	if !r.Report.SealedAt.IsZero() {
		fmt.Fprintf(w, "records up to %d are sealed by a checkpoint of %s\n", r.Report.Sealed, r.Report.SealedAt.Format(time.RFC3339))
	}
}

func auditShowCmd(o *options) *cobra.Command {
	var since uint64
	var kind, dir string
	cmd := &cobra.Command{
		Use: "show", Short: "print records of the audit log", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				cfg, err := config.LoadGateway(o.Config)
				if err != nil {
					return &daemon.UsageError{Err: err}
				}
				dir = app.AuditDir(cfg)
			}
			out := cmd.OutOrStdout()
			lines := json.NewEncoder(out)
			return app.ShowAudit(dir, max(since, 1)-1, kind, func(r app.AuditRow) error {
				if o.JSON() {
					return lines.Encode(r)
				}
				_, err := fmt.Fprintf(out, "%d  %s  %s  %s\n", r.N, r.Time.Format(time.RFC3339), r.Kind, r.Data)
				return err
			})
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&since, "since", 1, "number of the first record")
	f.StringVar(&kind, "kind", "", "only records of this kind, such as credential.revoked or checkpoint")
	f.StringVar(&dir, "dir", "", "folder of the log, or of a copy (default: audit in the state folder)")
	return cmd
}
