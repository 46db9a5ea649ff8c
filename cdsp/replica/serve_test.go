package replica

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"agentgw/cdsp/wire"
)

// asked is a gateway with so many neighbours, and with digests that take more frames than a neighbour lets it send at once.
func asked(t *testing.T, neighbours int) *bench {
	var rows []Neighbour
	for i := range neighbours {
		rows = append(rows, Neighbour{Domain: fmt.Sprintf("n%02d.example", i), Role: wire.RoleCustomer, ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse})
	}
	b := newBench(t, rows...)
	if err := b.r.Step(b.now, SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(1000)}}}); err != nil {
		t.Fatal(err)
	}
	return b
}

// asks connects neighbour i over conn; it takes one frame at a time.
func (b *bench) asks(conn uint64, i int, cookie *wire.Cookie) {
	b.t.Helper()
	gw, domain := fmt.Sprintf("N%02d", i), fmt.Sprintf("n%02d.example", i)
	b.step(Connected{Conn: conn, Gateway: gw, Domain: domain})
	h := b.hello(gw, domain)
	h.Limits.MaxInflight, h.Limits.MaxEntries, h.Cookie = 1, 10_000, cookie
	b.receive(conn, h)
}

// serving lists the connections over which a full synchronisation is under way, by the frames that were sent.
func (b *bench) serving() (out []uint64) {
	on := map[uint64]bool{}
	for _, e := range b.effects {
		switch e := e.(type) {
		case Send:
			switch m := e.Msg.(type) {
			case *wire.SyncBegin:
				on[e.Conn] = m.Mode == wire.ModeFull
			case *wire.SyncEnd:
				delete(on, e.Conn)
			}
		case Close:
			delete(on, e.Conn)
		}
	}
	maps.DeleteFunc(on, func(_ uint64, full bool) bool { return !full })
	return slices.Sorted(maps.Keys(on))
}

// ackOne acknowledges everything that was sent on conn, for one frame more.
func (b *bench) ackOne(conn uint64) {
	b.t.Helper()
	s := b.r.sessions[conn]
	b.step(Received{Conn: conn, Msg: &wire.Ack{Sess: s.tx.sess, Seq: s.tx.seq, Credit: 1}})
}

// Row 24: many ask for everything at once. Four are served, the others have their sessions, in which KEEPALIVEs go and their own digests come, and get their
// turn as there is room. A delta does not wait.
func TestCase24FourAtATime(t *testing.T) {
	b := asked(t, 12)
	b.asks(100, 11, nil) // one that was here before, and comes back
	for range 6 {
		b.ackOne(100)
	}
	cookie := &wire.Cookie{Epoch: b.r.sessions[100].tx.epoch, RIBSeq: b.r.ribSeq}
	b.step(Disconnected{Conn: 100})
	b.effects = nil
	for i := range 11 {
		b.asks(uint64(i+1), i, nil)
	}
	if got := b.serving(); fmt.Sprint(got) != "[1 2 3 4]" {
		t.Fatalf("served at once: %v", got)
	}
	b.asks(101, 11, cookie)
	if m := b.begun(101); m.Mode != wire.ModeDelta {
		t.Error("the delta waits, or is none")
	}
	for i := range 11 {
		conn := uint64(i + 1)
		alive := slices.ContainsFunc(b.sent(conn), func(m wire.Message) bool { _, is := m.(*wire.Keepalive); return is })
		if s := b.r.sessions[conn]; !alive || s.state != Established {
			t.Errorf("connection %d is %v, KEEPALIVE sent: %v", conn, s.state, alive)
		}
	}
	b.begin(9)
	batch := b.batchOf("O", func(w *wire.Batch) { w.Domain = "n08.example" }, digestItem("x", 1))
	b.keys["O"] = "n08.example"
	b.entries(9, [][]byte{batch}, put(batch, 0, "n08.example"))
	if !slices.ContainsFunc(b.labels(), func(l string) bool { return l == "O/x via N08" }) {
		t.Error("what a neighbour that waits tells is not taken")
	}
	done := map[uint64]bool{}
	var order []uint64
	for turns := 0; len(done) < 11; turns++ {
		if turns > 200 {
			t.Fatalf("only %v are served", done)
		}
		now := b.serving()
		if len(now) > 4 || len(now) < min(4, 11-len(done)) {
			t.Fatalf("%v are served at a time, %d are done", now, len(done))
		}
		b.ackOne(now[turns%len(now)])
		for _, conn := range now {
			if !slices.Contains(b.serving(), conn) {
				done[conn] = true
				order = append(order, conn)
			}
		}
	}
	if got := len(order); got != 11 {
		t.Errorf("order %v", order)
	}
}

