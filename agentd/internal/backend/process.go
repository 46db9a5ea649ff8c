package backend

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stopGrace  = 3 * time.Second        // between asking it to end and killing it
	drainGrace = 200 * time.Millisecond // after its end, for what it has written and nobody has read yet
	killGrace  = 500 * time.Millisecond // between killing it and giving it up
)

// process is one life of the program. It ends when the program does: whatever the program has started may hold the other ends of
// its pipes for longer, and what of it is in the program's process group is killed with it.
type process struct {
	cmd           *exec.Cmd
	in, out, errs *os.File // our ends
	writes        chan []byte
	ended         chan struct{} // closed when the program has ended; it is not reaped yet, so its number is nobody else's
	gone          chan struct{} // closed when nothing is written any more
}

// launch starts the program in a process group of its own: a terminal's Ctrl-C is for agentd, which drains first.
func launch(cfg Config) (*process, error) {
	p := &process{cmd: exec.Command(cfg.Command[0], cfg.Command[1:]...), writes: make(chan []byte, 64),
		ended: make(chan struct{}), gone: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = cfg.Dir, environment(cfg.Env)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var theirs []*os.File
	defer func() { closeAll(theirs...) }()
	stdin, in, err1 := os.Pipe()
	out, stdout, err2 := os.Pipe()
	errs, stderr, err3 := os.Pipe()
	theirs = []*os.File{stdin, stdout, stderr}
	p.in, p.out, p.errs = in, out, errs
	if err := errors.Join(err1, err2, err3); err != nil {
		closeAll(in, out, errs)
		return nil, fmt.Errorf("start %s: %w", cfg.Command[0], err)
	}
	// Files, and not readers and writers: else exec waits until the last holder of a pipe has closed it.
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, stderr
	if err := p.cmd.Start(); err != nil {
		closeAll(in, out, errs)
		return nil, fmt.Errorf("start %s: %w", cfg.Command[0], err)
	}
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// await returns when the program has ended, without reaping it.
func (p *process) await() {
	defer close(p.ended)
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// pump writes what deliveries queue. A program that does not read blocks it until the process ends; deliveries fail by
// their deadlines meanwhile. An error means that the program has closed its input.
func (p *process) pump() error {
	for {
		select {
		case line := <-p.writes:
			if _, err := p.in.Write(line); err != nil {
				return fmt.Errorf("it does not read its input: %w", err)
			}
		case <-p.gone:
			return nil
		}
	}
}

// stop asks the program to end, by the end of its input and by SIGTERM, and kills it after the grace. It returns when the program
// has ended; an error says that it cannot be ended, such as one that runs as another user.
func (p *process) stop(grace time.Duration) error {
	p.in.Close()
	p.signal(syscall.SIGTERM)
	if p.endsWithin(grace) {
		return nil
	}
	p.signal(syscall.SIGKILL)
	if p.endsWithin(killGrace) {
		return nil
	}
	return fmt.Errorf("process %d does not end when it is killed: it is left alone", p.cmd.Process.Pid)
}

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.ended:
		return true
	case <-timer.C:
		return false
	}
}

// signal signals the program's process group, and the program itself where it has left the group. It must not be reaped yet.
func (p *process) signal(s syscall.Signal) {
	pid := p.cmd.Process.Pid
	syscall.Kill(-pid, s)
	if group, err := syscall.Getpgid(pid); err == nil && group != pid {
		syscall.Kill(pid, s)
	}
}

// drain lets the readers of its output read on until a moment, though others may hold the pipes open for longer.
func (p *process) drain(until time.Time) {
	for _, f := range []*os.File{p.out, p.errs} {
		if err := f.SetReadDeadline(until); err != nil {
			f.Close() // no pipe that could be waited for with a deadline
		}
	}
}

// reap kills what the program has left in its process group, and takes its exit status.
func (p *process) reap() error {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	if err := p.cmd.Wait(); err != nil {
		return err
	}
	return errors.New("it exited with 0")
}

// bury waits for a program that was given up; nobody can wait for that.
func (p *process) bury() {
	<-p.ended
	p.reap()
}

// environment is what a child gets: a daemon's own environment may hold secrets.
func environment(add map[string]string) []string {
	var out []string
	for _, k := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(k); ok {
			out = append(out, k+"="+v)
		}
	}
	for k, v := range add {
		out = append(out, k+"="+v)
	}
	return out
}
