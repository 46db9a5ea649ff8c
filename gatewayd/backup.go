package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/daemon"
)

// backupCmd has the running gateway write a backup.
func backupCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "have the running gateway write its directory into a file", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			file, err := filepath.Abs(args[0]) // the daemon has another working folder
			if err != nil {
				return err
			}
			var done admin.BackupAnswer
			if err := c.Call(cmd.Context(), "/v1/backup", admin.BackupRequest{File: file}, &done); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %d octets, sha256 %s\nit covers %d records of the audit log; copy that log and the state folder's files too\n",
					done.File, done.Octets, done.SHA256, done.AuditCount)
			})
		},
	}
}

// restoreCmd makes the directory of a stopped gateway from a backup.
func restoreCmd(o *options) *cobra.Command {
	var in app.RestoreOptions
	cmd := &cobra.Command{
		Use: "restore [FILE]", Short: "make the directory of a stopped gateway from a backup; what was there is moved aside",
		Args: daemon.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			if len(args) == 1 {
				in.File = args[0]
			} else if !in.AcceptLost && in.Audit == "" {
				return daemon.Usagef("name the backup to restore; without one, --audit or --accept-lost-revocations is due")
			}
			done, err := app.Restore(cfg, in, offlineLog())
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) { printRestore(w, done) })
		},
	}
	cmd.Flags().StringVar(&in.Audit, "audit", "", "folder of the audit log that was written up to the loss (default: audit in the state folder)")
	cmd.Flags().BoolVar(&in.AcceptLost, "accept-lost-revocations", false, "serve although the audit log does not tell what was revoked since the backup")
	return cmd
}

func printRestore(w io.Writer, r *app.RestoreResult) {
	if r.Restored {
		fmt.Fprintf(w, "restored the directory of %s\n", r.Created.Format(time.RFC3339))
	}
	if r.Before != "" {
		fmt.Fprintf(w, "the one that was there is in %s: delete it when all is well%s\n", r.Before, map[bool]string{true: ", it is not encrypted"}[r.BeforePlain])
	}
	if r.AuditBefore != "" {
		fmt.Fprintf(w, "the audit log that was there is in %s\n", r.AuditBefore)
	}
	if r.Accepted {
		fmt.Fprintln(w, "accepted: what the audit log does not tell of the time since is lost, revocations too")
	}
	if r.Missing != "" {
		fmt.Fprintf(w, "the gateway will not serve yet: %s\n", r.Missing)
		return
	}
	fmt.Fprintln(w, "the gateway catches up with its audit log when it starts")
}
