package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const quickstart = "../testdata/quickstart/"

var binaries string // folder, made by TestMain

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "topo-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries = dir
	return m.Run()
}

// build makes the binaries, once a run.
var build = sync.OnceValue(func() error {
	return Build(binaries, "./gatewayd", "./agentd", "./integration/demo/agents")
})

// node is one daemon in a namespace of its own, with its folder.
type node struct {
	*Namespace
	t       *testing.T
	program string
	dir     string
	config  string
	process *Process // the running daemon, nil for none
}

// world is the topology of every scenario:
//
//	agentd a ── a1 ── AG1 ── ag13 ── AG3 ── ag32 ── AG2 ── b2 ── agentd b
//	    ╚══════════════════════════ street ══════════════════════════╝
//
// No gateway has an interface on the street: what travels there is the agents' own.
type world struct {
	t                   *testing.T
	ag1, ag3, ag2, a, b *node
	ag32, street        *Net
	pharmacist          string // AIC of b's agent
	lines               string // of each gateway's configuration
}

const (
	addrA  = "10.88.9.11" // of the agents on the street; their gateways see them at the same address
	addrB  = "10.88.9.12"
	listen = ":4433"
)

// newWorld makes the namespaces and links, the domains and policy rows, enrols the agents, starts every daemon, and
// returns when the digests of the pharmacy are at the hospital.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, "")
}

// newWorldWith adds lines to each gateway's configuration.
func newWorldWith(t *testing.T, lines string) *world {
	t.Helper()
	return newWorldBehind(t, prepare(t), lines, filepath.Join(binaries, "agents"), "medicine")
}

// newWorldBehind puts a program of the test's own behind the pharmacy's agent.
func newWorldBehind(t *testing.T, dir, lines, program string, args ...string) *world {
	t.Helper()
	w := &world{t: t, lines: lines}
	w.ag1, w.ag3, w.ag2 = newNode(t, dir, "AG1", "gatewayd"), newNode(t, dir, "AG3", "gatewayd"), newNode(t, dir, "AG2", "gatewayd")
	w.a, w.b = newNode(t, dir, "a", "agentd"), newNode(t, dir, "b", "agentd")
	w.wire()
	w.startGateways()
	w.enrol(w.a, w.ag1, addrA, "assistant", quickstart+"assistant.acs.json")
	behind := []string{"--stdio", program}
	for _, arg := range args {
		behind = append(behind, "--stdio-arg", arg)
	}
	w.pharmacist = w.enrol(w.b, w.ag2, addrB, "pharmacy", quickstart+"pharmacy.acs.json", behind...)
	for _, n := range []*node{w.a, w.b} {
		n.start()
		n.must("status", "--wait", "10s")
	}
	w.ag1.must("digests", "--wait", "10s", "--domain", "pharmacy.example")
	return w
}

// prepare builds, and makes a folder for a scenario.
func prepare(t *testing.T) string {
	t.Helper()
	needRoot(t)
	if err := build(); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "topo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// needRoot skips where namespaces cannot be made, and fails instead where CI_ROOT=1 promises that they can.
func needRoot(t *testing.T) {
	t.Helper()
	var err error
	if os.Geteuid() != 0 {
		err = errors.New("not root")
	} else if n, e := NewNamespace("probe"); e != nil {
		err = e
	} else {
		n.Close()
	}
	switch {
	case err != nil && os.Getenv("CI_ROOT") == "1":
		t.Fatalf("network namespaces cannot be made although CI_ROOT=1 promises root: %v", err)
	case err != nil:
		t.Skipf("network namespaces need root: %v", err)
	}
}

func newNode(t *testing.T, dir, name, program string) *node {
	t.Helper()
	ns, err := NewNamespace(name)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Namespace: ns, t: t, program: program, dir: filepath.Join(dir, name)}
	n.config = filepath.Join(n.dir, program+".yaml")
	t.Cleanup(n.close)
	return n
}

