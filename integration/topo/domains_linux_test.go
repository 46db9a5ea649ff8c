package topo

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// domains is a world of three domains with three gateways and an agent each, twelve nodes:
//
//	hospital H1 H2 H3, agentd a ── hub ── transit T1 T2 T3, agentd c
//	                                └──── pharmacy P1 P2 P3, agentd b
//
// A domain's nodes are on one link; the hub between them delays and loses. The hospital and the transit domain know each other's addresses by DNS
// alone, of which the first gateway of each is the server; the pharmacy's are configured.
type domains struct {
	*world
	of   [3]domain
	c    *node
	hub  *Hub
	asks *asking
}

type domain struct {
	name     string
	gateways [3]*node
	agent    *node
	link     *Net
}

var domainNames = [3]string{"hospital.example", "transit.example", "pharmacy.example"}

const (
	hubDelay  = 30 * time.Millisecond
	hubLoss   = .05
	nameAsked = ":5353" // where the first gateway of a domain answers for its names
)

const (
	hospital = iota
	transit
	pharmacy
)

func nodeAddr(domain, host int) string { return fmt.Sprintf("10.90.%d.%d", domain+1, host) }

func newDomains(t *testing.T) *domains {
	t.Helper()
	dir := prepare(t)
	w := &domains{world: &world{t: t}}
	wires, err := NewWires()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wires.Close)
	var links []*Net
	for d := range w.of {
		at := &w.of[d]
		at.name = domainNames[d]
		at.agent = newNode(t, dir, string("acb"[d]), "agentd")
		ports := []Port{{at.agent.Namespace, netip.MustParsePrefix(nodeAddr(d, 9) + "/16")}}
		for n := range at.gateways {
			at.gateways[n] = newNode(t, dir, fmt.Sprintf("%c%d", "HTP"[d], n+1), "gatewayd")
			ports = append(ports, Port{at.gateways[n].Namespace, netip.MustParsePrefix(nodeAddr(d, n+1) + "/16")})
		}
		if at.link, err = wires.Connect(fmt.Sprintf("domain%d", d), ports...); err != nil {
			t.Fatal(err)
		}
		links = append(links, at.link)
	}
	if w.hub, err = wires.Join(hubDelay, hubLoss, links...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.hub.Close)
	w.a, w.c, w.b = w.of[hospital].agent, w.of[transit].agent, w.of[pharmacy].agent
	for d := range w.of {
		w.found(d, filepath.Join(dir, fmt.Sprintf("gossip%d.keys", d)))
	}
	w.peer()
	w.enrol(w.a, w.of[hospital].gateways[0], nodeAddr(hospital, 9), "assistant", quickstart+"assistant.acs.json")
	w.enrol(w.c, w.of[transit].gateways[0], nodeAddr(transit, 9), "assistant", quickstart+"assistant.acs.json")
	w.pharmacist = w.enrol(w.b, w.of[pharmacy].gateways[0], nodeAddr(pharmacy, 9), "pharmacy", quickstart+"pharmacy.acs.json", "--stdio", filepath.Join(binaries, "agents"), "--stdio-arg", "medicine")
	for _, d := range w.of {
		d.agent.start()
	}
	for _, d := range w.of {
		d.agent.must("status", "--wait", "20s")
	}
	return w
}

// found makes a domain, whose first gateway is the AMC of the others, and starts its gateways.
func (w *domains) found(d int, keys string) {
	w.t.Helper()
	at := w.of[d]
	first := at.gateways[0]
	first.must("cluster", "key", "--out", keys)
	other := [3]int{transit, hospital, transit}[d]
	for n, g := range at.gateways {
		address := nodeAddr(d, n+1)
		if n == 0 {
			g.must("init", "--dir", g.dir, "--domain", at.name, "--listen", "0.0.0.0"+listen, "--advertise", address+listen, "--lab")
		} else {
			token := first.must("token", "create", "--for", "gateway")
			if out, exit := g.call(token, "join", "--dir", g.dir, "--token-file", "-", "--listen", "0.0.0.0"+listen, "--advertise", address+listen, "--lab"); exit != 0 {
				w.t.Fatalf("join of %s ended with %d:\n%s", g.Name, exit, out)
			}
		}
		lines := fmt.Sprintf("cluster: {listen: %q, keys: %q, seeds: [%q, %q]}\n", address+":7946", keys, nodeAddr(d, 1)+":7946", nodeAddr(d, 2)+":7946")
		names := fmt.Sprintf("servers: [%q]", nodeAddr(other, 1)+nameAsked)
		if n == 0 {
			names += fmt.Sprintf(", listen: [%q], host: gw1.%s, names: [gw1.%s], addresses: [%q], ttl: 30s", address+nameAsked, at.name, at.name, address)
		}
		g.configure(lines + "dns: {" + names + "}\n")
		g.start()
		until(w.t, 20*time.Second, g.Name+" runs", func() bool { _, exit := g.call("", "status"); return exit == 0 })
	}
	for _, g := range at.gateways {
		until(w.t, 30*time.Second, g.Name+" is connected to the two others", func() bool { c, alive := g.members(); return c == 2 && alive == 3 })
	}
}

