package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

// caCmd is about the domain's certification authority.
func caCmd(o *options) *cobra.Command {
	return daemon.Group("ca", "the domain's certification authority: its root may be kept on a machine of its own",
		caRootCmd(o), caIntermediateCmd(o), caCRLCmd(o), caInstallCmd(o), caRemoveCmd(o), caNewRootCmd(o), caRotateCmd(o))
}

func caRootCmd(o *options) *cobra.Command {
	var domain, dir string
	cmd := &cobra.Command{
		Use: "root --domain NAME --out DIR", Short: "make a root and its key; needs no gateway", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := app.MakeRoot(domain, dir)
			return o.showCA(cmd, done, err, "keep ca-root.key here; give ca-root.pem to the gateway: gatewayd ca install ca-root.pem")
		},
	}
	f := cmd.Flags()
	f.StringVar(&domain, "domain", "", "the domain that it is for")
	f.StringVar(&dir, "out", "", "folder that gets ca-root.key and ca-root.pem")
	return required(cmd, "domain", "out")
}

func caIntermediateCmd(o *options) *cobra.Command {
	var in app.IssuingOptions
	cmd := &cobra.Command{
		Use: "intermediate --csr FILE", Short: "sign a gateway's request for an issuing CA with the root; needs no gateway", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := app.SignIssuing(in)
			return o.showCA(cmd, done, err, "bring it to the gateway: gatewayd ca install "+in.Out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.CSR, "csr", "", "the request, ca-issuing-next.csr of the gateway's state folder")
	f.StringVar(&in.Root, "root", "", "the root's certificate")
	f.StringVar(&in.RootKey, "root-key", "", "the root's key")
	f.StringVar(&in.Out, "out", "", "file for the certificate")
	f.StringVar(&in.PKIURL, "pki-url", "", "amc.pki_url of the gateway, where it has one")
	f.DurationVar(&in.Life, "life", 0, "life of the issuing CA (default 8760h)")
	return required(cmd, "csr", "root", "root-key", "out")
}

func caCRLCmd(o *options) *cobra.Command {
	var in app.RootCRLOptions
	cmd := &cobra.Command{
		Use: "root-crl --out FILE", Short: "sign the root's CRL, which says which issuing CAs are revoked; needs no gateway", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			done, err := app.SignRootCRL(in)
			return o.showCA(cmd, done, err, "bring it to the gateway: gatewayd ca install "+in.Out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Root, "root", "", "the root's certificate")
	f.StringVar(&in.RootKey, "root-key", "", "the root's key")
	f.StringVar(&in.Out, "out", "", "file for the CRL")
	f.StringSliceVar(&in.Revoke, "revoke", nil, "certificates of issuing CAs that are revoked, all of them in each CRL")
	f.DurationVar(&in.Life, "life", 180*24*time.Hour, "how long it counts")
	return required(cmd, "root", "root-key", "out")
}

func caInstallCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "install FILE", Short: "take what the root's owner has signed: an issuing CA, a further root, or a root's CRL", Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeCA(cmd, func(cfg *config.Gateway) (*app.CAResult, error) { return app.InstallCA(cfg, args[0]) }, "")
		},
	}
}

func caRemoveCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "remove FINGERPRINT", Short: "take a root away again that signs no issuing CA in use; its key in the state folder goes too",
		Long: "Takes a root out of the domain's bundle that was installed or made by mistake, or that is done with before its end. FINGERPRINT is the SHA-256\n" +
			"of its certificate, as `gatewayd ca install` printed it and `gatewayd bundle show` lists it.",
		Args: daemon.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.changeCA(cmd, func(cfg *config.Gateway) (*app.CAResult, error) { return app.RemoveRoot(cfg, args[0]) }, "")
		},
	}
}

func caNewRootCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "new-root", Short: "begin to replace the root: bundles name both, and the next issuing CA is the new one's", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.changeCA(cmd, app.NewRoot, "its key lies beside it: move it away to keep the root offline")
		},
	}
}

func caRotateCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "rotate", Short: "follow the issuing CA up now, as the gateway does by itself in time", Args: daemon.Args(cobra.NoArgs),
		RunE: show(o, "/v1/ca/rotate", func(w io.Writer, events []admin.CAEvent) {
			if len(events) == 0 {
				fmt.Fprintln(w, "the next issuing CA is ready, and its root is too new: it takes over when everybody can know it")
			}
			for _, e := range events {
				fmt.Fprintf(w, "%s: %s until %s %s\n", e.Action, e.Name, e.Until.Format(time.RFC3339), e.File)
			}
		}),
	}
}

func required(cmd *cobra.Command, flags ...string) *cobra.Command {
	for _, f := range flags {
		_ = cmd.MarkFlagRequired(f) // fails for flags that are not there
	}
	return cmd
}

// changeCA changes the CA's folder and has a running gateway read it again.
func (o *options) changeCA(cmd *cobra.Command, change func(*config.Gateway) (*app.CAResult, error), then string) error {
	cfg, err := config.LoadGateway(o.Config)
	if err != nil {
		return &daemon.UsageError{Err: err}
	}
	if !cfg.HasRole(config.RoleAMC) {
		return daemon.Usagef("%s has no role amc: the domain's CA is on the AMC's host", o.Config)
	}
	done, err := change(cfg)
	if err == nil {
		err = control.NewClient(or(o.Control, cfg.Control)).Call(cmd.Context(), "/v1/ca/reload", admin.None{}, &admin.None{})
		if done.Running = err == nil; frame.CodeOf(err) == frame.UpstreamFailed { // none runs: it counts at the next start
			err = nil
		} else if err != nil {
			err = fmt.Errorf("the files are written, but the running gateway does not take them: %w", err)
		}
	}
	return o.showCA(cmd, done, err, then)
}

func (o *options) showCA(cmd *cobra.Command, done *app.CAResult, err error, then string) error {
	if err != nil {
		return err
	}
	return o.Print(cmd.OutOrStdout(), done, func(w io.Writer) {
		fmt.Fprintf(w, "%s\nvalid until %s\n", strings.TrimSpace(done.What+" "+done.Name), done.Until.Format(time.RFC3339))
		if done.File != "" {
			fmt.Fprintln(w, "in", done.File)
		}
		if done.Fingerprint != "" {
			fmt.Fprintln(w, "fingerprint", done.Fingerprint)
		}
		if then != "" {
			fmt.Fprintln(w, then)
		}
	})
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
