package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Unix(1790000000, 0)

func config(role Role) Config {
	return Config{Sid: wire.ID{1}, Role: role, Peer: "1.2.PEER", Cap: "acps://1.2.B/x", Params: DefaultParams(), Until: t0.Add(time.Hour)}
}

// reach brings a fresh session into a state, by the events that lead there.
func reach(t *testing.T, to State) *Session {
	t.Helper()
	s := New(config(Leader))
	accept := RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}
	paths := map[State][]Event{
		None: {}, InitSent: {Start{}}, InitRcvd: {RecvInit{}}, Established: {Start{}, accept},
		Closing: {Start{}, accept, Message{Len: 1, Opens: true}, Close{}}, Closed: {Start{}, RecvReject{Code: frame.TokenInvalid}},
	}
	for _, ev := range paths[to] {
		if _, err := s.Step(ev, t0); err != nil {
			t.Fatalf("%T: %v", ev, err)
		}
	}
	if s.State() != to {
		t.Fatalf("got to %v on the way to %v", s.State(), to)
	}
	return s
}

// Every (state, event) pair: the state after it and what came of it: names of effects, a code, or `panic`.
func TestEveryStateAndEvent(t *testing.T) {
	accept := RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}
	events := []struct {
		name string
		ev   Event
	}{
		{"Start", Start{}}, {"RecvInit", RecvInit{}}, {"Admit", Admit{Params: DefaultParams(), Until: t0.Add(time.Hour)}},
		{"Refuse", Refuse{Code: frame.Audience}}, {"RecvAccept", accept}, {"RecvReject", RecvReject{Code: frame.TokenInvalid}},
		{"Opens", Message{Len: 10, Opens: true}}, {"Message", Message{Len: 10}}, {"StreamEnded", StreamEnded{}},
		{"RecvKeepalive", RecvKeepalive{TimestampMS: 7}}, {"Close", Close{}}, {"RecvTerminate", RecvTerminate{Code: frame.OK}},
		{"ConnLost", ConnLost{}}, {"Tick", Tick{}},
	}
	want := map[State]map[string]string{
		None: {
			"Start": "INIT_SENT SendInit", "RecvInit": "INIT_RCVD CheckInit", "Admit": "panic", "Refuse": "panic", "RecvAccept": "NONE 6A",
			"RecvReject": "NONE 6A", "Opens": "NONE 6A", "Message": "NONE 6A", "StreamEnded": "panic", "RecvKeepalive": "NONE 6A",
			"Close": "CLOSED Released", "RecvTerminate": "NONE 6A", "ConnLost": "NONE", "Tick": "NONE",
		},
		InitSent: {
			"Start": "panic", "RecvInit": "INIT_SENT 6A", "Admit": "panic", "Refuse": "panic", "RecvAccept": "ESTABLISHED Opened",
			"RecvReject": "CLOSED Released", "Opens": "INIT_SENT 6A", "Message": "INIT_SENT 6A", "StreamEnded": "panic",
			"RecvKeepalive": "INIT_SENT 6A", "Close": "CLOSED SendTerminate Released", "RecvTerminate": "INIT_SENT 6A",
			"ConnLost": "CLOSED Released", "Tick": "INIT_SENT",
		},
		InitRcvd: {
			"Start": "panic", "RecvInit": "INIT_RCVD 6A", "Admit": "ESTABLISHED SendAccept Opened", "Refuse": "CLOSED SendReject Released",
			"RecvAccept": "INIT_RCVD 6A", "RecvReject": "INIT_RCVD 6A", "Opens": "INIT_RCVD 6A", "Message": "INIT_RCVD 6A",
			"StreamEnded": "panic", "RecvKeepalive": "INIT_RCVD 6A", "Close": "CLOSED Released", "RecvTerminate": "CLOSED Released",
			"ConnLost": "CLOSED Released", "Tick": "INIT_RCVD",
		},
		Established: {
			"Start": "panic", "RecvInit": "ESTABLISHED 6A", "Admit": "panic", "Refuse": "panic", "RecvAccept": "ESTABLISHED 6A",
			"RecvReject": "ESTABLISHED 6A", "Opens": "ESTABLISHED", "Message": "ESTABLISHED", "StreamEnded": "panic",
			"RecvKeepalive": "ESTABLISHED", "Close": "CLOSED SendTerminate StopData Released", "RecvTerminate": "CLOSED StopData Released",
			"ConnLost": "CLOSED Released", "Tick": "ESTABLISHED",
		},
		Closing: {
			"Start": "panic", "RecvInit": "CLOSING 6A", "Admit": "panic", "Refuse": "panic", "RecvAccept": "CLOSING 6A",
			"RecvReject": "CLOSING 6A", "Opens": "CLOSING 67", "Message": "CLOSING", "StreamEnded": "CLOSED Released",
			"RecvKeepalive": "CLOSING", "Close": "CLOSING", "RecvTerminate": "CLOSING", "ConnLost": "CLOSED Released", "Tick": "CLOSING",
		},
		Closed: {
			"Start": "CLOSED", "RecvInit": "CLOSED 6A", "Admit": "CLOSED", "Refuse": "CLOSED", "RecvAccept": "CLOSED 6A",
			"RecvReject": "CLOSED 6A", "Opens": "CLOSED 67", "Message": "CLOSED 67", "StreamEnded": "CLOSED", "RecvKeepalive": "CLOSED 6A",
			"Close": "CLOSED", "RecvTerminate": "CLOSED", "ConnLost": "CLOSED", "Tick": "CLOSED",
		},
	}
	for state := None; state <= Closed; state++ {
		for _, e := range events {
			s := reach(t, state)
			if got := outcome(s, e.ev, t0); got != want[state][e.name] {
				t.Errorf("%v + %s: %s, want %s", state, e.name, got, want[state][e.name])
			}
		}
	}
}

