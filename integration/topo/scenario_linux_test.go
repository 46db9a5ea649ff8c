package topo

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// late is how much later than its budget a request may have failed: the verb's own start and end.
const late = 500 * time.Millisecond

// TestScenarioWholePath: three gateways and two agents in five namespaces; a request crosses two hops, and the session that
// it leads to runs between the agents' namespaces, where no gateway has an interface.
func TestScenarioWholePath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mustResolve()
	before, err := w.street.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	w.mustComplete()
	after, err := w.street.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	const handshake = 4 << 10 // a QUIC handshake with certificates both ways, and a context, are more than this
	if after-before < handshake {
		t.Errorf("the task sent %d bytes between the agents' namespaces: its session went another way", after-before)
	}
	for _, n := range []*node{w.ag1, w.ag2} {
		if s := n.status(); len(s.Peers) != 1 || s.Peers[0].Domain != "transit.example" || !n.peerUp("transit.example") {
			t.Errorf("%s: peers %+v, want transit.example alone, up and acked", n.Name, s.Peers)
		}
	}
}

// TestScenarioCutAndHeal: the link AG3-AG2 goes silent. What needs the other side fails within its budget and says why; after
// healing it works again, and the digests that changed meanwhile arrive.
func TestScenarioCutAndHeal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mustComplete()
	t.Log("a cut shorter than the hold timer")
	w.cut()
	w.newAgentMeanwhile("optician", "testdata/optician.acs.json")
	w.heal("new spectacles with minus three dioptres", 15*time.Second)
	if testing.Short() {
		return
	}
	t.Log("a cut longer than the hold timer")
	w.cut()
	w.newAgentMeanwhile("cobbler", "testdata/cobbler.acs.json")
	until(t, 45*time.Second, "AG3 no longer counts on AG2", func() bool { return !w.ag3.peerUp("pharmacy.example") })
	w.mustFail(2 * time.Second) // now without waiting for an answer
	w.heal("mend the soles of shoes", 25*time.Second)
}

// cut silences the link and expects that requests and tasks fail as they should.
func (w *world) cut() {
	w.t.Helper()
	if err := w.ag32.Cut(); err != nil {
		w.t.Fatal(err)
	}
	w.mustFail(2 * time.Second)
	r, exit, took := w.runTask()
	const budget = 5 * time.Second // of a request of an agent that its file gives no other
	if exit == 0 || r.Failed == nil || !unreachable(r.Failed.Code) || took > budget+late {
		w.t.Errorf("task over a cut link: exit %d after %v, %+v, failed %+v; want code 44 or 48 within %v", exit, took, r, r.Failed, budget)
	}
	if r.Failed != nil {
		w.t.Logf("a task over the cut link failed after %v: %s (%s)", took.Round(time.Millisecond), r.Failed.Message, r.Failed.Code)
	}
}

// mustFail expects that the medicine is not found, for the reason that a gateway does not answer, within the budget.
func (w *world) mustFail(budget time.Duration) {
	w.t.Helper()
	r, exit, took := w.resolve(sore, budget)
	if exit == 0 || !unreachable(r.Code) || took > budget+late {
		w.t.Errorf("request over a cut link: exit %d after %v, %+v; want code 44 or 48 within %v", exit, took, r, budget)
	}
	w.t.Logf("a request over the cut link failed after %v: %s (%s)", took.Round(time.Millisecond), r.Status, r.Code)
}

// unreachable says whether a code tells that the deadline passed (44) or that a gateway further on did not answer (48).
func unreachable(code string) bool { return code == "44" || code == "48" }

// newAgentMeanwhile registers one more agent at AG2, whose digests cannot reach AG1 now.
func (w *world) newAgentMeanwhile(name, acs string) {
	w.t.Helper()
	w.enrol(w.b, w.ag2, addrB, name, acs)
	w.b.must("status", "--wait", "10s")
}

// heal restores the link and expects everything back, and the agent that is new found from afar.
func (w *world) heal(news string, limit time.Duration) {
	w.t.Helper()
	if err := w.ag32.Heal(); err != nil {
		w.t.Fatal(err)
	}
	until(w.t, limit, "AG3 and AG2 are up and acked after healing", func() bool {
		return w.ag3.peerUp("pharmacy.example") && w.ag2.peerUp("transit.example")
	})
	until(w.t, limit, fmt.Sprintf("%q is found two hops away", news), func() bool {
		r, exit, _ := w.resolve(news, 2*time.Second)
		return exit == 0 && r.Hops == 2
	})
	w.mustResolve()
	w.mustComplete()
}

// TestScenarioKill9: AG2 is killed without a chance to say or save anything, and comes back: its agent is still registered
// under the same AIC, attaches again, is found from afar and works.
func TestScenarioKill9(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mustComplete()
	agents := w.ag2.must("agents", "-o", "json")
	w.ag2.process.Kill()
	w.mustFail(2 * time.Second)

	w.ag2.start()
	w.ag2.must("status", "--wait", "15s") // up and acked with AG3
	if s := w.ag2.status(); s.Agents != 1 || !strings.Contains(w.ag2.must("agents", "-o", "json"), w.pharmacist) {
		t.Errorf("after the restart %d agents are registered, want the one there was:\n%s", s.Agents, agents)
	}
	until(t, 40*time.Second, "its agent has attached again", func() bool { return w.ag2.status().Attached == 1 })
	until(t, 20*time.Second, "AG1 resolves the same AIC", func() bool {
		r, exit, _ := w.resolve(sore, 2*time.Second)
		return exit == 0 && len(r.Results) > 0 && r.Results[0].AIC == w.pharmacist
	})
	w.mustComplete()
	if err := w.ag2.process.Stop(); err != nil {
		t.Error(err)
	}
}