// close ends the node; a failed test shows the end of its log.
func (n *node) close() {
	if n.process != nil {
		if err := n.process.Stop(); err != nil {
			n.t.Error(err)
		}
		if n.t.Failed() {
			n.t.Logf("end of the log of %s:\n%s", n.Name, n.process.Tail())
		}
	}
	n.Close()
}

func (w *world) wire() {
	wires, err := NewWires()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(wires.Close)
	link := func(name string, n1 *node, addr1 string, n2 *node, addr2 string) *Net {
		l, err := wires.Connect(name, Port{n1.Namespace, netip.MustParsePrefix(addr1 + "/24")}, Port{n2.Namespace, netip.MustParsePrefix(addr2 + "/24")})
		if err != nil {
			w.t.Fatal(err)
		}
		return l
	}
	link("ag13", w.ag1, "10.88.13.1", w.ag3, "10.88.13.3")
	w.ag32 = link("ag32", w.ag3, "10.88.32.3", w.ag2, "10.88.32.2")
	link("a1", w.a, "10.88.1.11", w.ag1, "10.88.1.1")
	link("b2", w.b, "10.88.2.12", w.ag2, "10.88.2.2")
	w.street = link("street", w.a, addrA, w.b, addrB)
	for _, r := range []error{
		w.ag1.Route(netip.MustParseAddr(addrA), "a1"), w.ag2.Route(netip.MustParseAddr(addrB), "b2"),
	} {
		if r != nil {
			w.t.Fatal(r)
		}
	}
}

func (w *world) startGateways() {
	for n, row := range map[*node][2]string{
		w.ag1: {"hospital.example", "10.88.1.1:4433"}, w.ag3: {"transit.example", "10.88.13.3:4433"}, w.ag2: {"pharmacy.example", "10.88.2.2:4433"},
	} {
		n.must("init", "--dir", n.dir, "--domain", row[0], "--listen", "0.0.0.0"+listen, "--advertise", row[1], "--lab")
		n.configure(w.lines)
	}
	bundle := func(n *node) string { return filepath.Join(n.dir, "state", "bundle.cbor") }
	for n, transit := range map[*node]string{w.ag1: "10.88.13.3", w.ag2: "10.88.32.3"} {
		w.ag3.must("peer", "add", "--bundle", bundle(n), "--role", "customer", "--transit")
		n.must("peer", "add", "--bundle", bundle(w.ag3), "--role", "provider", "--address", transit+listen, "--introduces", "*.example", "--first-use", "auto")
	}
	for _, n := range []*node{w.ag3, w.ag1, w.ag2} {
		n.start()
	}
	for _, n := range []*node{w.ag3, w.ag1, w.ag2} {
		n.must("status", "--wait", "10s")
	}
}

// enrol registers an agent of an agentd and returns its AIC.
func (w *world) enrol(n, gateway *node, addr, name, acs string, extra ...string) string {
	w.t.Helper()
	token := gateway.must("token", "create")
	args := append([]string{"enrol", "-o", "json", "--dir", n.dir, "--name", name, "--acs", acs, "--listen", addr + ":4434", "--token-file", "-"}, extra...)
	out, exit := n.call(token, args...)
	var done struct{ AIC string }
	if err := json.Unmarshal([]byte(out), &done); exit != 0 || err != nil || done.AIC == "" {
		w.t.Fatalf("agentd enrol of %s ended with %d:\n%s", name, exit, out)
	}
	return done.AIC
}

