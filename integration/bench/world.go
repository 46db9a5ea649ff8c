package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/integration/proc"
	"agentgw/internal/endpoint"
)

const (
	startLimit = 15 * time.Second
	exactWant  = 1
	logTail    = 10 // lines shown of a process when something fails
)

// raisedLimits would refuse the load of a bench at their defaults.
const raisedLimits = "limits: {handshake_rate: 100000, enrol_rate: 100000, update_rate: 100000, agent_request_rate: 1000000, peer_request_rate: 1000000}"

// world is everything that runs during the bench.
type world struct {
	dir, program string
	procs        proc.Set
	ep           *endpoint.Endpoint // of the agents that the bench plays
	a, b         *gateway
	agents       []*agent
	floor        *floorClient // one server
	chain        *floorClient // the first of two
	putters      []*floorClient
	enroller     *floorEnroller
	parties      []*party // initiators of sessions
	stopAlive    func()
}

// gateway is one running gatewayd.
type gateway struct {
	domain, config, control, listen string
	Bundle                          string `json:"bundle"`
}

func newWorld(dir, program string) (*world, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	ep, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent})
	return &world{dir: dir, program: program, procs: proc.Set{Logs: dir}, ep: ep, stopAlive: func() {}}, err
}

// close ends the connections, then the processes.
func (w *world) close() {
	w.stopAlive()
	ctx, cancel := context.WithTimeout(context.Background(), proc.StopGrace)
	defer cancel()
	for _, p := range w.parties {
		p.agent.Close(ctx)
	}
	for _, f := range append(w.putters, w.floor, w.chain) {
		if f != nil {
			f.close()
		}
	}
	if w.enroller != nil {
		w.enroller.close()
	}
	w.ep.Close(ctx)
	w.procs.Stop()
}

// pids are the children.
func (w *world) pids() (out []int) {
	for _, p := range w.procs.Processes() {
		if !p.Ended() {
			out = append(out, p.PID())
		}
	}
	return out
}

// tails are the ends of the children's logs.
func (w *world) tails() string {
	var b strings.Builder
	for _, p := range w.procs.Processes() {
		if text := p.Tail(logTail); text != "" {
			fmt.Fprintf(&b, "\nend of the log of %s:\n%s", p.Name(), text)
		}
	}
	return b.String()
}

// rows starts everything and returns what is to be measured.
func (w *world) rows(ctx context.Context) ([]row, error) {
	if err := w.startGateways(ctx); err != nil {
		return nil, err
	}
	if err := w.startFloors(ctx); err != nil {
		return nil, err
	}
	rows, err := w.resolutions(ctx)
	if err != nil {
		return nil, err
	}
	sessions, err := w.sessions(ctx)
	if err != nil {
		return nil, err
	}
	registrations, err := w.registrations(ctx)
	return append(append(rows, sessions...), registrations...), err
}

// startGateways makes two domains that are peers, and runs their gateways.
func (w *world) startGateways(ctx context.Context) (err error) {
	fmt.Println("gatewayd.yaml of the bench has raised", raisedLimits)
	if w.a, err = w.initGateway(ctx, "a.example"); err != nil {
		return err
	}
	if w.b, err = w.initGateway(ctx, "b.example"); err != nil {
		return err
	}
	if _, err = run(ctx, "", w.program, "peer", "add", "--config", w.b.config, "--bundle", w.a.Bundle); err != nil {
		return err
	}
	if _, err = run(ctx, "", w.program, "peer", "add", "--config", w.a.config, "--bundle", w.b.Bundle, "--address", w.b.listen); err != nil {
		return err
	}
	for _, g := range []*gateway{w.b, w.a} {
		p, err := w.procs.Start("gatewayd-"+g.domain, exec.Command(w.program, "run", "--config", g.config), nil)
		if err != nil {
			return err
		}
		if err := p.AwaitControl(ctx, startLimit, "gatewayd", g.control); err != nil {
			return fmt.Errorf("gateway of %s: %w", g.domain, err)
		}
	}
	return nil
}

