package a2a

import (
	"context"
	"encoding/hex"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"agentgw/a2a/session"
	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/directory"
	"agentgw/internal/frame"
	"agentgw/internal/policy"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// Bounds of an agent's sessions and of what peers may ask.
const (
	MaxPeerSessions = 32  // with one peer
	MaxSessions     = 256 // together
	initRate        = 5   // SESSION_INIT a second from one peer
	initBurst       = 5
	resumeRate      = 4 // resuming SESSION_INITs a second to one peer: below what that takes
	ratesKept       = 1024
)

// Config of an [Agent].
type Config struct {
	AIC  string           // of this agent, canonical text
	SPKI func() wire.Hash // of its key, as of now
	// Keys finds the SAT keys (use 2) of the gateways of this agent's own domain.
	Keys frame.KeyFunc
	// DomainOf names the domain of an AIC; an agent knows its own domain, others may be empty.
	DomainOf token.DomainOf
	// CapBound says nil when a capability is bound here and enabled, else why not (65). May be nil: any is.
	CapBound func(capID string) error
	// Status says nil when the certificate of a peer is good as far as is known, else 0E or 68. May be nil.
	Status func(aic string) error
	// Used is told of an offer that has become a session: its gateway may offer another one. It must not block. May be nil.
	Used func(cti wire.ID)
	// Opened, Resumed, Updated and Ended are told of sessions that came to be, that go on over another connection, that allow something
	// else from now on, and of their ends. They may be called at the same time. May be nil.
	Opened  func(Info)
	Resumed func(Info)
	Updated func(Info)
	Ended   func(Info, frame.Code)
	// Handler does the work of the contexts that arrive. May be nil for an agent that only initiates.
	Handler Handler
	// Outcomes make delivery happen once. nil keeps them in memory.
	Outcomes Outcomes
	// Log gets what peers are not told. May be nil.
	Log *slog.Logger
}

// Agent is one agent identity with its offers and sessions.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	running sync.WaitGroup // sessions; added to under mu

	mu       sync.Mutex // guards what follows, and each session's binding; never held across I/O or a callback; above a session's own
	offers   *session.Offers
	tombs    session.Tombstones
	sessions map[wire.ID]*Session
	rates    *lru.Cache[string, *rate.Limiter] // SESSION_INITs of each peer
	paces    *lru.Cache[string, *rate.Limiter] // resuming ones to each peer
	revoked  []revocation                      // the last ones, the newest last
	closed   bool
}

// New makes an agent.
func New(cfg Config) *Agent {
	if cfg.Outcomes == nil {
		cfg.Outcomes = NewMemory()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	rates, _ := lru.New[string, *rate.Limiter](ratesKept) // fails on a size below 1 only
	paces, _ := lru.New[string, *rate.Limiter](ratesKept)
	return &Agent{
		cfg: cfg, log: cfg.Log.With("agent", cfg.AIC), offers: session.NewOffers(cfg.AIC),
		sessions: make(map[wire.ID]*Session), rates: rates, paces: paces,
	}
}

// revocation is remembered for as long as a token of before it could still open a session: one may be under way.
type revocation struct {
	at   time.Time
	ends func(aic string) bool
}

const (
	revocationKept = token.SATLifetime + 2*time.Minute // clocks may differ
	maxRevocations = 1024                              // more come in that time from a gateway that has lost its mind only
)

// noteRevocation is called with mu held.
func (a *Agent) noteRevocation(now time.Time, ends func(aic string) bool) {
	a.revoked = slices.DeleteFunc(a.revoked, func(r revocation) bool { return now.Sub(r.at) > revocationKept })
	if len(a.revoked) == maxRevocations {
		a.revoked = a.revoked[1:]
	}
	a.revoked = append(a.revoked, revocation{now, ends})
}

// stillGood says why a session must not begin, or go on, with a token: its peer was revoked since it was issued, within a second or
// after. It is called with mu held.
func (a *Agent) stillGood(peer string, issued uint64) error {
	for _, r := range a.revoked {
		if issued <= uint64(r.at.Unix()) && r.ends(peer) {
			return frame.Errorf(frame.Revoked, "%s was taken out of service when the session was about to begin", peer)
		}
	}
	return nil
}

// AIC is the agent's identity.
func (a *Agent) AIC() string { return a.cfg.AIC }

// Offer verifies a SAT that this agent's gateway offers, and remembers it until exp + 30 s. The code of its error is what the
// gateway gets as OFFER_ACK: 47 when there is no room, 60 to 64, 0C, 24 or 2B when the token is not good. It returns the cti.
func (a *Agent) Offer(sat []byte) (wire.ID, error) {
	claims, err := token.VerifySAT(sat, a.cfg.Keys, a.cfg.DomainOf)
	if err != nil {
		return claims.ID, err
	}
	if err := a.capBound(claims); err != nil {
		return claims.ID, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return claims.ID, a.offers.Add(claims, originOf(claims.Subject, a.cfg.DomainOf), time.Now())
}

// originOf counts an initiator's offers by its domain, or by its prefix where the domain is not known here.
func originOf(aic string, domainOf token.DomainOf) string {
	if d := domainOf(aic); d != "" {
		return d
	}
	return prefixOf(aic)
}

// Admits says whether a peer may finish a TLS handshake: an outstanding offer or a live session names it and its key.
func (a *Agent) Admits(remote session.Remote) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.offers.Admits(remote, time.Now()) {
		return true
	}
	for _, s := range a.sessions {
		if s.peer == remote.AIC && s.bound.peer == remote.SPKI {
			return true
		}
	}
	return false
}

// Answers says whether a server name (see [session.ServerName]) belongs to an offer or a session of this agent.
func (a *Agent) Answers(serverName string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.offers.Find(serverName, time.Now()); ok {
		return true
	}
	for sid := range a.sessions {
		if session.ServerName(sid) == serverName {
			return true
		}
	}
	return false
}

// Sessions are the live sessions, in no order.
func (a *Agent) Sessions() []*Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*Session, 0, len(a.sessions))
	for _, s := range a.sessions {
		out = append(out, s)
	}
	return out
}

