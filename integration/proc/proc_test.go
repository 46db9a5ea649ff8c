package proc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/control"
)

// spoken starts a script and returns once it has said a line on stdout, with what else it and its children will say there.
func spoken(t *testing.T, s *Set, name string, cmd *exec.Cmd, stdin io.Closer) (*Process, *bufio.Reader) {
	t.Helper()
	out, says, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	out.SetReadDeadline(time.Now().Add(20 * time.Second))
	cmd.Stdout = says
	p, err := s.Start(name, cmd, stdin)
	says.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatalf("%s: %v%s", name, err, p.Tail(9))
	}
	return p, r
}

func script(text string) *exec.Cmd { return exec.Command("/bin/sh", "-c", text) }

func TestStopEndsAll(t *testing.T) {
	s := &Set{Logs: t.TempDir()}
	t.Cleanup(func() { s.Stop() })
	daemon, _ := spoken(t, s, "daemon", script("echo one >&2; echo two >&2; echo up; exec sleep 600"), nil)
	cmd := script("trap '' TERM; echo up; cat; echo end of input >&2")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	fed, _ := spoken(t, s, "fed", cmd, stdin)
	if daemon.Ended() || fed.Ended() || len(s.Processes()) != 2 {
		t.Error("the processes are not running")
	}
	s.Stop()
	if !daemon.Ended() || !fed.Ended() || len(s.Processes()) != 0 {
		t.Error("a process is still running")
	}
	if got, want := daemon.Tail(1)+"|"+fed.Tail(9), "    two|    end of input"; got != want {
		t.Errorf("ends of the logs %q, want %q", got, want)
	}
}

func TestNamedProgramsStopFirst(t *testing.T) {
	dir := t.TempDir()
	s := &Set{Logs: dir}
	t.Cleanup(func() { s.Stop() })
	ends := filepath.Join(dir, "ends")
	for _, name := range []string{"gatewayd", "agentd"} {
		program := filepath.Join(dir, name)
		text := "#!/bin/sh\ntrap 'echo " + name + " >>" + ends + "; exit' TERM\necho up\nwhile :; do sleep 0.01; done\n"
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		spoken(t, s, name, exec.Command(program), nil)
	}
	s.Stop("agentd", "gatewayd")
	if got, err := os.ReadFile(ends); err != nil || string(got) != "agentd\ngatewayd\n" {
		t.Errorf("they ended as %q, %v", got, err)
	}
}

func TestStopKillsTheGroup(t *testing.T) {
	s := &Set{Logs: t.TempDir()}
	p, out := spoken(t, s, "deaf", script("trap '' TERM; sleep 600 & echo up; while :; do wait; done"), nil)
	p.stop(0)
	if rest, err := io.ReadAll(out); err != nil || len(rest) != 0 { // ends with the last of the group
		t.Errorf("read %q, %v", rest, err)
	}
}

func TestAwaitControl(t *testing.T) {
	dir, err := TempDir("agentgw-proc-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Set{Logs: dir}
	t.Cleanup(func() { s.Stop() })
	p, _ := spoken(t, s, "daemon", script("echo up; exec sleep 600"), nil)
	socket := filepath.Join(dir, "control.sock")
	err = p.AwaitControl(t.Context(), 50*time.Millisecond, "AG1", socket)
	if err == nil || err.Error() != "AG1 does not answer its control socket within 50ms" {
		t.Errorf("nobody answers: %v", err)
	}
	calls := http.NewServeMux()
	calls.Handle("/v1/status", control.Handle(func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }))
	server, err := control.Listen(socket, calls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close(context.Background()) })
	if err := p.AwaitControl(t.Context(), 10*time.Second, "AG1", socket); err != nil {
		t.Errorf("a daemon that answers: %v", err)
	}
	s.Stop()
	if err := p.AwaitControl(t.Context(), 10*time.Second, "AG1", socket); !errors.Is(err, ErrEnded) {
		t.Errorf("a daemon that has ended: %v", err)
	}
	cause := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	never := func(context.Context) (bool, error) { return false, nil }
	if err := Until(ctx, time.Minute, "nothing", never); !errors.Is(err, cause) {
		t.Errorf("a context that ends: %v", err)
	}
}

func TestTail(t *testing.T) {
	for _, c := range []struct{ text, want string }{{"", ""}, {"\n", ""}, {"a\n", "    a"}, {"a\nb\n c\n", "    b\n     c"}} {
		if got := Tail([]byte(c.text), 2); got != c.want {
			t.Errorf("Tail(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestFreeUDP(t *testing.T) {
	got, err := FreeUDP(2)
	if err != nil || len(got) != 2 || got[0] == got[1] || !strings.HasPrefix(got[0], "127.0.0.1:") {
		t.Errorf("%q, %v", got, err)
	}
}
