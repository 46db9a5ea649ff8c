package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

// A gateway on the way dies with a request in its hands: the next candidate takes its place within the time that is left, and the one
// that died is not asked the same again at once.
func TestCase27MidPathGatewayDies(t *testing.T) {
	for _, breadth := range []uint8{1, semreq.DefaultBreadth} {
		s := newSim(t, "one.example", "two.example", "three.example")
		s.line("one.example", "two.example")
		s.line("one.example", "three.example")
		s.offers("two.example", "medicine.sell", "9000")
		s.offers("three.example", "medicine.sell", "9000")
		two := s.gateways["two.example"]
		two.fails = true
		a := s.agentOf("one.example")
		for range 3 {
			req := request(t, a, false)
			req.Breadth = breadth
			began := time.Now()
			if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, req); out.Status != frame.OK || time.Since(began) > 500*time.Millisecond {
				t.Fatalf("breadth %d: %v %v after %v", breadth, out.Status, out.Reasons, time.Since(began))
			}
		}
		if two.asked != 1 {
			t.Errorf("breadth %d: it was asked %d times", breadth, two.asked)
		}
	}
}

// A neighbour that has failed and comes back over another connection is asked at once.
func TestAnotherConnectionIsAskedAtOnce(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	s.offers("two.example", "medicine.sell", "9000")
	a, two := s.agentOf("one.example"), s.gateways["two.example"]
	two.fails = true
	for range 6 {
		s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false))
	}
	before := two.asked
	if s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false)); two.asked != before {
		t.Errorf("asked %d times although it fails again and again", two.asked)
	}
	two.fails, two.number = false, 1
	if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.OK {
		t.Errorf("%v %v", out.Status, out.Reasons)
	}
}

// The only way fails once: the origin's next attempt takes it again.
func TestAnotherAttemptTakesTheSameWay(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	s.offers("two.example", "medicine.sell", "9000")
	two := s.gateways["two.example"]
	two.fails = true
	two.forge = func(*semreq.Request) { two.fails = two.asked == 0 }
	a := s.agentOf("one.example")
	if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.OK || two.asked != 2 {
		t.Errorf("%v %v, asked %d times", out.Status, out.Reasons, two.asked)
	}
}

// What was not there is found as soon as a digest says so, and until then nobody is asked for it twice.
func TestCase30NotFoundThenThere(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	a := s.agentOf("one.example")
	one, two := s.gateways["one.example"], s.gateways["two.example"]
	ask := func(flags uint8) *semreq.Response {
		req := request(t, a, false)
		req.Flags = flags
		return one.relay.FromAgent(t.Context(), a, req)
	}
	for range 3 {
		if out := ask(0); out.Status != frame.NotFound || !out.Definitive {
			t.Fatal(out.Status, out.Definitive)
		}
	}
	if two.asked != 1 {
		t.Errorf("asked %d times for what it does not have", two.asked)
	}
	if ask(semreq.FlagNoCache); two.asked != 2 {
		t.Errorf("asked %d times: no_cache asks again", two.asked)
	}
	s.offers("three.example", "medicine.sell", "9000")
	one.version.Add(1)
	two.version.Add(1)
	if out := ask(0); out.Status != frame.OK {
		t.Errorf("it is there: %v %v", out.Status, out.Reasons)
	}
	if out := ask(0); out.Status != frame.OK {
		t.Errorf("and again: %v", out.Status)
	}
}

func TestNegativesAreOfOneQuestionAlone(t *testing.T) {
	n := newNegatives()
	now := time.Now()
	mk := func(change func(*job)) *job {
		j := &job{req: &semreq.Request{QHash: []byte{1}, Constraints: []byte{2}}, scope: []string{"b", "a"}, asker: Asker{Domain: "d.example"}}
		change(j)
		return j
	}
	same := func(*job) {}
	not := &semreq.Response{Status: frame.NotFound, Definitive: true, NegTTLMS: 120_000}
	n.note(mk(same), "G", not, 7, now)
	if !n.has(mk(func(j *job) { j.scope = []string{"a", "b"} }), "G", 7, now.Add(29*time.Second)) {
		t.Error("it is not remembered")
	}
	for name, change := range map[string]func(*job){
		"query": func(j *job) { j.req.QHash = []byte{9} }, "constraints": func(j *job) { j.req.Constraints = nil }, "scope": func(j *job) { j.scope = []string{"a"} },
		"domain": func(j *job) { j.asker.Domain = "e.example" }, "flags": func(j *job) { j.req.Flags = semreq.FlagParallel },
		"session": func(j *job) { j.provision = new(semreq.Provision) }, "no cache": func(j *job) { j.req.Flags = semreq.FlagNoCache },
	} {
		if n.has(mk(change), "G", 7, now) {
			t.Errorf("another %s: remembered", name)
		}
	}
	if n.has(mk(same), "H", 7, now) || n.has(mk(same), "G", 8, now) || n.has(mk(same), "G", 7, now.Add(31*time.Second)) {
		t.Error("of another neighbour, of other digests, or after its time")
	}
	for _, r := range []*semreq.Response{
		{Status: frame.NotFound, NegTTLMS: 1000}, {Status: frame.NotFound, Definitive: true}, {Status: frame.Overloaded, Definitive: true, NegTTLMS: 1000},
	} {
		n.note(mk(same), "I", r, 7, now)
	}
	if n.has(mk(same), "I", 7, now) {
		t.Error("what was not said for good is remembered")
	}
}

