package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/daemon"
)

func siblingCmd(o *options) *cobra.Command {
	ls := &cobra.Command{
		Use: "list", Short: "the other AMCs of the domain and how this one is attached to them", Args: daemon.Args(cobra.NoArgs),
		RunE: show(o, "/v1/status", func(w io.Writer, s admin.Status) {
			t := table(w, "ISSUER", "ADDRESS", "STATE", "BUNDLE")
			for _, r := range s.Siblings {
				fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", r.Issuer, r.Address, r.State, r.Seq)
			}
			t.Flush()
		}),
	}
	return daemon.Group("sibling", "other AMCs of this domain", siblingAddCmd(o), ls, siblingRemoveCmd(o))
}

func siblingAddCmd(o *options) *cobra.Command {
	var in app.SiblingOptions
	cmd := &cobra.Command{
		Use: "add --bundle FILE --address HOST:PORT", Short: "name another AMC of this domain: who trusts this one believes it too; do the same there", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.changeSibling(cmd, func(cfg *config.Gateway) (*app.SiblingResult, error) { return app.AddSibling(cfg, in) },
				"AMC %s is named in %s: say the same of this AMC there (gatewayd sibling add), else it does not let this one in\n")
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Bundle, "bundle", "", "the other AMC's bundle file (bundle.cbor of its state folder)")
	f.StringVar(&in.Fingerprint, "fingerprint", "", "sha256:… of the key that signed it, as its operator told you")
	f.StringVar(&in.Address, "address", "", "host:port where it listens")
	cmd.MarkFlagRequired("bundle")
	cmd.MarkFlagRequired("address")
	return cmd
}

func siblingRemoveCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "remove ISSUER", Short: "name an AMC no more: who knew it by this one's word only believes it no more", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeSibling(cmd, func(cfg *config.Gateway) (*app.SiblingResult, error) { return app.RemoveSibling(cfg, args[0]) },
				"AMC %s is named no more (%s)\n")
		},
	}
}

// changeSibling changes the files and has a running AMC read them.
func (o *options) changeSibling(cmd *cobra.Command, change func(*config.Gateway) (*app.SiblingResult, error), text string) error {
	cfg, err := config.LoadGateway(o.Config)
	if err != nil {
		return &daemon.UsageError{Err: err}
	}
	done, err := change(cfg)
	if err != nil {
		return err
	}
	if done.Running, err = o.reload(cmd, cfg); err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
		fmt.Fprintf(w, text, done.Issuer, done.File)
		if !done.Running {
			fmt.Fprintln(w, "no AMC is running on this configuration; it will be used at the next start")
		}
	})
}
