package topo

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shortLives make a gateway renew within seconds what otherwise lives for hours and days.
const shortLives = "amc: {agent_life: 24s, gateway_life: 40s, status_life: 20s, refresh: 1s}\n"

// read is a file of the node's folder.
func (n *node) read(path ...string) []byte {
	n.t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{n.dir}, path...)...))
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

// issuerOf is the issuing CA's certificate of a chain, DER.
func issuerOf(t *testing.T, chain []byte) []byte {
	t.Helper()
	_, rest := pem.Decode(chain)
	block, _ := pem.Decode(rest)
	if block == nil {
		t.Fatal("a chain without its issuing CA")
	}
	return block.Bytes
}

// agentStatus is the part of `agentd status -o json` that scenarios look at.
type agentStatus struct {
	AIC             string    `json:"aic"`
	Attached        bool      `json:"attached"`
	Sessions        int       `json:"sessions"`
	CredentialUntil time.Time `json:"credential_until"`
}

func (n *node) agents() []agentStatus {
	n.t.Helper()
	var s struct{ Agents []agentStatus }
	if err := json.Unmarshal([]byte(n.must("status", "-o", "json")), &s); err != nil || len(s.Agents) == 0 {
		n.t.Fatalf("status of %s: %v", n.Name, err)
	}
	return s.Agents
}

// TestScenarioKeysAndCARotate: the issuing CA and every signing key of one domain are replaced while requests and tasks cross to it.
// None of them fails.
func TestScenarioKeysAndCARotate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what waits for certificates")
	}
	t.Parallel()
	w := newWorldWith(t, shortLives)
	w.mustComplete()
	state := func(n *node, name string) []byte { return n.read("state", name) }
	key, digest := state(w.ag2, "sign-sat.key"), state(w.ag2, "sign-digest.key")
	w.ag2.must("keys", "rotate")
	w.ag2.must("ca", "rotate")
	block, _ := pem.Decode(state(w.ag2, "ca-issuing.pem"))
	next := block.Bytes
	if bytes.Equal(next, issuerOf(t, state(w.ag2, "gateway.pem"))) {
		t.Fatal("the issuing CA is not another one")
	}
	began, rounds := time.Now(), 0
	replaced := func() bool {
		return !bytes.Equal(key, state(w.ag2, "sign-sat.key")) && !bytes.Equal(digest, state(w.ag2, "sign-digest.key")) &&
			bytes.Equal(next, issuerOf(t, state(w.ag2, "gateway.pem"))) &&
			bytes.Equal(next, issuerOf(t, w.b.read("state", "agents", "pharmacy", "agent.pem")))
	}
	const pace = 80 * time.Millisecond     // an agent may ask 20 times a second
	for after := 0; after < 20; rounds++ { // and some more, when all is new
		time.Sleep(pace)
		w.mustResolve()
		if rounds%5 == 0 {
			w.mustComplete()
		}
		if t.Failed() {
			t.Fatalf("request %d, %v after the rotation began", rounds, time.Since(began).Round(time.Millisecond))
		}
		if replaced() {
			after++
		} else if time.Since(began) > 90*time.Second {
			t.Fatalf("not everything is replaced after %v", time.Since(began))
		}
	}
	t.Logf("%d requests, and a task with each fifth, within %v; none failed", rounds, time.Since(began).Round(time.Second))
}

// TestScenarioAgentSleepsPastItsExpiry: an agent that was off when its certificate ended comes back with its key, under its AIC.
func TestScenarioAgentSleepsPastItsExpiry(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what waits for certificates")
	}
	t.Parallel()
	w := newWorldWith(t, strings.Replace(shortLives, "agent_life: 24s", "agent_life: 12s", 1))
	w.mustComplete()
	before := w.b.agents()[0]
	if err := w.b.process.Stop(); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Until(before.CredentialUntil) + 13*time.Second) // one that it got meanwhile has ended too
	w.b.start()
	w.b.must("status", "--wait", "15s")
	if after := w.b.agents()[0]; after.AIC != before.AIC || !after.CredentialUntil.After(time.Now()) {
		t.Errorf("it was %+v, and is %+v", before, after)
	}
	until(t, 20*time.Second, "AG1 resolves the same AIC", func() bool {
		r, exit, _ := w.resolve(sore, 2*time.Second)
		return exit == 0 && len(r.Results) > 0 && r.Results[0].AIC == w.pharmacist
	})
	w.mustComplete()
}

// revoked is how long a revocation may take to be seen everywhere.
const revoked = 5 * time.Second

