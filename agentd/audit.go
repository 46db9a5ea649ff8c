package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"agentgw/agentd/internal/app"
	"agentgw/agentd/internal/local"
	"agentgw/config"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

// auditCmd is about the audit log of this daemon.
func auditCmd(o *options) *cobra.Command {
	verify := &cobra.Command{
		Use: "verify", Short: "prove that no line of the audit log was changed, moved or removed", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadAgent(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			socket := cfg.Control
			if o.Control != "" {
				socket = o.Control
			}
			running := new(local.AuditHead)
			err = control.NewClient(socket).Call(cmd.Context(), "/v1/audit", struct{}{}, running)
			if frame.CodeOf(err) == frame.UpstreamFailed { // it does not run
				running, err = nil, nil
			}
			if err != nil {
				return err
			}
			r, err := app.VerifyAudit(cfg, running, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				return err
			}
			if err := o.Print(cmd.OutOrStdout(), r, func(w io.Writer) {
				if r.OK {
					fmt.Fprintf(w, "ok: %d records in %d file(s)\n", r.Report.Records, r.Report.Files)
					if r.Report.Began != nil {
						fmt.Fprintf(w, "%v\n", r.Report.Began)
					}
				} else {
					fmt.Fprintf(w, "DAMAGED: %v\nkeep the folder %s as evidence: stop agentd, move the folder away, and start; a new log is begun\n", r.Damage, r.Dir)
				}
			}); err != nil || r.OK {
				return err
			}
			return &daemon.SilentError{Err: r.Damage}
		},
	}
	return daemon.Group("audit", "the audit log of this daemon", verify)
}
