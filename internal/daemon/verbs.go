package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"agentgw/internal/frame"
)

// Output is how a verb prints: people's text, or one JSON value on one line.
type Output struct{ format string }

// JSON says that the caller asked for JSON.
func (o *Output) JSON() bool { return o.format == "json" }

// Print writes v as JSON, or has text write it for people.
func (o *Output) Print(w io.Writer, v any, text func(io.Writer)) error {
	switch o.format {
	case "json":
		return json.NewEncoder(w).Encode(v)
	case "text":
		var b bytes.Buffer
		text(&b)
		_, err := io.WriteString(w, plain(b.String()))
		return err
	}
	return Usagef("output %q: use text or json", o.format)
}

// plain writes out the characters with which a text could change what a terminal has shown, or the order of it: names, paths and reasons
// are the words of agents and peers.
func plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		turns := r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
		if turns || unicode.IsControl(r) && r != '\n' && r != '\t' {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Execute runs the root command and returns the exit code of the process. Errors go to stderr, and with -o json to stdout
// too, as `{"error":{…}}`.
func Execute(root *cobra.Command, out *Output) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w; `%s --help` lists the flags", err, cmd.CommandPath())
	})
	err := root.Execute()
	if err != nil && (strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "required flag")) {
		err = Usagef("%w; --help lists the verbs and flags", err)
	}
	if err == nil {
		return ExitDone
	}
	code := ExitCode(err)
	var silent *SilentError
	if errors.As(err, &silent) {
		return code
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", root.Name(), plain(err.Error()))
	if out.JSON() {
		c := frame.CodeOf(err)
		json.NewEncoder(os.Stdout).Encode(map[string]any{"error": map[string]any{
			"code": c.Hex(), "name": c.String(), "message": err.Error(), "exit": code,
		}})
	}
	return code
}

// SilentError has been told to the user already; it only sets the exit code.
type SilentError struct{ Err error }

func (e *SilentError) Error() string { return e.Err.Error() }
func (e *SilentError) Unwrap() error { return e.Err }

// Silent is the error of an outcome that was printed already: it sets the exit code of the outcome's code, given as two
// hexadecimal digits; nil for 00.
func Silent(code, text string) error {
	c, err := strconv.ParseUint(code, 16, 16)
	if err != nil {
		return fmt.Errorf("outcome without a code: %q", code)
	}
	if c == 0 {
		return nil
	}
	return &SilentError{frame.Errorf(frame.Code(c), "%s", text)}
}

// Args adapts a check of arguments so that its mistakes exit with 2.
func Args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return Usagef("%w; usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// Group makes a command that only holds others: alone, or with a verb that it does not have, it is a mistake.
func Group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, v := range verbs {
			names = append(names, v.Name())
		}
		if len(args) > 0 {
			return Usagef("%s has no verb %q: it has %s", cmd.Name(), args[0], strings.Join(names, ", "))
		}
		return Usagef("%s needs a verb: %s", cmd.Name(), strings.Join(names, ", "))
	}}
	cmd.AddCommand(verbs...)
	return cmd
}

// ReadSecret reads a secret from a file, or from stdin when the name is "-": never from an argument, which every user of
// the machine can read.
func ReadSecret(name string, stdin io.Reader) (string, error) {
	if name == "-" {
		b, err := io.ReadAll(io.LimitReader(stdin, 64<<10))
		return strings.TrimSpace(string(b)), err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
