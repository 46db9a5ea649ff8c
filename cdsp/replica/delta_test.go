package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// helloWith brings A up on a new connection with a cookie, and gives the SYNC_BEGIN that answers it.
func (b *bench) helloWith(conn uint64, c *wire.Cookie) *wire.SyncBegin {
	b.t.Helper()
	b.effects = nil
	b.step(Connected{Conn: conn, Gateway: "A", Domain: "a.example"})
	h := b.hello("A", "a.example")
	h.Cookie = c
	b.receive(conn, h)
	return b.begun(conn)
}

// begun is the last SYNC_BEGIN that was sent on conn.
func (b *bench) begun(conn uint64) (begin *wire.SyncBegin) {
	b.t.Helper()
	for _, m := range b.sent(conn) {
		if m, ok := m.(*wire.SyncBegin); ok {
			begin = m
		}
	}
	if begin == nil {
		b.t.Fatalf("no SYNC_BEGIN among %+v", b.sent(conn))
	}
	return begin
}

// told is the entries that were sent on conn, as "op label", and SYNC_END.
func (b *bench) told(conn uint64) (out []string) {
	b.t.Helper()
	names := map[wire.ID16]string{}
	for _, label := range []string{"a", "b", "c", "d", "x", "y"} {
		names[wire.ItemKey(label, "tag", wire.LevelCoarse)] = label
	}
	for _, m := range b.sent(conn) {
		if _, ok := m.(*wire.SyncEnd); ok {
			out = append(out, "end")
		}
		frame, ok := m.(*wire.Entries)
		if !ok {
			continue
		}
		for _, raw := range frame.Entries {
			e, err := wire.ParseEntry(raw)
			if err != nil {
				b.t.Fatal(err)
			}
			key := e.Key
			if e.Op != wire.OpUnreach {
				for ref, d := range b.r.dests {
					if d.newest != nil && d.newest.batch.hash == e.Batch && d.newest.index == e.Index {
						key = ref.Key
					}
				}
			}
			out = append(out, [...]string{"put ", "del ", "unreach "}[e.Op]+names[key])
		}
	}
	return out
}

func (b *bench) mustTell(conn uint64, want ...string) {
	b.t.Helper()
	if got := b.told(conn); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("told %q, want %q", got, want)
	}
}

// cookieOf is the cookie of the last HELLO that was sent on conn.
func (b *bench) cookieOf(conn uint64) *wire.Cookie {
	b.t.Helper()
	for _, m := range b.sent(conn) {
		if h, ok := m.(*wire.Hello); ok {
			return h.Cookie
		}
	}
	b.t.Fatal("no HELLO")
	return nil
}

func (b *bench) own(labels ...string) {
	b.t.Helper()
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: labelled(labels...)}}})
}

var epochOfA = wire.ID8{0xA}

// holdsOfA is a bench that has x and y of A, told in a full synchronisation under epochOfA up to rib_seq 7.
func holdsOfA(t *testing.T) *bench {
	b := newBench(t)
	b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
	b.receive(1, b.hello("A", "a.example"))
	b.receive(1, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: epochOfA})
	batch := b.batchOf("A", nil, digestItem("x", 1), digestItem("y", 2))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example"), put(batch, 1, "a.example"))
	b.receive(1, &wire.SyncEnd{Seq: 2, RIBSeq: 7, TableHash: b.r.peers["A"].hash})
	b.effects = nil
	return b
}

func (b *bench) stale() (n int) {
	for _, e := range b.r.Snapshot().Entries {
		if e.Stale {
			n++
		}
	}
	return n
}