// peer writes the policy rows of all gateways: the transit domain introduces the two others to each other.
func (w *domains) peer() {
	w.t.Helper()
	bundle := func(d int) string { return filepath.Join(w.of[d].gateways[0].dir, "state", "bundle.cbor") }
	for _, g := range w.of[transit].gateways {
		g.must("peer", "add", "--bundle", bundle(hospital), "--role", "customer", "--transit", "--discover")
		g.must("peer", "add", "--bundle", bundle(pharmacy), "--role", "customer", "--transit")
	}
	for _, d := range []int{hospital, pharmacy} {
		for _, g := range w.of[d].gateways {
			args := []string{"peer", "add", "--bundle", bundle(transit), "--role", "provider", "--introduces", "*.example", "--first-use", "auto"}
			if d == hospital {
				args = append(args, "--discover")
			} else {
				for n := range 3 {
					args = append(args, "--address", nodeAddr(transit, n+1)+listen)
				}
			}
			g.must(args...)
		}
	}
}

// asking asks for the medicine again and again.
type asking struct {
	w    *domains
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex // guards what follows
	asked  int
	failed map[string]int // by code
	wrong  []string
	found  time.Time // last time that it was found
}

const askBudget = 2 * time.Second

func (w *domains) ask() *asking {
	a := &asking{w: w, stop: make(chan struct{}), failed: map[string]int{}}
	a.done.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-a.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			began := time.Now()
			r, exit, took := w.resolve(fmt.Sprintf("%s, question %d", sore, n), askBudget)
			a.note(began, r, exit, took)
		}
	})
	return a
}

// note holds an answer: the right agent, or a failure with its reason and in its time.
func (a *asking) note(began time.Time, r resolution, exit int, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	switch {
	case exit == 0 && len(r.Results) > 0:
		for _, x := range r.Results {
			if x.AIC != a.w.pharmacist {
				a.wrong = append(a.wrong, fmt.Sprintf("question %d: found %s", a.asked, x.AIC))
			}
		}
		a.found = began
	case r.Code == "" || r.Code == "00":
		a.wrong = append(a.wrong, fmt.Sprintf("question %d: failed without a reason: exit %d, %+v", a.asked, exit, r))
	default:
		a.failed[r.Code]++
	}
	if took > askBudget+late {
		a.wrong = append(a.wrong, fmt.Sprintf("question %d took %v with a budget of %v: %+v", a.asked, took, askBudget, r))
	}
}

// foundSince says whether the medicine was found by a question that was asked after a time.
func (a *asking) foundSince(at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found.After(at)
}

// end stops, and tells what it was like.
func (a *asking) end() {
	a.w.t.Helper()
	close(a.stop)
	a.done.Wait()
	for _, text := range a.wrong {
		a.w.t.Error(text)
	}
	failed := 0
	for _, n := range a.failed {
		failed += n
	}
	a.w.t.Logf("%d questions, %d failed, by code %v; the hub has lost %d frames", a.asked, failed, a.failed, a.w.hub.Lost.Load())
	if a.asked-failed < 20 || failed == 0 {
		a.w.t.Errorf("%d of %d questions failed: nothing was tried", failed, a.asked)
	}
}

// heals waits until the medicine is found again.
func (w *domains) heals(what string, within time.Duration) {
	w.t.Helper()
	healed := time.Now()
	until(w.t, within, "the medicine is found after "+what, func() bool { return w.asks.foundSince(healed) })
	w.t.Logf("found %v after %s", time.Since(healed).Round(time.Millisecond), what)
}

