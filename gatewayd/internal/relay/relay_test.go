package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/a2a/token"
	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

func TestTwoHops(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	want := s.offers("three.example", "medicine.sell", "9000")
	a := s.agentOf("one.example")
	req := request(t, a, true)
	out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, req)
	if got := caps(t, out); out.Status != frame.OK || !slices.Equal(got, []string{want.CapID}) {
		t.Fatalf("%v %v %v", out.Status, got, out.Reasons)
	}
	route := []string{string(s.domains["three.example"].Gateway), string(s.domains["two.example"].Gateway), string(s.domains["one.example"].Gateway)}
	if !slices.Equal(out.Route, route) {
		t.Errorf("route %v, want %v", out.Route, route)
	}
	res, _ := semreq.PeekResult(out.Results[0])
	sat, err := token.VerifySAT(res.SAT, s.gateways["one.example"].SATKeys(), s.gateways["one.example"].DomainOf)
	if err != nil {
		t.Fatal(err)
	}
	if sat.Subject != a.AIC || sat.Audience != want.AIC || sat.Cap != want.CapID || sat.Confirm.SPKI != a.SPKI {
		t.Errorf("session token %+v", sat)
	}
}

func TestLocalAnswerStaysLocal(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	here, there := s.offers("one.example", "here", "5000"), s.offers("two.example", "there", "8000")
	a := s.agentOf("one.example")
	g := s.gateways["one.example"].relay
	out := g.FromAgent(t.Context(), a, request(t, a, false))
	if got := caps(t, out); !slices.Equal(got, []string{here.CapID}) || s.gateways["two.example"].asked != 0 {
		t.Errorf("got %v, neighbour asked %d times", got, s.gateways["two.example"].asked)
	}
	req := request(t, a, false)
	req.Flags = semreq.FlagParallel
	if got := caps(t, g.FromAgent(t.Context(), a, req)); !slices.Equal(got, []string{there.CapID, here.CapID}) {
		t.Errorf("in parallel, best first by the origin's own matcher: %v", got)
	}
	req = request(t, a, false)
	req.Flags = semreq.FlagParallel
	constrain(t, req, semreq.Constraints{DenyDomains: []string{"one.example"}})
	if got := caps(t, g.FromAgent(t.Context(), a, req)); !slices.Equal(got, []string{there.CapID}) {
		t.Errorf("own domain denied: %v", got)
	}
	req = request(t, a, false)
	req.Flags = semreq.FlagParallel
	constrain(t, req, semreq.Constraints{DenyDomains: []string{"two.example"}})
	if got := caps(t, g.FromAgent(t.Context(), a, req)); !slices.Equal(got, []string{here.CapID}) || s.gateways["two.example"].asked != 2 {
		t.Errorf("neighbour denied: %v, asked %d", got, s.gateways["two.example"].asked)
	}
}

func TestNotFoundIsDefinitive(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	a := s.agentOf("one.example")
	g := s.gateways["one.example"].relay
	if out := g.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.NotFound || !out.Definitive {
		t.Errorf("everybody asked: %v definitive %v", out.Status, out.Definitive)
	}
	req := request(t, a, false)
	req.HopLimit, req.Flags = 1, semreq.FlagNoCache
	if out := g.FromAgent(t.Context(), a, req); out.Status != frame.NotFound || out.Definitive {
		t.Errorf("hop limit 1: %v definitive %v", out.Status, out.Definitive)
	}
}

func TestLoopEnds(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example", "one.example")
	a := s.agentOf("one.example")
	req := request(t, a, false)
	req.Breadth = 8
	out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, req)
	if out.Status != frame.NotFound {
		t.Error(out.Status, out.Reasons)
	}
	for n, g := range s.gateways {
		if g.asked > 2 {
			t.Errorf("%s was asked %d times", n, g.asked)
		}
	}
}

// In a mesh, where every gateway knows every other, a request that nobody answers ends, and in all no more copies of it do than its breadth
// allows.
func TestCase26LoopsAndCopiesAreBounded(t *testing.T) {
	for breadth := range uint8(semreq.MaxBreadth + 1) {
		if breadth == 0 {
			continue
		}
		names := []string{"a.example", "b.example", "c.example", "d.example", "e.example", "f.example"}
		s := newSim(t, names...)
		for i, n := range names {
			for _, m := range names[i+1:] {
				s.line(n, m)
			}
		}
		a := s.agentOf("a.example")
		req := request(t, a, false)
		req.Breadth = breadth
		out := s.gateways["a.example"].relay.FromAgent(t.Context(), a, req)
		if out.Status == frame.OK {
			t.Fatal(out.Status)
		}
		if n := s.leaves.Load(); n > int32(breadth) || n == 0 {
			t.Errorf("breadth %d: %d copies", breadth, n)
		}
		for n, g := range s.gateways {
			if g.asked > int(breadth) {
				t.Errorf("breadth %d: %s was asked %d times", breadth, n, g.asked)
			}
		}
	}
}

