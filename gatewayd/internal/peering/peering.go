// Package peering is who this gateway's neighbours are: their policy rows and trust, the connections to them, the digests that
// they exchange, and the requests that cross over.
//
// The contract: a connection counts only after the handshake has shown a gateway of a peer domain that a policy row names, on
// ALPN dmsc-agw/1, and its HELLO has arrived. Digests grant nothing: they only say whom to ask. A neighbour may introduce
// another domain's bundle where its row says so, and no further.
//
// A [Peering] is safe for concurrent use. Dialling backs off from 0.5 s to 8 s with jitter; one connection a peer
// domain is kept up, whoever made it.
// Source: seed 002, section 4.3 (Trust Policy) and 5.2; cdsp/PROTOCOL.md.
package peering

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"agentgw/cdsp"
	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/relay"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Row is one policy row.
type Row struct {
	Domain      string
	Role        string // what the peer is to us: peer, customer, provider
	Addresses   []string
	Discover    bool // dials what [Config.Find] finds, then Addresses
	Bundle      []byte
	Fingerprint [32]byte // zero pins to the bundle's own signer
	Gateways    []string
	MayQuery    []string
	Transit     bool
	Disclose    wire.Level
	Introduces  []string
	AskFirst    bool // what it introduces waits for the operator's approval
	Upstream    bool
	Explain     bool   // its refusals are told to our agents as they are
	BundleURL   string // where newer bundles are fetched; the caller's business
}

// Config of a peering.
type Config struct {
	Gateway, Domain string
	Certificate     func() tls.Certificate
	Trust           *identity.Trust
	Signer          func() frame.Signer // key of use 1, as of now
	// KeepPin remembers over restarts what was last accepted of an introduced domain; nil forgets it.
	KeepPin func(domain string, last *identity.Accepted)
	// KeepBundle remembers over restarts the newest bundle of a configured peer, with the operator's copy that it descends from
	// ([identity.Accepted.Root]); nil forgets it. KeptBundle is what was remembered. Both may be nil: for tests.
	KeepBundle func(domain string, b *identity.Accepted)
	KeptBundle func(domain string) (raw []byte, root [32]byte)
	// KeepIssuer remembers over restarts the bundle of a further issuer of a domain that is trusted; nil forgets it.
	KeepIssuer func(b *identity.Accepted)
	// Statuses are the newest status lists; whoever makes our own applies them there and calls StatusChanged. nil checks no
	// status: for tests.
	Statuses *identity.Statuses
	// OnStanding hears of agents whose state another domain's list has changed; nil ignores it. It may not block for long.
	OnStanding func([]identity.Standing)
	// OnDistrusted hears that the bundle of an issuer is believed no more: what runs with its agents ends. nil ignores it.
	OnDistrusted func(*identity.Accepted)
	// Mesh says that the gateways of the own domain are neighbours too: those that SetSiblings names are dialled, and any that the domain's
	// bundle names is let in.
	Mesh bool
	// OnMoved hears from another gateway of the own domain that an agent is at home there; Moves is what such a gateway is told when it has
	// connected. nil: agents do not move.
	OnMoved func(gateway string, m *wire.Moved)
	Moves   func() []wire.Moved
	// Holds says whether this gateway is among those of its domain that are to be connected to a peer domain; nil: it is. It must not block.
	Holds func(domain string) bool
	// Find is the addresses of a domain's gateways by DNS, in the order to dial, and may have both some and an error. It grants nothing: who
	// answers there is judged as anybody. It bounds its own time. nil finds none.
	Find func(ctx context.Context, domain string) ([]string, error)
	// Answer is the relay: it answers one request of a neighbour.
	Answer func(ctx context.Context, n relay.Neighbour, r *semreq.Request) *semreq.Response
	// Kept is what neighbours told before this start, and Keep writes down what they tell, see [cdsp.Config]. Keep may be nil: it is forgotten.
	Kept []replica.Kept
	Keep func(replica.Learned) error
	// Observe hears of what a person who watches may want to see, see [cdsp.Config]; Watched says whether one does. Both may be nil.
	Observe func(replica.Effect)
	Watched func() bool
	// Audit keeps a record; it is on the disk when the call returns. nil keeps none.
	Audit func(ctx context.Context, kind string, data any) error
	Log   *slog.Logger
}

