package cdsptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// deltas is what the network began of each kind since the last call.
func (n *Network) deltas() (deltas, fulls int) {
	deltas, fulls = n.Syncs[wire.ModeDelta], n.Syncs[wire.ModeFull]
	clear(n.Syncs)
	return deltas, fulls
}

// digestBytes is what was put under way on digest streams since the last call.
func (n *Network) digestBytes() int {
	sum := n.Bytes[frame.SyncBegin] + n.Bytes[frame.Entries] + n.Bytes[frame.SyncEnd]
	clear(n.Bytes)
	return sum
}

// noAlarms makes an alarm a failure.
func (n *Network) noAlarms(t *testing.T, but string) {
	n.Trace = func(node *Node, event string) {
		if strings.HasPrefix(event, "alarm") && (but == "" || !strings.Contains(event, but)) {
			t.Errorf("%v %s: %s", n.Now.Sub(Epoch), node.Name, event)
		}
	}
}

func many(n int, prefix string) (labels []string) {
	for i := range n {
		labels = append(labels, fmt.Sprintf("%s%03d", prefix, i))
	}
	return labels
}

// A gateway that joins twenty origins loses a neighbour for a moment. What did not change is not sent again, either way: less than 100
// octets an origin, where a full synchronisation has all their digests.
func TestCase61ReconnectByDelta(t *testing.T) {
	n := NewNetwork(1)
	n.noAlarms(t, "")
	n.AddNode("HUB", "hub.example")
	const origins = 20
	for i := range origins {
		name := fmt.Sprintf("AG%02d", i)
		n.AddNode(name, strings.ToLower(name)+".example").SetOwn(many(50, name+"-")...)
		n.customer("HUB", name)
	}
	n.mustRest(t, time.Minute)
	n.deltas()
	n.digestBytes()
	n.Cut("HUB", "AG00")
	n.Run(10 * time.Second)
	if e := n.Node("AG00").Replica.Snapshot().Entries; !slices.ContainsFunc(e, func(e replica.Entry) bool { return e.Stale }) {
		t.Fatal("nothing is stale without a connection")
	}
	n.Heal("HUB", "AG00")
	n.mustRest(t, 2*time.Second)
	if deltas, fulls := n.deltas(); deltas != 2 || fulls != 0 {
		t.Errorf("%d by delta, %d full", deltas, fulls)
	}
	delta := n.digestBytes()
	if delta > 100*origins {
		t.Errorf("%d octets on digest streams for %d origins", delta, origins)
	}
	n.Cut("HUB", "AG00")
	hub := n.Node("HUB")
	rows := slices.Clone(hub.Rows)
	rows[0].ExportTransit = false
	hub.SetRows(rows...)
	rows[0].ExportTransit = true
	hub.SetRows(rows...) // the same policy, and another history of it
	n.Heal("HUB", "AG00")
	n.mustRest(t, 10*time.Second)
	if deltas, fulls := n.deltas(); deltas != 1 || fulls != 1 {
		t.Errorf("%d by delta, %d full", deltas, fulls)
	}
	full := n.digestBytes()
	t.Logf("%d origins of 50 digests each: %d octets by delta both ways, %d in full from the hub", origins, delta, full)
	if full < 100*delta {
		t.Errorf("a full synchronisation takes %d octets, a delta %d", full, delta)
	}
}

// The connection breaks while a second announcement waits for its second to pass. The delta has it, and the digest that went meanwhile
// is gone.
func TestCase62BreakWhileAnAnnouncementIsHeldBack(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := line(seed)
		n.noAlarms(t, "")
		n.mustRest(t, 10*time.Second)
		n.Node("AG2").SetOwn("of-AG2", "tag", "first")
		n.Run(100 * time.Millisecond)
		mustKnow(t, n.Node("AG3"), "AG2", "first", "of-AG2", "tag")
		n.Node("AG2").SetOwn("of-AG2", "first", "second") // the second is held back, and what goes passes it
		n.Run(200 * time.Millisecond)
		mustKnow(t, n.Node("AG3"), "AG2", "first", "of-AG2")
		n.deltas()
		n.Cut("AG2", "AG3")
		n.Run(time.Second)
		n.Node("AG2").SetOwn("of-AG2", "second", "third")
		n.Run(time.Second)
		n.Heal("AG2", "AG3")
		n.mustRest(t, 5*time.Second)
		if deltas, fulls := n.deltas(); deltas != 2 || fulls != 0 {
			t.Errorf("%d by delta, %d full", deltas, fulls)
		}
		mustKnow(t, n.Node("AG3"), "AG2", "of-AG2", "second", "third")
		mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "second", "third")
	})
}