func TestCase28Deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "one.example", "two.example", "three.example")
		s.line("one.example", "two.example", "three.example")
		s.gateways["three.example"].delay = time.Hour
		a := s.agentOf("one.example")
		began := time.Now()
		out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false))
		if out.Status != frame.Deadline {
			t.Errorf("status %v, reasons %v", out.Status, out.Reasons)
		}
		if took := time.Since(began); took > time.Second+50*time.Millisecond || took < 900*time.Millisecond {
			t.Errorf("answered after %v of a budget of 1 s", took)
		}
		if s.gateways["three.example"].cancelled != 1 || s.gateways["three.example"].asked != 0 {
			t.Errorf("the branch behind the silent gateway was not cancelled: %d, %d", s.gateways["three.example"].cancelled, s.gateways["three.example"].asked)
		}
	})
}

// A request whose asker goes, or whose time ends, while it waits for its turn in the own directory is handed to nobody.
func TestNoTurnInTheDirectory(t *testing.T) {
	for name, wait := range map[string]time.Duration{"cancelled": 100 * time.Millisecond, "expired": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newSim(t, "one.example", "two.example")
			s.line("one.example", "two.example")
			one, two := s.gateways["one.example"], s.gateways["two.example"]
			one.full, two.delay = true, time.Hour
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer time.AfterFunc(wait, cancel).Stop()
			a := s.agentOf("one.example")
			req := request(t, a, false)
			req.Flags = semreq.FlagParallel
			out := one.relay.FromAgent(ctx, a, req)
			if out.Status != frame.Deadline || out.Definitive || two.asked != 0 || two.cancelled != 0 {
				t.Errorf("%s: status %v, definitive %v, neighbour asked %d times and cancelled %d", name, out.Status, out.Definitive, two.asked, two.cancelled)
			}
		})
	}
}

func TestCase32TamperedResult(t *testing.T) {
	for name, tamper := range map[string]func(s *sim, r *semreq.Response){
		"a flipped bit": func(_ *sim, r *semreq.Response) {
			b := bytes.Clone(r.Results[0])
			b[len(b)/2] ^= 1
			r.Results[0] = b
		},
		"signed again by the transit": func(s *sim, r *semreq.Response) {
			res, _ := semreq.PeekResult(r.Results[0])
			res.Score = 10000
			r.Results[0], _ = res.Sign(s.domains["two.example"].Sign[identity.UseDigest])
		},
		"another request's result": func(s *sim, r *semreq.Response) {
			res, _ := semreq.PeekResult(r.Results[0])
			res.ReqID = make([]byte, 16)
			r.Results[0], _ = res.Sign(s.domains["three.example"].Sign[identity.UseDigest])
		},
		"expired": func(s *sim, r *semreq.Response) {
			res, _ := semreq.PeekResult(r.Results[0])
			res.Exp = uint64(time.Now().Add(-time.Hour).Unix())
			r.Results[0], _ = res.Sign(s.domains["three.example"].Sign[identity.UseDigest])
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, "one.example", "two.example", "three.example")
			s.line("one.example", "two.example", "three.example")
			s.offers("three.example", "medicine.sell", "9000")
			s.gateways["two.example"].tamper = func(r *semreq.Response) { tamper(s, r) }
			a := s.agentOf("one.example")
			out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, true))
			if len(out.Results) != 0 || out.Status == frame.OK {
				t.Errorf("a tampered result came through: %v", out.Status)
			}
			if len(s.gateways["one.example"].penalties) == 0 {
				t.Error("the neighbour that sent it was not penalised")
			}
		})
	}
}

func TestCase56RATOfAnotherDomain(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	s.offers("three.example", "medicine.sell", "9000")
	victim := string(s.domains["three.example"].AIC(t))
	two := s.gateways["two.example"]
	two.forge = func(r *semreq.Request) { // the origin claims to ask for another domain's agent
		rat, err := token.MintRAT(s.domains["one.example"].Sign[identity.UseRAT], token.RAT{
			Issuer: r.OriginGW, Subject: victim, Issued: uint64(time.Now().Unix()), ID: make([]byte, 16),
			Scope: []string{"agw.discover", "acps.skill.invoke:*"}, QHash: r.QHash, ReqID: r.ReqID, SPKI: make([]byte, 32), MaxHops: 6,
			Bind: token.Bind(r.Constraints, r.Provision, uint64(r.Flags)),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.RAT = rat
	}
	a := s.agentOf("one.example")
	out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false))
	if out.Status == frame.OK || !slices.ContainsFunc(out.Reasons, func(r semreq.Reason) bool { return r.Code == frame.IdentityMismatch }) {
		t.Errorf("status %v, reasons %v, want 0C", out.Status, out.Reasons)
	}
	if s.gateways["three.example"].asked != 0 {
		t.Error("the forged request was forwarded")
	}
	if len(two.penalties) == 0 {
		t.Error("the neighbour that sent it was not penalised")
	}
}

