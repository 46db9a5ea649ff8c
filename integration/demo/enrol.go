package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"agentgw/integration/proc"
	"agentgw/internal/control"
)

// enrolled is what `agentd enrol` answers.
type enrolled struct {
	AIC          string   `json:"aic"`
	Capabilities []string `json:"capabilities"`
}

// startAgents enrols agents, a few at a time, starts their agentds and waits until every agent is attached to its gateway.
func (w *world) startAgents(ctx context.Context, agents []agent) error {
	w.out.headline("Agents enrol with their gateways: token, key, draft capability specification; an identity comes back")
	var jobs []func() error
	for _, a := range agents {
		jobs = append(jobs, func() error {
			began := time.Now()
			e, err := w.enrol(ctx, a)
			if err != nil {
				return err
			}
			w.call(e.AIC, a.name)
			w.out.say(fmt.Sprintf("%s enrolled with %s (%s) in %d ms: %s",
				a.name, domains[a.domain].gateway, domains[a.domain].name, time.Since(began).Milliseconds(), e.AIC))
			return nil
		})
	}
	if err := inParallel(jobs); err != nil {
		return err
	}
	return w.runHosts(ctx, agents)
}

// enrol registers one agent with the gateway of its domain, by a token that the gateway's operator made.
func (w *world) enrol(ctx context.Context, a agent) (e enrolled, err error) {
	var token struct {
		Token string `json:"token"`
	}
	g := w.gateways[a.domain]
	if err := control.NewClient(g.control).Call(ctx, "/v1/token", map[string]any{"note": a.name}, &token); err != nil {
		return e, fmt.Errorf("token for %s: %w", a.name, err)
	}
	draft, err := a.acs()
	if err != nil {
		return e, err
	}
	file := filepath.Join(w.dir, a.name+".json")
	if err := os.WriteFile(file, draft, 0o644); err != nil {
		return e, err
	}
	args := []string{"enrol", "--dir", w.hosts[a.home].dir, "--name", a.name, "--acs", file, "--token-file", "-",
		"--visibility", a.visibility, "--listen", "127.0.0.1:0", "-o", "json"}
	if a.program {
		args = append(args, "--stdio", w.program("agents"), "--stdio-arg", a.name)
	}
	out, err := run(ctx, token.Token, "", w.program("agentd"), args...)
	if err != nil {
		return e, fmt.Errorf("enrol %s: %w", a.name, err)
	}
	if err := json.Unmarshal(out, &e); err != nil {
		return e, fmt.Errorf("answer of agentd enrol: %w", err)
	}
	return e, nil
}

// runHosts starts the agentds that have agents.
func (w *world) runHosts(ctx context.Context, agents []agent) error {
	hosted := make([]int, len(hosts))
	for _, a := range agents {
		hosted[a.home]++
	}
	procs := make([]*proc.Process, len(hosts))
	for i, h := range w.hosts {
		if hosted[i] == 0 {
			continue
		}
		p, err := w.procs.Start(h.name, exec.Command(w.program("agentd"), "run", "--config", h.config), nil)
		if err != nil {
			return err
		}
		procs[i] = p
	}
	limit := attachLimit + time.Duration(len(agents))*50*time.Millisecond
	for i, p := range procs {
		if p == nil {
			continue
		}
		if err := w.awaitHost(ctx, w.hosts[i], p, hosted[i], limit); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) awaitHost(ctx context.Context, h host, p *proc.Process, agents int, limit time.Duration) error {
	began := time.Now()
	var missing string
	err := p.Await(ctx, limit, fmt.Sprintf("its %d agents are not all attached", agents), func(ctx context.Context) bool {
		missing = h.detached(ctx, agents)
		return missing == ""
	})
	if err != nil {
		return failure(p, fmt.Sprintf("%v (%s)", err, missing))
	}
	w.out.say(fmt.Sprintf("%s runs (pid %d) with %s, all attached; waited %d ms",
		h.name, p.PID(), count(agents, "agent"), time.Since(began).Milliseconds()))
	return nil
}

// detached says what is missing until all agents of the host can be reached, "" when they can.
func (h host) detached(ctx context.Context, want int) string {
	var s struct {
		Agents []struct {
			Name     string `json:"name"`
			Attached bool   `json:"attached"`
			Error    string `json:"error"`
			Backend  string `json:"backend"`
		} `json:"agents"`
	}
	if err := control.NewClient(h.control).Call(ctx, "/v1/status", struct{}{}, &s); err != nil {
		return err.Error()
	}
	if len(s.Agents) < want {
		return fmt.Sprintf("it serves %d of %d", len(s.Agents), want)
	}
	for _, a := range s.Agents {
		if !a.Attached {
			return strings.TrimSpace(a.Name + " is not attached " + a.Error)
		}
		if a.Backend == "stopped" {
			return "the program of " + a.Name + " does not run"
		}
	}
	return ""
}
