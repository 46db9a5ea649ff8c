package daemon

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentgw/internal/control"
)

// CLI is the frame of a daemon's command line: the flags that every verb has.
type CLI struct {
	Output
	Config  string // --config
	Control string // --control
	name    string
}

// NewCLI makes the root command of a daemon.
func NewCLI(name, short string) (*CLI, *cobra.Command) {
	c := &CLI{name: name}
	root := &cobra.Command{Use: name, Short: short}
	f := root.PersistentFlags()
	f.StringVarP(&c.format, "output", "o", "text", "text or json")
	f.StringVar(&c.Config, "config", name+".yaml", "configuration file")
	f.StringVar(&c.Control, "control", "", "control socket of the running daemon (default: the one of the configuration)")
	root.AddCommand(c.version())
	return c, root
}

// Client is a client of the running daemon's control socket; configured finds the socket's path in the configuration.
func (c *CLI) Client(configured func(file string) (path string, err error)) (*control.Client, error) {
	if c.Control != "" {
		return control.NewClient(c.Control), nil
	}
	path, err := configured(c.Config)
	if err != nil {
		return nil, &UsageError{fmt.Errorf("%w\n(or name the socket with --control)", err)}
	}
	return control.NewClient(path), nil
}

func (c *CLI) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the version", Args: Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.Print(cmd.OutOrStdout(), map[string]string{"version": Version()}, func(w io.Writer) {
				fmt.Fprintln(w, VersionLine(c.name))
			})
		},
	}
}
