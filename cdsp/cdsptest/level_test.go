package cdsptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
)

// buys links a customer to a provider, each at a level of disclosure towards the other.
func (n *Network) buys(customer, provider string, tells, hears wire.Level) {
	c, p := n.Node(customer), n.Node(provider)
	c.SetRows(append(c.Rows, replica.Neighbour{Domain: p.Domain, Role: wire.RoleProvider, ExportTransit: true, ImportTransit: true, Level: tells})...)
	p.SetRows(append(p.Rows, replica.Neighbour{Domain: c.Domain, Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: hears})...)
	n.Link(customer, provider)
}

// One label of one origin comes to a third gateway at two levels, by two ways: these are two digests, and neither is passed on to whom its
// level does not go.
func TestCase64OneLabelAtTwoLevels(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := NewNetwork(seed)
		n.Trace = func(node *Node, event string) {
			if strings.HasPrefix(event, "alarm") {
				t.Errorf("%s: %s", node.Name, event)
			}
		}
		for _, name := range []string{"O", "A", "B", "C", "D"} {
			n.AddNode(name, strings.ToLower(name)+".example")
		}
		var groups []wire.Group
		for _, level := range []wire.Level{wire.LevelCoarse, wire.LevelFull} {
			groups = append(groups, wire.Group{
				Scope: wire.Scope{Visibility: wire.VisibleAny, MaxHops: wire.MaxHops, Level: level},
				Items: []wire.Item{{Key: wire.ItemKey("x", "tag", level), NS: "tag", Label: "x", Count: uint8(level)}},
			})
		}
		n.Node("O").SetGroups(groups...)
		n.buys("O", "A", wire.LevelFull, wire.LevelFull)
		n.buys("O", "B", wire.LevelCoarse, wire.LevelFull)
		n.buys("A", "C", wire.LevelFull, wire.LevelFull)
		n.buys("B", "C", wire.LevelFull, wire.LevelCoarse)
		n.buys("D", "C", wire.LevelFull, wire.LevelCoarse)
		n.mustRest(t, 20*time.Second)
		levels := func(name string) (out []string) {
			for _, e := range n.Node(name).Replica.Snapshot().Entries {
				if e.Origin == "O" {
					out = append(out, fmt.Sprintf("%v via %s", e.Level, e.Via))
				}
			}
			slices.Sort(out)
			return out
		}
		for name, want := range map[string][]string{
			"A": {"coarse via C", "full via O"}, "B": {"coarse via O"}, "C": {"coarse via B", "full via A"}, "D": {"coarse via C"},
		} {
			if got := levels(name); !slices.Equal(got, want) {
				t.Errorf("%s has %q, want %q", name, got, want)
			}
		}
	})
}
