package topo

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	stopGrace = 8 * time.Second // between SIGTERM and SIGKILL; daemons drain meanwhile
	logTail   = 40              // lines of [Process.Tail]
)

// Process is a daemon that runs in a namespace, in a process group of its own.
type Process struct {
	Name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
}

// Run starts a daemon in the namespace; what it prints is added to the file log.
func (n *Namespace) Run(log, program string, args ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{Name: n.Name, cmd: exec.Command(program, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		p.cmd.Wait() // how it ended stands in its log; Kill and Stop wait for done
		close(p.done)
	}()
	return p, nil
}

// Kill ends the process and its children as a crash would (kill -9) and returns when it is gone.
func (p *Process) Kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-p.done
}

// Stop ends the process with SIGTERM, and kills it when it takes too long, which it reports.
func (p *Process) Stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
		return nil
	case <-time.After(stopGrace):
		p.Kill()
		return fmt.Errorf("%s did not stop within %v of SIGTERM", p.Name, stopGrace)
	}
}

// Ended says whether the process is no longer there.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Tail is the end of what the process printed.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-logTail):], "\n")
}