// Capacity is the share of the sessions that this agent may have together that are free, 255 for all of them and 0 for none.
func (a *Agent) Capacity() uint8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint8(math.MaxUint8 * max(0, MaxSessions-len(a.sessions)) / MaxSessions)
}

// RevokePeer ends every session with an AIC, and drops its offers: its domain has taken it out of service.
func (a *Agent) RevokePeer(aic string, code frame.Code) {
	a.RevokePeers(func(id string) bool { return id == aic }, code)
}

// RevokePeers ends every session, and drops every offer, with the agents that ends names.
func (a *Agent) RevokePeers(ends func(aic string) bool, code frame.Code) {
	a.mu.Lock()
	a.offers.Drop(func(sat token.SAT) bool { return ends(sat.Subject) })
	a.noteRevocation(time.Now(), ends)
	a.mu.Unlock()
	a.revoke(code, "the other agent was suspended or revoked", func(s *Session) bool { return ends(s.peer) })
}

// RevokeSession ends one session, or drops its offer.
func (a *Agent) RevokeSession(sid wire.ID, code frame.Code) {
	a.mu.Lock()
	a.offers.Drop(func(sat token.SAT) bool { return sat.Sid == sid })
	a.mu.Unlock()
	a.revoke(code, "the session was revoked by the gateway", func(s *Session) bool { return s.sid == sid })
}

// RevokeIssuer ends every session, and drops every offer, whose token a gateway issued before a time (unix seconds).
func (a *Agent) RevokeIssuer(gateway string, floor uint64, code frame.Code) {
	old := func(issuer string, iat uint64) bool { return issuer == gateway && iat < floor }
	a.mu.Lock()
	a.offers.Drop(func(sat token.SAT) bool { return old(sat.Issuer, sat.Issued) })
	a.mu.Unlock()
	a.revoke(code, "the gateway that allowed the session is trusted no more", func(s *Session) bool { b := s.binding(); return old(b.issuer, b.issued) })
}

// RevokeAll ends every session, for a reason that those who wait for one are told.
func (a *Agent) RevokeAll(code frame.Code, why string) {
	a.revoke(code, why, func(*Session) bool { return true })
}

func (a *Agent) revoke(code frame.Code, why string, ends func(*Session) bool) {
	for _, s := range a.Sessions() {
		if ends(s) {
			a.log.Info("session revoked", "sid", hex.EncodeToString(s.sid[:4]), "peer", s.peer, "code", code.String())
			s.cut(code, why)
		}
	}
}

// Close ends every session with SHUTDOWN, refuses new ones, and returns after the goroutines of its sessions have ended.
// What runs is given until ctx ends, 5 s at most.
func (a *Agent) Close(ctx context.Context) {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	for _, s := range a.Sessions() {
		s.step(session.Close{Code: frame.Shutdown})
	}
	stop := context.AfterFunc(ctx, func() {
		for _, s := range a.Sessions() {
			s.step(session.ConnLost{Final: true})
		}
	})
	defer stop()
	a.running.Wait()
}