func TestCase57ResultOutsideDomain(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example")
	victim := string(s.domains["three.example"].AIC(t))
	liar := s.gateways["two.example"]
	liar.found = []directory.Candidate{{Confidence: 9000, Capability: directory.Capability{
		AIC: victim, CapID: directory.CapID(victim, "x"), SkillID: "x", Name: "x", Description: "score=9000",
	}}}
	a := s.agentOf("one.example")
	one := s.gateways["one.example"]
	out := one.relay.FromAgent(t.Context(), a, request(t, a, false))
	if out.Status == frame.OK || len(one.penalties) == 0 || !strings.Contains(one.penalties[0], "0C") {
		t.Errorf("result naming another domain's AIC: %v %q", out.Status, one.penalties)
	}
	// Its own agent, but another's capability.
	own := string(s.domains["two.example"].AIC(t))
	liar.found[0].AIC = own
	one.penalties = nil
	out = one.relay.FromAgent(t.Context(), a, request(t, a, false))
	if out.Status == frame.OK || len(one.penalties) == 0 {
		t.Errorf("result naming another agent's capability: %v %q", out.Status, one.penalties)
	}
	// The next candidate answers.
	s.line("one.example", "three.example")
	want := s.offers("three.example", "medicine.sell", "8000")
	if got := caps(t, one.relay.FromAgent(t.Context(), a, request(t, a, false))); !slices.Equal(got, []string{want.CapID}) {
		t.Errorf("next candidate: %v", got)
	}
}

func TestCase60OfferBeforeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "one.example")
		first, second := s.offers("one.example", "first", "9000"), s.offers("one.example", "second", "8000")
		g := s.gateways["one.example"]
		a := s.agentOf("one.example")
		acked := false
		g.offer = func(context.Context, [16]byte, []byte) ([]semreq.Endpoint, error) {
			time.Sleep(100 * time.Millisecond)
			acked = true
			return []semreq.Endpoint{{Host: "192.0.2.1", Port: 1, ALPN: frame.ALPNAgent}}, nil
		}
		out := g.relay.FromAgent(t.Context(), a, request(t, a, true))
		if got := caps(t, out); !acked || got[0] != first.CapID {
			t.Errorf("the answer must wait for the acknowledgement: acked %v, %v", acked, got)
		}
		// Lost offer: no acknowledgement in 300 ms, the next candidate gets one.
		began, offered := time.Now(), 0
		g.offer = func(ctx context.Context, _ [16]byte, _ []byte) ([]semreq.Endpoint, error) {
			if offered++; offered == 1 {
				<-ctx.Done()
				return nil, frame.Errorf(frame.Deadline, "silent")
			}
			return []semreq.Endpoint{{Host: "192.0.2.1", Port: 1, ALPN: frame.ALPNAgent}}, nil
		}
		out = g.relay.FromAgent(t.Context(), a, request(t, a, true))
		if got := caps(t, out); len(got) == 0 || got[0] != second.CapID {
			t.Errorf("lost offer: %v %v", out.Status, got)
		}
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("the next candidate was tried after %v", took)
		}
		g.offer = func(context.Context, [16]byte, []byte) ([]semreq.Endpoint, error) {
			return nil, errors.New("nobody takes it")
		}
		if out = g.relay.FromAgent(t.Context(), a, request(t, a, true)); out.Status == frame.OK || len(out.Results) != 0 {
			t.Errorf("no candidate takes the session: %v", out.Status)
		}
	})
}

func TestCase31ScopeNarrows(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	s.offers("two.example", "medicine.sell", "9000")
	a := s.agentOf("one.example")
	a.Scope = []string{"agw.discover", "acps.skill.invoke:other"}
	one, two := s.gateways["one.example"].relay, s.gateways["two.example"]
	var said frame.Code
	two.tamper = func(r *semreq.Response) { said = r.Status }
	if out := one.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.OK {
		t.Errorf("discovery needs no right to invoke: %v", out.Status)
	}
	if out := one.FromAgent(t.Context(), a, request(t, a, true)); out.Status == frame.OK {
		t.Error("a session was provisioned outside the scope")
	}
	a.Scope = []string{"acps.skill.invoke:*"}
	if out := one.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.ScopeDenied {
		t.Errorf("without agw.discover: %v", out.Status)
	}
	two.forge = func(r *semreq.Request) { r.Scope = []string{"agw.publish:*", "agw.discover"} }
	a.Scope = []string{"agw.discover"}
	if out := one.FromAgent(t.Context(), a, request(t, a, false)); out.Status == frame.OK || said != frame.ScopeDenied {
		t.Errorf("a scope that a hop widened: %v, and that hop was told %v", out.Status, said)
	}
	two.forge, two.mayQuery = nil, []string{"acps.skill.invoke:*"} // the row of the domain that asks
	if out := one.FromAgent(t.Context(), a, request(t, a, false)); out.Status == frame.OK || said != frame.ScopeDenied {
		t.Errorf("outside of what the asker's domain may: %v, told %v", out.Status, said)
	}
}

