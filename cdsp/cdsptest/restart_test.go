package cdsptest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

func asItIs(d Disk) Disk { return d }

// anyRestart restarts a gateway with all that it has written down, with a copy of some time ago, or without.
func (n *Network) anyRestart(node *Node, copies map[*Node]Disk) {
	polite := n.Rand().IntN(2) == 0
	switch n.Rand().IntN(4) {
	case 0:
		n.Restart(node.Name, polite)
	case 1:
		n.RestartFrom(node.Name, polite, func(Disk) Disk { return copies[node] })
	default:
		n.RestartFrom(node.Name, polite, asItIs)
	}
}

func keptLine(seed uint64) *Network {
	n := NewNetwork(seed)
	n.Keep = true
	for _, name := range []string{"AG1", "AG2", "AG3"} {
		n.AddNode(name, name+".example").SetOwn("of-"+name, "tag")
	}
	n.customer("AG3", "AG1")
	n.customer("AG3", "AG2")
	return n
}

// A gateway that restarts knows at once what it knew, stale, and hears only what changed meanwhile. It is a hub: what it tells on is neither withdrawn nor
// told stale.
func TestRestartWithWhatWasKept(t *testing.T) {
	for _, polite := range []bool{true, false} {
		t.Run(fmt.Sprintf("polite=%v", polite), func(t *testing.T) {
			eachSeed(t, 5, func(t *testing.T, seed uint64) {
				n := keptLine(seed)
				n.noAlarms(t, "")
				n.Node("AG2").SetOwn(many(100, "m")...)
				n.mustRest(t, 20*time.Second)
				n.Node("AG3").WriteAll()
				n.RestartFrom("AG3", polite, asItIs)
				mustKnow(t, n.Node("AG3"), "AG2", many(100, "m")...)
				if got := n.Node("AG3").Replica.Snapshot().Restored; got != 102 {
					t.Errorf("%d entries restored", got)
				}
				n.Node("AG2").SetOwn(append(many(99, "m"), "new")...) // before it is connected
				n.deltas()
				n.digestBytes()
				for range 400 {
					n.Run(10 * time.Millisecond)
					mustKnow(t, n.Node("AG1"), "AG3", "of-AG3", "tag")
					if got := n.Node("AG1").Knows("AG2"); len(got) < 100 {
						t.Fatalf("%v: AG1 knows %d of AG2", n.Now.Sub(Epoch), len(got))
					}
				}
				if deltas, fulls := n.deltas(); deltas != 2 || fulls != 2 { // its own tables are told anew, since it has forgotten what it told
					t.Errorf("%d by delta, %d full", deltas, fulls)
				}
				n.mustRest(t, 5*time.Second)
				mustKnow(t, n.Node("AG1"), "AG2", append(many(99, "m"), "new")...)
				if asked := n.Sent[frame.Resync]; asked != 0 {
					t.Errorf("%d RESYNC", asked)
				}
			})
		})
	}
}

// The power goes at a gateway: what it has written last is lost. It asks for what changed since the older copy, and holds in the end what it is told
// today, whatever came, changed and went in between.
func TestCase11ReceiverPowerLoss(t *testing.T) {
	eachSeed(t, 20, func(t *testing.T, seed uint64) {
		n := keptLine(seed)
		n.noAlarms(t, "")
		n.mustRest(t, 10*time.Second)
		n.Node("AG3").WriteAll()
		older := n.Node("AG3").Disk()
		for i := range 6 {
			n.Node("AG2").SetOwn("of-AG2", fmt.Sprint("n", i))
			n.Run(time.Duration(n.Rand().Int64N(int64(3 * time.Second))))
		}
		n.Node("AG3").WriteAll()
		newest := n.Node("AG3").Disk()["AG2"].Cookie
		n.RestartFrom("AG3", false, func(Disk) Disk { return older })
		if was := older["AG2"].Cookie; was.Epoch != newest.Epoch || was.RIBSeq >= newest.RIBSeq {
			t.Fatalf("the older copy's cookie is %+v, the newest %+v", was, newest)
		}
		mustKnow(t, n.Node("AG3"), "AG2", "of-AG2", "tag")
		n.deltas()
		n.mustRest(t, 10*time.Second)
		if deltas, fulls := n.deltas(); deltas != 2 || fulls != 2 {
			t.Errorf("%d by delta, %d full", deltas, fulls)
		}
		mustKnow(t, n.Node("AG3"), "AG2", "n5", "of-AG2")
		mustKnow(t, n.Node("AG1"), "AG2", "n5", "of-AG2")
		if asked := n.Sent[frame.Resync]; asked != 0 {
			t.Errorf("%d RESYNC", asked)
		}
	})
}