// configure adds lines to the node's configuration, which counts from its next start.
func (n *node) configure(lines string) {
	n.t.Helper()
	text, err := os.ReadFile(n.config)
	if err == nil {
		err = os.WriteFile(n.config, append(text, lines...), 0o644)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// start runs the node's daemon.
func (n *node) start() {
	n.t.Helper()
	var err error
	n.process, err = n.Run(filepath.Join(n.dir, "log"), filepath.Join(binaries, n.program), "run", "--config", n.config)
	if err != nil {
		n.t.Fatal(err)
	}
}

// call runs a verb of the node's program in its namespace; it returns what was printed, both streams, and the exit code.
func (n *node) call(stdin string, args ...string) (string, int) {
	n.t.Helper()
	cmd := exec.Command(filepath.Join(binaries, n.program), append(args, "--config", n.config)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := n.Start(cmd); err != nil {
		n.t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatalf("%s %v: %v", n.program, args, err)
	}
	return out.String() + errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a verb that has to succeed.
func (n *node) must(args ...string) string {
	n.t.Helper()
	out, exit := n.call("", args...)
	if exit != 0 {
		n.t.Fatalf("%s %s in namespace %s ended with %d:\n%s", n.program, strings.Join(args, " "), n.Name, exit, out)
	}
	return out
}

// resolution is what `agentd resolve -o json` prints.
type resolution struct {
	Status, Code string
	Hops         int
	Results      []struct{ AIC string }
	Error        struct{ Code, Message string }
}

// resolve asks in the name of a's agent, with a budget; it returns the answer, the exit code and how long it took.
func (w *world) resolve(text string, budget time.Duration) (r resolution, exit int, took time.Duration) {
	w.t.Helper()
	began := time.Now()
	out, exit := w.a.call("", "resolve", "-o", "json", "--budget", budget.String(), text)
	took = time.Since(began)
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&r); err != nil {
		w.t.Fatalf("agentd resolve ended with %d and no JSON: %v\n%s", exit, err, out)
	}
	if r.Error.Code != "" {
		r.Code = r.Error.Code
	}
	return r, exit, took
}

const sore = "medicine for a sore throat"

// mustResolve asks for the medicine and expects the pharmacist, two hops away.
func (w *world) mustResolve() {
	w.t.Helper()
	r, exit, _ := w.resolve(sore, 5*time.Second)
	if exit != 0 || r.Hops != 2 || len(r.Results) == 0 || r.Results[0].AIC != w.pharmacist {
		w.t.Errorf("resolve: exit %d, %+v; want %s over 2 hops", exit, r, w.pharmacist)
	}
}

// taskResult is what `agentd task run -o json` prints.
type taskResult struct {
	Task  string
	State struct {
		TaskContext struct{ OverallStatus string }
	}
	Failed *struct{ Code, Message string }
}

func (w *world) runTask() (r taskResult, exit int, took time.Duration) {
	w.t.Helper()
	began := time.Now()
	out, exit := w.a.call("", "task", "run", "-o", "json", quickstart+"plan.yaml")
	took = time.Since(began)
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&r); err != nil {
		w.t.Fatalf("agentd task run ended with %d and no JSON: %v\n%s", exit, err, out)
	}
	return r, exit, took
}

func (w *world) mustComplete() {
	w.t.Helper()
	if r, exit, _ := w.runTask(); exit != 0 || r.State.TaskContext.OverallStatus != "completed" {
		w.t.Errorf("task: exit %d, %+v (failed: %+v); want completed", exit, r, r.Failed)
	}
}

// gatewayStatus is the part of `gatewayd status -o json` that scenarios look at.
type gatewayStatus struct {
	Agents, Attached int
	Peers            []struct {
		Domain, State string
		Acked         bool
	}
}

func (n *node) status() (s gatewayStatus) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(n.must("status", "-o", "json")), &s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// peerUp says whether a gateway's session with a peer domain is up, everything that it has for it acknowledged.
func (n *node) peerUp(domain string) bool {
	for _, p := range n.status().Peers {
		if p.Domain == domain {
			return p.State == "up" && p.Acked
		}
	}
	n.t.Fatalf("%s has no peer %s", n.Name, domain)
	return false
}

// until polls ready for at most limit, and says how long it took.
func until(t *testing.T, limit time.Duration, what string, ready func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		if time.Since(began) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
	took := time.Since(began)
	t.Logf("%s: after %v", what, took.Round(time.Millisecond))
	return took
}