// What a transit changes in a request that its origin has bound to a token is seen by the next gateway, which drops it and counts it
// against the transit.
func TestCase65TransitAltersTheRequest(t *testing.T) {
	for name, forge := range map[string]func(*semreq.Request){
		"deny_domains stripped": func(r *semreq.Request) { r.Constraints = nil },
		"a flag stripped":       func(r *semreq.Request) { r.Flags = 0 },
		"no_forward put in":     func(r *semreq.Request) { r.Flags |= semreq.FlagNoForward },
		"another sid":           func(r *semreq.Request) { r.Provision = otherSid(t, r.Provision) },
		"a raised attempt":      func(r *semreq.Request) { r.Attempt = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, "one.example", "two.example", "three.example")
			s.line("one.example", "two.example", "three.example")
			three := s.gateways["three.example"]
			s.offers("three.example", "medicine.sell", "9000")
			three.forge = forge
			var said frame.Code
			three.tamper = func(r *semreq.Response) { said = r.Status }
			a := s.agentOf("one.example")
			req := request(t, a, true)
			req.Flags = semreq.FlagNoCache
			constrain(t, req, semreq.Constraints{DenyDomains: []string{"bad.example"}})
			out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, req)
			if out.Status == frame.OK || said != frame.ReqInvalid {
				t.Errorf("%v; the gateway behind it said %v", out.Status, said)
			}
			three.mu.Lock()
			defer three.mu.Unlock()
			if len(three.penalties) == 0 {
				t.Error("nothing counts against the transit")
			}
		})
	}
}

func otherSid(t *testing.T, raw []byte) []byte {
	var p semreq.Provision
	if err := frame.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	p.SID = bytes.Repeat([]byte{9}, 16)
	out, err := frame.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestHopsCannotAlterTheRequest(t *testing.T) {
	for name, forge := range map[string]func(*semreq.Request){
		"constraints": func(r *semreq.Request) { r.Constraints = nil },
		"flags":       func(r *semreq.Request) { r.Flags |= semreq.FlagParallel },
		"hop limit":   func(r *semreq.Request) { r.HopLimit = 12 },
		"via":         func(r *semreq.Request) { r.Via = []string{"x"} },
		"query":       func(r *semreq.Request) { r.Query = append(bytes.Clone(r.Query), 0) },
		"origin":      func(r *semreq.Request) { r.HopVia = []string{"two.example", "one.example"} },
		"no token":    func(r *semreq.Request) { r.RAT = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, "one.example", "two.example")
			s.line("one.example", "two.example")
			s.offers("two.example", "medicine.sell", "9000")
			s.gateways["two.example"].forge = forge
			a := s.agentOf("one.example")
			req := request(t, a, false)
			constrain(t, req, semreq.Constraints{MinScore: 1})
			if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, req); out.Status == frame.OK {
				t.Error("an altered request was answered")
			}
		})
	}
}

func TestRepeatedRequest(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example")
	s.offers("two.example", "medicine.sell", "9000")
	a := s.agentOf("one.example")
	two := s.gateways["two.example"]
	var first *semreq.Request
	two.forge = func(r *semreq.Request) { c := *r; first = &c }
	if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.OK {
		t.Fatal(out.Status)
	}
	if out := two.relay.FromNeighbour(t.Context(), simLink{from: two, to: s.gateways["one.example"]}, first); out.Status != frame.Duplicate {
		t.Errorf("the same request again: %v", out.Status)
	}
}

func TestAgentRate(t *testing.T) {
	s := newSim(t, "one.example")
	s.offers("one.example", "x", "9000")
	a := s.agentOf("one.example")
	var refused *semreq.Response
	for range 60 {
		if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false)); out.Status == frame.Overloaded {
			refused = out
		}
	}
	if refused == nil || refused.RetryAfterMS == 0 {
		t.Errorf("60 requests at once: %+v", refused)
	}
}

func TestUpstreamComesLast(t *testing.T) {
	s := newSim(t, "one.example", "up.example", "two.example")
	s.line("up.example", "one.example", "two.example")
	one := s.gateways["one.example"]
	one.upstream = "up.example"
	want := s.offers("up.example", "rare", "9000")
	a := s.agentOf("one.example")
	if got := caps(t, one.relay.FromAgent(t.Context(), a, request(t, a, false))); !slices.Equal(got, []string{want.CapID}) {
		t.Errorf("what only the upstream has: %v", got)
	}
	if s.gateways["two.example"].asked != 1 {
		t.Error("the neighbour whose digest matches was not asked first")
	}
}

