package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/daemon"
)

func clusterCmd(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "several gateways of one domain"}
	var out string
	key := &cobra.Command{
		Use: "key --out FILE", Short: "make a file with a key of the gossip, for every gateway of the domain", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return daemon.Usagef("--out is due: the file that `cluster.keys` names")
			}
			if err := app.NewClusterKey(out); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has a new key: it is the same at every gateway of the domain, and nobody else may read it\n", out)
			return nil
		},
	}
	key.Flags().StringVar(&out, "out", "", "file, which must not be there yet")
	cmd.AddCommand(key)
	return cmd
}

func membersCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "members", Short: "the gateways of the own domain that are alive", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var rows []admin.Member
			if err := c.Call(cmd.Context(), "/v1/members", admin.None{}, &rows); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), rows, func(w io.Writer) {
				t := table(w, "GATEWAY", "ADDRESSES", "SESSION", "DIGESTS")
				for _, m := range rows {
					session := m.Session
					switch {
					case m.Self:
						session = "itself"
					case session == "":
						session = "not connected"
					}
					if m.Lame {
						session += ", takes nothing new (drained, or about to stop)"
					}
					fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", m.Gateway, strings.Join(m.Addresses, " "), session, m.Entries)
				}
				t.Flush()
			})
		},
	}
}
