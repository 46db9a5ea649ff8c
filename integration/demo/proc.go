package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"agentgw/integration/proc"
)

const logTail = 15 // lines that are shown of a process that failed

// failure describes a process that did not come up, with the end of its log.
func failure(p *proc.Process, what string) error {
	return fmt.Errorf("%s %s; the end of its log:\n%s", p.Name(), what, p.Tail(logTail))
}

// run runs a program to its end and returns what it printed. Its error holds the end of what it said on stderr.
func run(ctx context.Context, stdin, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = proc.StopGrace
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s ended with %d:\n%s", filepath.Base(program), args[0], exit.ExitCode(), proc.Tail(errs.Bytes(), logTail))
	}
	return out.Bytes(), err
}
