package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// A neighbour that tells more than it may keeps what it has, and at the third time within ten minutes it is sent away, for longer each time.
func TestCase21DigestFlood(t *testing.T) {
	b := newBench(t)
	b.r.cfg.Limits.PeerEntries = 5
	conn, label, seq := uint64(0), 0, uint64(0)
	more := func() {
		label++
		seq++
		own := b.batchOf("A", nil, digestItem(fmt.Sprint("l", label), seq))
		b.entries(conn, [][]byte{own}, put(own, 0, "a.example"))
	}
	for round, held := range []time.Duration{5 * time.Minute, 10 * time.Minute} {
		conn++
		b.connect(conn, "A", "a.example")
		for len(b.r.peers["A"].in) < 5 {
			more()
		}
		if round == 0 && !strings.Contains(strings.Join(b.alarms(), " "), "near its limits") {
			t.Error("nobody is warned")
		}
		for breach := range 3 {
			for range 4 { // of one minute they count once
				more()
				if breach < 2 {
					b.mustNack(conn, "A 10")
				}
				if _, gone := b.closed(conn); gone {
					break
				}
			}
			if _, gone := b.closed(conn); gone != (breach == 2) {
				t.Fatalf("round %d, breach %d: closed %v", round, breach, gone)
			}
			for range 14 * min(1, 2-breach) { // it lives
				b.wait(5 * time.Second)
				b.alive(conn)
			}
		}
		b.mustClose(conn, frame.LimitExceeded)
		var bye *wire.Goodbye
		for _, m := range b.sent(conn) {
			if g, ok := m.(*wire.Goodbye); ok {
				bye = g
			}
		}
		if bye == nil || bye.Kind != wire.LeaveDrain || bye.Code != frame.LimitExceeded {
			t.Errorf("round %d: goodbye %+v", round, bye)
		}
		if st := b.r.Snapshot().Neighbours[0]; st.HeldUntil.Sub(b.now) != held || st.Held == "" {
			t.Errorf("round %d: held for %v, because %q", round, st.HeldUntil.Sub(b.now), st.Held)
		}
		conn++
		b.wait(held - time.Second)
		b.step(Connected{Conn: conn, Gateway: "A", Domain: "a.example"})
		b.mustClose(conn, frame.LimitExceeded)
		b.wait(2 * time.Second)
	}
}

// A neighbour that reads nothing any more: however often things change meanwhile, a key waits for it once, no more than the window is on
// its way, and after 30 s it is cut off.
func TestCase23SlowPeer(t *testing.T) {
	b := newBench(t)
	b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
	h := b.hello("A", "a.example")
	h.Limits.MaxEntries, h.Limits.MaxInflight = 1000, 1<<40
	b.receive(1, h)
	b.ack(1)
	for round := range 200 {
		b.step(SetOwn{Groups: []wire.Group{{Scope: anyScope, Items: items(300 + round%2)}}})
		b.wait(100 * time.Millisecond)
		if round%50 == 0 {
			b.receive(1, &wire.Keepalive{})
		}
		tx := &b.r.sessions[1].tx
		if len(tx.dirty) > 301 || len(tx.inflight) > b.r.cfg.Limits.Inflight || tx.bytes > b.r.cfg.Limits.InflightBytes+(256<<10) {
			t.Fatalf("round %d: %d keys wait, %d frames of %d octets are on their way", round, len(tx.dirty), len(tx.inflight), tx.bytes)
		}
	}
	b.receive(1, &wire.Keepalive{})
	b.wait(11 * time.Second)
	b.mustClose(1, frame.SendStalled)
}