// TestCase34SessionEndsWithItsRevokedAgent: an agent is revoked at its own domain while it is in a session with an agent of another
// one, two hops away: the session is gone, and nobody finds the agent, within five seconds.
func TestCase34SessionEndsWithItsRevokedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sleeper := w.enrol(w.b, w.ag2, addrB, "cobbler", "testdata/cobbler.acs.json", "--stdio", "/bin/sleep", "--stdio-arg", "600")
	w.b.must("status", "--wait", "10s")
	const soles = "mend the soles of shoes"
	until(t, 20*time.Second, "the cobbler is found two hops away", func() bool {
		r, exit, _ := w.resolve(soles, 2*time.Second)
		return exit == 0 && len(r.Results) > 0 && r.Results[0].AIC == sleeper
	})
	task := exec.Command(filepath.Join(binaries, "agentd"), "task", "run", "--config", w.a.config, "testdata/shoes.yaml")
	if err := w.a.Start(task); err != nil {
		t.Fatal(err)
	}
	defer task.Wait() // how it ends is not looked at here
	sessions := func() (n int) {
		for _, a := range w.a.agents() {
			n += a.Sessions
		}
		return n
	}
	until(t, 10*time.Second, "the session is there", func() bool { return sessions() == 1 })
	began := time.Now()
	w.ag2.must("agents", "revoke", sleeper, "--key-compromised")
	until(t, revoked-time.Since(began), "the session is gone", func() bool { return sessions() == 0 })
	until(t, revoked-time.Since(began), "nobody finds the cobbler", func() bool {
		r, _, _ := w.resolve(soles, time.Second)
		return len(r.Results) == 0 || r.Results[0].AIC != sleeper
	})
	w.mustComplete() // the others go on
}

// TestScenarioIntroducedSessionOutlivesTheLists: a session between two domains that only an introducer joins lives on past the time
// for which a status list counts, because the introducer relays the lists that follow; when it cannot any more, the session ends, and
// a request says which domain's list is missing.
func TestScenarioIntroducedSessionOutlivesTheLists(t *testing.T) {
	t.Parallel()
	const life, counts = 6 * time.Second, 8 * time.Second // a list, with its grace
	w := newWorldWith(t, "amc: {status_life: 6s}\n")
	sleeper := w.enrol(w.b, w.ag2, addrB, "cobbler", "testdata/cobbler.acs.json", "--stdio", "/bin/sleep", "--stdio-arg", "600")
	w.b.must("status", "--wait", "10s")
	until(t, 20*time.Second, "the cobbler is found two hops away", func() bool {
		r, exit, _ := w.resolve("mend the soles of shoes", 2*time.Second)
		return exit == 0 && len(r.Results) > 0 && r.Results[0].AIC == sleeper
	})
	task := exec.Command(filepath.Join(binaries, "agentd"), "task", "run", "--config", w.a.config, "testdata/shoes.yaml")
	if err := w.a.Start(task); err != nil {
		t.Fatal(err)
	}
	defer task.Wait() // how it ends is not looked at here
	sessions := func() (n int) {
		for _, a := range w.a.agents() {
			n += a.Sessions
		}
		return n
	}
	until(t, 10*time.Second, "the session is there", func() bool { return sessions() == 1 })
	for end := time.Now().Add(3 * counts); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if sessions() != 1 {
			t.Fatal("the session ended while the lists were relayed")
		}
	}
	if err := w.ag32.Cut(); err != nil {
		t.Fatal(err)
	}
	until(t, counts+life/2+2*time.Second, "the session ends when nobody can say who is revoked there", func() bool { return sessions() == 0 })
	if out := w.ag1.must("peer", "explain", "pharmacy.example"); !strings.Contains(out, "status list") {
		t.Errorf("peer explain does not name the list that is missing:\n%s", out)
	}
}

// remote is a domain of three hosts: its AMC, a gateway that has joined it, and a machine with two agents.
type remote struct {
	t              *testing.T
	amc, gw, agent *node
	pharmacist     string
}

func newRemote(t *testing.T, lines string) *remote {
	t.Helper()
	dir := prepare(t)
	r := &remote{t: t}
	r.amc, r.gw, r.agent = newNode(t, dir, "AMC", "gatewayd"), newNode(t, dir, "GW", "gatewayd"), newNode(t, dir, "c", "agentd")
	wires, err := NewWires()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wires.Close)
	for name, l := range map[string][2]Port{
		"amc": {{r.amc.Namespace, netip.MustParsePrefix("10.88.40.1/24")}, {r.gw.Namespace, netip.MustParsePrefix("10.88.40.2/24")}},
		"gw":  {{r.gw.Namespace, netip.MustParsePrefix("10.88.41.2/24")}, {r.agent.Namespace, netip.MustParsePrefix("10.88.41.3/24")}},
	} {
		if _, err := wires.Connect(name, l[0], l[1]); err != nil {
			t.Fatal(err)
		}
	}
	r.amc.must("init", "--dir", r.amc.dir, "--domain", "clinic.example", "--listen", "0.0.0.0"+listen, "--advertise", "10.88.40.1"+listen, "--lab", "--role", "amc")
	r.amc.configure(lines)
	r.amc.start()
	r.amc.must("status", "--wait", "10s")
	token := r.amc.must("token", "create", "--for", "gateway")
	out, exit := r.gw.call(token, "join", "-o", "json", "--dir", r.gw.dir, "--token-file", "-", "--listen", "0.0.0.0"+listen, "--advertise", "10.88.41.2"+listen, "--lab")
	var joined struct{ Gateway string }
	if err := json.Unmarshal([]byte(out), &joined); exit != 0 || err != nil {
		t.Fatalf("gatewayd join ended with %d:\n%s", exit, out)
	}
	r.gw.start()
	r.gw.must("status", "--wait", "10s")
	r.enrol(joined.Gateway, "assistant", quickstart+"assistant.acs.json")
	r.pharmacist = r.enrol(joined.Gateway, "pharmacy", quickstart+"pharmacy.acs.json", "--stdio", filepath.Join(binaries, "agents"), "--stdio-arg", "medicine")
	r.agent.start()
	r.agent.must("status", "--wait", "10s")
	return r
}

