package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// sim is gateways in one process: real relays, real signatures, calls in place of connections.
type sim struct {
	t        *testing.T
	domains  map[string]*identitytest.Domain
	gateways map[string]*simGateway // by domain
	leaves   atomic.Int32           // requests that were passed on no more
}

// simGateway is one gateway with its directory, agents and neighbours.
type simGateway struct {
	sim        *sim
	d          *identitytest.Domain
	relay      *Relay
	trust      *identity.Trust
	neighbours []string           // domains
	upstream   string             // one of them that is the last resort
	away       []string           // neighbours that are not connected
	instead    map[string]string  // neighbours that are another way to where others lead
	scores     map[string]float64 // of its neighbours' digests; nil: all have 1
	mayQuery   []string
	explain    bool
	found      []directory.Candidate // what its directory matches, whatever is asked
	key        [32]byte              // of all its agents
	offer      func(ctx context.Context, cti [16]byte, sat []byte) ([]semreq.Endpoint, error)
	delay      time.Duration          // on the way to this gateway
	tamper     func(*semreq.Response) // of its answers, by a transit
	forge      func(*semreq.Request)  // of requests on the way to it
	asked      int                    // requests that reached it
	bad        map[string]error       // AICs that are not in good standing
	standing   func(id string) error
	refresh    func(domain string) bool
	domainOf   func(id string) string // in place of trust's

	version atomic.Uint64 // of the digests that it holds
	number  uint64        // of the connections to it
	fails   bool          // it takes requests and answers none
	full    bool          // its directory has no turn free

	mu        sync.Mutex
	penalties []string
	cancelled int
}

func newSim(t *testing.T, names ...string) *sim {
	s := &sim{t: t, domains: map[string]*identitytest.Domain{}, gateways: map[string]*simGateway{}}
	for i, n := range names {
		s.domains[n] = identitytest.New(t, n, string(rune('A'+i))+"1")
	}
	for _, n := range names {
		g := &simGateway{sim: s, d: s.domains[n], mayQuery: []string{"agw.discover", "acps.skill.invoke:*"}}
		var peers []*identitytest.Domain
		for _, p := range names {
			if p != n {
				peers = append(peers, s.domains[p])
			}
		}
		g.trust = g.d.Trust(t, peers...)
		g.offer = func(context.Context, [16]byte, []byte) ([]semreq.Endpoint, error) {
			return []semreq.Endpoint{{Host: "192.0.2.1", Port: 4434, ALPN: frame.ALPNAgent}}, nil
		}
		rand.Read(g.key[:])
		g.relay = New(Config{
			Gateway: string(g.d.Gateway), Domain: n, Result: g.d.Sign[identity.UseDigest].Always(), RAT: g.d.Sign[identity.UseRAT].Always(),
			SAT: g.d.Sign[identity.UseSAT].Always(), Directory: g, Agents: g, Network: g, AnswerBar: 4000, Log: slog.New(slog.DiscardHandler),
		})
		s.gateways[n] = g
	}
	return s
}

// line joins gateways in a row, both ways.
func (s *sim) line(names ...string) {
	for i := range len(names) - 1 {
		a, b := s.gateways[names[i]], s.gateways[names[i+1]]
		a.neighbours, b.neighbours = append(a.neighbours, b.d.Name), append(b.neighbours, a.d.Name)
	}
}

