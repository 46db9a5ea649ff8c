package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/cdsp/wire"
)

// keeps is a bench that writes down what it is told.
func keeps(t *testing.T) *bench {
	b := newBench(t)
	b.r.cfg.Keep = true
	return b
}

// learned takes everything that is to be written down.
func (b *bench) learned() (out []Learned) {
	b.t.Helper()
	for range 1000 {
		l, some := b.r.TakeLearned()
		if !some {
			return out
		}
		out = append(out, l)
	}
	b.t.Fatal("there is always more to write")
	return nil
}

// tell has A tell so many keys in a full synchronisation.
func (b *bench) tell(conn uint64, gw string, n int) {
	b.t.Helper()
	domain := strings.ToLower(gw) + ".example"
	b.step(Connected{Conn: conn, Gateway: gw, Domain: domain})
	b.receive(conn, b.hello(gw, domain))
	b.seq[conn] = 0
	b.receive(conn, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: epochOfA})
	for at := 0; at < n; at += wire.MaxItems {
		var list []*wire.Item
		for i := at; i < min(n, at+wire.MaxItems); i++ {
			list = append(list, digestItem(fmt.Sprint("k", i), uint64(i+1)))
		}
		batch := b.batchOf(gw, nil, list...)
		var entries []wire.Entry
		for i := range list {
			entries = append(entries, put(batch, i, domain))
		}
		b.entries(conn, [][]byte{batch}, entries...)
	}
	b.seq[conn]++
	b.receive(conn, &wire.SyncEnd{Seq: b.seq[conn], RIBSeq: 7, TableHash: b.r.peers[gw].hash})
}

// A cookie is handed out with the last of the changes that it speaks for. While there are more the one before is taken back.
func TestCookieComesWithTheLastChange(t *testing.T) {
	b := keeps(t)
	b.tell(1, "A", 1500)
	check := func(want int) {
		t.Helper()
		put := 0
		parts := b.learned()
		for i, l := range parts {
			put += len(l.Put)
			if last := i == len(parts)-1; (l.Cookie != nil) != last {
				t.Errorf("part %d of %d has the cookie %v", i+1, len(parts), l.Cookie)
			} else if last && (l.Cookie.Epoch != epochOfA || l.Cookie.TableHash != b.r.peers["A"].hash) {
				t.Errorf("cookie %+v", l.Cookie)
			}
			if len(l.Put)+len(l.Drop) > maxLearned {
				t.Errorf("%d entries at once", len(l.Put)+len(l.Drop))
			}
		}
		if put != want || len(parts) != 1+want/(maxLearned+1) {
			t.Errorf("%d entries in %d parts", put, len(parts))
		}
	}
	check(1500)
	if again := b.learned(); again != nil {
		t.Errorf("nothing has changed, and %+v is to be written", again)
	}
	b.step(KeepFailed{Gateway: "A"})
	check(1500)
	b.receive(1, &wire.Keepalive{Epoch: epochOfA, RIBSeq: 9, TableHash: &b.r.peers["A"].hash})
	if l := b.learned(); len(l) != 1 || len(l[0].Put)+len(l[0].Drop) != 0 || l[0].Cookie == nil || l[0].Cookie.RIBSeq != 9 {
		t.Errorf("a KEEPALIVE moves the cookie on: %+v", l)
	}
	b.r.doubt(b.r.peers["A"])
	if l := b.learned(); len(l) != 1 || l[0].Cookie != nil {
		t.Errorf("of a cookie in doubt %+v is written", l)
	}
}

// A writer that lags is no reason to remember more than the tables have: what it has written is given up, with an alarm, and written anew.
func TestWriterThatLags(t *testing.T) {
	b := keeps(t)
	b.r.cfg.Limits.PeerEntries = 10
	b.tell(1, "A", 10)
	b.learned()
	for i := range 5 { // other keys each time
		list := []*wire.Item{}
		for j := range 10 {
			list = append(list, digestItem(fmt.Sprintf("r%d-%d", i, j), uint64(100+10*i+j)))
		}
		for ref := range b.r.peers["A"].in {
			b.entries(1, nil, wire.Entry{Op: wire.OpUnreach, Origin: ref.Origin, Key: ref.Key})
		}
		batch := b.batchOf("A", nil, list...)
		b.entries(1, [][]byte{batch})
		for j := range list {
			b.entries(1, nil, put(batch, j, "a.example"))
		}
		if got := len(b.r.peers["A"].kept.dirty); got > 20 {
			t.Fatalf("%d keys wait to be written", got)
		}
	}
	if got := strings.Join(b.alarms(), "\n"); strings.Count(got, "not written down as fast") != 1 {
		t.Errorf("alarms:\n%s", got)
	}
	if l := b.learned(); len(l) != 1 || !l[0].Forget || len(l[0].Put) != 10 || l[0].Cookie == nil {
		t.Errorf("written anew: %+v", l)
	}
}

