package cdsptest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/internal/frame"
)

// A connection that dies in the middle of a synchronisation takes nothing away: what was known stays, stale, until the next one is whole.
func TestCase09ConnectionDiesInMidSync(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := line(seed)
		var labels []string
		for i := range 900 { // several frames
			labels = append(labels, fmt.Sprintf("l%03d", i))
		}
		n.Node("AG2").SetOwn(labels...)
		n.mustRest(t, 20*time.Second)
		for range 5 {
			n.Cut("AG3", "AG2")
			n.Run(2 * time.Second)
			mustKnow(t, n.Node("AG1"), "AG2", labels...)
			n.Heal("AG3", "AG2")
			before := n.Sent[frame.Entries]
			for step := 0; n.Sent[frame.Entries] == before && step < 20_000; step++ {
				n.Run(time.Millisecond)
			}
		}
		n.Cut("AG3", "AG2")
		n.Run(time.Second)
		if diff := cmp.Diff(labels, n.Node("AG3").Knows("AG2")); diff != "" {
			t.Fatalf("after half a synchronisation: %s", diff)
		}
		n.Node("AG2").SetOwn(labels[1:]...)
		n.Heal("AG3", "AG2")
		n.mustRest(t, 30*time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", labels[1:]...)
	})
}

// An agent that comes and goes ten times a second is told once a second, its going always, and nobody's table grows by it.
func TestCase22FlappingAgent(t *testing.T) {
	n := line(7)
	n.mustRest(t, 10*time.Second)
	before, seconds := n.Sent[frame.Entries], 30
	for range 10 * seconds / 2 {
		n.Node("AG2").SetOwn("of-AG2", "tag", "flaps")
		n.Run(100 * time.Millisecond)
		n.Node("AG2").SetOwn("of-AG2", "tag")
		n.Run(100 * time.Millisecond)
	}
	// Two links carry it, and each change at most twice: a coming and a going.
	if sent := n.Sent[frame.Entries] - before; sent > 2*2*2*seconds {
		t.Errorf("%d frames of digests in %d s", sent, seconds)
	}
	n.mustRest(t, 5*time.Second)
	mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
	for range 50 {
		n.Node("AG2").SetOwn("of-AG2", "tag", "flaps")
		n.Run(10 * time.Millisecond)
		n.Node("AG2").SetOwn("of-AG2", "tag")
		n.Run(10 * time.Millisecond)
	}
	n.mustRest(t, 5*time.Second)
	mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
	if st := n.Node("AG3").Status("AG2"); st.Received > 10 {
		t.Errorf("%d entries of one neighbour", st.Received)
	}
}

// A neighbour refuses digests whose key it does not know, and some expire because their origin is gone: the two tables agree all the
// while, nobody asks for the whole again and nobody is alarmed.
func TestCase63RefusedAndExpiredKeysLeaveTablesEqual(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := line(seed)
		n.Trace = func(node *Node, event string) {
			if strings.HasPrefix(event, "alarm") {
				t.Errorf("%s: %s", node.Name, event)
			}
		}
		n.Node("AG1").Unknown["AG2"] = true
		n.Run(5 * time.Minute)
		if err := n.Check(); err != nil {
			t.Fatal(err)
		}
		if asked := n.Sent[frame.Resync]; asked != 0 {
			t.Errorf("asked for the whole %d times", asked)
		}
		mustKnow(t, n.Node("AG1"), "AG2")
		mustKnow(t, n.Node("AG3"), "AG2", "of-AG2", "tag")
		delete(n.Node("AG1").Unknown, "AG2")
		n.Node("AG1").KeysChanged()
		n.Node("AG2").SetOwn("of-AG2", "tag", "more")
		n.mustRest(t, time.Minute)
		if len(n.Node("AG1").Knows("AG2")) == 0 {
			t.Error("nothing of it comes after its key is known")
		}
	})
}
