package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/frame"
)

func TestExitCodes(t *testing.T) {
	for want, errs := range map[int][]error{
		ExitDone:        {nil},
		ExitFailed:      {errors.New("x"), frame.Errorf(frame.Internal, "x"), frame.Errorf(frame.NotFound, "x")},
		ExitUsage:       {Usagef("x"), fmt.Errorf("in: %w", Usagef("x")), frame.Errorf(frame.ReqInvalid, "x")},
		ExitUnreachable: {frame.Errorf(frame.UpstreamFailed, "x"), frame.Errorf(frame.Overloaded, "x")},
		ExitRefused:     {frame.Errorf(frame.TrustDenied, "x"), frame.Errorf(frame.TokenReplayed, "x"), frame.Errorf(frame.ScopeDenied, "x")},
		ExitDeadline:    {frame.Errorf(frame.Deadline, "x"), context.DeadlineExceeded},
	} {
		for _, err := range errs {
			if got := ExitCode(err); got != want {
				t.Errorf("%v: exit %d, want %d", err, got, want)
			}
		}
	}
}

func TestCleanupRunsInReverseAndJoinsErrors(t *testing.T) {
	var order []string
	var c Cleanup
	for _, name := range []string{"first", "second", "third"} {
		c.Add(name, time.Second, func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a step without a bound")
			}
			order = append(order, name)
			if name == "second" {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
	}
	err := c.Run()
	if fmt.Sprint(order) != "[third second first]" || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "second: ") {
		t.Errorf("%v, %v", order, err)
	}
	if c.Run() != nil || len(order) != 3 {
		t.Error("steps run twice")
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("no")
	log.Warn("yes")
	if b.String() == "" || strings.Contains(b.String(), "no") {
		t.Errorf("%q", b.String())
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"info", "xml"}} {
		if _, err := NewLogger(&b, bad[0], bad[1]); ExitCode(err) != ExitUsage {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Names and reasons are others' words: none of them may write over what a terminal shows, or turn it round.
func TestPeoplesTextHasNoControls(t *testing.T) {
	var b bytes.Buffer
	o := Output{format: "text"}
	err := o.Print(&b, nil, func(w io.Writer) { io.WriteString(w, "a\tb é 医\n\x1b[2J\r\u009b1m\u202egpj.\u2066\n") })
	if want := "a\tb é 医\n\\u001b[2J\\u000d\\u009b1m\\u202egpj.\\u2066\n"; err != nil || b.String() != want {
		t.Errorf("%q, not %q: %v", b.String(), want, err)
	}
}

func TestReadSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	os.WriteFile(file, []byte(" s3cret\n"), 0o600)
	if s, err := ReadSecret(file, nil); err != nil || s != "s3cret" {
		t.Error(s, err)
	}
	if s, err := ReadSecret("-", strings.NewReader("from stdin\n")); err != nil || s != "from stdin" {
		t.Error(s, err)
	}
	if _, err := ReadSecret(file+"x", nil); err == nil {
		t.Error("no file, no error")
	}
}

func TestVerbs(t *testing.T) {
	run := func(args ...string) int {
		out, root := NewCLI("x", "test")
		root.AddCommand(&cobra.Command{Use: "do", Args: Args(cobra.NoArgs), RunE: func(cmd *cobra.Command, _ []string) error {
			return out.Print(io.Discard, 1, func(io.Writer) {})
		}})
		root.SetArgs(args)
		root.SetErr(io.Discard)
		return Execute(root, &out.Output)
	}
	for want, calls := range map[int][][]string{
		ExitDone:  {{"do"}, {"do", "-o", "json"}, {"version"}},
		ExitUsage: {{"do", "extra"}, {"nothing"}, {"do", "--unknown"}, {"do", "-o", "xml"}},
	} {
		for _, args := range calls {
			if got := run(args...); got != want {
				t.Errorf("%v: exit %d, want %d", args, got, want)
			}
		}
	}
}

func TestReadySpeaksToTheServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	next := func() string {
		b := make([]byte, 256)
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	Progress(slog.New(slog.DiscardHandler), "half way")
	if got := next(); got != "STATUS=half way\nEXTEND_TIMEOUT_USEC=90000000" {
		t.Errorf("first %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := Ready(ctx, slog.New(slog.DiscardHandler))
	if got := next(); got != "READY=1\nSTATUS=" {
		t.Errorf("then %q", got)
	}
	if got := next(); got != "WATCHDOG=1" {
		t.Errorf("then %q", got)
	}
	cancel()
	for got := next(); got != "STOPPING=1"; got = next() {
		if got != "WATCHDOG=1" {
			t.Fatalf("at the end %q", got)
		}
	}
	wait()
}

// The test binary again, as a daemon that needs long to stop.
func TestMain(m *testing.M) {
	if os.Getenv("DAEMON_TEST_CHILD") == "1" {
		ctx, cancel := SignalContext(slog.New(slog.DiscardHandler))
		defer cancel()
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("draining")
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DAEMON_TEST_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line := make([]byte, 64)
	await := func(what string) {
		n, err := out.Read(line)
		if err != nil || strings.TrimSpace(string(line[:n])) != what {
			t.Fatalf("got %q, %v, want %q", line[:n], err, what)
		}
	}
	await("ready")
	cmd.Process.Signal(syscall.SIGTERM)
	await("draining")
	cmd.Process.Signal(syscall.SIGINT)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != ExitFailed {
		t.Errorf("after the second signal: %v", err)
	}
}