// The hub forgets what it no longer carries while a neighbour is away: it cannot say what went, so it sends the whole, and what went
// does not survive there.
func TestCase12ForgottenWhileTheNeighbourWasAway(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := line(seed)
		n.noAlarms(t, "")
		n.mustRest(t, 10*time.Second)
		n.Cut("AG3", "AG1")
		n.Run(time.Second)
		n.Node("AG3").SetRows(n.Node("AG3").Rows[:1]...) // AG2 is no neighbour of it any more
		n.Run(80 * time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
		n.deltas()
		n.Heal("AG3", "AG1")
		n.Run(5 * time.Second)
		if n.Syncs[wire.ModeFull] == 0 {
			t.Error("the hub went on by delta")
		}
		mustKnow(t, n.Node("AG1"), "AG2")
		mustKnow(t, n.Node("AG1"), "AG3", "of-AG3", "tag")
	})
}

// A neighbour that is away for hours comes back to a gateway that has purged the tombstones of meanwhile.
func TestCase12TombstonesPurgedBeforeTheNeighbourReturned(t *testing.T) {
	n := line(1)
	n.noAlarms(t, "")
	n.mustRest(t, 10*time.Second)
	n.Cut("AG3", "AG1")
	n.Run(time.Second)
	n.Node("AG2").SetOwn("of-AG2")
	for range 3 {
		n.Run(time.Hour)
	}
	n.Heal("AG3", "AG1")
	n.mustRest(t, 10*time.Second)
	mustKnow(t, n.Node("AG1"), "AG2", "of-AG2")
}

const putBack = "was put back to an earlier state"

// The hub is put back to an earlier state of itself. Its neighbours hold more than it knows to have told them: everything is sent anew
// under another epoch, and what it does not know any more goes.
func TestCase10SenderRolledBack(t *testing.T) {
	var alarms int
	eachSeed(t, 20, func(t *testing.T, seed uint64) {
		n := NewNetwork(seed)
		n.Record = true
		for _, name := range []string{"AG1", "AG2", "AG3"} {
			n.AddNode(name, strings.ToLower(name)+".example").SetOwn("of-"+name, "tag")
		}
		n.customer("AG3", "AG1")
		n.customer("AG3", "AG2")
		n.Trace = func(node *Node, event string) {
			if strings.Contains(event, putBack) {
				alarms++
			} else if strings.HasPrefix(event, "alarm") {
				t.Errorf("%s: %s", node.Name, event)
			}
		}
		n.mustRest(t, 10*time.Second)
		for i := range 4 {
			n.Node("AG2").SetOwn("of-AG2", fmt.Sprint("n", i))
			n.Run(3 * time.Second)
		}
		n.RollBack("AG3")
		n.mustRest(t, 20*time.Second)
		for _, name := range []string{"AG1", "AG3"} {
			mustKnow(t, n.Node(name), "AG2", "n3", "of-AG2")
		}
		if asked := n.Sent[frame.Resync]; asked != 0 {
			t.Errorf("asked for the whole %d times: the roll-back was found late", asked)
		}
	})
	if alarms == 0 {
		t.Error("no roll-back was noticed")
	}
}

