package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	stopGrace   = 8 * time.Second // between the request to end and SIGKILL
	maxTempPath = 60              // characters: a Unix socket's whole path may have 107
	logTail     = 10              // lines shown of a process when something fails
)

// process is one child, in a process group of its own.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	stdin io.Closer     // ends a child of the bench's own program; nil for a daemon, which gets SIGTERM
	done  chan struct{} // closed when it has ended
}

// processes are all children. The bench starts and stops them from one goroutine.
type processes struct {
	dir  string // of the logs
	list []*process
}

func (ps *processes) start(name string, cmd *exec.Cmd, stdin io.Closer) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(ps.dir, name+".log"), stdin: stdin, done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	ps.list = append(ps.list, p)
	go func() {
		cmd.Wait() // stopAll waits for done; how it ended stands in its log
		close(p.done)
	}()
	return p, nil
}

// stopAll ends every child, all at once, and waits for them.
func (ps *processes) stopAll() {
	var stopping sync.WaitGroup
	for _, p := range ps.list {
		stopping.Go(p.stop)
	}
	stopping.Wait()
	ps.list = nil
}

func (p *process) stop() {
	if p.stdin != nil {
		p.stdin.Close()
	} else {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// tails are the ends of the children's logs.
func (ps *processes) tails() string {
	var b strings.Builder
	for _, p := range ps.list {
		text, _ := os.ReadFile(p.log) // without a log there is less to tell
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if lines = lines[max(0, len(lines)-logTail):]; lines[0] != "" {
			fmt.Fprintf(&b, "\nend of the log of %s:\n    %s", p.name, strings.Join(lines, "\n    "))
		}
	}
	return b.String()
}

// child is the bench's own program in another role, which one talks to by lines.
type child struct {
	in  io.Writer
	out *bufio.Reader
}

// spawn starts a child and returns what it says first.
func (ps *processes) spawn(name string, args ...string) (*child, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(program, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	out, w, err := os.Pipe() // StdoutPipe would be closed by Wait under the reader
	if err != nil {
		return nil, "", err
	}
	cmd.Stdout = w
	_, err = ps.start(name, cmd, in)
	w.Close()
	if err != nil {
		out.Close()
		return nil, "", err
	}
	c := &child{in: in, out: bufio.NewReader(out)}
	first, err := c.read()
	return c, first, err
}

func (c *child) read() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("a child of the bench has ended: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// ask sends a line and reads one.
func (c *child) ask(line string) (string, error) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return "", fmt.Errorf("talk to a child of the bench: %w", err)
	}
	return c.read()
}

// run runs a program to its end and returns what it printed; its error has what it said.
func run(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.WaitDelay = stopGrace
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// build makes gatewayd in dir.
func build(ctx context.Context, dir string) (string, error) {
	out, err := run(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	file := strings.TrimSpace(string(out))
	mod, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(mod), "module agentgw\n") {
		return "", errors.New("this is not the agentgw module: run `go run ./integration/bench` in its top folder")
	}
	program := filepath.Join(dir, "gatewayd")
	_, err = run(ctx, filepath.Dir(file), "go", "build", "-o", program, "./gatewayd")
	return program, err
}

func tempParent() string {
	if dir := os.TempDir(); len(dir) <= maxTempPath {
		return dir
	}
	return "/tmp"
}

// until polls until ready says so, its error is fatal, or the time is up.
func until(ctx context.Context, limit time.Duration, what string, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s within %v", what, limit))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ready(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