func TestCase61StaleMarksGoAtBegin(t *testing.T) {
	b := holdsOfA(t)
	b.step(Disconnected{Conn: 1})
	if b.stale() != 2 {
		t.Fatalf("%d stale", b.stale())
	}
	b.wait(10 * time.Second)
	b.effects = nil
	b.step(Connected{Conn: 2, Gateway: "A", Domain: "a.example"})
	if c := b.cookieOf(2); c == nil || *c != (wire.Cookie{Epoch: epochOfA, RIBSeq: 7, TableHash: b.r.peers["A"].hash}) {
		t.Fatalf("cookie %+v", c)
	}
	b.receive(2, b.hello("A", "a.example"))
	before := b.r.ribSeq
	b.receive(2, &wire.SyncBegin{Mode: wire.ModeDelta, Epoch: epochOfA, Base: 7})
	if b.stale() != 0 || len(b.labels()) != 2 {
		t.Fatalf("%d stale of %v", b.stale(), b.labels())
	}
	if b.r.ribSeq != before {
		t.Error("what is confirmed counts as changed: who comes back next would be told it again")
	}
	b.receive(2, &wire.SyncEnd{Seq: 1, RIBSeq: 9, TableHash: b.r.peers["A"].hash})
	if b.wait(100 * time.Second); len(b.labels()) != 0 {
		b.alive(2)
	}
	for _, m := range b.sent(2) {
		if _, ok := m.(*wire.Resync); ok {
			t.Error("asked for the whole")
		}
	}
	if c := b.r.peers["A"].cookie; c.RIBSeq != 9 {
		t.Errorf("cookie %+v", c)
	}
}

// A delta of what is not held is refused, and everything asked for: nothing of it is vouched for.
func TestDeltaOfAnotherTable(t *testing.T) {
	for name, begin := range map[string]*wire.SyncBegin{
		"other epoch": {Mode: wire.ModeDelta, Epoch: wire.ID8{1}, Base: 7},
		"no epoch":    {Mode: wire.ModeDelta, Base: 7},
		"later base":  {Mode: wire.ModeDelta, Epoch: epochOfA, Base: 8},
	} {
		b := holdsOfA(t)
		b.step(Disconnected{Conn: 1})
		b.step(Connected{Conn: 2, Gateway: "A", Domain: "a.example"})
		b.receive(2, b.hello("A", "a.example"))
		b.effects = nil
		b.receive(2, begin)
		var stopped bool
		for _, e := range b.effects {
			s, ok := e.(StopDigest)
			stopped = stopped || ok && s.Code == frame.EpochUnknown
		}
		m, ok := b.sent(2)[0].(*wire.Resync)
		if !stopped || !ok || m.Mode != wire.ModeFull || m.Reason != frame.EpochUnknown {
			t.Errorf("%s: stopped %v, sent %+v", name, stopped, b.sent(2))
		}
		if b.receive(2, &wire.SyncEnd{Seq: 1}); b.stale() != 2 {
			t.Errorf("%s: %d stale", name, b.stale())
		}
	}
}

