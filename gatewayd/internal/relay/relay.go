// Package relay answers semantic requests: it matches the gateway's own directory, forwards what it cannot resolve to the
// neighbour that the digests point to, merges what comes back, and provisions the session with what was found.
//
// A request enters from an agent of this gateway ([Relay.FromAgent]) or from a neighbour ([Relay.FromNeighbour]). The first
// makes this gateway the origin: it normalises the request once, signs the request authorization token (RAT), verifies every
// result that comes back and scores it again with its own matcher. The second verifies the RAT and narrows the scope by this
// gateway's own policy. Nothing is queued: what is over a limit is refused at once.
//
// A [Relay] is safe for concurrent use and holds no lock while it waits for the network. Every call ends within its request's
// budget. Errors are statuses of the response, never Go errors: the asker gets a code, our log the detail.
// Source: seed 002, sections 5.3 and 5.4; cdsp/PROTOCOL.md, "Semantic requests" and "Provisioning".
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// Directory is the gateway's own directory with its matcher.
type Directory interface {
	// Match ranks what this gateway may offer: best first, scored per ten thousand, nothing below minScore. It fails only when ctx has ended.
	Match(ctx context.Context, q semreq.Query, c semreq.Constraints, asker Asker, want int, minScore uint16) ([]directory.Candidate, error)
	// Score rates a foreign result's text for the same query.
	Score(q semreq.Query, r *semreq.Result) uint16
}

// Asker is the agent on whose behalf a request is answered.
type Asker struct {
	AIC    string
	Domain string
	Home   bool // it is of this gateway's domain
}

// Agents is the agents that are attached to this gateway.
type Agents interface {
	// Key is the SHA-256 of an attached agent's SubjectPublicKeyInfo; false when it is not attached.
	Key(aic string) ([32]byte, bool)
	// Offer has mint make a session token for a target and shows it to the target; it returns where the target listens, once
	// the target has acknowledged. When the target has no room for another offer nothing is minted (47). Other errors are
	// the target's refusal or its silence.
	Offer(ctx context.Context, target string, asker Asker, mint func() (cti [16]byte, sat []byte, err error)) ([]semreq.Endpoint, error)
}

// Neighbour is a peer gateway that is up now.
type Neighbour interface {
	Gateway() string
	Domain() string
	MayQuery() []string // scopes that its requests may carry, and ours to it
	Explain() bool      // its refusals for scope and policy are told to our agents as they are
	RTT() time.Duration
	// Number tells one connection to it from the next: what has failed over one is no reason against another.
	Number() uint64
	// Ask sends one request on its own stream and waits for the response as long as ctx allows; when ctx ends first, the
	// stream is reset and the neighbour stops working on it.
	Ask(ctx context.Context, r *semreq.Request) (*semreq.Response, error)
}

// Hop is a neighbour that may know an answer, with why it was chosen.
type Hop struct {
	Neighbour
	Score    float64 // by digest; the better first
	Upstream bool    // chosen as the last resort, without a digest that matches
	Away     bool    // not connected: its digests are kept for its return, and it cannot be asked
	// InsteadOf are gateways before it among the candidates to whose answers it is another way: it is asked where one of them cannot be, or
	// does not answer.
	InsteadOf []string
}

// Network is what the gateway knows of the others.
type Network interface {
	// Candidates ranks the neighbours by how well the digests behind them fit; those that are away are among them.
	Candidates(q semreq.Query) []Hop
	// Domain is the domain of an AIC by the accepted bundles, "" for none.
	DomainOf(aic string) string
	// MayQuery is the scope granted to requests that originate in a domain.
	MayQuery(domain string) []string
	// ResultKeys, RATKeys and SATKeys find the verified keys of each use.
	ResultKeys() frame.KeyFunc
	RATKeys() frame.KeyFunc
	SATKeys() frame.KeyFunc
	// Standing says whether an agent or gateway of another domain is in good standing by a fresh list of its domain (0E). It may
	// ask the neighbours, and then takes up to half a second.
	Standing(ctx context.Context, aic string, serial []byte) error
	// Refresh asks the neighbours for a domain's newer bundle, after a signature under a key that is not known here. It returns
	// when known says that the key is, which it asks at once (the bundle may have come meanwhile) and with each that comes, or
	// after half a second; and says which.
	Refresh(ctx context.Context, domain string, known func() bool) bool
	// Version changes whenever an accepted digest of another gateway does.
	Version() uint64
	// Penalise counts a result or a request against the neighbour that sent it.
	Penalise(gateway, why string)
}

// Config of a relay. Zero numbers mean defaults.
type Config struct {
	Gateway, Domain  string
	Result, RAT, SAT func() frame.Signer // keys of use 1, 3 and 2, as of now
	Directory        Directory
	Agents           Agents
	Network          Network
	SessionLife      time.Duration
	AgentRate        float64 // requests a second of one AIC, 20, burst twice that
	PeerRate         float64 // requests a second of one neighbour or origin domain, 100, burst twice that
	AnswerBar        uint16  // score from which an own match answers
	Lab              bool    // results of other domains may name loopback and private addresses
	// Lame says whether this gateway takes nothing new of a neighbour; what runs is answered. nil: it takes all.
	Lame func(domain, gateway string) bool
	// AuditSoon keeps a record; nil keeps none. It is called for requests that cross a domain's border, and for sessions.
	AuditSoon func(kind string, data any)
	Log       *slog.Logger
}

