package main

import (
	"strings"
	"testing"

	"agentgw/agentd/internal/local"
)

// People are told of a damaged audit log and of why a program is stopped, as programs are.
func TestStatusText(t *testing.T) {
	var out strings.Builder
	printStatus(&out, local.Status{Audit: "the log was cut", Agents: []local.AgentStatus{
		{Name: "pharmacy", Backend: "stopped", BackendError: "exit status 3"},
		{Name: "doctor", Backend: "running"},
	}})
	for _, want := range []string{"audit    the log was cut\n", "program   stopped: exit status 3\n", "program   running\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