func TestResultsOfOthersMustPassTheBar(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	s.offers("two.example", "nonsense", "100")
	a := s.agentOf("one.example")
	one := s.gateways["one.example"].relay
	if out := one.FromAgent(t.Context(), a, request(t, a, true)); len(out.Results) != 0 || out.Status != frame.NotFound {
		t.Errorf("a result that our own matcher rates 1 %%: %v, %d results", out.Status, len(out.Results))
	}
	req := request(t, a, false)
	constrain(t, req, semreq.Constraints{MinScore: 50})
	if out := one.FromAgent(t.Context(), a, req); len(out.Results) != 1 {
		t.Errorf("with a lower bar: %v", out.Status)
	}
}

// Who asks for a capability by its identifier gets that one, or nothing: not what a gateway on the way would rather sell.
func TestExactIdentifierIsNobodyElses(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	other := s.offers("two.example", "medicine.other", "9000")
	a := s.agentOf("one.example")
	req := request(t, a, true)
	raw, err := semreq.Query{Caps: []string{directory.CapID(string(s.domains["three.example"].AIC(t)), "medicine.sell")}}.Normalise().Encode()
	if err != nil {
		t.Fatal(err)
	}
	hash := semreq.Hash(raw)
	req.Query, req.QHash = raw, hash[:]
	one := s.gateways["one.example"]
	out := one.relay.FromAgent(t.Context(), a, req)
	if slices.Contains(caps(t, out), other.CapID) || out.Status == frame.OK {
		t.Errorf("%v %v", out.Status, caps(t, out))
	}
	if len(one.penalties) == 0 {
		t.Error("the neighbour is not penalised")
	}
}

// A neighbour that is not connected takes neither breadth nor time from one that is.
func TestAbsentNeighboursCostNothing(t *testing.T) {
	for _, breadth := range []uint8{1, semreq.DefaultBreadth} {
		s := newSim(t, "one.example", "x.example", "y.example", "z.example", "up.example")
		for _, n := range []string{"x.example", "y.example", "z.example", "up.example"} {
			s.line("one.example", n)
		}
		one := s.gateways["one.example"]
		one.upstream = "up.example"
		one.away = []string{"x.example", "y.example", "z.example"}
		want := s.offers("up.example", "medicine.sell", "9000")
		a := s.agentOf("one.example")
		req := request(t, a, false)
		req.Breadth = breadth
		if out := one.relay.FromAgent(t.Context(), a, req); out.Status != frame.OK || !slices.Equal(caps(t, out), []string{want.CapID}) {
			t.Errorf("breadth %d: %v %v", breadth, out.Status, caps(t, out))
		}
		one.away = append(one.away, "up.example")
		if out := one.relay.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.UpstreamFailed || out.Definitive {
			t.Errorf("all away: %v definitive %v", out.Status, out.Definitive)
		}
		for _, n := range one.away[:3] {
			if asked := s.gateways[n].asked; asked != 0 {
				t.Errorf("%s asked %d times", n, asked)
			}
		}
	}
}

// All other ways to the same are tried, one after the other, and take no breadth from what leads elsewhere.
func TestOtherWaysInTurn(t *testing.T) {
	s := newSim(t, "one.example", "x.example", "y.example", "z.example", "w.example", "two.example", "three.example")
	for _, n := range []string{"x.example", "y.example", "z.example"} {
		s.line("one.example", n, "two.example")
	}
	one := s.gateways["one.example"]
	one.neighbours = append([]string{"x.example", "w.example"}, "y.example", "z.example") // as candidates come: other ways last
	s.line("w.example", "three.example")
	one.instead = map[string]string{"y.example": "x.example", "z.example": "x.example"}
	one.scores = map[string]float64{"x.example": 5, "y.example": 5, "z.example": 5, "w.example": 1}
	want, elsewhere := s.offers("two.example", "medicine.sell", "9000"), s.offers("three.example", "medicine.sell", "8000")
	s.gateways["x.example"].fails, s.gateways["y.example"].fails = true, true
	a := s.agentOf("one.example")
	if out := one.relay.FromAgent(t.Context(), a, request(t, a, false)); !slices.Contains(caps(t, out), want.CapID) || s.gateways["z.example"].asked != 1 {
		t.Errorf("the third way: %v %v, asked %d times", out.Status, caps(t, out), s.gateways["z.example"].asked)
	}
	one.away = []string{"x.example"}
	if out := one.relay.FromAgent(t.Context(), a, request(t, a, false)); !slices.Contains(caps(t, out), want.CapID) || s.gateways["z.example"].asked != 2 {
		t.Errorf("the third way, with the best one away: %v %v, asked %d times", out.Status, caps(t, out), s.gateways["z.example"].asked)
	}
	s.gateways["z.example"].fails = true
	req := request(t, a, false)
	req.Breadth = 2
	if out := one.relay.FromAgent(t.Context(), a, req); !slices.Contains(caps(t, out), elsewhere.CapID) {
		t.Errorf("the other ways have taken the place of another origin: %v %v", out.Status, caps(t, out))
	}
}

