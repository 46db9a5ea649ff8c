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

	"agentgw/integration/proc"
)

// child is the bench's own program in another role, which one talks to by lines.
type child struct {
	in  io.Writer
	out *bufio.Reader
}

// spawn starts a child, which ends with its stdin, and returns what it says first.
func (w *world) spawn(name string, args ...string) (*child, string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(program, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	out, says, err := os.Pipe() // StdoutPipe would be closed by Wait under the reader
	if err != nil {
		return nil, "", err
	}
	cmd.Stdout = says
	_, err = w.procs.Start(name, cmd, in)
	says.Close()
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
	cmd.WaitDelay = proc.StopGrace
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

// build makes gatewayd in dir, and says where the module is.
func build(ctx context.Context, dir string) (program, root string, err error) {
	out, err := run(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		return "", "", fmt.Errorf("find the module: %w", err)
	}
	file := strings.TrimSpace(string(out))
	mod, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(mod), "module agentgw\n") {
		return "", "", errors.New("this is not the agentgw module: run `go run ./integration/bench` in its top folder")
	}
	program, root = filepath.Join(dir, "gatewayd"), filepath.Dir(file)
	_, err = run(ctx, root, "go", "build", "-o", program, "./gatewayd")
	return program, root, err
}