// What the cookie says after this and that: never more than what was surely applied.
func TestCookieNeverClaimsMore(t *testing.T) {
	more := func(b *bench) []byte { return b.batchOf("A", nil, digestItem("z", 3)) }
	again := func(b *bench, m *wire.SyncBegin) { // on a second connection
		b.step(Disconnected{Conn: 1})
		b.step(Connected{Conn: 2, Gateway: "A", Domain: "a.example"})
		b.receive(2, b.hello("A", "a.example"))
		b.receive(2, m)
	}
	sure := func(seq uint64) wire.Cookie { return wire.Cookie{Epoch: epochOfA, RIBSeq: seq} }
	tests := map[string]struct {
		then func(*bench)
		want wire.Cookie
	}{
		"live": {func(b *bench) { b.receive(1, &wire.Entries{Seq: 3, RIBSeq: 9}) }, sure(9)},
		"a change that is no concern of ours": {func(b *bench) {
			hash := b.r.peers["A"].hash
			b.receive(1, &wire.Keepalive{Epoch: epochOfA, RIBSeq: 12, TableHash: &hash})
		}, sure(12)},
		"a frame is missing": {func(b *bench) { b.receive(1, &wire.Entries{Seq: 4, RIBSeq: 9}) }, sure(7)},
		"mid-full":           {func(b *bench) { again(b, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: wire.ID8{1}}) }, sure(7)},
		"mid-full, with a frame": {func(b *bench) {
			again(b, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: wire.ID8{1}})
			b.receive(2, &wire.Entries{Seq: 1, RIBSeq: 20})
		}, sure(7)},
		"after a full": {func(b *bench) {
			again(b, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: wire.ID8{1}})
			batch := b.batchOf("A", nil, digestItem("x", 1))
			raw, _ := put(batch, 0, "a.example").Append(nil)
			b.receive(2, &wire.Entries{Seq: 1, Batches: [][]byte{batch}, Entries: []cbor.RawMessage{raw}})
			x := Ref{Origin: "A", Key: wire.ItemKey("x", "tag", wire.LevelCoarse)}
			b.receive(2, &wire.SyncEnd{Seq: 2, RIBSeq: 20, TableHash: entryHash(x, b.r.peers["A"].in[x].version)})
		}, wire.Cookie{Epoch: wire.ID8{1}, RIBSeq: 20}},
		"mid-delta": {func(b *bench) { again(b, &wire.SyncBegin{Mode: wire.ModeDelta, Epoch: epochOfA, Base: 7}) }, sure(7)},
		"mid-delta, with a frame": {func(b *bench) {
			again(b, &wire.SyncBegin{Mode: wire.ModeDelta, Epoch: epochOfA, Base: 7})
			b.receive(2, &wire.Entries{Seq: 1, RIBSeq: 8})
		}, sure(8)},
		"tables differ": {func(b *bench) { b.receive(1, &wire.Keepalive{Epoch: epochOfA, RIBSeq: 9, TableHash: &wire.ID16{1}}) }, wire.Cookie{RIBSeq: 0}},
		"tables differ again, too early to ask": {func(b *bench) {
			b.receive(1, &wire.Keepalive{Epoch: epochOfA, RIBSeq: 9, TableHash: &wire.ID16{1}})
			b.receive(1, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: epochOfA})
			batch := more(b)
			raw, _ := put(batch, 0, "a.example").Append(nil)
			b.receive(1, &wire.Entries{Seq: 1, Batches: [][]byte{batch}, Entries: []cbor.RawMessage{raw}})
			b.receive(1, &wire.SyncEnd{Seq: 2, RIBSeq: 20, TableHash: wire.ID16{1}})
		}, wire.Cookie{}},
		"purged, and mid-full": {func(b *bench) {
			b.step(Disconnected{Conn: 1})
			b.wait(121 * time.Second)
			again(b, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: wire.ID8{1}})
			b.seq[2] = 0
			b.entries(2, [][]byte{more(b)}, put(more(b), 0, "a.example"))
		}, wire.Cookie{}},
		"its key goes": {func(b *bench) {
			two := b.batchOf("O", nil, digestItem("x", 1))
			b.seq[1] = 2
			b.entries(1, [][]byte{two}, put(two, 0, "a.example", "o.example"))
			delete(b.keys, "O")
			b.step(KeysChanged{})
		}, wire.Cookie{}},
		"a key comes while it is away": {func(b *bench) {
			two := b.batchOf("C", nil, digestItem("x", 1))
			b.seq[1] = 2
			b.entries(1, [][]byte{two}, put(two, 0, "a.example", "c.example"))
			b.step(Disconnected{Conn: 1})
			b.keys["C"] = "c.example"
			b.step(KeysChanged{})
		}, wire.Cookie{}},
		"import policy changes while it is away": {func(b *bench) {
			b.step(Disconnected{Conn: 1})
			row := b.r.rows["a.example"]
			row.ImportTransit = false
			b.step(SetNeighbours{Rows: []Neighbour{row}})
		}, wire.Cookie{}},
		"GOODBYE": {func(b *bench) { b.receive(1, &wire.Goodbye{RestartMS: 100_000}) }, sure(7)},
		"GOODBYE hard, and entries behind it": {func(b *bench) {
			b.receive(1, &wire.Goodbye{Kind: wire.LeaveHard})
			b.seq[1] = 2
			b.entries(1, [][]byte{more(b)}, put(more(b), 0, "a.example"))
		}, wire.Cookie{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := holdsOfA(t)
			tt.then(b)
			b.step(Disconnected{Conn: 1})
			b.step(Disconnected{Conn: 2})
			b.effects = nil
			b.step(Connected{Conn: 3, Gateway: "A", Domain: "a.example"})
			c := b.cookieOf(3)
			if len(b.r.peers["A"].in) == 0 {
				if c != nil {
					t.Errorf("nothing is held, cookie %+v", c)
				}
				return
			}
			if c == nil || c.Epoch != tt.want.Epoch || c.Epoch != (wire.ID8{}) && c.RIBSeq != tt.want.RIBSeq {
				t.Errorf("cookie %+v, want %+v", c, tt.want)
			}
		})
	}
}

