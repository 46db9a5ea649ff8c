// Package proc runs the daemons of the demo and the bench as processes: it starts them, waits until they answer, and ends them
// so that nothing is left behind.
//
// Every [Process] has a process group of its own: a Ctrl-C in the terminal is its starter's alone, which then stops everything
// in order. A process is asked to end, and [StopGrace] later its whole group is killed. What it says on stderr is kept in a file
// in the folder of its [Set], for error messages. A starter that ends without [Set.Stop] leaves its processes running.
//
// A Set and its processes are safe for concurrent use. Limits are durations; lines of a log are those of the file's end. Errors
// say what was waited for and for how long; a context that ends gives its cause.
package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StopGrace is the time between the request to end and SIGKILL; daemons drain meanwhile.
const StopGrace = 8 * time.Second

// ErrEnded is the error of waiting for something from a process that is no longer there.
var ErrEnded = errors.New("it has ended")

// Process is one child, in a process group of its own.
type Process struct {
	name  string
	cmd   *exec.Cmd
	log   string
	stdin io.Closer     // nil where SIGTERM ends it
	done  chan struct{} // closed when it has ended
}

// Set is the processes that are stopped together. It is ready once its folder is set.
type Set struct {
	Logs string // existing folder of the files NAME.log

	mu   sync.Mutex
	list []*Process
}

// Start runs a command under a name of its own, with stderr in a file. stdin is what [Set.Stop] closes to end a program that
// ends with its input; nil is for daemons, which get SIGTERM.
func (s *Set) Start(name string, cmd *exec.Cmd, stdin io.Closer) (*Process, error) {
	p := &Process{name: name, cmd: cmd, log: filepath.Join(s.Logs, name+".log"), stdin: stdin, done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if cmd.Stderr = out; cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.mu.Lock()
	s.list = append(s.list, p)
	s.mu.Unlock()
	go func() {
		cmd.Wait() // Stop waits for done; how it ended stands in its log
		close(p.done)
	}()
	return p, nil
}

// Processes are those that were started and not stopped, in the order of their start.
func (s *Set) Processes() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// Stop ends every process and returns when all have ended: those of the named programs first, one program after the other,
// then the rest. Processes of one program stop at the same time. Called again it has nothing left to do.
func (s *Set) Stop(programs ...string) {
	s.mu.Lock()
	left := s.list
	s.list = nil
	s.mu.Unlock()
	for _, program := range programs {
		of := func(p *Process) bool { return filepath.Base(p.cmd.Path) == program }
		stopAll(slices.DeleteFunc(slices.Clone(left), func(p *Process) bool { return !of(p) }))
		left = slices.DeleteFunc(left, of)
	}
	stopAll(left)
}

func stopAll(list []*Process) {
	var stopping sync.WaitGroup
	for _, p := range list {
		stopping.Go(func() { p.stop(StopGrace) })
	}
	stopping.Wait()
}

func (p *Process) stop(grace time.Duration) {
	if p.stdin != nil {
		p.stdin.Close()
	} else {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
	case <-time.After(grace):
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// Name is what the process was started as.
func (p *Process) Name() string { return p.name }

// PID is the process's id, which is its group's too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended says whether the process is no longer there.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Tail is the last n lines that the process said, as [Tail] gives them; "" where there are none.
func (p *Process) Tail(n int) string {
	text, _ := os.ReadFile(p.log) // without a log there is less to tell
	return Tail(text, n)
}

// Tail is the last n lines of a text, indented for an error message and without a line break at the end; "" for an empty text.
func Tail(text []byte, n int) string {
	all := strings.TrimRight(string(text), "\n")
	if all == "" {
		return ""
	}
	lines := strings.Split(all, "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-n):], "\n    ")
}