// capBound checks that the capability is bound here, and within the token's own scope.
func (a *Agent) capBound(sat token.SAT) error {
	owner, skill, err := directory.ParseCapID(sat.Cap)
	if err != nil || owner != a.cfg.AIC {
		return frame.Errorf(frame.CapUnbound, "%s is not a capability of %s", sat.Cap, a.cfg.AIC)
	}
	if !policy.Covers(sat.Scope, []string{policy.ScopeSkillInvoke + skill}) {
		return frame.Errorf(frame.Scope, "SAT's scope %q does not cover its own capability %s", sat.Scope, sat.Cap)
	}
	if a.cfg.CapBound == nil {
		return nil
	}
	return a.cfg.CapBound(sat.Cap)
}

// mayInit is an error (0F) where a peer asks too often; an update with a SAT counts as a SESSION_INIT.
func (a *Agent) mayInit(aic string) error {
	if !a.limiter(a.rates, aic, initRate, initBurst).Allow() {
		return frame.Errorf(frame.RateLimited, "more than %d SESSION_INIT a second", initRate)
	}
	return nil
}

// pace waits until one more session with a peer may be resumed: after a re-key, or when a path breaks, all that there are want it at once.
func (a *Agent) pace(ctx context.Context, aic string) error {
	return a.limiter(a.paces, aic, resumeRate, resumeRate).Wait(ctx)
}

func (a *Agent) limiter(of *lru.Cache[string, *rate.Limiter], aic string, perSecond rate.Limit, burst int) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := of.Get(aic)
	if !ok {
		l = rate.NewLimiter(perSecond, burst)
		of.Add(aic, l)
	}
	return l
}

// checkSAT runs the target's checks on the SAT of a SESSION_INIT, or of an update as if it were one, in the order of the specification;
// it keeps no state.
func (a *Agent) checkSAT(m *wire.SessionInit, remote session.Remote) (token.SAT, token.Presented, error) {
	sat, p, err := session.CheckInitToken(m, a.cfg.AIC, remote, a.cfg.Keys, a.cfg.DomainOf, time.Now())
	if err != nil {
		return sat, p, err
	}
	a.mu.Lock()
	err = a.offers.Outstanding(sat.ID, p, time.Now())
	a.mu.Unlock()
	if err != nil {
		return sat, p, err
	}
	if err := a.capBound(sat); err != nil {
		return sat, p, err
	}
	return sat, p, a.status(remote.AIC)
}

func (a *Agent) status(peer string) error {
	if a.cfg.Status == nil {
		return nil
	}
	return a.cfg.Status(peer)
}

// register uses up the offer and makes the session known, or refuses; the one step that keeps state. It counts the session's goroutine.
func (a *Agent) register(s *Session, sat token.SAT, p token.Presented) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if err := a.room(s.peer); err != nil {
		return err
	}
	if _, live := a.sessions[sat.Sid]; live || a.tombs.Has(sat.Sid, now) {
		return frame.Errorf(frame.SessionUnknown, "the session of this sid lives or has ended already")
	}
	if err := a.stillGood(s.peer, sat.Issued); err != nil {
		return err
	}
	if err := a.consume(sat, p); err != nil {
		return err
	}
	a.sessions[sat.Sid] = s
	a.running.Add(1)
	return nil
}

// consume is called with mu held.
func (a *Agent) consume(sat token.SAT, p token.Presented) error {
	if err := a.offers.Consume(sat.ID, p, time.Now()); err != nil {
		return err
	}
	if a.cfg.Used != nil {
		a.cfg.Used(sat.ID)
	}
	return nil
}

// room is called with mu held.
func (a *Agent) room(peer string) error {
	if a.closed {
		return frame.Errorf(frame.Shutdown, "this agent is stopping")
	}
	if len(a.sessions) >= MaxSessions {
		return frame.Errorf(frame.Overloaded, "%d sessions are open", len(a.sessions))
	}
	n := 0
	for _, s := range a.sessions {
		if s.peer == peer {
			n++
		}
	}
	if n >= MaxPeerSessions {
		return frame.Errorf(frame.LimitExceeded, "%d sessions with %s are open", n, peer)
	}
	return nil
}

// forget says whether the session was known: a refused one may bear the sid of one that lives.
func (a *Agent) forget(s *Session, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sessions[s.sid] != s {
		return false
	}
	delete(a.sessions, s.sid)
	a.tombs.Add(s.sid, until, time.Now())
	return true
}

func (a *Agent) find(sid wire.ID) *Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions[sid]
}