// Another way to the same is taken where the best one does not answer, or cannot, within the time of the request; and else is not.
func TestAnotherWayToTheSame(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(one, x *simGateway)
		asked int // of the other way
	}{
		"the best way answers": {func(_, x *simGateway) {}, 0},
		"it is not connected":  {func(one, _ *simGateway) { one.away = []string{"x.example"} }, 1},
		"it fails":             {func(_, x *simGateway) { x.fails = true }, 1},
		"it is silent":         {func(_, x *simGateway) { x.delay = time.Hour }, 1},
	} {
		s := newSim(t, "one.example", "x.example", "y.example", "two.example")
		s.line("one.example", "x.example", "two.example")
		s.line("one.example", "y.example", "two.example")
		one, x := s.gateways["one.example"], s.gateways["x.example"]
		one.instead = map[string]string{"y.example": "x.example"}
		want := s.offers("two.example", "medicine.sell", "9000")
		c.spoil(one, x)
		a := s.agentOf("one.example")
		began := time.Now()
		out := one.relay.FromAgent(t.Context(), a, request(t, a, false))
		if out.Status != frame.OK || !slices.Equal(caps(t, out), []string{want.CapID}) || time.Since(began) > time.Second {
			t.Errorf("%s: %v %v after %v", name, out.Status, caps(t, out), time.Since(began))
		}
		if got := s.gateways["y.example"].asked; got != c.asked {
			t.Errorf("%s: the other way was asked %d times, want %d", name, got, c.asked)
		}
	}
}

func TestRepeatedResultsCountOnce(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	best, second := s.offers("two.example", "best", "9000"), s.offers("two.example", "second", "8000")
	s.gateways["two.example"].tamper = func(r *semreq.Response) {
		r.Results = [][]byte{r.Results[0], r.Results[0], r.Results[0], r.Results[0], r.Results[0], r.Results[1]}
	}
	a := s.agentOf("one.example")
	if got := caps(t, s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false))); !slices.Equal(got, []string{best.CapID, second.CapID}) {
		t.Errorf("got %v", got)
	}
}

func TestAnswersFitTheirFrame(t *testing.T) {
	s := newSim(t, "one.example")
	for i := range 20 {
		c := s.offers("one.example", fmt.Sprint("skill", i), "9000")
		long := strings.Repeat("ü", 120)
		for range 32 {
			c.Tags, c.In, c.Out = append(c.Tags, long), append(c.In, long), append(c.Out, long)
		}
		c.Name, c.Description = strings.Repeat("n", 1000), "score=9000"
		g := s.gateways["one.example"]
		g.found[len(g.found)-1] = c
	}
	a := s.agentOf("one.example")
	req := request(t, a, true)
	req.Want = 20
	out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, req)
	if out.Status != frame.OK || len(out.Results) < 10 {
		t.Errorf("%v, %d results", out.Status, len(out.Results))
	}
	if _, err := frame.AppendMessage(nil, out); err != nil {
		t.Error(err)
	}
}

func TestForeignAddresses(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "10.0.0.5", "224.0.0.1", "169.254.169.254", "fe80::1", "::1", "fd00::1", "internal-host.example"} {
		s := newSim(t, "one.example", "two.example")
		s.line("one.example", "two.example")
		s.offers("two.example", "x", "9000")
		s.gateways["two.example"].offer = func(context.Context, [16]byte, []byte) ([]semreq.Endpoint, error) {
			return []semreq.Endpoint{{Host: host, Port: 53, ALPN: frame.ALPNAgent}}, nil
		}
		a := s.agentOf("one.example")
		if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, true)); len(out.Results) != 0 {
			t.Errorf("our agent is sent to %s", host)
		}
	}
}

func TestOverloadThatIsTooLongIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "one.example", "two.example")
		s.line("one.example", "two.example")
		s.gateways["two.example"].tamper = func(r *semreq.Response) {
			r.Status, r.RetryAfterMS, r.Results = frame.Overloaded, 60_000, nil
		}
		a := s.agentOf("one.example")
		began := time.Now()
		out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, false))
		if out.Status != frame.Overloaded || out.RetryAfterMS != 60_000 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%v, again in %d ms, told after %v", out.Status, out.RetryAfterMS, time.Since(began))
		}
	})
}

