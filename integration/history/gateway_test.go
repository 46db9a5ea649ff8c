package history_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentgw/integration/proc"
	"agentgw/internal/control"
)

const startTime = 30 * time.Second

// gateway is gatewayd as a process that is killed and started again.
type gateway struct {
	t      *testing.T
	bin    string
	dir    string
	listen string
	socket *control.Client
	set    *proc.Set
	starts int

	mu    sync.Mutex      // guards what follows
	alive context.Context // ends when this process of the gateway is killed
	end   context.CancelFunc
	now   *proc.Process
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	dir, err := proc.TempDir("history-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	addrs, err := proc.FreeUDP(1)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, bin: filepath.Join(dir, "gatewayd"), dir: dir, listen: addrs[0], set: &proc.Set{Logs: dir}}
	t.Cleanup(func() { g.set.Stop() })
	if out, err := exec.Command("go", "build", "-o", g.bin, "agentgw/gatewayd").CombinedOutput(); err != nil {
		t.Fatalf("build gatewayd: %v\n%s", err, out)
	}
	g.verb("init", "--dir", filepath.Join(dir, "g"), "--domain", "history.example", "--listen", g.listen, "--lab")
	f, err := os.OpenFile(g.config(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// One address makes all connections, and far more often than people do.
	_, err = f.WriteString("limits: {enrol_rate: 100000, handshake_rate: 100000}\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.socket = control.NewClient(filepath.Join(dir, "g", "state", "control.sock"))
	g.start()
	return g
}

func (g *gateway) config() string { return filepath.Join(g.dir, "g", "gatewayd.yaml") }

// verb runs one verb of gatewayd and wants it to succeed.
func (g *gateway) verb(args ...string) {
	g.t.Helper()
	if out, err := exec.Command(g.bin, args...).CombinedOutput(); err != nil {
		g.t.Fatalf("gatewayd %v: %v\n%s", args, err, out)
	}
}

// start starts it and returns when it answers.
func (g *gateway) start() {
	g.t.Helper()
	g.starts++
	p, err := g.launch()
	if err == nil {
		err = p.AwaitControl(context.Background(), startTime, "gatewayd", filepath.Join(g.dir, "g", "state", "control.sock"))
	}
	if err != nil {
		g.t.Fatalf("start %d: %v\n%s", g.starts, err, p.Tail(20))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alive, g.end = context.WithCancel(context.Background())
	g.now = p
}

// launch starts a process of it.
func (g *gateway) launch() (*proc.Process, error) {
	return g.set.Start(fmt.Sprintf("gatewayd-%03d", g.starts), exec.Command(g.bin, "run", "--config", g.config()), nil)
}

// kill ends it as a loss of power would.
func (g *gateway) kill() {
	g.t.Helper()
	g.mu.Lock()
	p, end := g.now, g.end
	g.mu.Unlock()
	if err := syscall.Kill(-p.PID(), syscall.SIGKILL); err != nil {
		g.t.Errorf("kill: %v", err)
	}
	end()
	for !p.Ended() {
		time.Sleep(time.Millisecond)
	}
}

// process is a context that lives as long as the process that runs now.
func (g *gateway) process() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive
}

// call is one call of the control socket, given up when the process is killed.
func (g *gateway) call(path string, in, out any) error {
	ctx, cancel := context.WithTimeout(g.process(), 20*time.Second)
	defer cancel()
	return g.socket.Call(ctx, path, in, out)
}