// An older copy of another history, one that is ahead of a sender that was put back, and one that has lost or brought back an entry: each is told everything.
func TestCase11CopiesThatNoDeltaFits(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Network, older Disk) Disk
		alarm  string
	}{
		"another history": {func(n *Network, older Disk) Disk {
			rows := slices.Clone(n.Node("AG2").Rows)
			rows[0].ExportTransit = false
			n.Node("AG2").SetRows(rows...)
			n.Cut("AG3", "AG2")
			n.Heal("AG3", "AG2")
			n.Run(5 * time.Second)
			return older
		}, ""},
		"ahead of the sender": {func(n *Network, older Disk) Disk {
			c := *older["AG2"].Cookie
			c.RIBSeq += 1000
			older["AG2"].Cookie = &c
			return older
		}, putBack},
		"an entry is lost": {func(n *Network, older Disk) Disk {
			for ref := range older["AG2"].Entries {
				delete(older["AG2"].Entries, ref)
				break
			}
			return older
		}, ""},
		"an entry is back": {func(n *Network, older Disk) Disk {
			was := older.Clone()
			n.Node("AG2").SetOwn("tag")
			n.Run(5 * time.Second)
			n.Node("AG3").WriteAll()
			now := n.Node("AG3").Disk()
			now["AG2"].Entries = was["AG2"].Entries
			return now
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := keptLine(1)
			n.noAlarms(t, c.alarm)
			n.mustRest(t, 10*time.Second)
			n.Node("AG3").WriteAll()
			disk := c.change(n, n.Node("AG3").Disk())
			want := n.Node("AG2").Knows("AG2")
			n.deltas()
			n.RestartFrom("AG3", false, func(Disk) Disk { return disk })
			n.mustRest(t, 20*time.Second)
			if deltas, fulls := n.deltas(); deltas != 1 || fulls != 3 { // AG1 goes on by delta
				t.Errorf("%d by delta, %d full", deltas, fulls)
			}
			mustKnow(t, n.Node("AG1"), "AG2", want...)
			mustKnow(t, n.Node("AG3"), "AG2", want...)
		})
	}
}

// A neighbour that does not come back takes what was kept of it along, as after any loss; before, it is not told on until a minute has passed.
func TestKeptOfANeighbourThatIsGone(t *testing.T) {
	n := keptLine(1)
	n.mustRest(t, 10*time.Second)
	n.Cut("AG3", "AG2")
	n.Node("AG3").WriteAll()
	n.RestartFrom("AG3", false, asItIs)
	n.AddNode("AG4", "AG4.example").SetOwn("of-AG4") // it has never heard of AG2
	n.customer("AG3", "AG4")
	n.Run(50 * time.Second)
	mustKnow(t, n.Node("AG3"), "AG2", "of-AG2", "tag")
	mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag") // it held it before, and is not told that it is gone
	mustKnow(t, n.Node("AG4"), "AG2")
	n.Run(20 * time.Second)
	mustKnow(t, n.Node("AG4"), "AG2", "of-AG2", "tag")
	n.Run(60 * time.Second)
	for _, name := range []string{"AG1", "AG3", "AG4"} {
		mustKnow(t, n.Node(name), "AG2")
	}
	n.Node("AG3").WriteAll()
	if n.Node("AG3").Disk()["AG2"] != nil {
		t.Error("it is still written down")
	}
}