func TestMalformedRequestsCountAgainstTheRate(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	two := s.gateways["two.example"]
	from := simLink{from: two, to: s.gateways["one.example"]}
	over := 0
	for range 400 {
		if two.relay.FromNeighbour(t.Context(), from, &semreq.Request{ReqID: make([]byte, 16)}).Status == frame.Overloaded {
			over++
		}
	}
	if over < 100 {
		t.Errorf("only %d of 400 malformed requests met the limit", over)
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "one.example", "two.example")
		s.line("one.example", "two.example")
		s.offers("two.example", "x", "9000")
		s.gateways["two.example"].delay = 300 * time.Millisecond
		a := s.agentOf("one.example")
		one := s.gateways["one.example"].relay
		answered := make(chan frame.Code)
		go func() { answered <- one.FromAgent(t.Context(), a, request(t, a, false)).Status }()
		synctest.Wait()
		drained := make(chan error)
		go func() { drained <- one.Drain(t.Context()) }()
		synctest.Wait()
		if out := one.FromAgent(t.Context(), a, request(t, a, false)); out.Status != frame.Shutdown {
			t.Errorf("a new request while draining: %v", out.Status)
		}
		if code := <-answered; code != frame.OK {
			t.Errorf("the running request ended with %v", code)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

// A lame duck refuses what is new of a neighbour, and says when to come again; what runs is answered, and so are its own agents.
func TestLameDuckTakesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, "one.example", "two.example", "three.example")
		s.line("one.example", "two.example", "three.example")
		s.offers("three.example", "x", "9000")
		s.gateways["three.example"].delay = 300 * time.Millisecond
		one, two := s.gateways["one.example"], s.gateways["two.example"]
		var lame atomic.Bool
		two.relay.cfg.Lame = func(domain, gateway string) bool {
			return lame.Load() && domain == "one.example" && gateway == string(one.d.Gateway)
		}
		var said []semreq.Response
		two.tamper = func(r *semreq.Response) { said = append(said, *r) }
		a := s.agentOf("one.example")
		ask := func() *semreq.Response { return one.relay.FromAgent(t.Context(), a, request(t, a, false)) }
		answered := make(chan frame.Code)
		go func() { answered <- ask().Status }()
		time.Sleep(100 * time.Millisecond) // of the bubble: it waits for three.example
		lame.Store(true)
		if code := <-answered; code != frame.OK {
			t.Errorf("the running request ended with %v", code)
		}
		said = nil
		out := ask()
		if out.Status != frame.UpstreamFailed || out.RetryAfterMS != 0 {
			t.Errorf("the asker is told %v, again in %d ms", out.Status, out.RetryAfterMS)
		}
		if len(said) == 0 || said[0].Status != frame.Shutdown || said[0].RetryAfterMS != 30_000 {
			t.Errorf("the lame duck said %+v", said)
		}
		b := s.agentOf("two.example")
		if out := two.relay.FromAgent(t.Context(), b, request(t, b, false)); out.Status != frame.OK {
			t.Errorf("its own agent got %v", out.Status)
		}
	})
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		b    uint8
		n    int
		want []uint8
	}{{4, 1, []uint8{4}}, {4, 2, []uint8{2, 1}}, {4, 5, []uint8{2, 1, 1}}, {1, 3, []uint8{1}}, {8, 3, []uint8{4, 1, 1}}, {3, 0, nil}} {
		got := share(c.b, c.n)
		if !slices.Equal(got, c.want) {
			t.Errorf("share(%d, %d) = %v, want %v", c.b, c.n, got, c.want)
		}
	}
}

// An agent that its domain suspended, and one whose gateway is revoked, get nothing abroad; nor does a request for a domain
// whose status is not known.
func TestForeignAskersMustBeInGoodStanding(t *testing.T) {
	revoked := frame.Errorf(frame.CertStatus, "revoked")
	for name, who := range map[string]func(s *sim, a Agent) string{
		"the agent":       func(_ *sim, a Agent) string { return a.AIC },
		"its own gateway": func(s *sim, _ Agent) string { return string(s.domains["one.example"].Gateway) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, "one.example", "two.example", "three.example")
			s.line("one.example", "two.example", "three.example")
			s.offers("three.example", "medicine.sell", "9000")
			a := s.agentOf("one.example")
			two := s.gateways["two.example"]
			two.bad = map[string]error{who(s, a): revoked}
			out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, true))
			if out.Status == frame.OK || !slices.ContainsFunc(out.Reasons, func(r semreq.Reason) bool { return r.Code == frame.CertStatus }) {
				t.Errorf("status %v, reasons %v, want 0E", out.Status, out.Reasons)
			}
			if s.gateways["three.example"].asked != 0 || len(two.penalties) != 0 {
				t.Errorf("forwarded %d times, penalties %q", s.gateways["three.example"].asked, two.penalties)
			}
		})
	}
}