// GOODBYE overtakes what was sent before it on the digest stream. The end of a synchronisation behind it drops nothing.
func TestGoodbyeOvertakesSyncEnd(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	batch := b.batchOf("A", nil, digestItem("x", 1))
	b.entries(1, [][]byte{batch}, put(batch, 0, "a.example"))
	b.receive(1, &wire.Goodbye{RestartMS: 100_000})
	b.receive(1, &wire.SyncEnd{Seq: 2})
	b.mustKnow("A/x via A")

	b = holdsOfA(t)
	b.step(Disconnected{Conn: 1})
	b.step(Connected{Conn: 2, Gateway: "A", Domain: "a.example"})
	b.receive(2, b.hello("A", "a.example"))
	b.receive(2, &wire.SyncBegin{Mode: wire.ModeDelta, Epoch: epochOfA, Base: 7})
	b.receive(2, &wire.Goodbye{RestartMS: 100_000})
	b.receive(2, &wire.SyncEnd{Seq: 1, RIBSeq: 7})
	if n := len(b.labels()); n != 2 {
		t.Errorf("%d entries are left", n)
	}
}

// tells is a bench that has told a and b to A, which acknowledged it; c is the cookie for it.
func tells(t *testing.T) (b *bench, c *wire.Cookie) {
	b = newBench(t)
	b.wait(time.Second)
	b.own("a", "b")
	begin := b.helloWith(1, nil)
	if begin.Mode != wire.ModeFull || begin.Epoch != begin.Sess {
		t.Fatalf("first synchronisation %+v", begin)
	}
	b.ack(1)
	return b, &wire.Cookie{Epoch: begin.Epoch, RIBSeq: b.r.ribSeq}
}

