package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	stopGrace = 8 * time.Second // between SIGTERM and SIGKILL; the daemons drain meanwhile
	logTail   = 15              // lines that are shown of a process that failed
)

// process is one daemon of the demo, in a process group of its own: a Ctrl-C in the terminal is the demo's alone, which then
// stops everything in order.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// processes are all daemons that were started; safe for concurrent use.
type processes struct {
	logs string // folder

	mu   sync.Mutex
	list []*process
}

// start runs a daemon; what it prints goes to a file.
func (ps *processes) start(name, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(ps.logs, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ps.mu.Lock()
	ps.list = append(ps.list, p)
	ps.mu.Unlock()
	go func() {
		p.cmd.Wait() // stopAll waits for done; how it ended stands in its log
		close(p.done)
	}()
	return p, nil
}

// stopAll ends every process, the last ones first: agents' daemons before the gateways that they are attached to. Processes of
// one kind stop at the same time. It returns when all have ended.
func (ps *processes) stopAll() {
	ps.mu.Lock()
	all := ps.list
	ps.list = nil
	ps.mu.Unlock()
	for _, program := range []string{"agentd", "gatewayd"} {
		var stopping sync.WaitGroup
		for _, p := range all {
			if filepath.Base(p.cmd.Path) == program {
				stopping.Go(p.stop)
			}
		}
		stopping.Wait()
	}
}

func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// ended says whether the process is no longer there.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// failure describes a process that did not come up, with the end of its log.
func (p *process) failure(what string) error {
	text, _ := os.ReadFile(p.log) // without a log there is less to tell
	return fmt.Errorf("%s %s; the end of its log:\n%s", p.name, what, tail(text))
}

func tail(text []byte) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-logTail):], "\n    ")
}

func (ps *processes) pids() []int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	out := []int{}
	for _, p := range ps.list {
		out = append(out, p.cmd.Process.Pid)
	}
	return out
}

// run runs a program to its end and returns what it printed. Its error holds the end of what it said on stderr.
func run(ctx context.Context, stdin, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s ended with %d:\n%s", filepath.Base(program), args[0], exit.ExitCode(), tail(errs.Bytes()))
	}
	return out.Bytes(), err
}