// enrol registers an agent at the gateway with a token of the AMC.
func (r *remote) enrol(gateway, name, acs string, extra ...string) string {
	r.t.Helper()
	token := ""
	until(r.t, 10*time.Second, "the AMC knows its gateway", func() bool {
		out, exit := r.amc.call("", "token", "create", "--gateway", gateway)
		token = out
		return exit == 0
	})
	out, exit := r.agent.call(token, append([]string{"enrol", "-o", "json", "--dir", r.agent.dir, "--name", name, "--acs", acs, "--listen", "10.88.41.3:4434", "--token-file", "-"}, extra...)...)
	var done struct{ AIC string }
	if err := json.Unmarshal([]byte(out), &done); exit != 0 || err != nil || done.AIC == "" {
		r.t.Fatalf("agentd enrol of %s ended with %d:\n%s", name, exit, out)
	}
	return done.AIC
}

// finds says whether the assistant finds the pharmacist.
func (r *remote) finds() bool {
	r.t.Helper()
	out, exit := r.agent.call("", "resolve", "-o", "json", "--agent", "assistant", sore)
	var res resolution
	return exit == 0 && json.NewDecoder(strings.NewReader(out)).Decode(&res) == nil && len(res.Results) > 0 && res.Results[0].AIC == r.pharmacist
}

// TestScenarioRemoteAMC: AMC, gateway and agents on three hosts; what the AMC's operator decides counts at the gateway.
func TestScenarioRemoteAMC(t *testing.T) {
	t.Parallel()
	r := newRemote(t, "")
	until(t, 10*time.Second, "one agent finds the other", r.finds)
	r.amc.must("agents", "suspend", r.pharmacist)
	until(t, revoked, "a suspended agent is not found", func() bool { return !r.finds() })
	r.amc.must("agents", "resume", r.pharmacist)
	until(t, 30*time.Second, "it is found again", r.finds)
	r.amc.must("agents", "revoke", r.pharmacist)
	until(t, revoked, "a revoked agent is not found", func() bool { return !r.finds() })
}

// TestCase40AMCDown: the AMC is away for as long as certificates may be renewed. What is registered goes on, registrations fail and
// say why, and when the AMC is back everything is renewed before it ends.
func TestCase40AMCDown(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what waits for certificates")
	}
	t.Parallel()
	r := newRemote(t, "amc: {agent_life: 60s, gateway_life: 80s, status_life: 20s}\n")
	until(t, 10*time.Second, "one agent finds the other", r.finds)
	token := r.amc.must("token", "create", "--gateway", gatewayOf(t, r.gw))
	r.amc.process.Kill()
	before := r.agent.agents()
	for time.Until(before[0].CredentialUntil) > 20*time.Second { // half of the life is long over
		if !r.finds() {
			t.Fatal("what is registered is not found while the AMC is away")
		}
		time.Sleep(500 * time.Millisecond)
	}
	for i, a := range r.agent.agents() {
		if !a.CredentialUntil.Equal(before[i].CredentialUntil) {
			t.Errorf("%s has a new credential, and nobody to sign it", a.AIC)
		}
	}
	out, exit := r.agent.call(token, "enrol", "-o", "json", "--dir", r.agent.dir, "--name", "late", "--acs", "testdata/cobbler.acs.json", "--listen", "10.88.41.3:4434", "--token-file", "-")
	if exit == 0 || !strings.Contains(out, "AMC") {
		t.Errorf("a registration without the AMC: exit %d\n%s", exit, out)
	}
	r.amc.start()
	r.amc.must("status", "--wait", "10s")
	until(t, time.Until(before[0].CredentialUntil)-time.Second, "the credentials are renewed before they end", func() bool {
		for i, a := range r.agent.agents() {
			if !a.CredentialUntil.After(before[i].CredentialUntil) || !a.Attached {
				return false
			}
		}
		return true
	})
	if !r.finds() {
		t.Error("after the AMC is back nobody is found")
	}
}

func gatewayOf(t *testing.T, n *node) string {
	t.Helper()
	var s struct{ Gateway string }
	if err := json.Unmarshal([]byte(n.must("status", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s.Gateway
}