// The status changes between the request and the token: nothing is minted.
func TestNoTokenForAnAskerThatWasJustSuspended(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	s.offers("two.example", "medicine.sell", "9000")
	a := s.agentOf("one.example")
	two := s.gateways["two.example"]
	checks := 0
	two.standing = func(id string) error {
		if checks++; id == a.AIC && checks > 2 { // at the door: the gateway, then the agent
			return frame.Errorf(frame.CertStatus, "suspended")
		}
		return nil
	}
	two.offer = func(context.Context, [16]byte, []byte) ([]semreq.Endpoint, error) {
		t.Error("an offer was made")
		return nil, nil
	}
	if out := s.gateways["one.example"].relay.FromAgent(t.Context(), a, request(t, a, true)); out.Status == frame.OK {
		t.Errorf("%v", out.Status)
	}
	if checks != 3 {
		t.Errorf("%d checks", checks)
	}
}

// The origin sends its agent to nobody whose standing it does not know, and says so.
func TestForeignTargetsMustBeInGoodStanding(t *testing.T) {
	s := newSim(t, "one.example", "two.example", "three.example")
	s.line("one.example", "two.example", "three.example")
	c := s.offers("three.example", "medicine.sell", "9000")
	a := s.agentOf("one.example")
	one := s.gateways["one.example"]
	for _, id := range []string{c.AIC, string(s.domains["three.example"].Gateway)} {
		one.bad = map[string]error{id: frame.Errorf(frame.CertStatus, "stale")}
		out := one.relay.FromAgent(t.Context(), a, request(t, a, true))
		if out.Status != frame.NotFound || !slices.ContainsFunc(out.Reasons, func(r semreq.Reason) bool { return r.Code == frame.CertStatus }) {
			t.Errorf("%s: %v %v", id, out.Status, out.Reasons)
		}
	}
	if len(one.penalties) != 0 {
		t.Errorf("the neighbour is blamed: %q", one.penalties)
	}
}

// A key that came after the bundle that is held: the bundle is asked for once, then the request is judged again.
func TestCase41UnknownKeyIsRefreshedOnce(t *testing.T) {
	s := newSim(t, "one.example", "two.example")
	s.line("one.example", "two.example")
	want := s.offers("two.example", "medicine.sell", "9000")
	one, two := s.gateways["one.example"], s.gateways["two.example"]
	a := s.agentOf("one.example")
	knowing := map[*simGateway]*identity.Trust{one: one.trust, two: two.trust}
	asked := map[string]int{}
	forget := func(g *simGateway, other string, comes bool) {
		g.trust = g.d.Trust(t)
		g.domainOf = knowing[g].DomainOf // the bundle is there, the key is not
		g.refresh = func(domain string) bool {
			asked[g.d.Name+" "+domain]++
			if comes {
				g.trust = knowing[g]
			}
			return comes && domain == other
		}
	}
	forget(one, "two.example", true)
	forget(two, "one.example", true)
	out := one.relay.FromAgent(t.Context(), a, request(t, a, true))
	if got := caps(t, out); !slices.Equal(got, []string{want.CapID}) {
		t.Errorf("%v %v", out.Status, out.Reasons)
	}
	if asked["one.example two.example"] != 1 || asked["two.example one.example"] != 1 {
		t.Errorf("asked %v", asked)
	}
	forget(two, "one.example", false)
	if out := one.relay.FromAgent(t.Context(), a, request(t, a, true)); out.Status == frame.OK {
		t.Error("a key that nobody knows was believed")
	}
}

// What another domain's policy refuses is to our agents as if it were not there, unless the peer's row says explain.
func TestForeignRefusalsAreNotTold(t *testing.T) {
	for _, explain := range []bool{false, true} {
		s := newSim(t, "one.example", "two.example")
		s.line("one.example", "two.example")
		s.offers("two.example", "medicine.sell", "9000")
		s.gateways["two.example"].mayQuery = []string{"acps.skill.invoke:*"} // two lets nobody discover
		s.gateways["one.example"].mayQuery = []string{"agw.discover", "acps.skill.invoke:*"}
		s.gateways["two.example"].explain, s.gateways["one.example"].explain = explain, explain
		out := s.gateways["one.example"].relay.FromAgent(t.Context(), s.agentOf("one.example"), request(t, s.agentOf("one.example"), false))
		want := frame.NotFound
		if explain {
			want = frame.ScopeDenied
		}
		if out.Status != want {
			t.Errorf("explain %v: %v, want %v", explain, out.Status, want)
		}
		for _, r := range out.Reasons {
			if !explain && (r.Code == frame.ScopeDenied || r.Code == frame.PolicyDenied) {
				t.Errorf("the reasons tell it all the same: %+v", out.Reasons)
			}
		}
	}
}
