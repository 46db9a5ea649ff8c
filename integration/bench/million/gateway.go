package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"agentgw/integration/proc"
	"agentgw/internal/control"
)

const (
	domain     = "million.example"
	pollEvery  = 2 * time.Millisecond
	startLimit = 20 * time.Minute // a million entries without a snapshot take about two
	stopLimit  = 5 * time.Minute
)

// gateway is gatewayd as a process.
type gateway struct {
	program, dir string
	socket       *control.Client
	procs        proc.Set
	now          *proc.Process
	starts       int
}

func newGateway(ctx context.Context, dir string) (*gateway, error) {
	g := &gateway{program: filepath.Join(dir, "gatewayd"), dir: dir, procs: proc.Set{Logs: dir}}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", g.program, "agentgw/gatewayd").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build gatewayd: %w: %s", err, out)
	}
	addr, err := proc.FreeUDP(1)
	if err != nil {
		return nil, err
	}
	if _, err := g.verb(ctx, "init", "--dir", filepath.Join(dir, "g"), "--domain", domain, "--listen", addr[0], "--lab"); err != nil {
		return nil, err
	}
	g.socket = control.NewClient(filepath.Join(dir, "g", "state", "control.sock"))
	return g, nil
}

func (g *gateway) config() string   { return filepath.Join(g.dir, "g", "gatewayd.yaml") }
func (g *gateway) database() string { return filepath.Join(g.dir, "g", "state", "dir") }

// codes are those that its agents' AICs begin with.
func (g *gateway) codes() (codes, error) {
	raw, err := os.ReadFile(g.config())
	if err != nil {
		return codes{}, err
	}
	var c struct {
		AIC struct{ Prefix, ARSP, Salt string } `yaml:"aic"`
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return codes{}, err
	}
	salt, err := hex.DecodeString(c.AIC.Salt)
	return codes{c.AIC.Prefix, c.AIC.ARSP, salt}, err
}

// verb runs a verb, shows what it says on the way, and returns what it prints.
func (g *gateway) verb(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, g.program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("gatewayd %s: %w", args[0], err)
	}
	return out.Bytes(), nil
}

// start starts it, and returns how long it took until its control socket answered, and what it has loaded its directory from.
func (g *gateway) start(ctx context.Context) (time.Duration, error) {
	g.starts++
	at := time.Now()
	p, err := g.procs.Start(fmt.Sprint("gatewayd-", g.starts), exec.Command(g.program, "run", "--config", g.config()), nil)
	if err != nil {
		return 0, err
	}
	g.now = p
	for {
		if err := g.socket.Call(ctx, "/v1/status", struct{}{}, &struct{}{}); err == nil {
			return time.Since(at), nil
		}
		switch {
		case p.Ended():
			return 0, fmt.Errorf("gatewayd ended:\n%s", p.Tail(10))
		case time.Since(at) > startLimit:
			return 0, fmt.Errorf("gatewayd does not answer after %v", startLimit)
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		}
		time.Sleep(pollEvery)
	}
}

// end sends a signal and waits for the end.
func (g *gateway) end(with syscall.Signal) (time.Duration, error) {
	at := time.Now()
	if err := syscall.Kill(g.now.PID(), with); err != nil {
		return 0, err
	}
	for !g.now.Ended() {
		if time.Since(at) > stopLimit {
			return 0, errors.New("gatewayd does not end")
		}
		time.Sleep(pollEvery)
	}
	return time.Since(at), nil
}

// memory is the resident memory of the running gateway in MB: now, and at most so far.
func (g *gateway) memory() (now, most int) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.now.PID()))
	for line := range strings.Lines(string(raw)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kb); n == 1 {
			now = kb >> 10
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			most = kb >> 10
		}
	}
	return now, most
}

// disk is what the database and the snapshot occupy, in MB.
func (g *gateway) disk() (database, snapshot int) {
	filepath.WalkDir(g.database(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil {
			if mb := int(st.Blocks >> 11); filepath.Base(path) == "index.snapshot" {
				snapshot += mb
			} else {
				database += mb
			}
		}
		return nil
	})
	return database, snapshot
}

// check has it compare index and store, and says what the process has loaded its directory from.
func (g *gateway) check(ctx context.Context, entries int) (loaded string, err error) {
	out, err := g.verb(ctx, "agents", "check", "-o", "json", "--config", g.config())
	if err != nil {
		return "", err
	}
	var r struct {
		Entries int
		Loaded  string
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return "", err
	}
	if r.Entries != entries {
		return "", fmt.Errorf("%d entries, %d were imported", r.Entries, entries)
	}
	return r.Loaded, nil
}
