package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
)

func checkAgentsCmd(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "compare what the running gateway has at hand, index and all, with what its directory has on the disk", Args: daemon.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client()
			if err != nil {
				return err
			}
			var r admin.DirectoryCheck
			if err := c.Call(cmd.Context(), "/v1/agents/check", admin.None{}, &r); err != nil {
				return err
			}
			if err := o.Print(cmd.OutOrStdout(), r, func(w io.Writer) {
				for _, p := range r.Problems {
					fmt.Fprintln(w, p)
				}
				fmt.Fprintf(w, "%d entries with %d capabilities at change %d, loaded from %s: %d problems\n", r.Entries, r.Capabilities, r.Sequence, r.Loaded, len(r.Problems))
			}); err != nil {
				return err
			}
			if len(r.Problems) > 0 {
				return errors.New("the directory at hand is not what is on the disk: restart the gateway, and keep its log")
			}
			return nil
		},
	}
}

func importAgentsCmd(o *options) *cobra.Command {
	var update bool
	cmd := &cobra.Command{
		Use: "import FILE", Short: "have the running gateway take entries as `agents export` writes them, JSON lines; - is standard input", Args: daemon.Args(cobra.ExactArgs(1)),
		Long: "Takes entries of this domain into the directory, by the checks of a registration, each line for itself. An imported agent can be found; it has no\n" +
			"credential, so it cannot attach, and nobody can have a session with it: an agent that is to be reached enrols, under an AIC of its own.\n" +
			"Taken are the specification, visibility, allowed domains, authorised skills, expiry, and the states ACTIVE and DEPRECATED. A second import of the\n" +
			"same file changes nothing. Rejected lines are told on stderr, and make the exit code 1; warnings are told there too, and do not.",
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return daemon.Usagef("open the file: %w", err)
				}
				defer f.Close()
				in = f
			}
			c, err := o.client()
			if err != nil {
				return err
			}
			i := &importer{cmd: cmd, client: c, told: time.Now(), request: admin.ImportRequest{File: args[0], Update: update}}
			err = i.run(in)
			i.done.Seconds = time.Since(i.began).Seconds()
			if err := errors.Join(err, o.Print(cmd.OutOrStdout(), i.done, func(w io.Writer) {
				fmt.Fprintf(w, "%d lines in %.1f s: %d registered, %d updated, %d unchanged, %d rejected, %d warnings\n",
					i.done.Lines, i.done.Seconds, i.done.Registered, i.done.Updated, i.done.Unchanged, i.done.Rejected, i.done.Warnings)
			})); err != nil {
				return err
			}
			if i.done.Rejected > 0 {
				return &daemon.SilentError{Err: fmt.Errorf("%d lines were rejected", i.done.Rejected)}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&update, "update", false, "replace the content of entries that are there with other content")
	return cmd
}

// importSummary is what an import prints at its end.
type importSummary struct {
	Lines      int     `json:"lines"` // blank ones apart
	Registered int     `json:"registered"`
	Updated    int     `json:"updated"`
	Unchanged  int     `json:"unchanged"`
	Rejected   int     `json:"rejected"`
	Warnings   int     `json:"warnings"`
	Seconds    float64 `json:"seconds"`
}

// importer sends the lines of a file in calls of bounded size. It holds one call's lines at a time.
type importer struct {
	cmd     *cobra.Command
	client  *control.Client
	request admin.ImportRequest
	size    int // octets of the request's lines
	done    importSummary
	began   time.Time
	told    time.Time
}

// tellEvery is the pause between two lines of progress.
const tellEvery = 2 * time.Second

func (i *importer) run(in io.Reader) error {
	i.began = time.Now()
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		line, long, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read line %d: %w", n, err)
		}
		if len(line) > 0 || long {
			if err := i.take(n, line, long); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return i.send()
		}
	}
}

// readLine is the next line without the space around it. Of one that is too long nothing is kept. At the end the error is io.EOF.
func readLine(r *bufio.Reader) (line []byte, long bool, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if long = long || len(line)+len(piece) > admin.MaxImportLine; long {
			line = nil
		} else {
			line = append(line, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), long, err
		}
	}
}

func (i *importer) take(n int, line []byte, long bool) error {
	i.done.Lines++
	switch {
	case long:
		i.reject(admin.RejectedLine{Line: n, Why: fmt.Sprintf("more than %d octets; no entry is as long", admin.MaxImportLine)})
		return nil
	case !json.Valid(line):
		i.reject(admin.RejectedLine{Line: n, Why: "it is no JSON; a line is as `gatewayd agents export` writes it"})
		return nil
	}
	if i.size+len(line) > admin.ImportBatch || len(i.request.Lines) == admin.MaxImportBatch {
		if err := i.send(); err != nil {
			return err
		}
	}
	i.request.Lines = append(i.request.Lines, admin.ImportLine{Line: n, Entry: line})
	i.size += len(line)
	return nil
}

func (i *importer) reject(r admin.RejectedLine) {
	i.done.Rejected++
	if r.AIC != "" {
		r.AIC += ": "
	}
	fmt.Fprintf(i.cmd.ErrOrStderr(), "line %d: %s%s\n", r.Line, r.AIC, r.Why)
}

func (i *importer) send() error {
	if len(i.request.Lines) == 0 {
		return nil
	}
	var out admin.Imported
	if err := i.client.Call(i.cmd.Context(), "/v1/agents/import", i.request, &out); err != nil {
		return fmt.Errorf("stopped before line %d; import the file again, what is in already is passed by: %w", i.request.Lines[0].Line, err)
	}
	i.done.Registered += out.Registered
	i.done.Updated += out.Updated
	i.done.Unchanged += out.Unchanged
	for _, r := range out.Rejected {
		i.reject(r)
	}
	for _, w := range out.Warnings {
		i.done.Warnings++
		fmt.Fprintf(i.cmd.ErrOrStderr(), "line %d: %s: warning: %s\n", w.Line, w.AIC, w.What)
	}
	if time.Since(i.told) >= tellEvery {
		i.told = time.Now()
		fmt.Fprintf(i.cmd.ErrOrStderr(), "%d lines, %.0f a second\n", i.done.Lines, float64(i.done.Lines)/time.Since(i.began).Seconds())
	}
	i.request.Lines, i.size = i.request.Lines[:0], 0
	return nil
}
