package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
)

// keysCmd is about the signing keys that the trust bundle publishes.
func keysCmd(o *options) *cobra.Command {
	rotate := &cobra.Command{
		Use: "rotate", Short: "replace every signing key: the next ones are published now and sign when everybody can have read of them",
		Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			if err := c.Call(cmd.Context(), "/v1/keys/rotate", admin.None{}, &admin.None{}); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), admin.None{}, func(w io.Writer) { fmt.Fprintln(w, "the next keys are published") })
		},
	}
	return daemon.Group("keys", "signing keys of this gateway and its AMC", rotate)
}
