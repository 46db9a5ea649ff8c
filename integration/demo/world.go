package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"agentgw/integration/proc"
	"agentgw/internal/control"
)

const (
	startLimit  = 15 * time.Second
	attachLimit = 15 * time.Second
	digestLimit = 20 * time.Second
	settleTime  = 1500 * time.Millisecond // more than a gateway waits before it announces a change
	atOnce      = 4                       // verbs that run at the same time
)

// world is everything that the demo has started.
type world struct {
	dir, bin string
	out      *narrator
	procs    *proc.Set
	gateways []*gateway // as domains
	relays   []*relay   // as links
	hosts    []host     // as hosts

	mu    sync.Mutex        // guards names
	names map[string]string // AIC -> how people call it
}

// gateway is one running gatewayd.
type gateway struct {
	domain
	dir, config, control, listen string
	AIC                          string `json:"gateway"`
	Bundle                       string `json:"bundle"`
}

// host is the folder of one agentd.
type host struct{ name, dir, config, control string }

func newWorld(out *narrator) (*world, error) {
	dir, err := proc.TempDir("agentgw-demo-")
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, bin: filepath.Join(dir, "bin"), out: out, procs: &proc.Set{Logs: filepath.Join(dir, "log")}, names: map[string]string{}}
	for _, name := range hosts {
		d := filepath.Join(dir, name)
		w.hosts = append(w.hosts, host{name, d, filepath.Join(d, "agentd.yaml"), filepath.Join(d, "state", "control.sock")})
	}
	if err := os.Mkdir(w.procs.Logs, 0o755); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return w, nil
}

// close stops everything and removes the temporary folder. It may be called twice.
func (w *world) close() {
	w.procs.Stop("agentd", "gatewayd") // agents' daemons before the gateways that they are attached to
	for _, r := range w.relays {
		r.close()
	}
	w.relays = nil
	os.RemoveAll(w.dir)
}

func (w *world) program(name string) string { return filepath.Join(w.bin, name) }

// name is how people call whoever has an AIC.
func (w *world) name(aic string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.names[aic]; n != "" {
		return n
	}
	return aic
}

func (w *world) call(aic, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[aic] = name
}