// Peering joins neighbours. Create it with [New], run it with Run.
type Peering struct {
	cfg    Config
	log    *slog.Logger
	routes atomic.Pointer[routes]
	ready  chan struct{} // closed when node and ep are set

	changingLame sync.Mutex // one change of lame and drained at a time; taken before mu

	mu       sync.Mutex // guards the rest
	node     *cdsp.Node
	ep       *endpoint.Endpoint
	rows     map[string]*peer    // by domain
	links    map[string]*link    // by gateway, up ones
	siblings map[string]*sibling // by gateway: the others of the own domain that are to be connected
	ctx      context.Context
	tasks    sync.WaitGroup
	// penalties counts what neighbours did that only a fault or a lie explains.
	penalties map[string]uint64
	// paces bounds how often each issuer's lists are taken, and passed on.
	paces map[string]*rate.Limiter
	// heldOfOurs is what each connected gateway said last that it holds of our own issuer.
	heldOfOurs map[string]wire.TrustVersion
	lame       bool            // towards everybody
	drained    map[string]bool // domains and gateways towards which this gateway is a lame duck

	complaints *rate.Limiter

	news   news
	asked  asked
	wanted chan string // domains of which digests came under an unknown key; what does not fit is asked for with the next
}

// peer is one policy row with its dialler. It is not changed once made: a new row makes a new peer.
type peer struct {
	Row
	*dialler
}

// dialler keeps a peer domain connected; it outlives a change of the row that leaves the addresses as they are.
type dialler struct {
	stop    context.CancelFunc
	lastErr atomic.Pointer[string]
	wake    chan struct{} // a connection of this peer has ended
	dials   bool          // it has somewhere to dial
	atOnce  atomic.Bool   // the next dial does not wait
}

// New makes a peering.
func New(cfg Config) *Peering {
	p := &Peering{
		cfg: cfg, log: cfg.Log, ready: make(chan struct{}), rows: map[string]*peer{}, links: map[string]*link{}, siblings: map[string]*sibling{}, drained: map[string]bool{}, penalties: map[string]uint64{}, heldOfOurs: map[string]wire.TrustVersion{}, paces: map[string]*rate.Limiter{},
		complaints: rate.NewLimiter(1, 20), asked: newAsked(), wanted: make(chan string, 64),
	}
	p.routes.Store(&routes{})
	return p
}