func (w *world) initGateway(ctx context.Context, domain string) (*gateway, error) {
	free, err := proc.FreeUDP(1)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(w.dir, domain)
	g := &gateway{
		domain: domain, listen: free[0], config: filepath.Join(dir, "gatewayd.yaml"),
		control: filepath.Join(dir, "state", "control.sock"),
	}
	out, err := run(ctx, "", w.program, "init", "--dir", dir, "--domain", domain, "--listen", g.listen, "--lab", "-o", "json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, g); err != nil {
		return nil, fmt.Errorf("answer of gatewayd init: %w", err)
	}
	f, err := os.OpenFile(g.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(f, raisedLimits)
	return g, errors.Join(err, f.Close())
}

// startFloors starts two floor servers, the first of which has the second behind it.
func (w *world) startFloors(ctx context.Context) error {
	_, end, err := w.spawn("floor-end", "-serve", "floor")
	if err != nil {
		return err
	}
	_, middle, err := w.spawn("floor-middle", "-serve", "floor", "-next", end)
	if err != nil {
		return err
	}
	if w.floor, err = dialFloor(ctx, end); err != nil {
		return err
	}
	w.chain, err = dialFloor(ctx, middle)
	return err
}

// resolutions registers the agents and returns the rows of semantic requests. The first agent of the corpus asks.
func (w *world) resolutions(ctx context.Context) ([]row, error) {
	list := corpus()
	for i, skills := range list {
		a, err := w.join(ctx, w.a, fmt.Sprintf("Corpus %d", i), directory.VisibleDomain, skills)
		if err != nil {
			return nil, err
		}
		w.agents = append(w.agents, a)
	}
	away := skill{
		ID: "buy-medicine", Name: "Buy medicine", Description: "Buys the medicine of a prescription at the pharmacy that has it at the lowest price.",
		Tags: []string{"shopping"},
	}
	far, err := w.join(ctx, w.b, "Medicine agent", directory.VisiblePublic, []skill{away})
	if err != nil {
		return nil, err
	}
	asker, err := w.join(ctx, w.a, "Assistant", directory.VisiblePrivate, []skill{{ID: "assist", Name: "Assist", Description: "Asks others.", Tags: []string{}}})
	if err != nil {
		return nil, err
	}
	w.agents = append(w.agents, far, asker)
	w.stopAlive = keepAlive(w.agents)

	known := list[capOrigin/2]
	exact, text := known[7], known[9]
	exactCap := directory.CapID(w.agents[capOrigin/2].aic, exact.ID)
	byID, err := newQuestion(semreq.Query{Caps: []string{exactCap}}, exactWant)
	if err != nil {
		return nil, err
	}
	byText, err := newQuestion(semreq.Query{Text: text.Name}, semreq.DefaultWant)
	if err != nil {
		return nil, err
	}
	hop, err := newQuestion(semreq.Query{Text: "buy medicine at a pharmacy"}, exactWant)
	if err != nil {
		return nil, err
	}
	if err := asker.expect(ctx, byID, exactCap, 0); err != nil {
		return nil, err
	}
	if err := asker.expect(ctx, byText, directory.CapID(w.agents[capOrigin/2].aic, text.ID), 0); err != nil {
		return nil, err
	}
	if err := asker.expect(ctx, hop, directory.CapID(far.aic, away.ID), 1); err != nil {
		return nil, err
	}
	ask := func(q *question) op { return timed(func(ctx context.Context) error { return asker.ask(ctx, q) }) }
	payload := make([]byte, floorQuery)
	return []row{
		{
			name: "local resolve by exact id", bar: 1.5, blocks: 300, ours: ask(byID),
			floor: timed(func(context.Context) error { return w.floor.ask(w.floor.exact, exact.ID) }),
		},
		{
			name: "local resolve by text, 4096 capabilities", bar: 3, blocks: 300, ours: ask(byText),
			floor: timed(func(context.Context) error { return w.floor.ask(w.floor.text, text.Name) }),
		},
		{
			name: "1-hop resolve", bar: 1.3, blocks: 300, ours: ask(hop),
			floor: timed(func(ctx context.Context) error {
				_, err := w.chain.call(ctx, floorChain, payload)
				return err
			}),
		},
	}, nil
}