// Who asks the while of the line later is served later, whatever was drawn for it; one that asks again and again keeps its place, and one that is gone
// has none.
func TestCase24NobodyStarves(t *testing.T) {
	b := asked(t, 40)
	for i := range 8 { // four wait
		b.asks(uint64(i+1), i, nil)
	}
	b.step(Disconnected{Conn: 7})
	b.wait(lineWhile + time.Millisecond)
	for i := 8; i < 30; i++ {
		b.asks(uint64(i+1), i, nil)
	}
	b.receive(6, &wire.Resync{Mode: wire.ModeFull})
	for range 6 { // the four that are served hear all
		for conn := uint64(1); conn <= 4; conn++ {
			b.ackOne(conn)
		}
	}
	got := b.serving()
	if len(got) != 4 || !slices.Contains(got, 5) || !slices.Contains(got, 6) || !slices.Contains(got, 8) || slices.Contains(got, 7) {
		t.Errorf("served next: %v", got)
	}
}

// A neighbour that reads slowly takes its place for ten seconds, and goes on then beside the others. One that asks for everything again while others
// wait goes to the end of the line.
func TestCase24SlowNeighboursHoldNobodyUp(t *testing.T) {
	b := asked(t, 12)
	for i := range 10 {
		b.asks(uint64(i+1), i, nil)
	}
	for range 3 {
		b.wait(2 * time.Second)
		for conn := range b.r.sessions {
			b.receive(conn, &wire.Keepalive{})
		}
	}
	if got := b.serving(); fmt.Sprint(got) != "[1 2 3 4]" {
		t.Errorf("after six seconds: %v", got)
	}
	b.receive(1, &wire.Resync{Mode: wire.ModeFull})
	if got := b.serving(); len(got) != 5 || b.r.sessions[1].takesPlace() {
		t.Errorf("after one asked again: %v", got) // by its frames the abandoned one is under way still
	}
	b.wait(4 * time.Second)
	if got := b.serving(); len(got) != 8 {
		t.Errorf("after ten seconds: %v", got)
	}
	for conn := uint64(2); conn <= 4; conn++ {
		for range 6 {
			b.ackOne(conn)
		}
		if slices.Contains(b.serving(), conn) {
			t.Errorf("connection %d does not hear the rest", conn)
		}
	}
}

// A gateway that waits with its SYNC_ENDs for other neighbours, as after a restart, keeps nobody from beginning: those may be waiting for this one in turn.
func TestCase24NoPlaceIsTakenByWaiting(t *testing.T) {
	b := newBench(t, asked(t, 9).rows()...)
	b.own("a")
	for i := range 8 {
		b.asks(uint64(i+1), i, &wire.Cookie{RIBSeq: 1})
	}
	for conn := uint64(1); conn <= 8; conn++ {
		b.ackOne(conn)
	}
	if got := b.serving(); len(got) != 8 {
		t.Errorf("begun: %v", got)
	}
}

func (b *bench) rows() (out []Neighbour) {
	for _, domain := range sortedKeys(b.r.rows) {
		out = append(out, b.r.rows[domain])
	}
	return out
}