// converged waits until every gateway is connected to the others of its domain, and hears of the pharmacy, of nothing that is stale.
func (w *domains) converged(within time.Duration) {
	w.t.Helper()
	began := time.Now()
	for _, d := range w.of {
		for _, g := range d.gateways {
			until(w.t, within-time.Since(began), g.Name+" is connected to its domain's others and hears of the pharmacy", func() bool {
				c, alive := g.members()
				if c != 2 || alive != 3 {
					return false
				}
				heard := g.heard("pharmacy.example")
				for _, x := range heard {
					if x.Stale {
						return false
					}
				}
				return d.name == "pharmacy.example" || len(heard) > 0
			})
		}
	}
	w.t.Logf("converged within %v", time.Since(began).Round(time.Millisecond))
}

// home is the gateway of the pharmacy at which its agent is attached.
func (w *domains) home() *node {
	w.t.Helper()
	var found *node
	for _, g := range w.of[pharmacy].gateways {
		if g.process.Ended() {
			continue
		}
		out, exit := g.call("", "agents", "list", "-o", "json")
		var rows []struct {
			AIC      string
			Attached bool
		}
		if exit != 0 || json.Unmarshal([]byte(out), &rows) != nil {
			continue
		}
		for _, r := range rows {
			if r.AIC == w.pharmacist && r.Attached {
				found = g
			}
		}
	}
	return found
}

// TestScenarioNineGateways: three domains of three gateways, with a network between them that delays and loses. Gateways and domains are cut off, one
// way too, a home gateway dies and its agent goes to another one, and a domain is restarted gateway by gateway; requests go on all the time. No
// answer is wrong, each failure comes in time and has its reason, and after each healing everything is as it should be.
func TestScenarioNineGateways(t *testing.T) {
	if os.Getenv("SCENARIOS") != "all" {
		t.Skip("it takes three minutes, alone: `make integration` runs it (SCENARIOS=all)")
	}
	// Not beside the others: twelve daemons have the machine to themselves, whose times are held.
	w := newDomains(t)
	w.converged(60 * time.Second)
	w.asks = w.ask()
	defer w.asks.end()
	w.heals("the start", 30*time.Second)

	// One gateway of the transit domain is cut off.
	cut := w.of[transit].gateways[1]
	if err := cut.Unplug(fmt.Sprintf("domain%d", transit)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	if err := cut.Plug(fmt.Sprintf("domain%d", transit)); err != nil {
		t.Fatal(err)
	}
	w.heals("a gateway was cut off", 15*time.Second)
	w.converged(60 * time.Second)

	// The pharmacy's domain is, for longer than its neighbours hold on to it.
	w.hub.Part(pharmacy, true)
	time.Sleep(35 * time.Second)
	w.hub.Part(pharmacy, false)
	w.heals("a domain was cut off", 15*time.Second)
	w.converged(15 * time.Second)

	// The transit domain does not hear the pharmacy, which hears it.
	w.hub.Mute(pharmacy, transit, true)
	time.Sleep(35 * time.Second)
	w.hub.Mute(pharmacy, transit, false)
	w.heals("one way was cut", 15*time.Second)
	w.converged(15 * time.Second)

	// The home gateway of the pharmacy's agent dies; the agent goes to another one.
	home := w.home()
	if home == nil {
		t.Fatal("the pharmacy's agent is attached nowhere")
	}
	home.process.Kill()
	w.heals("its home gateway died", 60*time.Second)
	next := w.home()
	if next == nil || next == home {
		t.Error("the agent is attached nowhere else")
	}
	home.start()
	until(t, 20*time.Second, home.Name+" runs", func() bool { _, exit := home.call("", "status"); return exit == 0 })
	w.converged(60 * time.Second)
	w.heals("its former home is back", 15*time.Second)

	// Each gateway of the transit domain is restarted in turn.
	for _, g := range w.of[transit].gateways {
		if err := g.process.Stop(); err != nil {
			t.Error(err)
		}
		g.start()
		until(t, 20*time.Second, g.Name+" runs", func() bool { _, exit := g.call("", "status"); return exit == 0 })
		until(t, 60*time.Second, g.Name+" is back", func() bool { c, alive := g.members(); return c == 2 && alive == 3 })
	}
	w.heals("a rolling restart", 15*time.Second)
	w.converged(60 * time.Second) // gossip was apart, in turn
	w.mustComplete()
}
