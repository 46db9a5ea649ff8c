package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/agentd/internal/local"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
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

// onlyAgent is a daemon that serves one agent.
type onlyAgent struct{ local.Daemon }

func (onlyAgent) ReKey(context.Context, local.AgentRequest) (local.AgentAnswer, error) {
	return local.AgentAnswer{Agent: "pharmacy", AIC: "2.999.1"}, nil
}

// A verb about the only agent says which one that was.
func TestRekeyNamesTheAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	socket, err := control.Listen(path, local.Handler(onlyAgent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		socket.Close(ctx)
	})
	cli, root := daemon.NewCLI("agentd", "")
	cmd := rekeyCmd(&options{CLI: cli})
	var out strings.Builder
	cmd.SetOut(&out)
	root.AddCommand(cmd)
	root.SetArgs([]string{"rekey", "--control", path})
	if err := root.Execute(); err != nil || out.String() != "agent pharmacy (2.999.1) has a new key\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