func TestModeOfSynchronisation(t *testing.T) {
	gone := func(b *bench) { b.step(Disconnected{Conn: 1}) }
	tests := map[string]struct {
		then  func(*bench, *wire.Cookie)
		delta bool
		told  []string
		alarm bool
	}{
		"nothing happened": {func(b *bench, _ *wire.Cookie) { gone(b) }, true, []string{"end"}, false},
		"changes meanwhile": {func(b *bench, _ *wire.Cookie) {
			gone(b)
			b.own("a", "c")
		}, true, []string{"put c", "del b", "end"}, false},
		"no cookie":   {func(b *bench, c *wire.Cookie) { gone(b); *c = wire.Cookie{} }, false, []string{"put a", "put b", "end"}, false},
		"other epoch": {func(b *bench, c *wire.Cookie) { gone(b); c.Epoch[0]++ }, false, []string{"put a", "put b", "end"}, false},
		"ahead":       {func(b *bench, c *wire.Cookie) { gone(b); c.RIBSeq++ }, false, []string{"put a", "put b", "end"}, true},
		"other policy": {func(b *bench, _ *wire.Cookie) {
			gone(b)
			b.policy(wire.LevelClasses)
			b.policy(wire.LevelCoarse) // and back: what was told in between would be unknown
		}, false, []string{"put a", "put b", "end"}, false},
		"away too long": {func(b *bench, _ *wire.Cookie) { gone(b); b.wait(310 * time.Second) }, false, []string{"put a", "put b", "end"}, false},
		"away for long": {func(b *bench, _ *wire.Cookie) { gone(b); b.wait(290 * time.Second) }, true, []string{"end"}, false},
		"older cookie":  {func(b *bench, c *wire.Cookie) { b.own("a", "b", "c"); b.wait(2 * time.Second); b.ack(1); gone(b) }, true, []string{"put c", "end"}, false},
		"not acknowledged": {func(b *bench, c *wire.Cookie) {
			b.own("a", "b", "c")
			b.wait(2 * time.Second)
			c.RIBSeq = b.r.ribSeq // it may have refused it: the refusal is lost
			gone(b)
		}, true, []string{"put c", "end"}, false},
		"told and withdrawn, both lost": {func(b *bench, c *wire.Cookie) {
			b.own("a", "b", "c")
			b.wait(2 * time.Second)
			b.own("a", "b")
			b.wait(time.Second)
			gone(b)
		}, true, []string{"del c", "end"}, false},
		"never told, and gone": {func(b *bench, c *wire.Cookie) {
			gone(b)
			b.own("a", "b", "c")
			b.own("a", "b")
		}, true, []string{"end"}, false},
		"what was no concern of it, forgotten": {func(b *bench, c *wire.Cookie) {
			b.connect(3, "B", "b.example")
			x := b.batchOf("O", func(b *wire.Batch) { b.Visibility, b.Allow = wire.VisibleListed, []string{"me.example"} }, digestItem("x", 1))
			b.entries(3, [][]byte{x}, put(x, 0, "b.example", "o.example"))
			b.entries(3, nil, wire.Entry{Op: wire.OpUnreach, Origin: "O", Key: wire.ItemKey("x", "tag", wire.LevelCoarse)})
			for range 8 {
				b.wait(10 * time.Second) // it hears of the new rib_seq by KEEPALIVE
				b.alive(1)
				b.alive(3)
			}
			if b.r.floor <= c.RIBSeq {
				b.t.Errorf("floor %d", b.r.floor)
			}
			c.RIBSeq = b.r.ribSeq
			gone(b)
		}, true, []string{"end"}, false},
		"the newcomer's restart": {func(b *bench, c *wire.Cookie) {
			gone(b)
			b.helloWith(5, nil)
			b.step(Disconnected{Conn: 5})
		}, false, []string{"put a", "put b", "end"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, c := tells(t)
			tt.then(b, c)
			if !tt.delta {
				b.r.cfg.Timers.Defer = time.Millisecond // else A waits for what B may have
			}
			b.effects = nil
			old := c.Epoch
			begin := b.helloWith(2, c)
			b.wait(10 * time.Millisecond)
			if delta := begin.Mode == wire.ModeDelta; delta != tt.delta || delta != (begin.Epoch == old) {
				t.Errorf("%+v", begin)
			}
			if tt.delta && begin.Base > c.RIBSeq {
				t.Errorf("base %d, cookie %d", begin.Base, c.RIBSeq)
			}
			got := b.told(2)
			if len(got) != len(tt.told) {
				t.Fatalf("told %q, want %q", got, tt.told)
			}
			for _, want := range tt.told {
				found := false
				for _, g := range got {
					found = found || g == want
				}
				if !found {
					t.Errorf("told %q, want %q", got, tt.told)
				}
			}
			if alarms := b.alarms(); len(alarms) > 0 != tt.alarm {
				t.Errorf("alarms %q", alarms)
			}
		})
	}
}

// policy sets the level of what A gets.
func (b *bench) policy(level wire.Level) {
	b.t.Helper()
	row := b.r.rows["a.example"]
	row.Level = level
	b.step(SetNeighbours{Rows: []Neighbour{row}})
}

// Of keys that came and went nothing is kept once they are forgotten.
func TestHistoryIsBoundedByTheTables(t *testing.T) {
	b, _ := tells(t)
	for i := range 50 {
		b.own("a", fmt.Sprint("passing ", i))
		b.wait(2 * time.Second)
		b.ack(1)
	}
	h := b.r.peers["A"].history
	if len(h.gone) != 50 {
		t.Fatalf("%d keys are taken back", len(h.gone))
	}
	for range 4 * 75 {
		b.wait(15 * time.Second)
		b.alive(1)
	}
	if h != b.r.peers["A"].history || len(h.gone) != 0 || len(h.out) != 2 {
		t.Errorf("%d keys are taken back, %d stand", len(h.gone), len(h.out))
	}
}

// One that claims again and again to hold what it was not told is worth one alarm a minute.
func TestCase10AheadOfOurHead(t *testing.T) {
	b, c := tells(t)
	for conn := uint64(10); conn < 15; conn++ {
		b.step(Disconnected{Conn: conn - 1})
		b.step(Disconnected{Conn: 1})
		c.RIBSeq += 100
		begin := b.helloWith(conn, c)
		if begin.Mode != wire.ModeFull || begin.Epoch == c.Epoch {
			t.Fatalf("%+v", begin)
		}
		if n := len(b.alarms()); n > 0 != (conn == 10) {
			t.Errorf("connection %d: alarms %q", conn, b.alarms())
		}
		c.Epoch = begin.Epoch
	}
}