func TestBreaker(t *testing.T) {
	now := time.Unix(0, 0)
	b := new(breaker)
	run := func(how outcome) {
		t.Helper()
		if !b.enter(now) {
			t.Fatal("closed to a request that should go through")
		}
		b.left(how, now)
	}
	for range 4 {
		run(failed)
	}
	run(answered)
	run(abandoned)
	for range 5 {
		run(failed)
	}
	if b.ready(now) || b.ready(now.Add(4999*time.Millisecond)) {
		t.Error("open to requests after five failures")
	}
	now = now.Add(5 * time.Second)
	if !b.enter(now) || b.ready(now) || b.enter(now) {
		t.Error("one request tries it, and no second one beside it")
	}
	b.left(abandoned, now)
	run(failed)
	if now = now.Add(9 * time.Second); b.ready(now) {
		t.Error("after another failure it waits twice as long")
	}
	for range 10 {
		now = now.Add(time.Minute)
		run(failed)
	}
	if now = now.Add(time.Minute); !b.ready(now) {
		t.Error("it waits longer than a minute")
	}
	run(answered)
	for i := range 2 * breakWindow { // every second one
		run([]outcome{answered, failed}[i%2])
	}
	for i := range breakWindow {
		if !b.ready(now) {
			break
		}
		how := failed
		if i%3 == 2 {
			how = answered
		}
		run(how)
	}
	if b.ready(now) {
		t.Error("two of three fail, and it is open to requests")
	}
}

// A neighbour that draws requests by its digest and answers with what does not fit loses its place to one that answers well. The scores
// that it claims for its results count for nothing.
func TestCase68LyingDigestsAndScores(t *testing.T) {
	s := newSim(t, "one.example", "liar.example", "honest.example")
	s.line("one.example", "liar.example")
	s.line("one.example", "honest.example")
	s.offers("liar.example", "anything", "100") // says 9000 of what this gateway's own matcher gives 100
	want := s.offers("honest.example", "medicine.sell", "8000")
	a := s.agentOf("one.example")
	one, liar := s.gateways["one.example"], s.gateways["liar.example"]
	one.scores = map[string]float64{"liar.example": .5, "honest.example": .1}
	for i := range 12 {
		req := request(t, a, false)
		req.Breadth = 2
		if out := one.relay.FromAgent(t.Context(), a, req); out.Status != frame.OK || caps(t, out)[0] != want.CapID {
			t.Fatalf("request %d: %v %v", i, out.Status, out.Reasons)
		}
	}
	if liar.asked == 0 || liar.asked > 6 {
		t.Errorf("it was asked %d times first", liar.asked)
	}
}

// Where everybody is overloaded the asker is told so and when to come again, and the origin tries twice more at most, while there is time.
func TestCase29AllOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "one.example", "two.example", "three.example")
		s.line("one.example", "two.example")
		s.line("one.example", "three.example")
		for _, n := range []string{"two.example", "three.example"} {
			s.gateways[n].tamper = func(r *semreq.Response) { r.Status, r.RetryAfterMS, r.Results = frame.Overloaded, 100, nil }
		}
		a := s.agentOf("one.example")
		began := time.Now()
		out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false))
		if out.Status != frame.Overloaded || out.RetryAfterMS != 100 || time.Since(began) > 600*time.Millisecond {
			t.Errorf("%v, again in %d ms, told after %v of a second", out.Status, out.RetryAfterMS, time.Since(began))
		}
		for _, n := range []string{"two.example", "three.example"} {
			if asked := s.gateways[n].asked; asked != 3 {
				t.Errorf("%s was asked %d times", n, asked)
			}
		}
	})
}
