package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/internal/frame"
)

// boot brings A up on conn with a boot_id.
func (b *bench) boot(conn uint64, id byte) {
	b.t.Helper()
	b.step(Connected{Conn: conn, Gateway: "A", Domain: "a.example"})
	if b.r.sessions[conn] == nil {
		return
	}
	h := b.hello("A", "a.example")
	h.BootID[0] = id
	b.receive(conn, h)
}

func (b *bench) twinAlarms() (n int) {
	for _, e := range b.effects {
		if a, ok := e.(Alarm); ok && strings.Contains(a.Text, "one identity") {
			n++
		}
	}
	return n
}

// Two gateways share an identity and oust each other: after three turns within a minute both are kept out for a minute.
func TestCase55TwoGatewaysOneIdentity(t *testing.T) {
	b := newBench(t)
	conn := uint64(0)
	turn := func() {
		conn++
		b.boot(conn, byte(conn%2))
		b.wait(5 * time.Second)
	}
	for range 3 {
		turn()
	}
	if b.twinAlarms() != 0 || b.r.peers["A"].session == nil {
		t.Fatalf("after two changes: %d alarms, session %v", b.twinAlarms(), b.r.peers["A"].session)
	}
	turn()
	if b.twinAlarms() != 1 || b.r.peers["A"].session != nil {
		t.Fatalf("after three changes: %d alarms, session %v", b.twinAlarms(), b.r.peers["A"].session)
	}
	b.mustClose(conn, frame.Collision)
	for b.now.Before(start.Add(15*time.Second + twinHold - 5*time.Second)) {
		turn()
		b.mustClose(conn, frame.Collision)
	}
	if b.twinAlarms() != 1 || b.r.peers["A"].session != nil {
		t.Errorf("while held: %d alarms, session %v", b.twinAlarms(), b.r.peers["A"].session)
	}
	if st := b.r.Snapshot().Neighbours[0]; st.Gateway != "A" || st.HeldUntil.IsZero() {
		t.Errorf("status %+v", st)
	}
	b.wait(5 * time.Second)
	turn()
	if b.r.peers["A"].session == nil {
		t.Error("after the minute the one that is left is not accepted")
	}
}

// A gateway that restarts now and then, however often in all, is one gateway.
func TestRestartsAreNoTwin(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.boot(uint64(i+1), byte(i))
		b.wait(2 * time.Second)
	}
	if b.twinAlarms() != 0 {
		t.Errorf("%d alarms", b.twinAlarms())
	}
}

// Clocks that differ are named as such, with both times, to us and to the neighbour; how far is shown.
func TestCase25ClockSkewIsNamed(t *testing.T) {
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		b := newBench(t)
		b.step(Connected{Conn: 1, Gateway: "A", Domain: "a.example"})
		h := b.hello("A", "a.example")
		h.Now = uint64(start.Add(off).Unix())
		b.receive(1, h)
		b.mustClose(1, frame.ClockSkew)
		want := fmt.Sprintf("clocks differ by 10m0s, over 2m0s: 2026-01-01T00:00:00Z here, %s there", start.Add(off).Format(time.RFC3339))
		said, alarmed := "", false
		for _, e := range b.effects {
			switch e := e.(type) {
			case Close:
				said = e.Reason
			case Alarm:
				alarmed = alarmed || strings.Contains(e.Text, want)
			}
		}
		if said != want || len(said) > 128 || !alarmed {
			t.Errorf("said %q, alarm %v", said, alarmed)
		}
		if st := b.r.Snapshot().Neighbours[0]; st.Skew != off {
			t.Errorf("shown as %v", st.Skew)
		}
	}
	b := newBench(t) // nonsense is not taken for small
	for conn, n := range []uint64{1 << 63, 1<<40 + 1, 18446744073 + uint64(start.Unix())} {
		b.step(Connected{Conn: uint64(conn), Gateway: "A", Domain: "a.example"})
		h := b.hello("A", "a.example")
		h.Now = n
		b.receive(uint64(conn), h)
		b.mustClose(uint64(conn), frame.ClockSkew)
	}
}
