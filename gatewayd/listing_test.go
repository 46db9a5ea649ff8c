package main

import (
	"fmt"
	"strings"
	"testing"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
)

// What an operator has imported is told from what has enrolled and is away.
func TestImportedAgentsAreMarked(t *testing.T) {
	rows := []admin.AgentRow{{AIC: "ONE", State: "ACTIVE", Imported: true, Visibility: "private", Bound: "domain"}, {AIC: "TWO", State: "ACTIVE", Attached: true}, {AIC: "SIX", State: "ACTIVE"}}
	var list, found, one, two strings.Builder
	printAgents(&list, rows)
	printFound(&found, admin.Match{Candidates: []admin.Candidate{{Agent: "One", Offline: true, Imported: true}, {Agent: "Two"}, {Agent: "Six", Offline: true}}})
	printAgent(&one, admin.AgentDetail{AIC: "ONE", Entry: &rows[0]})
	printAgent(&two, admin.AgentDetail{AIC: "TWO", Entry: &rows[1]})
	for _, text := range []string{list.String(), found.String()} {
		for i, want := range []string{"imported", "true", "false"} {
			if line := strings.Split(text, "\n")[i+1]; !strings.Contains(line, " "+want+" ") {
				t.Errorf("%q has not %q", line, want)
			}
		}
	}
	if text := one.String(); !strings.Contains(text, "imported (") || strings.Contains(text, "attached ") || !strings.Contains(text, "visibility private (at most domain") {
		t.Error(text)
	}
	if text := two.String(); !strings.Contains(text, "attached true, visibility") || strings.Contains(text, "imported") {
		t.Error(text)
	}
}

// What is wrong with a request is told before a daemon is asked; a class that the taxonomy has not is told, and asked for all the same.
func TestResolveTellsMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"--as goes with --explain": {"x", "--as", "peer.example"},
		"give one of them":         {"x", "--explain", "--trace"},
		"a filter is like {":       {"x", "--filter", "[]"},
		`oasf/1.1.0 has no class "language_procesing": did you mean "language_processing"?`: {"--class", "language_procesing"},
		"no daemon answers": {"--class", "oasf:10302"},
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