// A delta that breaks off leaves what it had not told to the next one.
func TestCase09ConnectionDiesInMidDelta(t *testing.T) {
	eachSeed(t, 5, func(t *testing.T, seed uint64) {
		n := NewNetwork(seed)
		n.noAlarms(t, "")
		n.Limits.Inflight = 1
		for _, name := range []string{"AG1", "AG2", "AG3"} {
			n.AddNode(name, strings.ToLower(name)+".example").SetOwn("of-"+name, "tag")
		}
		n.customer("AG3", "AG1")
		n.customer("AG3", "AG2")
		n.Node("AG2").SetOwn(many(900, "old")...)
		n.mustRest(t, 20*time.Second)
		n.Cut("AG3", "AG2")
		n.Run(time.Second)
		n.deltas()
		want := slices.Concat(many(900, "new"), many(100, "old"))
		n.Node("AG2").SetOwn(want...)
		for range 4 {
			before := n.Sent[frame.Ack]
			n.Heal("AG3", "AG2")
			for step := 0; n.Sent[frame.Ack] < before+2 && step < 20_000; step++ {
				n.Run(time.Millisecond)
			}
			n.Cut("AG3", "AG2")
			n.Run(500 * time.Millisecond)
		}
		n.Heal("AG3", "AG2")
		n.mustRest(t, 20*time.Second)
		if deltas, fulls := n.deltas(); deltas != 10 || fulls != 0 {
			t.Errorf("%d by delta, %d full", deltas, fulls)
		}
		slices.Sort(want)
		mustKnow(t, n.Node("AG1"), "AG2", want...)
		if asked := n.Sent[frame.Resync]; asked != 0 {
			t.Errorf("%d RESYNC though nobody lost anything", asked)
		}
	})
}

// Connections break in the middle of streams of several frames, gateways restart, lose trust in each other's digests for a while and
// are put back to earlier states, and restart with what they have written down, with an older copy of it, or with nothing; in the end every neighbour holds what it is told today, and only a roll-back raised an alarm.
func TestRandomDeltas(t *testing.T) { eachSeed(t, 8, randomDeltas) }

func randomDeltas(t *testing.T, seed uint64) {
	n := NewNetwork(seed)
	n.Record, n.Keep = true, true
	n.MaxDelay = time.Duration(n.Rand().Int64N(int64(300*time.Millisecond))) + time.Millisecond
	n.Limits.Inflight = 1 + n.Rand().IntN(3)
	names := []string{"AG1", "AG2", "AG3", "AG4"}
	for _, name := range names {
		n.AddNode(name, strings.ToLower(name)+".example").SetOwn("of-"+name, "tag")
	}
	for i, name := range names {
		n.customer(name, names[(i+1)%len(names)])
	}
	rolled := n.Rand().IntN(2) == 0
	but := ""
	if rolled {
		but = putBack
	}
	n.noAlarms(t, but)
	copies := map[*Node]Disk{}
	for range 60 {
		n.deltaTrouble(rolled, copies)
		n.Run(time.Duration(n.Rand().Int64N(int64(3 * time.Second))))
	}
	for _, l := range n.links {
		n.Heal(l.a.Name, l.b.Name)
	}
	for _, node := range n.Nodes() {
		clear(node.Unknown)
		node.KeysChanged()
	}
	n.mustRest(t, 3*time.Minute)
	for _, node := range n.Nodes() {
		for _, origin := range n.Nodes() {
			mustKnow(t, node, origin.Name, origin.labels()...)
		}
	}
	asked := n.Asked[frame.SeqGap]
	if !rolled { // one that was put back has forgotten frames of one and the same rib_seq: only the tables tell
		asked += n.Asked[frame.OK]
	}
	if asked > 0 {
		t.Errorf("tables differed, or frames were missing: %v", n.Asked)
	}
}

func (n *Network) deltaTrouble(rolled bool, copies map[*Node]Disk) {
	l := n.links[n.Rand().IntN(len(n.links))]
	switch n.Rand().IntN(18) {
	case 0, 1, 2, 3:
		n.Cut(l.a.Name, l.b.Name)
	case 4, 5, 6, 7:
		n.Heal(l.a.Name, l.b.Name)
	case 8:
		n.anyRestart(l.a, copies)
	case 16:
		copies[l.a] = l.a.Disk()
	case 17:
		n.anyRestart(l.b, copies)
	case 9:
		if rolled {
			n.RollBack(l.a.Name)
		}
	case 10:
		l.a.Unknown[l.b.Name] = !l.a.Unknown[l.b.Name]
		l.a.KeysChanged()
	case 11:
		l.a.SetOwn(many(300+n.Rand().IntN(300), "m")...)
	default:
		var labels []string
		for i := range n.Rand().IntN(5) {
			labels = append(labels, fmt.Sprintf("t%d", i+n.Rand().IntN(3)*5))
		}
		l.a.SetOwn(labels...)
	}
}
