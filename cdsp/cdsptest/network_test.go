package cdsptest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run the simulations with this seed only")
	seedsFlag = flag.Int("seeds", 0, "run each simulation with so many seeds")
)

// eachSeed runs a simulation with some seeds and prints the one that fails.
func eachSeed(t *testing.T, n int, f func(t *testing.T, seed uint64)) {
	if *seedsFlag > 0 {
		n = *seedsFlag
	}
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		seeds = nil
		for range n {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("again with: go test ./cdsp/cdsptest -run '%s' -seed %d", strings.Split(t.Name(), "/")[0], seed)
			f(t, seed)
		})
	}
}

// customer links a customer to its provider; the provider dials.
func (n *Network) customer(provider, customer string) {
	p, c := n.Node(provider), n.Node(customer)
	p.SetRows(append(p.Rows, replica.Neighbour{Domain: c.Domain, Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse})...)
	c.SetRows(append(c.Rows, replica.Neighbour{Domain: p.Domain, Role: wire.RoleProvider, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse})...)
	n.Link(provider, customer)
}

func line(seed uint64) *Network {
	n := NewNetwork(seed)
	for _, name := range []string{"AG1", "AG2", "AG3"} {
		n.AddNode(name, strings.ToLower(name)+".example").SetOwn("of-"+name, "tag")
	}
	n.customer("AG3", "AG1")
	n.customer("AG3", "AG2")
	return n
}

// ring closes a cycle of customers and providers.
func ring(seed uint64, names ...string) *Network {
	n := NewNetwork(seed)
	for _, name := range names {
		n.AddNode(name, strings.ToLower(name)+".example").SetOwn("of-"+name, "tag")
	}
	for i, name := range names {
		n.customer(name, names[(i+1)%len(names)])
	}
	return n
}

func (n *Network) mustRest(t *testing.T, within time.Duration) {
	t.Helper()
	n.Run(within)
	if err := n.Check(); err != nil {
		t.Fatal(err)
	}
}

func mustKnow(t *testing.T, node *Node, origin string, labels ...string) {
	t.Helper()
	if diff := cmp.Diff(labels, node.Knows(origin)); diff != "" {
		t.Fatalf("%s of %s (-want +got):\n%s", node.Name, origin, diff)
	}
}

func TestLineWithTransit(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := line(seed)
		n.mustRest(t, 5*time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
		for _, e := range n.Node("AG1").Replica.Snapshot().Entries {
			if e.Origin == "AG2" && (e.Via != "AG3" || len(e.Path) != 2) {
				t.Errorf("AG2 is reached via %s over %v", e.Via, e.Path)
			}
		}
		n.Node("AG2").SetOwn("tag", "new")
		n.mustRest(t, 4*time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", "new", "tag")
		mustKnow(t, n.Node("AG3"), "AG2", "new", "tag")
	})
}

// Withdrawals cross two hops within two coalescing delays and the network's own.
func TestWithdrawalIsFast(t *testing.T) {
	n := line(1)
	n.mustRest(t, 5*time.Second)
	n.Node("AG2").SetOwn("of-AG2")
	n.Run(2*100*time.Millisecond + 2*n.MaxDelay)
	mustKnow(t, n.Node("AG1"), "AG2", "of-AG2")
}

func TestCase14LoopInThePeeringGraph(t *testing.T) {
	shapes := map[string]func(uint64) *Network{
		"ring": func(seed uint64) *Network { return ring(seed, "AG1", "AG2", "AG3") },
		"figure-8": func(seed uint64) *Network {
			n := ring(seed, "AG1", "AG2", "AG3")
			n.AddNode("AG4", "ag4.example").SetOwn("of-AG4", "tag")
			n.AddNode("AG5", "ag5.example").SetOwn("of-AG5", "tag")
			n.customer("AG1", "AG4")
			n.customer("AG4", "AG5")
			n.customer("AG5", "AG1")
			return n
		},
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, 5, func(t *testing.T, seed uint64) {
				n := shape(seed)
				n.mustRest(t, 20*time.Second)
				for _, node := range n.Nodes() {
					mustKnow(t, node, "AG1", "of-AG1", "tag")
				}
				n.Node("AG1").SetOwn("tag")
				n.mustRest(t, 10*time.Second)
				for _, node := range n.Nodes() {
					mustKnow(t, node, "AG1", "tag")
				}
			})
		})
	}
}

func TestCase16NoRevivalAfterOriginLoss(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, seed uint64) {
		n := ring(seed, "AG1", "AG2", "AG3")
		n.MaxDelay = 400 * time.Millisecond // a delayed PUT comes long after the withdrawal by the other way
		n.mustRest(t, 30*time.Second)
		n.Node("AG1").SetOwn("of-AG1", "tag", "x")
		n.Run(time.Duration(n.Rand().Int64N(int64(2 * time.Second))))
		n.Node("AG1").SetOwn("of-AG1", "tag")
		n.mustRest(t, 10*time.Second)
		for range 100 {
			n.Run(time.Second)
			for _, node := range n.Nodes() {
				mustKnow(t, node, "AG1", "of-AG1", "tag")
			}
		}
	})
}