// inParallel runs jobs, a few at a time, and returns what failed.
func inParallel(jobs []func() error) error {
	slots := make(chan struct{}, atOnce)
	errs := make([]error, len(jobs))
	var all sync.WaitGroup
	for i, job := range jobs {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = job()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// startGateways makes three domains, peers them along the two links, and runs their gateways. extra is added to each
// configuration.
func (w *world) startGateways(ctx context.Context, extra string) error {
	w.out.headline("Three domains, each with its own certificate authority and gateway")
	ports, err := proc.FreeUDP(len(domains))
	if err != nil {
		return err
	}
	var jobs []func() error
	for i, d := range domains {
		dir := filepath.Join(w.dir, strings.ToLower(d.gateway))
		g := &gateway{domain: d, dir: dir, config: filepath.Join(dir, "gatewayd.yaml"), control: filepath.Join(dir, "state", "control.sock"), listen: ports[i]}
		w.gateways = append(w.gateways, g)
		jobs = append(jobs, func() error { return w.initGateway(ctx, g, extra) })
	}
	if err := inParallel(jobs); err != nil {
		return err
	}
	if err := w.peerGateways(ctx); err != nil {
		return err
	}
	return w.runGateways(ctx)
}

// runGateways starts the gateways: those that are dialled first, so that nobody has to dial twice.
func (w *world) runGateways(ctx context.Context) error {
	isDialler := func(i int) bool { return slices.ContainsFunc(links, func(l link) bool { return l.dialer == i }) }
	for _, diallers := range []bool{false, true} {
		procs := map[int]*proc.Process{}
		for i, g := range w.gateways {
			if isDialler(i) != diallers {
				continue
			}
			p, err := w.procs.Start("gatewayd-"+g.gateway, exec.Command(w.program("gatewayd"), "run", "--config", g.config), nil)
			if err != nil {
				return err
			}
			procs[i] = p
		}
		for i, p := range procs {
			if err := w.awaitGateway(ctx, w.gateways[i], p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) initGateway(ctx context.Context, g *gateway, extra string) error {
	began := time.Now()
	out, err := run(ctx, "", "", w.program("gatewayd"), "init", "--dir", g.dir, "--domain", g.name, "--listen", g.listen, "--lab", "-o", "json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, g); err != nil {
		return fmt.Errorf("answer of gatewayd init: %w", err)
	}
	w.call(g.AIC, g.gateway)
	if extra != "" {
		if err := appendFile(g.config, extra); err != nil {
			return err
		}
	}
	w.out.say(fmt.Sprintf("%s: domain %s made in %d ms, gateway %s on %s",
		g.gateway, g.name, time.Since(began).Milliseconds(), g.AIC, g.listen))
	return nil
}

func appendFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// peerGateways writes the policy rows: who dials pays, as a customer of the gateway between, and takes from it the bundles of
// the domains behind.
func (w *world) peerGateways(ctx context.Context) error {
	var jobs []func() error
	for _, l := range links {
		dialer, target := w.gateways[l.dialer], w.gateways[l.target]
		r, err := newRelay(target.listen)
		if err != nil {
			return err
		}
		w.relays = append(w.relays, r)
		jobs = append(jobs, func() error {
			if err := w.addPeer(ctx, dialer, target, "--address", r.addr(), "--role", "provider", "--introduces", "*.example", "--first-use", "auto"); err != nil {
				return err
			}
			return w.addPeer(ctx, target, dialer, "--role", "customer", "--transit")
		})
	}
	return inParallel(jobs)
}

func (w *world) addPeer(ctx context.Context, g, peer *gateway, policy ...string) error {
	args := append([]string{"peer", "add", "--config", g.config, "--bundle", peer.Bundle}, policy...)
	if _, err := run(ctx, "", "", w.program("gatewayd"), args...); err != nil {
		return err
	}
	w.out.say(fmt.Sprintf("%s trusts the bundle of %s (%s): %s", g.gateway, peer.gateway, peer.name, strings.Join(policy, " ")))
	return nil
}

func (w *world) awaitGateway(ctx context.Context, g *gateway, p *proc.Process) error {
	began := time.Now()
	if err := p.AwaitControl(ctx, startLimit, g.gateway, g.control); err != nil {
		return failure(p, err.Error())
	}
	w.out.say(fmt.Sprintf("%s runs (pid %d), waited %d ms", g.gateway, p.PID(), time.Since(began).Milliseconds()))
	return nil
}

// gatewayStatus is the part of `gatewayd status` that the demo looks at.
type gatewayStatus struct {
	Agents   int          `json:"agents"`
	Attached int          `json:"attached"`
	Peers    []peerStatus `json:"peers"`
}

type peerStatus struct {
	Domain string `json:"domain"`
	State  string `json:"state"`
	Acked  bool   `json:"acked"`
	Error  string `json:"error"`
}

func (g *gateway) status(ctx context.Context) (s gatewayStatus, err error) {
	err = control.NewClient(g.control).Call(ctx, "/v1/status", struct{}{}, &s)
	return s, err
}

// awaitDigests waits until each gateway's digests are with its neighbours, and each gateway has heard the labels of every
// domain, by domain name.
func (w *world) awaitDigests(ctx context.Context, labels map[string][]string) error {
	w.out.headline("The gateways exchange what their agents can do (CDSP digests)")
	began := time.Now()
	var missing string
	err := proc.Until(ctx, digestLimit, "the digests are not acknowledged", func(ctx context.Context) (bool, error) {
		var err error
		missing, err = w.undelivered(ctx, labels)
		return missing == "" && err == nil, err
	})
	if err != nil {
		return fmt.Errorf("%w: %s\n%s", err, missing, w.gatewayLogs())
	}
	w.out.say(fmt.Sprintf("all digests acknowledged after %d ms: AG1 knows of pharmacy.example, and AG2 of hospital.example, through AG3 only",
		time.Since(began).Milliseconds()))
	return nil
}

// undelivered says what is not yet where it belongs, "" when all is.
func (w *world) undelivered(ctx context.Context, labels map[string][]string) (string, error) {
	for _, g := range w.gateways {
		known, err := g.labels(ctx)
		if err != nil {
			return "", err
		}
		for _, d := range domains {
			for _, l := range labels[d.name] {
				if !known[d.name][l] {
					return fmt.Sprintf("%s has no digest of %s with %q", g.gateway, d.name, l), nil
				}
			}
		}
		s, err := g.status(ctx)
		if err != nil {
			return "", err
		}
		for _, p := range s.Peers {
			if p.State != "up" || !p.Acked {
				return fmt.Sprintf("%s to %s is %s, acked %v %s", g.gateway, p.Domain, p.State, p.Acked, p.Error), nil
			}
		}
	}
	return "", nil
}

// labels are the labels that a gateway has heard of each domain.
func (g *gateway) labels(ctx context.Context) (map[string]map[string]bool, error) {
	var rows []struct {
		Domain string `json:"domain"`
		Label  string `json:"label"`
		Stale  bool   `json:"stale"`
	}
	if err := control.NewClient(g.control).Call(ctx, "/v1/digests", struct{}{}, &rows); err != nil {
		return nil, err
	}
	out := map[string]map[string]bool{}
	for _, r := range rows {
		if out[r.Domain] == nil {
			out[r.Domain] = map[string]bool{}
		}
		out[r.Domain][strings.ToLower(r.Label)] = !r.Stale
	}
	return out, nil
}

// settle waits until the digests have been acknowledged for a while without a break: what is registered in a burst is
// announced in parts.
func (w *world) settle(ctx context.Context) error {
	since := time.Now()
	return proc.Until(ctx, digestLimit, "the digests do not settle", func(ctx context.Context) (bool, error) {
		missing, err := w.undelivered(ctx, nil)
		if missing != "" {
			since = time.Now()
		}
		return time.Since(since) > settleTime, err
	})
}

// labelsOf are what the gateways will say of agents: the tags of the public ones, by domain name.
func labelsOf(agents []agent) map[string][]string {
	out := map[string][]string{}
	for _, a := range agents {
		for _, s := range a.skills {
			if a.visibility == "public" {
				name := domains[a.domain].name
				out[name] = append(out[name], s.Tags...)
			}
		}
	}
	return out
}

func (w *world) gatewayLogs() string {
	var b strings.Builder
	for _, g := range w.gateways {
		text, _ := os.ReadFile(filepath.Join(w.procs.Logs, "gatewayd-"+g.gateway+".log")) // without a log there is less to tell
		fmt.Fprintf(&b, "end of the log of %s:\n%s\n", g.gateway, proc.Tail(text, logTail))
	}
	return b.String()
}

// kept is what -keep leaves to look at.
func (w *world) kept() *keepReport {
	k := &keepReport{Bin: w.bin, PIDs: []int{}}
	for _, p := range w.procs.Processes() {
		k.PIDs = append(k.PIDs, p.PID())
	}
	for _, g := range w.gateways {
		k.Gateways = append(k.Gateways, keptGateway{g.gateway, g.control})
	}
	return k
}

// invite lists commands to try.
func (w *world) invite(o options) {
	if o.json {
		return
	}
	w.out.headline("Everything keeps running until Ctrl-C; try, in another terminal:")
	for _, g := range w.gateways {
		w.out.text(fmt.Sprintf("  %s status --control %s   # %s", w.program("gatewayd"), g.control, g.gateway))
	}
	me := w.hosts[assistantHost].control
	w.out.text(fmt.Sprintf("  %s digests --control %s", w.program("gatewayd"), w.gateways[0].control))
	w.out.text(fmt.Sprintf("  %s agents --control %s", w.program("gatewayd"), w.gateways[2].control))
	w.out.text(fmt.Sprintf("  %s resolve --control %s --agent assistant buy medicine", w.program("agentd"), me))
}