// B withdraws what it had told while A is away, and the key is forgotten: A hears the whole table, which has it no more. Had it come
// before, the withdrawal alone would have done.
func TestCase12CookieBelowTheFloor(t *testing.T) {
	for away, mode := range map[time.Duration]wire.Mode{30 * time.Second: wire.ModeDelta, 80 * time.Second: wire.ModeFull} {
		b, c := tells(t)
		b.connect(3, "B", "b.example")
		x := b.batchOf("O", nil, digestItem("x", 1))
		b.entries(3, [][]byte{x}, put(x, 0, "b.example", "o.example"))
		b.wait(2 * time.Second)
		b.ack(1)
		c.RIBSeq = b.r.ribSeq
		b.step(Disconnected{Conn: 1})
		b.entries(3, nil, wire.Entry{Op: wire.OpUnreach, Origin: "O", Key: wire.ItemKey("x", "tag", wire.LevelCoarse)})
		for end := b.now.Add(away); b.now.Before(end); {
			b.alive(3)
			b.wait(10 * time.Second)
		}
		begin := b.helloWith(2, c)
		if begin.Mode != mode {
			t.Errorf("after %v: %+v, floor %d, cookie %d", away, begin, b.r.floor, c.RIBSeq)
		}
		if mode == wire.ModeDelta {
			b.mustTell(2, "unreach x", "end")
		} else if got := b.told(2); len(got) != 3 {
			t.Errorf("told %q", got)
		}
	}
}

// A withdrawal that passes an announcement which is held back says that the announcement is still to come.
func TestCase62LowWaterMark(t *testing.T) {
	b, _ := tells(t)
	b.own("a", "b", "c")
	b.wait(200 * time.Millisecond)
	b.ack(1)
	b.own("a", "b", "c", "d")
	b.own("a", "c", "d")
	b.effects = nil
	b.wait(150 * time.Millisecond)
	b.mustTell(1, "del b")
	change := b.r.dests[Ref{Origin: "ME", Key: wire.ItemKey("d", "tag", wire.LevelCoarse)}].changed
	if low := entriesOf(b.sent(1))[0].RIBSeq; low != change-1 {
		t.Errorf("rib_seq %d is said, the change %d waits", low, change)
	}
}

// A RESYNC for a missing frame is answered with what came since the cookie, one for everything with everything, and of two that come
// within a second the one for everything counts.
func TestResyncByDelta(t *testing.T) {
	b, c := tells(t)
	b.wait(2 * time.Second)
	b.own("a", "b", "c")
	b.wait(2 * time.Second)
	b.effects = nil
	b.receive(1, &wire.Resync{Mode: wire.ModeDelta, Cookie: c, Reason: frame.SeqGap})
	if begin := b.begun(1); begin.Mode != wire.ModeDelta || begin.Base != c.RIBSeq {
		t.Errorf("%+v", begin)
	}
	b.mustTell(1, "put c", "end")
	for _, modes := range [][2]wire.Mode{{wire.ModeDelta, wire.ModeFull}, {wire.ModeFull, wire.ModeDelta}, {wire.ModeDelta, wire.ModeDelta}} {
		b.ack(1)
		b.wait(2 * time.Second)
		c = &wire.Cookie{Epoch: b.r.peers["A"].history.epoch, RIBSeq: b.r.ribSeq}
		b.receive(1, &wire.Resync{Mode: wire.ModeDelta, Cookie: c})
		b.ack(1)
		b.effects = nil
		for _, m := range modes {
			b.receive(1, &wire.Resync{Mode: m, Cookie: c})
		}
		b.wait(time.Second)
		if got, want := b.begun(1).Mode, max(modes[0], modes[1]); got != want {
			t.Errorf("modes %v asked for, %v begun", modes, got)
		}
	}
}

