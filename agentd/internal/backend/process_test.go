package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/frame"

	"golang.org/x/sys/unix"
)

// misbehave is the test binary as an agent that does not end, or does not let go.
func misbehave(how string) {
	grandchild := func(own bool, command ...string) {
		c := exec.Command(command[0], command[1:]...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr // holds every pipe
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: own}
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(4)
		}
		fmt.Fprintln(os.Stderr, "started", c.Process.Pid)
	}
	switch how {
	case "leaves one in another session":
		grandchild(true, "sleep", "60")
		os.Exit(0)
	case "leaves one in its group":
		grandchild(false, "sleep", "60")
		os.Exit(0)
	case "leaves one that writes":
		grandchild(true, "sh", "-c", "while :; do echo x >&2; done")
		os.Exit(0)
	case "leaves its group":
		if group, err := syscall.Getpgid(os.Getppid()); err != nil || syscall.Setpgid(0, group) != nil {
			os.Exit(4)
		}
	case "closes its output":
		os.Stdout.Close()
	case "closes its input":
		os.Stdin.Close()
	}
	if how == "leaves its group" || how == "ignores SIGTERM" {
		signal.Ignore(syscall.SIGTERM)
	}
	fmt.Fprintln(os.Stderr, "ready")
	time.Sleep(time.Minute)
}

// journal is the log of an agent as a channel of its lines.
type journal chan string

func (j journal) Enabled(context.Context, slog.Level) bool { return true }
func (j journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j journal) WithGroup(string) slog.Handler            { return j }
func (j journal) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.Value.String(); return true })
	select {
	case j <- line:
	default: // nobody waits for it
	}
	return nil
}

// await returns when a line with the text is logged.
func (j journal) await(t *testing.T, text string) string {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case line := <-j:
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			t.Fatalf("no %q in the log", text)
		}
	}
}

// Whatever the program does, its end is seen, it is started again, and Run returns in time.
func TestProgramThatDoesNotLetGo(t *testing.T) {
	for how, tt := range map[string]struct {
		ends     bool // by itself, or by what agentd sees of it
		delivery bool // shows it
		left     bool // a process that is
		killed   bool // with it
	}{
		"leaves one in another session": {ends: true, left: true},
		"leaves one in its group":       {ends: true, left: true, killed: true},
		"leaves one that writes":        {ends: true}, // what it left ends when nobody reads
		"closes its output":             {ends: true},
		"closes its input":              {ends: true, delivery: true},
		"ignores SIGTERM":               {},
		"leaves its group":              {},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			log := make(journal, 64)
			b := New(Config{Command: []string{os.Args[0]}, Env: map[string]string{"AGENT_TEST_CHILD": how}, MaxRun: 4, Log: slog.New(log)})
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() { b.Run(ctx); close(ended) }()
			left := 0
			if strings.HasPrefix(how, "leaves one") {
				line := log.await(t, "started ")
				left, _ = strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
				defer syscall.Kill(left, syscall.SIGKILL)
			} else {
				log.await(t, "ready")
			}
			if tt.delivery {
				if _, err := deliver(t.Context(), b, "echo", nil); frame.CodeOf(err) != frame.UpstreamFailed {
					t.Errorf("delivered: %v", err)
				}
			}
			if tt.ends {
				log.await(t, "starting it again")
				if got := b.State(); got != "stopped" {
					t.Errorf("after its end it is %s", got)
				}
				if tt.left && tt.killed != ends(t, left, tt.killed) {
					t.Errorf("what it left is killed: %v", !tt.killed)
				}
				if left > 0 { // it leaves another in its next life
					line := log.await(t, "started ")
					again, _ := strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
					defer syscall.Kill(again, syscall.SIGKILL)
				} else {
					log.await(t, "ready")
				}
			}
			cancel()
			select {
			case <-ended:
			case <-time.After(stopGrace + time.Second):
				t.Error("Run does not return")
			}
			if got := b.State(); got != "stopped" {
				t.Errorf("after Run it is %s", got)
			}
		})
	}
}

// ends says whether a process that is nobody's child here has ended, or ends soon where that is expected.
func ends(t *testing.T, pid int, soon bool) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	timeout := 0
	if soon {
		timeout = 5000
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// What a program wrote just before its end counts.
func TestLastWordsCount(t *testing.T) {
	log := make(journal, 64)
	b := New(Config{Command: []string{os.Args[0]}, Env: map[string]string{"AGENT_TEST_CHILD": "1"}, MaxRun: 4, Log: slog.New(log)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { b.Run(ctx); close(ended) }()
	for range 3 {
		awaitRunning(t, b)
		if out, err := deliver(t.Context(), b, "echo and die", nil); err != nil || out != `{"done":true}` {
			t.Errorf("%s %v", out, err)
		}
		log.await(t, "starting it again")
	}
	cancel()
	<-ended
}