// Neighbours take turns; one that is gone, or that tells nothing any more, is forgotten once.
func TestNeighboursTakeTurns(t *testing.T) {
	b := keeps(t)
	b.tell(1, "A", 1500)
	b.tell(2, "B", 1500)
	var order []string
	for _, l := range b.learned() {
		order = append(order, l.Gateway)
	}
	if fmt.Sprint(order) != "[A B A B]" {
		t.Errorf("order %v", order)
	}
	b.step(SetNeighbours{Rows: []Neighbour{b.r.rows["b.example"]}})
	b.receive(2, &wire.Goodbye{Kind: wire.LeaveHard})
	order = nil
	for _, l := range b.learned() {
		order = append(order, fmt.Sprintf("%s %v %d", l.Gateway, l.Forget, len(l.Put)+len(l.Drop)))
	}
	if fmt.Sprint(order) != "[A true 0 B true 0]" {
		t.Errorf("order %v", order)
	}
	if l := b.learned(); l != nil {
		t.Errorf("more: %+v", l)
	}
	// One that was removed and is there again before it was written: what is on the disk is of before.
	b.step(SetNeighbours{Rows: []Neighbour{{Domain: "a.example", Role: wire.RoleCustomer}}})
	b.tell(3, "A", 1)
	b.learned()
	b.step(SetNeighbours{})
	b.step(SetNeighbours{Rows: []Neighbour{{Domain: "a.example", Role: wire.RoleCustomer}}})
	b.step(Connected{Conn: 4, Gateway: "A", Domain: "a.example"})
	if l := b.learned(); len(l) != 1 || !l[0].Forget {
		t.Errorf("what was written of the removed neighbour stays: %+v", l)
	}
}

// What was kept is held to what it was kept under, and a damaged entry costs itself and the cookie.
func TestRestoredIsVerified(t *testing.T) {
	was := keeps(t)
	was.tell(1, "A", 3)
	l := was.learned()[0]
	for name, change := range map[string]func(k *Kept){
		"whole":         func(k *Kept) {},
		"not an entry":  func(k *Kept) { k.Entries[0].Entry = []byte{0x80} },
		"another batch": func(k *Kept) { k.Entries[0].Batch = was.batchOf("A", nil, digestItem("k0", 1)) },
		"damaged batch": func(k *Kept) { k.Entries[0].Batch = append([]byte{}, k.Entries[0].Batch[1:]...) },
		"another key":   func(k *Kept) { k.Entries[0].Ref.Origin = "B" },
		"twice":         func(k *Kept) { k.Entries[0] = k.Entries[1] },
		"another row":   func(k *Kept) { k.Transit = false },
		"forged":        func(k *Kept) { k.Entries = k.Entries[1:]; forge(was, k) },
		"without a row": func(k *Kept) { k.Domain = "c.example" },
	} {
		t.Run(name, func(t *testing.T) {
			k := Kept{Gateway: "A", Domain: "a.example", Transit: true, Cookie: l.Cookie, Entries: append([]KeptEntry{}, l.Put...)}
			change(&k)
			b := keeps(t)
			b.step(Restored{Kept: k})
			sn, want := b.r.Snapshot(), 2
			switch name {
			case "whole", "another row":
				want = 3
			case "without a row":
				want = 0
			}
			if len(sn.Entries) != want || sn.Restored != want {
				t.Errorf("%d entries of %d restored", len(sn.Entries), sn.Restored)
			}
			for _, e := range sn.Entries {
				if !e.Stale {
					t.Errorf("%s is not stale", e.Item.Label)
				}
			}
			if name == "without a row" {
				if got := b.learned(); len(got) != 1 || !got[0].Forget {
					t.Errorf("to be written: %+v", got)
				}
				return
			}
			b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
			if c := b.cookieOf(1); name == "whole" && (c == nil || *c != *l.Cookie) || name != "whole" && c != nil && c.Epoch != (wire.ID8{}) {
				t.Errorf("HELLO has the cookie %+v", c)
			}
			if name == "whole" {
				return
			}
			if got := b.learned(); len(got) != 1 || len(got[0].Drop) == 0 && name != "another row" && name != "twice" || got[0].Cookie != nil {
				t.Errorf("%d parts are to be written, the first drops %d", len(got), len(got[0].Drop))
			}
		})
	}
}

// forge adds an entry whose batch B has signed in A's name.
func forge(b *bench, k *Kept) {
	body := &wire.Batch{Origin: "A", Domain: "a.example", OEpoch: uint64(start.UnixMilli()), NotBefore: uint64(b.now.Unix()),
		Expires: uint64(b.now.Add(time.Hour).Unix()), Visibility: wire.VisibleAny, MaxHops: 7, Level: wire.LevelCoarse}
	it := digestItem("k0", 1)
	raw, err := body.Sign(signerOf("B"), []*wire.Item{it})
	if err != nil {
		b.t.Fatal(err)
	}
	e, err := put(raw, 0, "a.example").Append(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	k.Entries = append(k.Entries, KeptEntry{Ref: Ref{Origin: "A", Key: it.Key}, Entry: e, Batch: raw})
}
