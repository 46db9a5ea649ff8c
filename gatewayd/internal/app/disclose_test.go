package app

import (
	"slices"
	"strings"
	"testing"

	"agentgw/gatewayd/internal/admin"
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