// What may not be taken today is not taken of what was kept: of a neighbour without a row nothing, of others what the row as it is now allows, nothing
// that has expired, and nothing under a key that is gone. It is removed from the disk.
func TestKeptIsJudgedByToday(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Network)
		want   []string // AG1's, of AG2
		stays  bool     // some of it on the disk
	}{
		"as it was":   {func(n *Network) {}, []string{"of-AG2", "tag"}, true},
		"no row":      {func(n *Network) { n.Node("AG1").Rows = nil }, nil, false},
		"another one": {func(n *Network) { n.Node("AG1").Rows[0].Gateways = []string{"OTHER"} }, nil, false},
		"no transit":  {func(n *Network) { n.Node("AG1").Rows[0].ImportTransit = false }, nil, true},
		"expired":     {func(n *Network) { n.Cut("AG3", "AG1"); n.Now = n.Now.Add(2 * time.Hour) }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := keptLine(1)
			n.mustRest(t, 10*time.Second)
			one := n.Node("AG1")
			one.WriteAll()
			one.Rows = slices.Clone(one.Rows)
			c.change(n)
			n.RestartFrom("AG1", false, asItIs)
			mustKnow(t, one, "AG2", c.want...)
			one.WriteAll()
			if w := one.Disk()["AG3"]; (w != nil) != c.stays {
				t.Errorf("on the disk is %+v", w)
			} else if name == "no transit" && (len(w.Entries) != 2 || w.Cookie != nil) {
				t.Errorf("on the disk are %d entries and the cookie %v", len(w.Entries), w.Cookie)
			}
		})
	}
}

// The key of an origin is known again only when its introducer is back: what was kept of it waits, is of use then, and is not told again. Where the key
// does not come within seconds it is refused, and asked for when it comes later.
func TestKeptUnderAKeyThatComesLater(t *testing.T) {
	for _, after := range []time.Duration{0, 3 * time.Second, 20 * time.Second} {
		late := after > 10*time.Second
		t.Run(fmt.Sprint("after ", after), func(t *testing.T) {
			eachSeed(t, 5, func(t *testing.T, seed uint64) {
				n := keptLine(seed)
				n.noAlarms(t, "")
				n.mustRest(t, 10*time.Second)
				one := n.Node("AG1")
				one.WriteAll()
				one.Unknown["AG2"] = true
				n.RestartFrom("AG1", false, asItIs)
				mustKnow(t, one, "AG2")
				mustKnow(t, one, "AG3", "of-AG3", "tag")
				n.deltas()
				n.Run(after)
				mustKnow(t, one, "AG2")
				delete(one.Unknown, "AG2")
				one.KeysChanged()
				if !late {
					mustKnow(t, one, "AG2", "of-AG2", "tag")
				}
				n.mustRest(t, 20*time.Second)
				mustKnow(t, one, "AG2", "of-AG2", "tag")
				wantDeltas, wantFulls := 1, 1
				if late {
					wantFulls = 2
				}
				if deltas, fulls := n.deltas(); deltas != wantDeltas || fulls != wantFulls {
					t.Errorf("%d by delta, %d full, want %d and %d", deltas, fulls, wantDeltas, wantFulls)
				}
				if differ := n.Asked[frame.OK]; differ != 0 {
					t.Errorf("tables differed %d times", differ)
				}
			})
		})
	}
}

// Whatever is told while the writer lags, what is written is at every moment a state that a restart can go on from: the tables are equal in the end, and no
// difference of tables is found, which would mean that a cookie spoke for more than was written.
func TestKilledAtRandomMoments(t *testing.T) {
	eachSeed(t, 3, func(t *testing.T, seed uint64) {
		n := keptLine(seed)
		n.noAlarms(t, "")
		n.Limits.Inflight = 2
		n.mustRest(t, 10*time.Second)
		deltas := 0
		for range 20 {
			var labels []string
			for i := range 600 {
				if n.Rand().IntN(3) == 0 {
					labels = append(labels, fmt.Sprintf("l%03d", i))
				}
			}
			n.Node("AG2").SetOwn(labels...)
			n.Run(time.Duration(n.Rand().Int64N(int64(3 * time.Second))))
			n.RestartFrom("AG3", false, asItIs)
			n.Run(time.Duration(n.Rand().Int64N(int64(3 * time.Second))))
			deltas += n.Syncs[wire.ModeDelta]
		}
		n.mustRest(t, 30*time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", n.Node("AG2").labels()...)
		if asked := n.Asked[frame.OK] + n.Asked[frame.SeqGap] + n.Asked[frame.EpochUnknown]; asked > 0 {
			t.Errorf("asked: %v", n.Asked)
		}
		if deltas == 0 {
			t.Error("no restart went on by delta")
		}
	})
}
