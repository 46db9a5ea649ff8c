package session

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Unix(1790000000, 0)

// The lower AIC of the two is this side's.
const (
	self   = "1.2.156.3088.1.1.34C2.478BDF.3GF546.0JU4"
	peer   = "1.2.156.3088.1.2.34C2.478BDF.3GF546.0JU4"
	invoke = "acps.skill.invoke:medicine.sell"
)

func config(role Role) Config {
	return Config{
		Sid: wire.ID{1}, Role: role, Self: self, Peer: peer, Cap: "acps://" + peer + "/medicine.sell", Scope: []string{invoke}, Params: DefaultParams(),
		Until: t0.Add(time.Hour), Renewable: true, Resumable: true,
	}
}

// reach brings a fresh session into a state, by the events that lead there.
func reach(t *testing.T, to State) *Session {
	t.Helper()
	s := New(config(Leader))
	accept := RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}
	paths := map[State][]Event{
		None: {}, InitSent: {Start{}}, InitRcvd: {RecvInit{}}, Established: {Start{}, accept},
		Updating: {Start{}, accept, Update{Change: Change{Until: t0.Add(time.Minute)}}}, Lost: {Start{}, accept, ConnLost{}},
		Resuming: {Start{}, accept, ConnLost{}, Resume{}},
		Closing:  {Start{}, accept, Message{Len: 1, Opens: true}, Close{}}, Closed: {Start{}, RecvReject{Code: frame.TokenInvalid}},
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

// Every (state, event) pair: the state after it and what came of it: names of effects, a code, or `panic`. -update writes the table;
// review it as a diff.
func TestEveryStateAndEvent(t *testing.T) {
	accept := RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}
	resumed := accept
	resumed.Resumed = true
	events := []struct {
		name string
		ev   Event
	}{
		{"Start", Start{}}, {"RecvInit", RecvInit{}}, {"Admit", Admit{Params: DefaultParams(), Until: t0.Add(time.Hour)}},
		{"Refuse", Refuse{Code: frame.Audience}}, {"RecvAccept", accept}, {"RecvReject", RecvReject{Code: frame.TokenInvalid}},
		{"Opens", Message{Len: 10, Opens: true}}, {"Message", Message{Len: 10}}, {"StreamEnded", StreamEnded{}},
		{"RecvKeepalive", RecvKeepalive{TimestampMS: 7}}, {"Close", Close{}}, {"RecvTerminate", RecvTerminate{Code: frame.OK}},
		{"ConnLost", ConnLost{}}, {"Tick", Tick{}}, {"ConnLostFinal", ConnLost{Final: true}}, {"Resume", Resume{}}, {"Readmit", Readmit{}},
		{"Update", Update{Change: Change{Until: t0.Add(time.Minute)}}}, {"AdmitUpdate", AdmitUpdate{}}, {"RefuseUpdate", RefuseUpdate{}},
		{"RecvUpdate", RecvUpdate{Seq: 1, Change: Change{Until: t0.Add(time.Minute)}}}, {"RecvUpdateAck", RecvUpdateAck{Seq: 1}},
		{"RecvAcceptResumed", resumed}, {"RecvRejectRate", RecvReject{Code: frame.RateLimited}},
	}
	var got strings.Builder
	for state := None; state <= Closed; state++ {
		for _, e := range events {
			fmt.Fprintf(&got, "%v + %s: %s\n", state, e.name, outcome(reach(t, state), e.ev, t0))
		}
	}
	const file = "testdata/states.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
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

// A message is held against the kinds, modes and scope of the session as they are now.
func TestMessageIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Session)
		msg    Message
		want   frame.Code
	}{
		"all":              {func(*Session) {}, Message{Len: 1, Opens: true, Mode: wire.ModeAsync}, frame.OK},
		"no contexts":      {func(s *Session) { s.Params.Kinds = []wire.Kind{wire.KindResult} }, Message{Len: 1, Opens: true}, frame.PolicyDenied},
		"but their result": {func(s *Session) { s.Params.Kinds = []wire.Kind{wire.KindResult} }, Message{Len: 1}, frame.OK},
		"no results":       {func(s *Session) { s.Params.Kinds = []wire.Kind{wire.KindAgentContext} }, Message{Len: 1}, frame.PolicyDenied},
		"another mode":     {func(s *Session) { s.Params.Modes = []wire.Mode{wire.ModeSync} }, Message{Len: 1, Opens: true, Mode: wire.ModeAsync}, frame.PolicyDenied},
		"another skill":    {func(s *Session) { s.Scope = []string{invoke + "x"} }, Message{Len: 1, Opens: true}, frame.Scope},
		"what began ends":  {func(s *Session) { s.Scope = []string{invoke + "x"} }, Message{Len: 1}, frame.OK},
		"any skill":        {func(s *Session) { s.Scope = []string{"acps.skill.invoke:*"} }, Message{Len: 1, Opens: true}, frame.OK},
	} {
		s := reach(t, Established)
		c.change(s)
		if _, err := s.Step(c.msg, t0); frame.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestNextCtr(t *testing.T) {
	ms := uint64(t0.UnixMilli())
	for last, want := range map[uint64]uint64{0: ms, ms - 1: ms, ms: ms + 1, ms + 5000: ms + 5001} { // a clock may be set back
		if got := NextCtr(last, t0); got != want {
			t.Errorf("after %d: %d, want %d", last, got, want)
		}
	}
}

func TestTransitionsAreBounded(t *testing.T) {
	s := reach(t, Established)
	for range 100 {
		for _, ev := range []Event{ConnLost{}, Resume{}, RecvAccept{Params: DefaultParams(), Until: s.Until, Resumed: true}} {
			if _, err := s.Step(ev, t0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := s.Transitions(); len(got) != maxTransitions || got[len(got)-1].To != Established {
		t.Errorf("%d transitions, the last to %v", len(got), got[len(got)-1].To)
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