func outcome(s *Session, ev Event, now time.Time) (out string) {
	defer func() {
		if recover() != nil {
			out = "panic"
		}
	}()
	effects, err := s.Step(ev, now)
	out = s.State().String()
	if err != nil {
		out += " " + frame.CodeOf(err).Hex()
	}
	for _, e := range effects {
		out += " " + strings.TrimPrefix(fmt.Sprintf("%T", e), "session.")
	}
	return out
}

// Whatever a side of ours is about to say of a session, another goroutine may have closed it just before.
func TestClosedBeforeItsOwnNextStep(t *testing.T) {
	for name, tt := range map[string]struct{ before, next []Event }{
		"before Start":    {nil, []Event{Start{}}},
		"before RecvInit": {nil, []Event{RecvInit{}, Admit{Params: DefaultParams(), Until: t0.Add(time.Hour)}}},
		"before Admit":    {[]Event{RecvInit{}}, []Event{Admit{Params: DefaultParams(), Until: t0.Add(time.Hour)}}},
		"before Refuse":   {[]Event{RecvInit{}}, []Event{Refuse{Code: frame.Audience}}},
	} {
		s := New(config(Leader))
		for _, ev := range append(append(tt.before, Close{Code: frame.Shutdown}), tt.next...) {
			effects, _ := s.Step(ev, t0)
			if _, closing := ev.(Close); !closing && s.State() == Closed && effects != nil {
				t.Errorf("%s: %T has effects %v", name, ev, effects)
			}
		}
		if s.State() != Closed || s.Reason() != frame.Shutdown {
			t.Errorf("%s: %v with %v", name, s.State(), s.Reason())
		}
	}
}

func TestAcceptWiderThanProposed(t *testing.T) {
	for name, change := range map[string]func(*RecvAccept){
		"later end":   func(a *RecvAccept) { a.Until = t0.Add(2 * time.Hour) },
		"over before": func(a *RecvAccept) { a.Until = t0 },
		"longer idle": func(a *RecvAccept) { a.Params.IdleMS++ },
		"other kind":  func(a *RecvAccept) { a.Params.Kinds = append(a.Params.Kinds, 4) },
	} {
		s := reach(t, InitSent)
		a := RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}
		change(&a)
		if _, err := s.Step(a, t0); frame.CodeOf(err) != frame.Malformed || s.State() != InitSent {
			t.Errorf("%s: %v in %v", name, err, s.State())
		}
	}
}

func TestNarrow(t *testing.T) {
	own := DefaultParams()
	got, err := Narrow(wire.Params{IdleMS: 1000, MaxContext: 5, Kinds: []wire.Kind{2, 9}, Modes: []wire.Mode{1}}, own)
	want := wire.Params{IdleMS: 1000, MaxContext: 5, Kinds: []wire.Kind{2}, Modes: []wire.Mode{1}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if _, err := Narrow(wire.Params{Kinds: []wire.Kind{9}, Modes: []wire.Mode{0}}, own); frame.CodeOf(err) != frame.PolicyDenied {
		t.Error(err)
	}
}

func TestBodyLimit(t *testing.T) {
	s := reach(t, Established)
	if _, err := s.Step(Message{Len: wire.MaxContext + 1, Opens: true}, t0); frame.CodeOf(err) != frame.LimitExceeded {
		t.Error(err)
	}
	for range MaxStreams {
		if _, err := s.Step(Message{Len: 1, Opens: true}, t0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Step(Message{Len: 1, Opens: true}, t0); frame.CodeOf(err) != frame.LimitExceeded || s.State() != Established {
		t.Errorf("17th exchange: %v, %v", err, s.State())
	}
}

func TestRate(t *testing.T) {
	c := config(Leader)
	c.Limits = token.Limits{RatePerSec: 2}
	s := New(c)
	for _, ev := range []Event{Start{}, RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}, Message{Len: 1}, Message{Len: 1}} {
		if _, err := s.Step(ev, t0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Step(Message{Len: 1}, t0); frame.CodeOf(err) != frame.RateLimited {
		t.Errorf("third in one second: %v", err)
	}
	if _, err := s.Step(Message{Len: 1}, t0.Add(time.Second)); err != nil {
		t.Errorf("one second later: %v", err)
	}
}

func TestTombstones(t *testing.T) {
	var tombs Tombstones
	tombs.Add(wire.ID{1}, t0.Add(time.Minute), t0)
	if !tombs.Has(wire.ID{1}, t0.Add(59*time.Second)) || tombs.Has(wire.ID{1}, t0.Add(time.Minute)) || tombs.Has(wire.ID{2}, t0) {
		t.Error("a tombstone lives until sess_exp and names one sid")
	}
	for i := range 2 * MaxTombstones {
		tombs.Add(wire.ID{2, byte(i), byte(i >> 8)}, t0.Add(time.Hour+time.Duration(i)), t0)
	}
	if len(tombs.until) > MaxTombstones || !tombs.Has(wire.ID{2, 0xff, 0x1f}, t0) {
		t.Errorf("%d tombstones", len(tombs.until))
	}
}
