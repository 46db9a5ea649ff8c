package cdsptest

import (
	"strings"
	"testing"
	"time"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// diamond is AG1 and AG2, both customers of the two providers AG3 and AG4.
func diamond(seed uint64) *Network {
	n := line(seed)
	n.AddNode("AG4", "ag4.example").SetOwn("of-AG4", "tag")
	n.customer("AG4", "AG1")
	n.customer("AG4", "AG2")
	return n
}

// way is the neighbour by which node reaches an origin, "" for none.
func (node *Node) way(origin string) string {
	for _, e := range node.Replica.Snapshot().Entries {
		if e.Origin == origin {
			return e.Via
		}
	}
	return ""
}

// broken collects transitions out of UP.
func (n *Network) broken() *[]string {
	var out []string
	n.Trace = func(node *Node, event string) {
		if strings.Contains(event, "UP >") || strings.HasPrefix(event, "alarm") {
			out = append(out, node.Name+" "+event)
		}
	}
	return &out
}

// A lame duck takes back what it told and says lame; requests go another way, no session breaks, nobody asks for anything anew. Undone, all is as
// before. That holds where a session breaks meanwhile, too.
func TestLameDuck(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, seed uint64) {
		n := diamond(seed)
		n.mustRest(t, 5*time.Second)
		if via := n.Node("AG1").way("AG2"); via != "AG3" {
			t.Fatalf("AG1 reaches AG2 by %q", via)
		}
		broken, syncs := n.broken(), n.Syncs[wire.ModeFull]
		n.Node("AG3").step(replica.SetLame{All: true})
		n.Run(50 * time.Millisecond) // KEEPALIVE is there, the withdrawals wait for 100 ms
		if via := n.Node("AG1").way("AG2"); via != "AG4" || !n.Node("AG1").Status("AG3").Lame {
			t.Fatalf("AG3 is lame, and AG1 reaches AG2 by %q", via)
		}
		n.mustRest(t, 40*time.Second) // KEEPALIVEs compare the tables
		for _, name := range []string{"AG1", "AG2"} {
			if st := n.Node(name).Status("AG3"); st.Received != 0 || st.State != replica.Established {
				t.Fatalf("%s holds %d of the lame duck, %v", name, st.Received, st.State)
			}
		}
		if n.Node("AG4").way("AG3") != "" {
			t.Fatal("AG4 is not its neighbour and still reaches AG3")
		}
		mustKnow(t, n.Node("AG3"), "AG1", "of-AG1", "tag") // it may ask for itself
		if len(*broken) > 0 || n.Syncs[wire.ModeFull] != syncs || n.Asked[frame.OK] != 0 {
			t.Fatalf("%v, %d synchronisations, %v asked for", *broken, n.Syncs[wire.ModeFull]-syncs, n.Asked)
		}
		if n.Rand().IntN(2) == 0 {
			n.Cut("AG3", "AG1")
			n.Run(2 * time.Second)
			n.Heal("AG3", "AG1")
			n.mustRest(t, 5*time.Second)
			if st := n.Node("AG1").Status("AG3"); st.Received != 0 || !st.Lame {
				t.Fatalf("after a break AG1 holds %d of the lame duck, lame: %v", st.Received, st.Lame)
			}
		}
		gone := n.Rand().IntN(2) == 0 // while it is undone: a delta brings everything back, or takes it
		if gone {
			n.Cut("AG3", "AG1")
		}
		n.Node("AG3").step(replica.SetLame{})
		if gone {
			n.Run(time.Second)
			n.Heal("AG3", "AG1")
		}
		n.mustRest(t, 40*time.Second)
		mustKnow(t, n.Node("AG1"), "AG3", "of-AG3", "tag")
		n.Cut("AG3", "AG1")
		n.Node("AG3").step(replica.SetLame{All: true})
		n.Run(time.Second)
		n.Heal("AG3", "AG1")
		n.mustRest(t, 5*time.Second)
		if st := n.Node("AG1").Status("AG3"); st.Received != 0 || n.Node("AG1").way("AG2") != "AG4" {
			t.Fatalf("lame since before the session, and AG1 holds %d of it", st.Received)
		}
		n.Node("AG3").step(replica.SetLame{})
		n.mustRest(t, 5*time.Second)
		if via := n.Node("AG1").way("AG2"); via != "AG3" || n.Node("AG1").Status("AG3").Lame || n.Asked[frame.OK] != 0 {
			t.Fatalf("it is undone, and AG1 reaches AG2 by %q; asked: %v", via, n.Asked)
		}
	})
}

// What a lame duck takes back, or tells again, may be lost with the connection: the next session makes up for it, without a fault being found.
func TestLameDuckLosesConnection(t *testing.T) {
	eachSeed(t, 10, func(t *testing.T, seed uint64) {
		n := diamond(seed)
		n.mustRest(t, 5*time.Second)
		for _, lame := range []bool{true, false} {
			n.Node("AG3").step(replica.SetLame{All: lame})
			before := n.Sent[frame.Entries]
			for step := 0; n.Sent[frame.Entries] == before && step < 3000; step++ {
				n.Run(time.Millisecond)
			}
			n.Cut("AG3", "AG1")
			n.Heal("AG3", "AG1")
			n.mustRest(t, 40*time.Second)
			if held := n.Node("AG1").Status("AG3").Received; lame != (held == 0) || n.Asked[frame.OK] != 0 {
				t.Fatalf("lame %v: AG1 holds %d; asked: %v", lame, held, n.Asked)
			}
		}
	})
}

