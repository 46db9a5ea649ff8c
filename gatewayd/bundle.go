package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/daemon"
)

func bundleCmd(o *options) *cobra.Command {
	return daemon.Group("bundle", "trust bundles as files", exportCmd(o), showCmd(o), importCmd(o))
}

func exportCmd(o *options) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "export [--out FILE]", Short: "write this domain's own bundle, to be handed to peers; it holds public keys only", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			raw, err := app.ExportBundle(cfg)
			if err != nil {
				return err
			}
			if out == "" || out == "-" {
				_, err = cmd.OutOrStdout().Write(raw)
				return err
			}
			if err := renameio.WriteFile(out, raw, 0o644); err != nil {
				return fmt.Errorf("write the bundle: %w", err)
			}
			v, err := app.ShowBundle(out)
			if err != nil {
				return err
			}
			return o.Print(os.Stderr, v, func(w io.Writer) {
				fmt.Fprintf(w, "bundle of %s written to %s\nfingerprint %s\n", v.Domain, out, v.Fingerprint)
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "file to write (default: standard output)")
	return cmd
}

func showCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show FILE", Short: "what a bundle file says", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := app.ShowBundle(args[0])
			if err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), v, func(w io.Writer) { printBundle(w, v) })
		},
	}
}

func printBundle(w io.Writer, v *app.BundleView) {
	fmt.Fprintf(w, "domain       %s\nissuer       %s\nseq          %d\nissued       %s\nprefixes     %s\nfingerprint  %s\n\n",
		v.Domain, v.Issuer, v.Seq, v.Issued.Format(time.RFC3339), strings.Join(v.Prefixes, " "), v.Fingerprint)
	for _, s := range v.Siblings {
		fmt.Fprintf(w, "other AMC    %s, signed by %s\n", s.Issuer, s.Fingerprint)
	}
	if len(v.Siblings) > 0 {
		fmt.Fprintln(w)
	}
	t := table(w, "KEY", "USE", "OWNER", "FROM", "UNTIL")
	for _, k := range v.Keys {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", k.ID, k.Use, k.Owner, k.NotBefore.Format(time.RFC3339), k.NotAfter.Format(time.RFC3339))
	}
	t.Flush()
	fmt.Fprintln(w)
	t = table(w, "ROOT", "UNTIL", "SHA-256")
	for _, r := range v.Roots {
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Subject, r.NotAfter.Format(time.RFC3339), r.SHA256)
	}
	t.Flush()
}

func importCmd(o *options) *cobra.Command {
	var fingerprint string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "renew a configured peer's bundle; the one held must vouch for it", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := config.LoadGateway(o.Config)
			if err != nil {
				return &daemon.UsageError{Err: err}
			}
			done, err := app.ImportBundle(cfg, args[0], fingerprint)
			if err != nil {
				return err
			}
			if done.Changed {
				if done.Running, err = o.reload(cmd, cfg); err != nil {
					return err
				}
			}
			return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
				if !done.Changed {
					fmt.Fprintf(w, "the bundle of %s is there already\n", done.Domain)
					return
				}
				fmt.Fprintf(w, "bundle %d of %s is in %s\nit is signed by %s\n", done.Seq, done.Domain, done.File, done.Fingerprint)
			})
		},
	}
	cmd.Flags().StringVar(&fingerprint, "fingerprint", "", "sha256:… of the key that signed it, as its operator told you")
	return cmd
}
