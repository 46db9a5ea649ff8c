package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// Two peers of one gateway get its digests at the levels of their rows; a row that is changed takes effect without a restart.
func TestDigestsAtTheLevelOfTheRow(t *testing.T) {
	t.Parallel()
	home, near, far := newGateway(t, "pharmacy.example"), newGateway(t, "near.example"), newGateway(t, "far.example")
	home.mustEnrol()
	home.mustEnrol()
	for _, o := range []*gateway{near, far} {
		o.addPeer(home, PeerOptions{Role: "peer"})
	}
	home.addPeer(near, PeerOptions{Role: "peer", Addresses: []string{near.cfg.Listen}})
	home.addPeer(far, PeerOptions{Role: "peer", Addresses: []string{far.cfg.Listen}, Disclose: "coarse"})
	heard := func(g *gateway) string {
		var out []string
		for _, d := range g.app.Digests() {
			if d.Domain == "pharmacy.example" {
				out = append(out, d.Level+" "+d.NS+" "+d.Label)
			}
		}
		slices.Sort(out)
		return strings.Join(out, "|")
	}
	eventually(t, "near hears all", func() bool { return heard(near) == "full sketch |full tag medicine" })
	eventually(t, "far hears no tag", func() bool { return heard(far) == "coarse sketch " })
	home.addPeer(far, PeerOptions{Role: "peer", Addresses: []string{far.cfg.Listen}, Disclose: "classes"})
	eventually(t, "far hears less", func() bool { return heard(far) == "" })
	if d := heard(near); d != "full sketch |full tag medicine" {
		t.Errorf("near: %s", d)
	}
	home.addPeer(far, PeerOptions{Role: "peer", Addresses: []string{far.cfg.Listen}})
	eventually(t, "far hears all", func() bool { return heard(far) == "full sketch |full tag medicine" })
	if _, err := AddPeer(home.cfg, PeerOptions{Role: "peer", Disclose: "all", Bundle: "x"}); err == nil || !strings.Contains(err.Error(), "full, coarse, classes") {
		t.Errorf("a level that is none: %v", err)
	}
	if e, err := home.app.ExplainPeer(t.Context(), admin.ExplainRequest{Domain: "far.example"}); err != nil || e.Row == nil || e.Row.Disclose != "full" {
		t.Errorf("%+v %v", e, err)
	}
}

// A request by class goes where it is told of, whether it names the class by path or by id, and though the level tells two steps of three.
func TestRequestsByClassFindTheirWay(t *testing.T) {
	t.Parallel()
	home, near, far := newGateway(t, "pharmacy.example"), newGateway(t, "near.example"), newGateway(t, "far.example")
	key := identitytest.NewKey(t)
	acs := strings.Replace(pharmacyACS, `"tags":["`, `"tags":["oasf:10302","`, 1)
	if _, err := home.enrolAs(home.token(), key, arp.Enrol{CSR: must(identity.NewCSR(key)), Draft: []byte(acs), Visibility: 2}); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*gateway{near, far} {
		o.addPeer(home, PeerOptions{Role: "peer"})
	}
	home.addPeer(near, PeerOptions{Role: "peer", Addresses: []string{near.cfg.Listen}})
	home.addPeer(far, PeerOptions{Role: "peer", Addresses: []string{far.cfg.Listen}, Disclose: "classes"})
	for _, g := range []*gateway{near, far} {
		for _, class := range []string{"10302", "oasf:10302", "language_processing/language_generation/summarization", "language_processing"} {
			eventually(t, g.cfg.Domain+" asks for "+class, func() bool { return len(g.app.peers.Candidates(semreq.Query{Classes: []string{class}})) == 1 })
		}
		if found := g.app.peers.Candidates(semreq.Query{Classes: []string{"ai_ml_engineering"}}); len(found) > 0 {
			t.Errorf("%s asks for a class of nobody: %v", g.cfg.Domain, found)
		}
	}
	e, err := far.app.ExplainPeer(t.Context(), admin.ExplainRequest{Domain: "pharmacy.example"})
	if text := fmt.Sprint(e); err != nil || !strings.Contains(text, "classes alone") {
		t.Errorf("what far is told: %s %v", text, err)
	}
}