// Towards one neighbour: neither end uses what the other tells, and those behind hear that the way is closed. The name may be the domain's or
// the gateway's, and counts for sessions that begin later.
func TestLameDuckTowardsOne(t *testing.T) {
	eachSeed(t, 6, func(t *testing.T, seed uint64) {
		n := line(seed)
		name := []string{"AG2", "ag2.example"}[n.Rand().IntN(2)]
		before := n.Rand().IntN(2) == 0 // nothing was ever told then
		if before {
			n.Node("AG3").step(replica.SetLame{To: []string{name}})
		}
		n.mustRest(t, 5*time.Second)
		broken := n.broken()
		if !before {
			n.Node("AG3").step(replica.SetLame{To: []string{name}})
		}
		n.mustRest(t, 15*time.Second)
		if a, b, c := n.Node("AG3").way("AG2"), n.Node("AG1").way("AG2"), n.Node("AG2").way("AG1"); a+b+c != "" {
			t.Fatalf("drained, AG3 uses %q, AG1 %q, AG2 %q", a, b, c)
		}
		if st := n.Node("AG3").Status("AG2"); !st.Drained || st.Lame || st.Received == 0 || st.Sent != 0 || n.Node("AG1").Status("AG3").Lame {
			t.Fatalf("%+v", st)
		}
		mustKnow(t, n.Node("AG1"), "AG3", "of-AG3", "tag")
		if len(*broken) > 0 {
			t.Fatal(*broken)
		}
		n.Restart("AG2", true)
		n.mustRest(t, 15*time.Second)
		if n.Node("AG1").way("AG2") != "" || n.Node("AG2").way("AG3") != "" {
			t.Fatal("a session that began later is not drained")
		}
		if st := n.Node("AG3").Status("AG2"); !strings.Contains(st.Ended, "GOODBYE SHUTDOWN") || st.EndedAt.IsZero() {
			t.Fatalf("its last session ended %q", st.Ended)
		}
		n.Node("AG3").step(replica.SetLame{})
		n.mustRest(t, 5*time.Second)
		mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
		mustKnow(t, n.Node("AG2"), "AG1", "of-AG1", "tag")
	})
}

// A refresh brings the whole table again and breaks nothing.
func TestRefresh(t *testing.T) {
	n := line(3)
	n.mustRest(t, 5*time.Second)
	broken, syncs := n.broken(), n.Syncs[wire.ModeFull]
	n.Node("AG1").step(replica.Refresh{Gateway: "AG3"})
	n.mustRest(t, 5*time.Second)
	if n.Syncs[wire.ModeFull] != syncs+1 || len(*broken) > 0 {
		t.Errorf("%d full synchronisations, %v", n.Syncs[wire.ModeFull]-syncs, *broken)
	}
	mustKnow(t, n.Node("AG1"), "AG2", "of-AG2", "tag")
	for _, gateway := range []string{"AG2", "AG9", ""} {
		if err := n.Node("AG1").Replica.Step(n.Now, replica.Refresh{Gateway: gateway}); frame.CodeOf(err) != frame.State {
			t.Errorf("%q: %v", gateway, err)
		}
	}
}

// Every way to a key is listed, the best first, each with the first criterion that decided.
func TestRoutesSayWhy(t *testing.T) {
	n := diamond(5)
	n.mustRest(t, 5*time.Second)
	list := func(at string, origin string) (out []replica.Known) {
		out, _ = n.Node(at).Replica.Routes(func(k *replica.Known) bool { return k.Ref.Origin == origin && k.Label == "tag" }, replica.Ref{}, 10)
		return out
	}
	why := func(want string) {
		t.Helper()
		var got []string
		for _, k := range list("AG1", "AG2") {
			for _, r := range k.Routes {
				mark := map[bool]string{true: "*", false: ""}[r.Best] + map[bool]string{true: "!"}[r.Lame]
				got = append(got, mark+r.Gateway+" "+string(r.By))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	why("*AG3 gateway, AG4 gateway")
	if k := list("AG3", "AG1"); len(k) != 1 || strings.Join(k[0].ToldTo, " ") != "AG2" || len(k[0].Routes) != 1 || k[0].Routes[0].By != "" || !k[0].Routes[0].Best {
		t.Errorf("%+v", k)
	}
	n.Node("AG1").step(replica.SetLame{To: []string{"AG3"}})
	why("*AG4 lame, !AG3 lame")
	n.Node("AG1").step(replica.SetLame{To: []string{"AG3", "ag4.example"}})
	why("!AG3 gateway, !AG4 gateway")
	n.Node("AG1").step(replica.SetLame{})
	n.Cut("AG3", "AG1")
	why("*AG4 stale, AG3 stale")
	all, more := n.Node("AG1").Replica.Routes(func(*replica.Known) bool { return true }, replica.Ref{}, 1000)
	if more {
		t.Error("more follow")
	}
	var paged []replica.Known
	for after := (replica.Ref{}); ; after = paged[len(paged)-1].Ref {
		page, more := n.Node("AG1").Replica.Routes(func(*replica.Known) bool { return true }, after, 3)
		if paged = append(paged, page...); !more {
			break
		}
	}
	if len(all) != 8 || len(paged) != len(all) {
		t.Errorf("%d keys, in pages %d", len(all), len(paged))
	}
}
