package session

import (
	"testing"
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// partner is a target's session that is established.
func partner(t *testing.T) *Session {
	t.Helper()
	c := config(Partner)
	c.Self, c.Peer = c.Peer, c.Self
	s := New(c)
	must(t, s, RecvInit{}, t0)
	must(t, s, Admit{Params: DefaultParams(), Until: c.Until}, t0)
	return s
}

func must(t *testing.T, s *Session, ev Event, at time.Time) []Effect {
	t.Helper()
	effects, err := s.Step(ev, at)
	if err != nil {
		t.Fatalf("%T: %v", ev, err)
	}
	return effects
}

// The checks of an update's SAT may end after the session has lost its connection, gone on over another one and got another update there.
func TestTheChecksOfAnEarlierUpdateAnswerNoLaterOne(t *testing.T) {
	s := partner(t)
	must(t, s, RecvUpdate{Seq: 1, Change: Change{SAT: []byte("first")}}, t0)
	must(t, s, ConnLost{}, t0)
	must(t, s, Readmit{}, t0)
	must(t, s, RecvUpdate{Seq: 2, Change: Change{SAT: []byte("second")}}, t0)
	late := Grant{Scope: []string{invoke}, Until: t0.Add(2 * time.Hour), Update: true}
	if out := must(t, s, AdmitUpdate{Seq: 1, Grant: late}, t0); len(out) != 0 || s.Until.Equal(late.Until) {
		t.Errorf("what the first SAT allows was put into force for the second: %v", out)
	}
	if out := must(t, s, RefuseUpdate{Seq: 1, Code: frame.TokenInvalid}, t0); len(out) != 0 {
		t.Errorf("what was wrong with the first SAT was answered to the second: %v", out)
	}
	if out := must(t, s, AdmitUpdate{Seq: 2, Grant: late}, t0); len(out) != 2 || !s.Until.Equal(late.Until) {
		t.Errorf("the second is not in force: %v", out)
	}
}

// Each change is recorded: a peer that narrows a session by a millisecond again and again would fill the log.
func TestAPeerUpdatesASessionSoOften(t *testing.T) {
	s := partner(t)
	changed := 0
	for i := range 2 * MaxUpdates {
		p := DefaultParams()
		p.IdleMS -= uint64(i + 1)
		at := t0.Add(time.Duration(i) * time.Second)
		out := must(t, s, RecvUpdate{Seq: uint64(i + 1), Change: Change{Params: &p}}, at)
		want := SendUpdateAck{Seq: uint64(i + 1)}
		if i >= MaxUpdates {
			want.Code = frame.RateLimited
		}
		if out[0] != want {
			t.Fatalf("update %d: %v, not %v", i+1, out[0], want)
		}
		changed += len(out) - 1
		must(t, s, Message{Len: 1, Opens: true, Mode: wire.ModeSync}, at) // else it would end as idle
		must(t, s, StreamEnded{}, at)
	}
	if changed != MaxUpdates {
		t.Errorf("%d changes were told, not %d", changed, MaxUpdates)
	}
}
