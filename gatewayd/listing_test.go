package main

import (
	"fmt"
	"strings"
	"testing"

	"agentgw/internal/daemon"
)

// What is wrong with a request is told before a daemon is asked; a class that the taxonomy has not is told, and asked for all the same.
func TestResolveTellsMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"--as goes with --explain":                     {"x", "--as", "peer.example"},
		"give one of them":                             {"x", "--explain", "--trace"},
		"a filter is like {":                           {"x", "--filter", "[]"},
		`oasf/1.1.0 has no class "language_procesing"`: {"--class", "language_procesing"},
		"no daemon answers":                            {"--class", "oasf:10302"},
	} {
		cli, root := daemon.NewCLI("gatewayd", "")
		root.AddCommand(resolveCmd(&options{cli}))
		var out, errs strings.Builder
		root.SetOut(&out)
		root.SetErr(&errs)
		root.SetArgs(append([]string{"resolve", "--control", t.TempDir() + "/none.sock"}, args...))
		root.SilenceErrors, root.SilenceUsage = true, true
		err := root.Execute()
		if told := fmt.Sprint(errs.String(), err); err == nil || !strings.Contains(told, want) || strings.Contains(told, "no class") != strings.Contains(want, "no class") {
			t.Errorf("%v: %s", args, told)
		}
	}
}
