package app

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity/identitytest"
)

func (g *gateway) explain(domain string) *admin.Explanation {
	g.t.Helper()
	e, err := g.app.ExplainPeer(g.t.Context(), admin.ExplainRequest{Domain: domain})
	if err != nil {
		g.t.Fatal(err)
	}
	return e
}

func verdict(e *admin.Explanation, what string) admin.Verdict {
	for _, v := range e.Verdicts {
		if v.What == what {
			return v
		}
	}
	return admin.Verdict{What: what, Why: "no such verdict"}
}

// What is explained of a neighbour, of a domain that it introduced, before and after its approval, and of one that nobody knows.
func TestExplainPeer(t *testing.T) {
	t.Parallel()
	home, hub, far := newGateway(t, "home.example"), newGateway(t, "hub.example"), newGateway(t, "far.example")
	far.mustEnrol()
	hub.addPeer(home, PeerOptions{Role: "customer", Transit: true})
	hub.addPeer(far, PeerOptions{Role: "customer", Transit: true})
	far.addPeer(hub, PeerOptions{Role: "provider", Addresses: []string{hub.cfg.Listen}})
	home.addPeer(hub, PeerOptions{Role: "provider", Addresses: []string{hub.cfg.Listen}, Introduces: []string{"*.example"}})
	eventually(t, "far.example waits", func() bool { return len(home.app.Status().Pending) == 1 && home.peerState("hub.example").State == "up" })

	eventually(t, "hub's status list", func() bool { return verdict(home.explain("hub.example"), "requests from hub.example").Passes })
	e := home.explain("hub.example")
	if e.Kind != "neighbour" || e.Missing != "" || e.Row == nil || e.Row.FirstUse != "ask" || e.Bundle.Source != "configured" || len(e.Pending) != 1 || len(e.Links) != 1 {
		t.Errorf("the neighbour: %+v", e)
	}
	for _, what := range []string{"connection", "identity", "requests from hub.example", "our digests to hub.example"} {
		if v := verdict(e, what); !v.Passes {
			t.Errorf("%s: %+v", what, v)
		}
	}
	if v := verdict(e, "requests to hub.example"); v.Passes || !strings.Contains(v.Why, "no digest") {
		t.Errorf("%+v", v)
	}
	eventually(t, "hub says what it holds", func() bool {
		h := home.explain("hub.example").HoldsOfOurs
		return h != nil && h.BundleSeq > 0 && !h.BundleBehind
	})

	e = home.explain("far.example")
	fp := home.app.Status().Pending[0].Fingerprint
	if e.Kind != "pending" || !strings.Contains(e.Missing, "peer approve far.example "+fp) || verdict(e, "identity").Passes || verdict(e, "requests from far.example").Passes {
		t.Errorf("waiting: %+v", e)
	}
	if v := verdict(e, "connection"); !v.Passes || !strings.Contains(v.Why, "by way of hub.example (up)") {
		t.Errorf("%+v", v)
	}
	if err := home.app.ApprovePeer(t.Context(), admin.ApproveRequest{Domain: "far.example", Fingerprint: fp}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests would pass", func() bool {
		e := home.explain("far.example")
		return verdict(e, "requests to far.example").Passes && verdict(e, "requests from far.example").Passes
	})
	e = home.explain("far.example")
	if e.Kind != "introduced" || !slices.Equal(e.Bundle.By, []string{"hub.example"}) || e.Row != nil {
		t.Errorf("introduced: %+v", e)
	}
	if v := verdict(e, "requests from far.example"); !v.Passes || !strings.Contains(v.Why, "as the row of hub.example says") {
		t.Errorf("%+v", v)
	}
	e = home.explain("nobody.example")
	if e.Kind != "unknown" || !strings.Contains(e.Missing, "hub.example (up) may introduce it") {
		t.Errorf("nobody in reach: %+v", e)
	}
	e = home.explain("nobody.test")
	if e.Kind != "unknown" || !strings.Contains(e.Missing, "peer add") || slices.ContainsFunc(e.Verdicts, func(v admin.Verdict) bool { return v.Passes }) {
		t.Errorf("nobody: %+v", e)
	}
	if e := home.explain("home.example"); e.Kind != "own" || len(e.Verdicts) != 0 {
		t.Errorf("itself: %+v", e)
	}
	if _, err := home.app.ExplainPeer(t.Context(), admin.ExplainRequest{Domain: "No Domain"}); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("no domain: %v", err)
	}
	// The approval holds over a restart.
	home.stop()
	home.start()
	eventually(t, "far.example is known again, unasked", func() bool { return home.app.trust.Domain("far.example") != nil })
}

// A plan writes nothing, and says in words what the row would allow.
func TestPlanPeer(t *testing.T) {
	cfg, _ := peerOnPaper(t)
	d := identitytest.New(t, "new.example", "N1")
	o := PeerOptions{Bundle: bundleFile(t, d.Raw), Role: "customer", Transit: true, Introduces: []string{"*.new.example"}, Upstream: true, Addresses: []string{"192.0.2.1:4433"}}
	p, err := PlanPeer(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(p.Grants, "\n")
	for _, say := range []string{"our customer", "have sessions with them", "what we learn from others", "*.new.example", "until you approve", "no digest matches", "192.0.2.1:4433"} {
		if !strings.Contains(all, say) {
			t.Errorf("%q is not said:\n%s", say, all)
		}
	}
	if _, err := os.Stat(filepath.Join(cfg.PeersDir, "new.example.yaml")); err == nil {
		t.Error("the row is written")
	}
	for scopes, say := range map[string]string{"": "nothing", "agw.discover": "no sessions", "acps.skill.invoke:*": "does not cover agw.discover", "*": "have sessions"} {
		r := &config.Peer{Role: "peer", MayQuery: strings.Fields(scopes)}
		if text := strings.Join(grants(r), "\n"); !strings.Contains(text, say) {
			t.Errorf("%q: %q is not in %s", scopes, say, text)
		}
	}
}