// An origin that vanishes with everything it said goes everywhere, once its neighbours gave up waiting for it.
func TestCase05PeerNeverReturns(t *testing.T) {
	n := ring(3, "AG1", "AG2", "AG3")
	n.mustRest(t, 20*time.Second)
	n.Silence("AG1", "AG2")
	n.Silence("AG3", "AG1")
	n.Run(40 * time.Second) // hold
	if st := n.Node("AG2").Status("AG1"); st.State != replica.Stale {
		t.Fatalf("silent neighbour is %v", st.State)
	}
	mustKnow(t, n.Node("AG2"), "AG1", "of-AG1", "tag")
	n.Run(125 * time.Second) // restart
	mustKnow(t, n.Node("AG2"), "AG1")
	mustKnow(t, n.Node("AG3"), "AG1")
}

func TestCase04RestartWithinItsWindow(t *testing.T) {
	for _, polite := range []bool{true, false} {
		t.Run(fmt.Sprintf("polite=%v", polite), func(t *testing.T) {
			eachSeed(t, 5, func(t *testing.T, seed uint64) {
				n := line(seed)
				n.Node("AG3").SetOwn("hub")
				n.mustRest(t, 5*time.Second)
				n.Run(2 * time.Minute)
				n.Restart("AG3", polite)
				for range 2000 { // nobody sees the other side vanish for a moment
					n.Run(2 * time.Millisecond)
					mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
					mustKnow(t, n.Node("AG2"), "AG1", "of-AG1", "tag")
					mustKnow(t, n.Node("AG1"), "AG3", "hub")
				}
				n.mustRest(t, 5*time.Second)
			})
		})
	}
}

// What the gateway withdrew while it was away does not survive its return.
func TestRestartSweepsWhatIsGone(t *testing.T) {
	n := line(1)
	n.mustRest(t, 5*time.Second)
	n.Node("AG2").groups = nil
	n.Restart("AG2", false)
	n.mustRest(t, 10*time.Second)
	mustKnow(t, n.Node("AG3"), "AG2")
	mustKnow(t, n.Node("AG1"), "AG2")
}

func TestCutAndHeal(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := line(seed)
		n.mustRest(t, 5*time.Second)
		n.Cut("AG3", "AG2")
		n.Run(10 * time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag") // stale, and not withdrawn downstream
		n.Node("AG2").SetOwn("tag", "later")
		n.Heal("AG3", "AG2")
		n.mustRest(t, 10*time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", "later", "tag")
	})
}

// Digests outlive their validity because their origin signs them anew in time.
func TestDigestsOutliveTheirTTL(t *testing.T) {
	n := line(1)
	n.mustRest(t, 5*time.Second)
	for range 6 {
		n.Run(30 * time.Minute)
		mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
	}
	if err := n.Check(); err != nil {
		t.Fatal(err)
	}
}

// A goodbye in the middle of a synchronisation is no reason to ask for it again.
func TestGoodbyeDuringSync(t *testing.T) { randomTrouble(t, 8801018235278235127) }

func TestRandomTrouble(t *testing.T) { eachSeed(t, 8, randomTrouble) }

func randomTrouble(t *testing.T, seed uint64) {
	n := ring(seed, "AG1", "AG2", "AG3", "AG4")
	n.MaxDelay = time.Duration(n.Rand().Int64N(int64(300*time.Millisecond))) + time.Millisecond
	n.Trace = func(node *Node, s string) {
		if strings.HasPrefix(s, "alarm") {
			t.Errorf("%v %s: %s", n.Now.Sub(Epoch), node.Name, s)
		}
	}
	for range 60 {
		n.trouble()
		n.Run(time.Duration(n.Rand().Int64N(int64(5 * time.Second))))
	}
	for _, l := range n.links {
		n.Heal(l.a.Name, l.b.Name)
	}
	n.mustRest(t, 90*time.Second)
	for _, node := range n.Nodes() {
		for _, origin := range n.Nodes() {
			mustKnow(t, node, origin.Name, origin.labels()...)
		}
	}
	if n.Sent[frame.Resync] > 0 {
		t.Errorf("%d RESYNC though nobody lost anything", n.Sent[frame.Resync])
	}
}

func (n *Network) trouble() {
	l := n.links[n.Rand().IntN(len(n.links))]
	switch n.Rand().IntN(6) {
	case 0:
		n.Cut(l.a.Name, l.b.Name)
	case 1:
		n.Heal(l.a.Name, l.b.Name)
	case 2:
		n.Restart(l.a.Name, n.Rand().IntN(2) == 0)
	default:
		var labels []string
		for i := range n.Rand().IntN(5) {
			labels = append(labels, fmt.Sprintf("t%d", i+n.Rand().IntN(3)*5))
		}
		l.a.SetOwn(labels...)
	}
}

// labels are the own labels as they were last set.
func (node *Node) labels() []string { return node.Knows(node.Name) }
