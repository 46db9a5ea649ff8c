// Package app is agentd put together: it translates the configuration into each package's own settings, wires the hosted
// agents to one socket, and starts and stops them. See ARCHITECTURE.md for the journey of a request through these parts.
package app

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"agentgw/a2a"
	"agentgw/a2a/task"
	"agentgw/agentd/internal/local"
	"agentgw/agentd/internal/state"
	"agentgw/config"
	"agentgw/directory/semreq"
	"agentgw/internal/audit"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
	"agentgw/internal/discovery"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

const (
	drainTime  = 10 * time.Second
	purgeEvery = 10 * time.Minute
)

// app is a running agentd.
type app struct {
	cfg     *config.Agent
	log     *slog.Logger
	started time.Time
	ctx     context.Context // of every hosted agent; ends when the daemon stops
	running sync.WaitGroup
	db      *state.DB
	audit   *audit.Log
	damage  string // of the audit log, as the start has found it
	ep      *endpoint.Endpoint
	finder  *discovery.Resolver
	host    a2a.Host

	changing sync.Mutex // one change of the set of agents at a time
	mu       sync.Mutex // guards agents
	agents   []*agent
}

// Run runs the daemon until SIGINT or SIGTERM.
func Run(cfg *config.Agent, stderr io.Writer) error {
	log, err := daemon.NewLogger(stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	ctx, cancel := daemon.SignalContext(log)
	defer cancel()
	var cleanup daemon.Cleanup
	err = start(ctx, cfg, log, &cleanup)
	if err == nil {
		defer daemon.Ready(ctx, log)()
		<-ctx.Done()
	}
	cancel()
	return errors.Join(err, cleanup.Run())
}

func start(ctx context.Context, cfg *config.Agent, log *slog.Logger, cleanup *daemon.Cleanup) error {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	a := &app{cfg: cfg, log: log, started: time.Now(), ctx: ctx}
	var err error
	if a.db, err = openDB(cfg, log); err != nil {
		return err
	}
	cleanup.Add("close database", drainTime, func(context.Context) error { return a.db.Close() })
	if err := a.openAudit(cleanup); err != nil {
		return err
	}
	a.ep, err = endpoint.Open(endpoint.Config{
		Addr: cfg.Listen, StateDir: cfg.StateDir, Profile: endpoint.Agent, Faces: []endpoint.Face{a.host.Face()}, Log: log,
	})
	if err != nil {
		return err
	}
	cleanup.Add("close socket", drainTime, a.ep.Close)
	a.finder = newResolver(cfg.DNS)
	cleanup.Add("end look-ups", drainTime, func(context.Context) error {
		a.finder.Close()
		return nil
	})
	cleanup.Add("stop agents", drainTime, a.stop)
	if err := a.Reload(ctx); err != nil {
		return err
	}
	if len(a.agents) == 0 {
		log.Warn("no agent is configured; `agentd enrol` adds one", "agents_dir", cfg.AgentsDir)
	}
	a.running.Go(a.purge)
	a.running.Go(a.markAudit)
	socket, err := control.Listen(cfg.Control, local.Handler(a))
	if err != nil {
		return err
	}
	cleanup.Add("close control socket", drainTime, socket.Close)
	log.Info("agentd serves", "listen", a.ep.Addr().String(), "agents", len(a.agents), "version", daemon.Version())
	return nil
}

// stop ends the sessions, then waits for everything that belongs to an agent.
func (a *app) stop(ctx context.Context) error {
	var sessions sync.WaitGroup
	for _, ag := range a.list() {
		sessions.Go(func() { ag.a2a.Close(ctx) })
	}
	sessions.Wait()
	a.running.Wait()
	return nil
}

func (a *app) purge() {
	tick := time.NewTicker(purgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case now := <-tick.C:
			if err := a.db.Purge(now); err != nil {
				a.log.Warn("purge of old outcomes", "err", err)
			}
		}
	}
}

func (a *app) list() []*agent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.agents)
}

// Reload starts every configured agent that does not run yet, and starts anew one that was enrolled again since: it is another
// agent under the same name. The others are left as they are.
func (a *app) Reload(context.Context) error {
	rows, err := config.LoadLocalAgents(a.cfg.AgentsDir)
	if err != nil {
		return &daemon.UsageError{Err: err}
	}
	a.changing.Lock()
	defer a.changing.Unlock()
	running := a.list()
	for _, row := range rows {
		i := slices.IndexFunc(running, func(ag *agent) bool { return ag.name == row.Name })
		if i >= 0 && running[i].cred.sameAs(a.cfg.StateDir, row.Name) {
			continue
		}
		if done, err := finish(a.cfg, row.Name); err != nil {
			return err
		} else if done {
			a.log.Info("an enrolment that was cut short is in its place now", "agent", row.Name)
		}
		cred, err := load(a.cfg.StateDir, row.Name)
		if err != nil {
			return err
		}
		if i >= 0 {
			a.log.Info("agent was enrolled again: the one before is stopped", "agent", row.Name, "before", running[i].cred.AIC, "aic", cred.AIC)
			a.drop(running[i])
		}
		ag, err := newAgent(row, cred, a.cfg.StateDir, a.ep, a.db, a.finder, a.listening, a.record, a.log)
		if err != nil {
			return fmt.Errorf("agent %s: %w", row.Name, err)
		}
		if err := a.recordServed(ag); err != nil {
			return err
		}
		a.host.Add(ag.a2a, ag.client.Certificate)
		ag.run(a.ctx, &a.running)
		a.mu.Lock()
		a.agents = append(a.agents, ag)
		a.mu.Unlock()
	}
	return nil
}