func (g *simGateway) Match(ctx context.Context, _ semreq.Query, c semreq.Constraints, _ Asker, want int, minScore uint16) ([]directory.Candidate, error) {
	if g.full {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var out []directory.Candidate
	for _, f := range g.found {
		if f.Confidence >= minScore && len(out) < want && !slices.Contains(c.Exclude, f.AIC) {
			out = append(out, f)
		}
	}
	return out, nil
}

// Score finds "score=NNNN" in a skill's text.
func (g *simGateway) Score(_ semreq.Query, r *semreq.Result) uint16 {
	n := uint16(0)
	if _, digits, ok := strings.Cut(r.Skill.Description, "score="); ok {
		for _, d := range digits {
			n = 10*n + uint16(d-'0')
		}
	}
	return n
}

func (g *simGateway) Key(string) ([32]byte, bool) { return g.key, true }

func (g *simGateway) Offer(ctx context.Context, _ string, _ Asker, mint func() ([16]byte, []byte, error)) ([]semreq.Endpoint, error) {
	cti, sat, err := mint()
	if err != nil {
		return nil, err
	}
	return g.offer(ctx, cti, sat)
}

func (g *simGateway) Candidates(semreq.Query) (out []Hop) {
	for _, n := range g.neighbours {
		score := 1.
		if g.scores != nil {
			score = g.scores[n]
		}
		h := Hop{Neighbour: simLink{from: g, to: g.sim.gateways[n]}, Score: score, Upstream: n == g.upstream, Away: slices.Contains(g.away, n)}
		if of, ok := g.instead[n]; ok {
			h.InsteadOf = []string{string(g.sim.gateways[of].d.Gateway)}
		}
		out = append(out, h)
	}
	return out
}

func (g *simGateway) DomainOf(id string) string {
	if g.domainOf != nil {
		return g.domainOf(id)
	}
	return g.trust.DomainOf(id)
}

func (g *simGateway) MayQuery(string) []string  { return g.mayQuery }
func (g *simGateway) ResultKeys() frame.KeyFunc { return g.trust.Keys(identity.UseDigest) }
func (g *simGateway) RATKeys() frame.KeyFunc    { return g.trust.Keys(identity.UseRAT) }
func (g *simGateway) SATKeys() frame.KeyFunc    { return g.trust.Keys(identity.UseSAT) }
func (g *simGateway) Standing(_ context.Context, id string, _ []byte) error {
	if g.standing != nil {
		return g.standing(id)
	}
	return g.bad[id]
}

func (g *simGateway) Refresh(_ context.Context, domain string, known func() bool) bool {
	return known() || g.refresh != nil && g.refresh(domain) && known()
}

func (g *simGateway) Version() uint64 { return g.version.Load() }

func (g *simGateway) Penalise(gw, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.penalties = append(g.penalties, why)
}

// simLink is one direction between two gateways.
type simLink struct{ from, to *simGateway }

func (l simLink) Gateway() string    { return string(l.to.d.Gateway) }
func (l simLink) Domain() string     { return l.to.d.Name }
func (l simLink) MayQuery() []string { return l.from.mayQuery }
func (l simLink) Explain() bool      { return l.from.explain }
func (l simLink) RTT() time.Duration { return time.Millisecond }
func (l simLink) Number() uint64     { return l.to.number }

func (l simLink) Ask(ctx context.Context, r *semreq.Request) (*semreq.Response, error) {
	b, err := frame.AppendMessage(nil, r) // what crosses a wire is bytes
	if err != nil {
		return nil, err
	}
	over := new(semreq.Request)
	if err := frame.NewReader(bytes.NewReader(b)).Into(over); err != nil {
		return nil, err
	}
	if l.to.forge != nil {
		l.to.forge(over)
	}
	select {
	case <-time.After(l.to.delay):
	case <-ctx.Done():
		l.to.mu.Lock()
		l.to.cancelled++
		l.to.mu.Unlock()
		return nil, frame.Errorf(frame.Deadline, "the neighbour is silent: %w", ctx.Err())
	}
	l.to.asked++
	if l.to.fails {
		return nil, frame.Errorf(frame.UpstreamFailed, "the neighbour has gone")
	}
	if above, ok := ctx.Value(forwarded{}).(*atomic.Int32); ok {
		above.Add(1)
	}
	passedOn := new(atomic.Int32)
	ctx = context.WithValue(ctx, forwarded{}, passedOn)
	defer func() {
		if passedOn.Load() == 0 {
			l.from.sim.leaves.Add(1)
		}
	}()
	out := l.to.relay.FromNeighbour(ctx, simLink{from: l.to, to: l.from}, over)
	again := *out
	if l.to.tamper != nil {
		l.to.tamper(&again)
	}
	return &again, nil
}

// forwarded is the key of how often the gateway that a request has reached has passed it on.
type forwarded struct{}

// agentOf makes an agent of a domain that asks.
func (s *sim) agentOf(domain string) Agent {
	a := Agent{AIC: string(s.domains[domain].AIC(s.t)), Scope: []string{"agw.discover", "acps.skill.invoke:*"}}
	rand.Read(a.SPKI[:])
	return a
}

// offers lets a domain's directory find one capability with a score.
func (s *sim) offers(domain, skill, score string) directory.Candidate {
	g := s.gateways[domain]
	id := string(g.d.AIC(s.t))
	c := directory.Candidate{Confidence: 9000, Capability: directory.Capability{
		AIC: id, CapID: directory.CapID(id, skill), SkillID: skill, Name: skill, Description: "score=" + score,
	}}
	g.found = append(g.found, c)
	return c
}

func request(t *testing.T, a Agent, withSession bool) *semreq.Request {
	t.Helper()
	raw, err := semreq.Query{Text: "medicine for a sore throat"}.Normalise().Encode()
	if err != nil {
		t.Fatal(err)
	}
	hash := semreq.Hash(raw)
	r := &semreq.Request{
		ReqID: make([]byte, 16), Query: raw, QHash: hash[:], HopLimit: semreq.DefaultHops, BudgetMS: 1000,
		Breadth: semreq.DefaultBreadth, Want: semreq.DefaultWant,
	}
	rand.Read(r.ReqID)
	if withSession {
		sid := make([]byte, 16)
		rand.Read(sid)
		if r.Provision, err = frame.Marshal(semreq.Provision{SID: sid, ISPKI: a.SPKI[:]}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func constrain(t *testing.T, r *semreq.Request, c semreq.Constraints) {
	t.Helper()
	var err error
	if r.Constraints, err = frame.Marshal(c); err != nil {
		t.Fatal(err)
	}
}

func caps(t *testing.T, out *semreq.Response) (list []string) {
	t.Helper()
	for _, s := range out.Results {
		r, err := semreq.PeekResult(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r.Cap)
	}
	return list
}
