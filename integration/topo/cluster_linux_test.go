package topo

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"
)

// clustered is a world whose transit domain has three gateways, each on a host of its own:
//
//	agentd a ── AG1 ── wan ── T1, T2, T3 ── wan ── AG2 ── agentd b
//	                          └── lan ──┘
//
// AG1 dials T1 first and AG2 T3: what passes between them passes the lan too.
type clustered struct {
	*world
	transit [3]*node
}

func newClustered(t *testing.T) *clustered {
	t.Helper()
	dir := prepare(t)
	w := &clustered{world: &world{t: t}}
	w.ag1, w.ag2 = newNode(t, dir, "AG1", "gatewayd"), newNode(t, dir, "AG2", "gatewayd")
	w.a, w.b = newNode(t, dir, "a", "agentd"), newNode(t, dir, "b", "agentd")
	for n := range w.transit {
		w.transit[n] = newNode(t, dir, fmt.Sprintf("T%d", n+1), "gatewayd")
	}
	w.wire()
	w.begin(filepath.Join(dir, "gossip.keys"))
	return w
}

func (w *clustered) wire() {
	wires, err := NewWires()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(wires.Close)
	port := func(n *node, addr string) Port { return Port{n.Namespace, netip.MustParsePrefix(addr + "/24")} }
	link := func(name string, ports ...Port) *Net {
		l, err := wires.Connect(name, ports...)
		if err != nil {
			w.t.Fatal(err)
		}
		return l
	}
	wan, lan := []Port{port(w.ag1, "10.89.0.1"), port(w.ag2, "10.89.0.2")}, []Port{}
	for n, g := range w.transit {
		wan, lan = append(wan, port(g, wanOf(n))), append(lan, port(g, lanOf(n)))
	}
	link("wan", wan...)
	link("lan", lan...)
	link("a1", port(w.a, "10.89.1.11"), port(w.ag1, "10.89.1.1"))
	link("b2", port(w.b, "10.89.2.12"), port(w.ag2, "10.89.2.2"))
	w.street = link("street", port(w.a, addrA), port(w.b, addrB))
	for _, err := range []error{w.ag1.Route(netip.MustParseAddr(addrA), "a1"), w.ag2.Route(netip.MustParseAddr(addrB), "b2")} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func wanOf(n int) string { return fmt.Sprintf("10.89.0.3%d", n+1) }
func lanOf(n int) string { return fmt.Sprintf("10.89.3.%d", n+1) }

// begin makes the domains, the first transit gateway being the AMC of the others, and starts everything.
func (w *clustered) begin(keys string) {
	w.t.Helper()
	first := w.transit[0]
	first.must("cluster", "key", "--out", keys)
	for n, row := range map[*node][2]string{w.ag1: {"hospital.example", "10.89.1.1:4433"}, w.ag2: {"pharmacy.example", "10.89.2.2:4433"}, first: {"transit.example", lanOf(0) + listen}} {
		n.must("init", "--dir", n.dir, "--domain", row[0], "--listen", "0.0.0.0"+listen, "--advertise", row[1], "--lab")
	}
	for n, g := range w.transit {
		if n > 0 {
			token := first.must("token", "create", "--for", "gateway")
			if out, exit := g.call(token, "join", "--dir", g.dir, "--token-file", "-", "--listen", "0.0.0.0"+listen, "--advertise", lanOf(n)+listen, "--lab"); exit != 0 {
				w.t.Fatalf("join of %s ended with %d:\n%s", g.Name, exit, out)
			}
		}
		g.configure(fmt.Sprintf("cluster: {listen: %q, keys: %q, seeds: [%q, %q]}\n", lanOf(n)+":7946", keys, lanOf(0)+":7946", lanOf(1)+":7946"))
		g.start()
		until(w.t, 10*time.Second, g.Name+" runs", func() bool { _, exit := g.call("", "status"); return exit == 0 })
	}
	bundle := func(n *node) string { return filepath.Join(n.dir, "state", "bundle.cbor") }
	for _, g := range w.transit {
		for _, n := range []*node{w.ag1, w.ag2} {
			g.must("peer", "add", "--bundle", bundle(n), "--role", "customer", "--transit")
		}
	}
	for n, order := range map[*node][3]int{w.ag1: {0, 1, 2}, w.ag2: {2, 1, 0}} {
		args := []string{"peer", "add", "--bundle", bundle(first), "--role", "provider", "--introduces", "*.example", "--first-use", "auto"}
		for _, at := range order {
			args = append(args, "--address", wanOf(at)+listen)
		}
		n.must(args...)
		n.start()
		n.must("status", "--wait", "15s")
	}
	w.enrol(w.a, w.ag1, addrA, "assistant", quickstart+"assistant.acs.json")
	w.pharmacist = w.enrol(w.b, w.ag2, addrB, "pharmacy", quickstart+"pharmacy.acs.json", "--stdio", filepath.Join(binaries, "agents"), "--stdio-arg", "medicine")
	for _, n := range []*node{w.a, w.b} {
		n.start()
		n.must("status", "--wait", "10s")
	}
}

// members is how many gateways of its domain a gateway is connected to, and how many are alive.
func (n *node) members() (connected, alive int) {
	n.t.Helper()
	var rows []struct{ Session string }
	if err := json.Unmarshal([]byte(n.must("members", "-o", "json")), &rows); err != nil {
		n.t.Fatal(err)
	}
	for _, m := range rows {
		if m.Session == "up" {
			connected++
		}
	}
	return connected, len(rows)
}

// finds says whether the medicine is found from afar.
func (w *clustered) finds() bool {
	r, exit, _ := w.resolve(sore, 2*time.Second)
	return exit == 0 && len(r.Results) > 0 && r.Results[0].AIC == w.pharmacist
}

// TestScenarioClusterLosesGateways: of a transit domain's three gateways one after the other is killed and comes back; its neighbours go to the
// others, and what has to pass between two of them passes. Nothing is found that should not be, and a request that fails says why.
func TestScenarioClusterLosesGateways(t *testing.T) {
	t.Parallel()
	w := newClustered(t)
	for _, g := range w.transit {
		until(t, 15*time.Second, g.Name+" is connected to the two others", func() bool { c, alive := g.members(); return c == 2 && alive == 3 })
	}
	until(t, 15*time.Second, "the medicine is found by way of two gateways of one domain", w.finds)
	w.mustComplete()
	for n, g := range w.transit {
		g.process.Kill()
		killed := time.Now()
		other := w.transit[(n+1)%3]
		until(t, 5*time.Second, g.Name+" is missed by the others", func() bool { _, alive := other.members(); return alive == 2 })
		for !w.finds() {
			if r, _, _ := w.resolve(sore, time.Second); r.Code == "00" && len(r.Results) > 0 && r.Results[0].AIC != w.pharmacist {
				t.Fatalf("another agent was found: %+v", r)
			}
			if time.Since(killed) > 45*time.Second { // its neighbours' hold timer, and their way to another gateway
				t.Fatalf("the medicine is not found %v after %s died", time.Since(killed), g.Name)
			}
		}
		t.Logf("found again %v after %s died", time.Since(killed).Round(time.Millisecond), g.Name)
		g.start()
		until(t, 60*time.Second, g.Name+" is back", func() bool { c, alive := other.members(); return c == 2 && alive == 3 })
	}
	until(t, 20*time.Second, "the medicine is found", w.finds)
	w.mustComplete()
}
