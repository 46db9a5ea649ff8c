package cdsptest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Row 24: a hub with many neighbours restarts with nothing, and so do half of these. All ask for everything at once; nobody ever serves more than four, all sessions
// are up all the while, and in the end all tables are equal. With a line of five or more the time that it takes is that of the work, and not of waiting.
func TestCase24MassRestart(t *testing.T) {
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		n := NewNetwork(seed)
		n.noAlarms(t, "")
		n.Limits.Inflight = 2
		n.AddNode("HUB", "hub.example").SetOwn(many(600, "hub")...)
		var names []string
		for i := range 24 {
			name := fmt.Sprintf("AG%02d", i)
			names = append(names, name)
			n.AddNode(name, strings.ToLower(name)+".example").SetOwn(many(20, name)...)
			n.customer("HUB", name)
		}
		n.mustRest(t, 2*time.Minute)
		clear(n.Fulls)
		n.Restart("HUB", false)
		for _, name := range names[:12] {
			n.Restart(name, n.Rand().IntN(2) == 0)
		}
		n.mustRest(t, 90*time.Second)
		for name, most := range n.Fulls {
			if most > 4 {
				t.Errorf("%s had %d full synchronisations under way", name, most)
			}
		}
		if n.Fulls["HUB"] != 4 {
			t.Errorf("the hub had %d under way at most: nothing was tried", n.Fulls["HUB"])
		}
		for _, name := range names {
			mustKnow(t, n.Node(name), "HUB", many(600, "hub")...)
			mustKnow(t, n.Node(name), names[0], n.Node(names[0]).labels()...)
		}
	})
}

// A lone pair of gateways does not wait for each other: what they tell is there within what the network takes.
func TestTwoGatewaysDoNotWait(t *testing.T) {
	n := NewNetwork(1)
	n.AddNode("AG1", "ag1.example").SetOwn("x")
	n.AddNode("AG2", "ag2.example").SetOwn("y")
	n.customer("AG1", "AG2")
	n.Run(4 * n.MaxDelay)
	mustKnow(t, n.Node("AG1"), "AG2", "y")
	mustKnow(t, n.Node("AG2"), "AG1", "x")
}