// A neighbour that comes back taking fewer entries is told what it has to drop; where that is lost with the connection too, it is told
// again.
func TestLowerLimitIsAChange(t *testing.T) {
	b := newBench(t)
	long := labelled("a", "b")
	long[1].Terms = []string{"a term that makes this one longer"}
	b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: long}}})
	limit := uint64(b.r.own[long[1].Key].size - versionRoom - 1)
	c := &wire.Cookie{Epoch: b.helloWith(1, nil).Epoch, RIBSeq: b.r.ribSeq}
	b.ack(1)
	b.step(Disconnected{Conn: 1})
	for conn := uint64(2); conn < 4; conn++ {
		b.effects = nil
		b.step(Connected{Conn: conn, Gateway: "A", Domain: "a.example"})
		h := b.hello("A", "a.example")
		h.Cookie, h.Limits.MaxEntry = c, limit
		b.receive(conn, h)
		b.mustTell(conn, "unreach b", "end")
		b.step(Disconnected{Conn: conn})
	}
}

// A refusal that is lost with its connection is not taken for an acceptance: the entry is told again, and refused again.
func TestCase63LostRefusal(t *testing.T) {
	b, c := tells(t)
	b.own("a", "b", "c")
	b.wait(2 * time.Second)
	c.RIBSeq = b.r.ribSeq
	b.step(Disconnected{Conn: 1})
	begin := b.helloWith(2, c)
	b.mustTell(2, "put c", "end")
	key := wire.ItemKey("c", "tag", wire.LevelCoarse)
	b.receive(2, &wire.Ack{Sess: begin.Sess, Seq: 2, Credit: 64, Nacks: []wire.Nack{{Origin: "ME", Key: key, Code: frame.Policy}}})
	b.wait(11 * time.Second) // a KEEPALIVE tells of the refusal's place
	b.step(Disconnected{Conn: 2})
	old, c := c, &wire.Cookie{Epoch: c.Epoch, RIBSeq: b.r.ribSeq}
	b.helloWith(3, c)
	b.mustTell(3, "end")
	b.step(Disconnected{Conn: 3})
	b.helloWith(4, old) // a state of the neighbour from before the refusal, of which it knows nothing
	b.mustTell(4, "put c", "end")
}

// However much is refused, the frame that an ACK acknowledges has all its refusals in it or before it.
func TestRefusalsGoBeforeTheirFrameCounts(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.effects = nil
	var entries []wire.Entry
	for range 200 {
		entries = append(entries, wire.Entry{Op: wire.OpPut, Batch: wire.ID16{1}, Path: []string{"a.example"}})
	}
	b.entries(1, nil, entries...)
	b.entries(1, nil, entries...)
	b.wait(time.Second)
	refused := map[uint64]int{}
	for _, m := range b.sent(1) {
		if ack, ok := m.(*wire.Ack); ok {
			refused[ack.Seq] += len(ack.Nacks)
		}
	}
	if refused[1] != 200 || refused[2] != 200 || len(refused) != 2 {
		t.Errorf("refusals by acknowledged frame: %v", refused)
	}
}

// A KEEPALIVE that the next synchronisation overtook tells nothing of the table that is held now.
func TestKeepaliveOfAnEarlierEpoch(t *testing.T) {
	b := holdsOfA(t)
	before := b.r.peers["A"].hash
	b.receive(1, &wire.SyncBegin{Mode: wire.ModeFull, Epoch: wire.ID8{1}})
	b.receive(1, &wire.SyncEnd{Seq: 1, RIBSeq: 7})
	b.receive(1, &wire.Keepalive{Epoch: epochOfA, RIBSeq: 7, TableHash: &before})
	for _, m := range b.sent(1) {
		if m, ok := m.(*wire.Resync); ok {
			t.Errorf("asked for everything: %+v", m)
		}
	}
}

