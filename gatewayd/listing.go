package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/directory/filter"
	"agentgw/directory/taxonomy"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
)

// pages asks for one page after the other until each says that there is none, or the operator's limit is reached.
func pages[P any](cmd *cobra.Command, c *control.Client, path string, r admin.AgentsRequest, limit int, each func(*P) (next string, rows int, err error)) (next string, err error) {
	for got := 0; ; {
		if r.Limit = admin.MaxPage; limit > 0 {
			r.Limit = min(limit-got, admin.MaxPage)
		}
		page := new(P)
		if err := c.Call(cmd.Context(), path, r, page); err != nil {
			return "", err
		}
		next, rows, err := each(page)
		if got += rows; err != nil || next == "" || limit > 0 && got >= limit {
			return next, err
		}
		r.After = next
	}
}

func listAgentsCmd(o *options) *cobra.Command {
	var in admin.AgentsRequest
	cmd := &cobra.Command{
		Use: "list", Short: "all agents, in the order of their AICs", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			rows := []admin.AgentRow{}
			next, err := pages(cmd, c, "/v1/agents", in, in.Limit, func(p *admin.AgentsPage) (string, int, error) {
				rows = append(rows, p.Agents...)
				return p.Next, len(p.Agents), nil
			})
			if err != nil {
				return err
			}
			if err := o.Print(cmd.OutOrStdout(), rows, func(w io.Writer) { printAgents(w, rows) }); err != nil || next == "" {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "more follow: --after %s\n", next)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Vendor, "vendor", "", "only those of one vendor code")
	f.StringVar(&in.State, "state", "", "only those in one state: ACTIVE, SUSPENDED, DEPRECATED, PENDING")
	f.StringVar(&in.After, "after", "", "begin behind this AIC")
	f.IntVar(&in.Limit, "limit", 0, "at most so many (default: all)")
	return cmd
}

func printAgents(w io.Writer, rows []admin.AgentRow) {
	t := table(w, "AIC", "NAME", "STATE", "ATTACHED", "VISIBILITY", "SKILLS")
	for _, r := range rows {
		where := attached(r.Attached, r.Imported)
		if r.MovedTo != "" {
			where = "moved"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.AIC, r.Name, r.State, where, r.Visibility, strings.Join(r.Skills, " "))
	}
	t.Flush()
}

// attached says whether an agent is attached, or why it never will be.
func attached(is, imported bool) string {
	if imported {
		return "imported"
	}
	return strconv.FormatBool(is)
}

func searchAgentsCmd(o *options) *cobra.Command {
	in := admin.MatchRequest{Offline: true}
	var expression string
	cmd := &cobra.Command{
		Use: "search [TEXT]", Short: "search the directory by text, class, tag or filter, offline agents too", Args: daemon.Args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFilter(expression); err != nil {
				return err
			}
			warnOfClasses(cmd.ErrOrStderr(), in.Ask.Query.Classes)
			c, err := o.client()
			if err != nil {
				return err
			}
			in.Ask.Query.Text, in.Ask.Query.Filter = strings.Join(args, " "), json.RawMessage(expression)
			var m admin.Match
			if err := c.Call(cmd.Context(), "/v1/match", in, &m); err != nil {
				return err
			}
			return o.Print(cmd.OutOrStdout(), m, func(w io.Writer) { printFound(w, m) })
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&in.Ask.Query.Classes, "class", nil, "classes of the taxonomy (OASF), by path or id")
	f.StringSliceVar(&in.Ask.Query.Tags, "tag", nil, "tags that a skill must have")
	f.StringVar(&expression, "filter", "", `ADP filter expression, such as {"conditions":[{"field":"provider.countryCode","op":"eq","value":"DE"}]}`)
	f.Uint8Var(&in.Ask.Want, "limit", 20, "at most so many, up to 20")
	f.StringVar(&in.After, "after", "", "continue an earlier search, as it said")
	return cmd
}

// checkFilter names what is wrong with a filter before it is sent.
func checkFilter(expression string) error {
	if expression == "" {
		return nil
	}
	if _, err := filter.Parse([]byte(expression)); err != nil {
		return daemon.Usagef("--filter: %w", err)
	}
	return nil
}

// warnOfClasses tells of classes that nothing is filed under, unless by somebody with a newer taxonomy.
func warnOfClasses(w io.Writer, classes []string) {
	for _, c := range classes {
		if _, ok := taxonomy.Find(c); ok {
			continue
		}
		meant := "name one by its path or the id of a skill's"
		if path, ok := taxonomy.Nearest(c); ok {
			meant = fmt.Sprintf("did you mean %q?", path)
		}
		fmt.Fprintf(w, "%s has no class %q: %s\n", taxonomy.Version, c, meant)
	}
}

func printFound(w io.Writer, m admin.Match) {
	t := table(w, "CONFIDENCE", "SKILL", "AGENT", "ATTACHED", "CAPABILITY")
	for _, c := range m.Candidates {
		fmt.Fprintf(t, "%.1f %%\t%s\t%s\t%s\t%s\n", float64(c.Confidence)/100, c.Name, c.Agent, attached(!c.Offline, c.Imported), c.Capability)
	}
	t.Flush()
	if m.Next != "" {
		fmt.Fprintf(w, "more may follow: --after %s\n", m.Next)
	}
}

func exportAgentsCmd(o *options) *cobra.Command {
	var in admin.AgentsRequest
	var file string
	cmd := &cobra.Command{
		Use: "export", Short: "write every entry as JSON, one a line: the specification and what the gateway keeps beside it", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			c, err := o.client()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if file != "" {
				f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
				if err != nil {
					return daemon.Usagef("--file: %w", err)
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				out = f
			}
			enc := json.NewEncoder(out)
			enc.SetEscapeHTML(false)
			_, err = pages(cmd, c, "/v1/agents/export", in, 0, func(p *admin.ExportPage) (string, int, error) {
				for _, e := range p.Entries {
					if err := enc.Encode(e); err != nil {
						return "", 0, err
					}
				}
				return p.Next, len(p.Entries), nil
			})
			return err
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "new file to write (default: standard output)")
	cmd.Flags().StringVar(&in.State, "state", "", "only those in one state")
	return cmd
}