// Run exchanges digests until ctx ends; then it says goodbye to the neighbours and returns when their connections are
// closed. epoch is that of this start's digests, above any used before.
func (p *Peering) Run(ctx context.Context, ep *endpoint.Endpoint, epoch uint64) {
	node := p.newNode(epoch)
	p.mu.Lock()
	p.node, p.ep, p.ctx = node, ep, ctx
	p.mu.Unlock()
	close(p.ready)
	p.tasks.Go(func() { p.pollTrust(ctx) })
	if err := node.Run(ctx); err != nil {
		p.log.Error("digest synchronisation", "err", err)
	}
	p.mu.Lock()
	for _, r := range p.rows {
		r.stop()
	}
	for _, s := range p.siblings {
		s.stop()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

// SetRows replaces the policy rows. A row whose bundle is refused is an error that names it; then the rows stay as they were.
func (p *Peering) SetRows(ctx context.Context, rows []Row) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := p.configure(rows); err != nil {
		return err
	}
	told := rows
	if p.cfg.Mesh {
		rows = append(slices.Clone(rows), p.internal())
	}
	// The digest machine comes first: a connection that is made under a new row finds its neighbour there.
	if err := p.node.SetNeighbours(ctx, neighbours(rows)); err != nil {
		return err
	}
	p.mu.Lock()
	next := map[string]*peer{}
	var gone []string
	for _, r := range rows {
		old := p.rows[r.Domain]
		if old != nil && slices.Equal(old.Addresses, r.Addresses) && old.Discover == r.Discover {
			next[r.Domain] = &peer{r, old.dialler}
			continue
		}
		if old != nil {
			old.stop()
		}
		next[r.Domain] = p.startPeer(r)
	}
	for domain, old := range p.rows {
		if next[domain] == nil {
			old.stop()
			gone = append(gone, domain)
		}
	}
	rowsBefore := p.rows
	p.rows = next
	p.mu.Unlock()
	before := p.cfg.Trust.All()
	p.recordRows(ctx, rowsBefore, told)
	for _, domain := range gone {
		p.cfg.Trust.Forget(domain)
		if p.cfg.KeepBundle != nil {
			p.cfg.KeepBundle(domain, nil)
		}
	}
	for _, introduced := range p.cfg.Trust.Reconsider(p.introducedBy) {
		p.cfg.KeepPin(introduced, nil)
		p.record(ctx, kindDropped, map[string]any{"domain": introduced})
	}
	p.Distrusted(before)
	p.approveUnasked()
	p.node.BundleAccepted()
	return nil
}

// TrustChanged says that the own bundle, or which bundles are handed on, is another one than before.
func (p *Peering) TrustChanged() {
	select {
	case <-p.ready:
		p.node.BundleAccepted()
	default: // the neighbours are told when their sessions begin
	}
}

// configure gives the trust store the bundles of all rows, or of none that is new.
func (p *Peering) configure(rows []Row) error {
	var errs []error
	fail := func(r Row, err error) {
		errs = append(errs, frame.Errorf(frame.TrustDenied, "peer %s: %w", r.Domain, err))
	}
	for _, r := range rows {
		if b, err := identity.ParseBundle(r.Bundle); err != nil {
			fail(r, err)
		} else if b.Domain != r.Domain {
			fail(r, frame.Errorf(frame.TrustDenied, "the bundle is of %s", b.Domain))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, r := range rows {
		if _, err := p.cfg.Trust.Configure(r.Bundle, r.Fingerprint); err != nil {
			fail(r, err)
		}
	}
	for _, r := range rows {
		switch {
		case len(errs) == 0:
			p.cfg.KeepPin(r.Domain, nil) // the operator's word replaces what was once introduced
			p.restore(r.Domain)
		case p.row(r.Domain) == nil:
			p.cfg.Trust.Forget(r.Domain)
		}
	}
	return errors.Join(errs...)
}

// introducedBy is what a domain may introduce by its row.
func (p *Peering) introducedBy(domain string) []string {
	if r := p.row(domain); r != nil {
		return r.Introduces
	}
	return nil
}

// neighbours is the rows as the digest machine sees them.
func neighbours(rows []Row) []replica.Neighbour {
	var out []replica.Neighbour
	for _, r := range rows {
		role, _ := wire.ParseRole(r.Role) // the configuration was checked
		out = append(out, replica.Neighbour{
			Domain: r.Domain, Gateways: r.Gateways, Role: role, ExportTransit: r.Transit, ImportTransit: true, Level: r.Disclose,
		})
	}
	slices.SortFunc(out, func(a, b replica.Neighbour) int { return strings.Compare(a.Domain, b.Domain) })
	return out
}

// row is the policy row of a domain, nil without one.
func (p *Peering) row(domain string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows[domain]
}

// Face is the protocol between gateways.
func (p *Peering) Face() endpoint.Face {
	return endpoint.Face{
		ALPN: frame.ALPNGateway,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{
				Certificate: p.cfg.Certificate(), Verify: p.cfg.Trust.Verify(x509.ExtKeyUsageClientAuth, p.role),
			}, nil
		},
		Serve: func(ctx context.Context, c *endpoint.Conn) { p.serve(ctx, c, false, p.cfg.Certificate().Leaf) },
	}
}

// role admits gateways that a policy row names, and nobody else: no agent, no gateway of an introduced domain.
func (p *Peering) role(who identity.Peer) error {
	r := p.row(who.Domain)
	switch {
	case r == nil:
		return frame.Errorf(frame.TrustDenied, "no policy row for %s: add it with `gatewayd peer add`", who.Domain)
	case !who.Bundle.IsGateway(string(who.AIC)):
		return frame.Errorf(frame.IdentityMismatch, "%s is not a gateway of %s: agents do not speak %s", who.AIC, who.Domain, frame.ALPNGateway)
	case len(r.Gateways) > 0 && !slices.Contains(r.Gateways, string(who.AIC)):
		return frame.Errorf(frame.IdentityMismatch, "%s is not among the gateways that the policy row of %s names", who.AIC, who.Domain)
	case p.cfg.Statuses != nil:
		return p.cfg.Statuses.Check(string(who.AIC), who.Serial)
	}
	return nil
}

// Penalise implements relay.Network.
func (p *Peering) Penalise(gateway, why string) {
	p.mu.Lock()
	if len(p.penalties) < maxCounted || p.penalties[gateway] > 0 {
		p.penalties[gateway]++
	}
	count := p.penalties[gateway]
	p.mu.Unlock()
	if p.complaints.Allow() { // a flood of faults shall not be a flood of lines
		p.log.Warn("neighbour penalised", "gateway", gateway, "why", why, "count", count)
		if p.cfg.Observe != nil {
			p.cfg.Observe(replica.Alarm{Gateway: gateway, Text: "penalised: " + why})
		}
	}
}

const maxCounted = 4096

// DomainOf implements relay.Network.
func (p *Peering) DomainOf(id string) string { return p.cfg.Trust.DomainOf(id) }

// MayQuery implements relay.Network: the scope for requests that originate in a domain. A domain without a row of its own has
// what the peers that introduced it have.
func (p *Peering) MayQuery(domain string) []string {
	if domain == p.cfg.Domain {
		return []string{"*"}
	}
	if r := p.row(domain); r != nil {
		return r.MayQuery
	}
	a := p.cfg.Trust.Domain(domain)
	if a == nil {
		return nil
	}
	for _, by := range a.By {
		if r := p.row(by); r != nil {
			return r.MayQuery
		}
	}
	return nil
}

// ResultKeys implements relay.Network.
func (p *Peering) ResultKeys() frame.KeyFunc { return p.cfg.Trust.Keys(identity.UseDigest) }

// RATKeys implements relay.Network.
func (p *Peering) RATKeys() frame.KeyFunc { return p.cfg.Trust.Keys(identity.UseRAT) }

// SATKeys implements relay.Network.
func (p *Peering) SATKeys() frame.KeyFunc { return p.cfg.Trust.Keys(identity.UseSAT) }

const dialTime = 5 * time.Second
