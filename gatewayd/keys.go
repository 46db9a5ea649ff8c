package main

import (
	"fmt"
	"io"
	"time"

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
			return o.Print(cmd.OutOrStdout(), admin.None{}, func(w io.Writer) {
				fmt.Fprintln(w, "the next keys are published; `gatewayd keys list` says when they take over")
			})
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "which keys sign, since when the next ones are published, and when they take over", Args: daemon.Args(cobra.NoArgs),
		RunE: show(o, "/v1/keys", printKeys),
	}
	return daemon.Group("keys", "signing keys of this gateway and its AMC", list, rotate)
}

func printKeys(w io.Writer, rows []admin.KeyRow) {
	t := table(w, "USE", "KEY", "STATE", "PUBLISHED", "THEN")
	for _, k := range rows {
		since, then := "not yet: the AMC has not taken it", map[string]string{"signs": "until the next one takes over"}[k.State]
		if k.Published != nil {
			since = k.Published.Format(time.RFC3339)
		}
		if k.Then != nil {
			then = map[string]string{"signs": "replaced from ", "next": "signs from ", "replaced": "counts until "}[k.State] + k.Then.Format(time.RFC3339)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", k.Use, k.Key, k.State, since, then)
	}
	t.Flush()
}