// drop stops an agent for good, its sessions and its program with it, and returns when nothing of it runs any more. What runs in
// its sessions is cut: its identity counts no more.
func (a *app) drop(ag *agent) {
	a.mu.Lock()
	a.agents = slices.DeleteFunc(a.agents, func(x *agent) bool { return x == ag })
	a.mu.Unlock()
	ag.a2a.RevokeAll(frame.Shutdown, "the agent is served no more")
	ctx, cancel := context.WithTimeout(a.ctx, drainTime)
	defer cancel()
	ag.a2a.Close(ctx)
	ag.stop()
	a.host.Remove(ag.a2a)
}

// listening is where the hosted agents take sessions.
func (a *app) listening() []semreq.Endpoint {
	if len(a.cfg.Advertise) == 0 {
		return interfaces(a.ep.Addr())
	}
	var out []semreq.Endpoint
	for _, hp := range a.cfg.Advertise {
		if e, ok := parseEndpoint(hp); ok {
			out = append(out, e)
		}
	}
	return out
}

// find is the agent that a call names, or the only one.
func (a *app) find(name string) (*agent, error) {
	all := a.list()
	if name == "" && len(all) == 1 {
		return all[0], nil
	}
	var names []string
	for _, ag := range all {
		if ag.name == name {
			return ag, nil
		}
		names = append(names, ag.name)
	}
	if name == "" {
		return nil, frame.Errorf(frame.ReqInvalid, "this daemon serves %d agents: say which one with --agent (%s)", len(all), strings.Join(names, ", "))
	}
	return nil, frame.Errorf(frame.NotFound, "no agent %q here (%s)", name, strings.Join(names, ", "))
}

// Status implements local.Daemon.
func (a *app) Status() local.Status {
	s := local.Status{
		Version: daemon.Version(), Listen: a.ep.Addr().String(), UptimeS: int64(time.Since(a.started).Seconds()),
		Agents: []local.AgentStatus{}, Audit: or(a.damage, "ok"),
	}
	for _, ag := range a.list() {
		s.Agents = append(s.Agents, ag.status())
	}
	return s
}

// Resolve implements local.Daemon.
func (a *app) Resolve(ctx context.Context, r local.ResolveRequest) (*semreq.Outcome, error) {
	ag, err := a.find(r.Agent)
	if err != nil {
		return nil, err
	}
	return ag.resolve(ctx, r.Ask)
}

// RunTask implements local.Daemon.
func (a *app) RunTask(ctx context.Context, r local.TaskRequest, emit func(local.TaskEvent)) error {
	ag, err := a.find(r.Agent)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ag.ctx, cancel) // it ends with its agent
	defer stop()
	engine := *ag.engine
	engine.Events = func(e task.Event) { emit(taskEvent(e)) }
	id, state, err := runOrResume(ctx, &engine, r)
	if err != nil {
		return err
	}
	done := local.TaskEvent{Event: "done", Task: id, State: encode(state)}
	if why := state.Reason(); why != nil {
		done.Failed = &local.Failure{Code: why.Code.Hex(), Message: why.Message}
	}
	emit(done)
	return nil
}

func runOrResume(ctx context.Context, e *task.Engine, r local.TaskRequest) (id string, state *task.State, err error) {
	if r.Resume != "" {
		state, err = e.Resume(ctx, r.Resume)
		return r.Resume, state, err
	}
	plan, err := task.LoadPlan(strings.NewReader(r.Plan))
	if err != nil {
		return "", nil, frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	raw := local.NewID()
	id = hex.EncodeToString(raw[:])
	state, err = e.Run(ctx, id, plan)
	return id, state, err
}

func taskEvent(e task.Event) local.TaskEvent {
	out := local.TaskEvent{Task: e.TaskID, Subtask: encode(e.Subtask), Note: e.Note}
	switch e.Kind {
	case task.Started:
		out.Event = "started"
	case task.Progress:
		out.Event, out.Items = "progress", encode(e.Items)
	default:
		out.Event = "ended"
	}
	return out
}
