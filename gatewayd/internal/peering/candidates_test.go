package peering

import (
	"testing"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/directory/semreq"
)

// A provider stays the last resort where it knows another way to something that matches too.
func TestLastResortThatKnowsAnotherWay(t *testing.T) {
	for name, others := range map[string][]string{"no other ways": nil, "the provider is one": {"UP"}, "a peer is one": {"Y"}} {
		p := &Peering{links: map[string]*link{}, rows: map[string]*peer{}}
		for gateway, domain := range map[string]string{"X": "x.example", "Y": "y.example", "UP": "up.example"} {
			p.links[gateway] = &link{p: p, gateway: gateway, domain: domain}
		}
		p.rows["up.example"] = &peer{Row: Row{Domain: "up.example", Upstream: true}}
		p.refresh(&replica.Snapshot{Entries: []replica.Entry{{
			Origin: "O", Domain: "o.example", Path: []string{"x.example", "o.example"}, Via: "X", ViaDomain: "x.example", Others: others, Level: wire.LevelFull,
			Item: &wire.Item{NS: "tag", Label: "medicine", Key: wire.ItemKey("medicine", "tag", wire.LevelFull)},
		}}})
		upstream, instead, seen := 0, 0, map[string]bool{}
		for _, h := range p.Candidates(semreq.Query{Tags: []string{"medicine"}}) {
			if seen[h.Gateway()] {
				t.Errorf("%s: %s twice", name, h.Gateway())
			}
			seen[h.Gateway()] = true
			if h.Upstream {
				upstream++
			}
			if len(h.InsteadOf) > 0 {
				instead++
			}
		}
		if want := map[bool]int{true: 1}[name == "a peer is one"]; upstream != 1 || instead != want {
			t.Errorf("%s: %d last resorts, %d other ways", name, upstream, instead)
		}
	}
}