const (
	offerWait     = 300 * time.Millisecond // for OFFER_ACK
	hopReserve    = 20 * time.Millisecond  // kept back of the budget for this gateway's own work
	minForward    = 50 * time.Millisecond  // below this no hop can answer in time
	parallelGrace = 30 * time.Millisecond  // for the other branches, once one has won
	resultLife    = 60 * time.Second
	foreignShare  = 4 // a result has no examples and no agent's name: a good match may lose that much of its score on the way
	maxAttempts   = 2
	retryAbove    = 0.4 // share of the budget that must be left for another attempt
	maxAtOnce     = 4096

	// What one session may carry before its partners need another token: it bounds what a target keeps of outcomes.
	sessionBytes    = 256 << 20
	sessionMessages = 4096

	lameRetry = 30 * time.Second // that a neighbour is told whose request a lame duck refuses

	minRetryMS = 50 // before another attempt, when nobody said how long
	drainPoll  = 10 * time.Millisecond
)

// Relay resolves. Create it with [New].
type Relay struct {
	cfg      Config
	log      *slog.Logger
	seen     *dupTable
	agents   *limiters
	peers    *limiters
	domains  *limiters
	health   *health
	nothing  *negatives
	running  atomic.Int64
	draining atomic.Bool

	// Counters for status, since the start.
	Answered  atomic.Uint64 // requests that ended with a result from here
	Forwarded atomic.Uint64 // requests handed on to a neighbour
}

// New makes a relay.
func New(cfg Config) *Relay {
	if cfg.AgentRate == 0 {
		cfg.AgentRate = 20
	}
	if cfg.PeerRate == 0 {
		cfg.PeerRate = 100
	}
	if cfg.SessionLife == 0 {
		cfg.SessionLife = time.Hour
	}
	if cfg.Lame == nil {
		cfg.Lame = func(string, string) bool { return false }
	}
	if cfg.AuditSoon == nil {
		cfg.AuditSoon = func(string, any) {}
	}
	return &Relay{
		cfg: cfg, log: cfg.Log, seen: newDupTable(),
		agents:  newLimiters(rate.Limit(cfg.AgentRate)),
		peers:   newLimiters(rate.Limit(cfg.PeerRate)),
		domains: newLimiters(rate.Limit(cfg.PeerRate)),
		health:  newHealth(), nothing: newNegatives(),
	}
}

// Drain refuses new requests from now on and returns when the running ones have been answered, or with ctx.
func (r *Relay) Drain(ctx context.Context) error {
	r.draining.Store(true)
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for r.running.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d requests were not answered in time: %w", r.running.Load(), ctx.Err())
		}
	}
	return nil
}

// Agent is who asks, as its connection proves it.
type Agent struct {
	AIC   string
	SPKI  [32]byte
	Scope []string // of its grant
}

// job is one request at this gateway.
type job struct {
	req       *semreq.Request
	query     semreq.Query
	limits    semreq.Constraints
	provision *semreq.Provision
	asker     Asker
	scope     []string // what may still be asked for, after every narrowing so far
	origin    bool     // this gateway is where the request entered
	from      string   // the neighbour that it came from, "" from an agent
	deadline  time.Time
	start     time.Time
}

func (j *job) minScore(bar uint16) uint16 {
	if j.limits.MinScore > 0 {
		return j.limits.MinScore
	}
	return bar
}

func (j *job) parallel() bool { return j.req.Flags&semreq.FlagParallel != 0 }

// FromAgent answers a request of an agent that is attached here. The response is always usable; its status says how it went.
func (r *Relay) FromAgent(ctx context.Context, a Agent, req *semreq.Request) *semreq.Response {
	j := &job{req: req, asker: Asker{AIC: a.AIC, Domain: r.cfg.Domain, Home: true}, origin: true, start: time.Now()}
	if err := r.admitAgent(j, a); err != nil {
		return r.refuse(j, err)
	}
	out := r.resolve(ctx, j, func(ctx context.Context, out *semreq.Response) { r.asOrigin(ctx, j, out) })
	if len(req.RAT) > 0 { // it was handed to other domains
		r.record(kindForwarded, j, r.cfg.Domain, "", out)
	}
	return out
}

func (r *Relay) admitAgent(j *job, a Agent) (err error) {
	req := j.req
	if req.OriginGW != "" || len(req.Via) > 0 || len(req.RAT) > 0 || len(req.HopVia) > 0 {
		return frame.Errorf(frame.ReqInvalid, "an agent's request names no gateways and carries no token: its gateway fills them in")
	}
	if err := req.Validate(); err != nil {
		return err
	}
	if err := j.decode(); err != nil {
		return err
	}
	if j.provision != nil && string(j.provision.ISPKI) != string(a.SPKI[:]) {
		return frame.Errorf(frame.Binding, "a session may only be provisioned for the key of this very connection")
	}
	if ok, wait := r.agents.allow(a.AIC); !ok {
		return overload(wait)
	}
	want := req.Scope
	if len(want) == 0 {
		want = a.Scope
	}
	if j.scope = policy.Intersect(want, a.Scope); !policy.Covers(j.scope, []string{policy.ScopeDiscover}) {
		return frame.Errorf(frame.ScopeDenied, "the grant of %s does not cover %s: enrol it with that scope", a.AIC, policy.ScopeDiscover)
	}
	return r.normalise(j)
}