// A key goes under which more stands than one ACK can refuse. What the neighbour says of its table between two of them is no fault.
func TestCase63KeyGoesThatManyStandUnder(t *testing.T) {
	b := holdsOfA(t)
	b.seq[1] = 2
	const keys = wire.MaxEntries + 44
	for i := range 2 {
		var its []*wire.Item
		var entries []wire.Entry
		for j := range keys / 2 {
			its = append(its, digestItem(fmt.Sprint(i, " ", j), uint64(j+1)))
		}
		batch := b.batchOf("O", nil, its...)
		for j := range its {
			entries = append(entries, put(batch, j, "a.example", "o.example"))
		}
		b.entries(1, [][]byte{batch}, entries...)
	}
	b.wait(time.Second)
	p := b.r.peers["A"]
	if len(p.in) != keys+2 {
		t.Fatalf("%d entries", len(p.in))
	}
	between := p.hash
	versions := map[Ref]Version{}
	for ref, rt := range p.in {
		versions[ref] = rt.version
	}
	delete(b.keys, "O")
	b.effects = nil
	b.step(KeysChanged{})
	for _, n := range b.sent(1)[0].(*wire.Ack).Nacks {
		ref := Ref{Origin: n.Origin, Key: n.Key}
		between.XOR(entryHash(ref, versions[ref]))
	}
	b.receive(1, &wire.Keepalive{Epoch: epochOfA, RIBSeq: 9, TableHash: &between})
	b.wait(time.Second)
	for _, m := range b.sent(1) {
		if m, ok := m.(*wire.Resync); ok {
			t.Errorf("asked for everything: %+v", m)
		}
	}
	if len(p.in) != 2 {
		t.Errorf("%d entries are left", len(p.in))
	}
}

// Keys whose trust goes are forgotten before their withdrawal is sent: what the neighbour was told of them shall be forgotten too.
func TestWhatIsGoneIsBoundedByTheTables(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	b.wait(2 * time.Second)
	for i := range 20 {
		b.keys["O"] = "o.example"
		batch := b.batchOf("O", nil, digestItem(fmt.Sprintf("k%d", i), uint64(i+1)))
		b.begin(1)
		b.entries(1, [][]byte{batch}, put(batch, 0, "a.example", "o.example"))
		b.alive(1)
		b.wait(2 * time.Second)
		b.ack(2)
		delete(b.keys, "O")
		b.step(KeysChanged{})
		b.alive(1)
		b.alive(2)
		b.wait(2 * time.Second)
		b.alive(1)
		b.alive(2)
	}
	b.wait(20 * time.Second)
	b.alive(1)
	b.alive(2)
	b.wait(20 * time.Second)
	if n := len(b.r.peers["B"].history.gone); n > len(b.r.dests) {
		t.Errorf("%d keys are remembered as gone, %d are known at all; out %d", n, len(b.r.dests), len(b.r.peers["B"].history.out))
	}
}

// What is withdrawn while a neighbour drains, and forgotten before it comes back, is not kept by it after a delta.
func TestADrainingNeighbourIsToldOfNoChange(t *testing.T) {
	b := newBench(t)
	b.connect(1, "A", "a.example")
	b.connect(2, "B", "b.example")
	batch := b.batchOf("B", nil, digestItem("x", 1))
	b.entries(2, [][]byte{batch}, put(batch, 0, "b.example"))
	b.wait(2 * time.Second)
	b.alive(1)
	b.alive(2)
	epoch := b.r.peers["A"].history.epoch
	if len(b.r.peers["A"].history.out) != 1 {
		t.Fatal("x is not told")
	}
	b.receive(1, &wire.Goodbye{Kind: wire.LeaveRestart, RestartMS: 120_000})
	b.entries(2, nil, wire.Entry{Op: wire.OpUnreach, Origin: "B", Key: wire.ItemKey("x", "tag", wire.LevelCoarse)})
	b.effects = nil
	b.wait(11 * time.Second)
	var told uint64
	for _, m := range b.sent(1) {
		if m, ok := m.(*wire.Keepalive); ok && m.TableHash != nil {
			told = m.RIBSeq
		}
	}
	b.step(Disconnected{Conn: 1})
	b.alive(2)
	for range 5 {
		b.wait(15 * time.Second)
		b.alive(2)
	}
	begin := b.helloWith(3, &wire.Cookie{Epoch: epoch, RIBSeq: told})
	if begin.Mode == wire.ModeDelta && len(b.told(3)) < 2 {
		t.Errorf("a delta that says %q: A keeps x for good, and the table hash that it is told has it", b.told(3))
	}
}