// normalise gives the query its one form; from here on no gateway alters its bytes.
func (r *Relay) normalise(j *job) error {
	j.query = j.query.Normalise()
	raw, err := j.query.Encode()
	if err != nil {
		return err
	}
	hash := semreq.Hash(raw)
	j.req.Query, j.req.QHash = raw, hash[:]
	return nil
}

// decode reads the parts of the request that travel as bytes.
func (j *job) decode() (err error) {
	if j.query, err = semreq.ParseQuery(j.req.Query); err != nil {
		return err
	}
	if j.limits, err = j.req.ParsedConstraints(); err != nil {
		return err
	}
	if j.provision, err = j.req.ParsedProvision(); err != nil {
		return err
	}
	j.deadline = j.start.Add(time.Duration(j.req.BudgetMS) * time.Millisecond)
	return nil
}

// resolve runs work under the request's deadline and completes the response.
func (r *Relay) resolve(ctx context.Context, j *job, work func(context.Context, *semreq.Response)) *semreq.Response {
	defer r.running.Add(-1)
	switch n := r.running.Add(1); {
	case r.draining.Load():
		return r.refuse(j, frame.Errorf(frame.Shutdown, "this gateway is stopping"))
	case n > maxAtOnce:
		return r.refuse(j, overload(time.Second))
	}
	ctx, cancel := context.WithDeadline(ctx, j.deadline)
	defer cancel()
	out := &semreq.Response{ReqID: j.req.ReqID, Status: frame.NotFound}
	work(ctx, out)
	switch {
	case len(out.Results) > 0:
		out.Status = frame.OK
	case ctx.Err() != nil:
		out.Status = frame.Deadline
	}
	if out.Definitive = out.Definitive && out.Status == frame.NotFound; out.Definitive {
		out.NegTTLMS = uint64(tellNegative.Milliseconds())
	}
	out.ElapsedMS = uint64(time.Since(j.start).Milliseconds())
	r.log.Debug("semantic request", "req", j.req.ReqID, "from", j.from, "status", out.Status.String(),
		"results", len(out.Results), "elapsed_ms", out.ElapsedMS)
	return out
}

// asOrigin resolves with retries: only the origin counts attempts, and only while enough of the budget is left.
func (r *Relay) asOrigin(ctx context.Context, j *job, out *semreq.Response) {
	for {
		r.once(ctx, j, out)
		again := out.Status == frame.Overloaded || out.Status == frame.UpstreamFailed
		wait := time.Duration(min(max(out.RetryAfterMS, minRetryMS), semreq.MaxBudgetMS)) * time.Millisecond
		left := (time.Until(j.deadline) - wait).Seconds() / j.deadline.Sub(j.start).Seconds()
		if len(out.Results) > 0 || !again || int(j.req.Attempt) >= maxAttempts || left < retryAbove {
			return
		}
		j.req.Attempt++
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		*out = semreq.Response{ReqID: out.ReqID, Status: frame.NotFound}
	}
}

// once is one attempt: the own directory first, then the neighbours.
func (r *Relay) once(ctx context.Context, j *job, out *semreq.Response) {
	won, err := r.answerHere(ctx, j, out)
	if err != nil { // nobody waits for it any more, and its time is not to be held against a neighbour
		out.Status = worse(out.Status, frame.Deadline)
		return
	}
	if won && !j.parallel() {
		out.Route = []string{r.cfg.Gateway}
		return
	}
	r.forward(ctx, j, out, won)
	if len(out.Route) == 0 && len(out.Results) > 0 || len(out.Route) > 0 && out.Route[len(out.Route)-1] != r.cfg.Gateway {
		out.Route = append(out.Route, r.cfg.Gateway)
	}
}

// refuse makes the response of a request that was not worked on.
func (r *Relay) refuse(j *job, err error) *semreq.Response {
	out := &semreq.Response{ReqID: j.req.ReqID, Status: frame.CodeOf(err)}
	var over *overloaded
	if errors.As(err, &over) {
		out.Status, out.RetryAfterMS = frame.Overloaded, uint64(over.wait.Milliseconds())
	}
	if errors.Is(err, errLame) {
		out.RetryAfterMS = uint64(lameRetry.Milliseconds())
	}
	out.AddReason(r.cfg.Gateway, out.Status)
	level := slog.LevelInfo
	if j.from != "" { // a neighbour may be told no a hundred times a second
		level = slog.LevelDebug
	}
	r.log.Log(context.Background(), level, "semantic request refused", "from", j.from, "asker", j.asker.AIC, "err", err)
	return out
}
