// Package registrar is the gateway's side towards its agents (ALPN dmsc-ctl/1): it enrols them, keeps them attached, passes on
// their requests, and shows them the sessions that others want with them.
//
// A peer whose certificate no CA signed may do one thing: present a token, once, in ten seconds (ENROL). Everyone else is an
// agent of this domain with a live entry in this directory; gateways and agents of other domains do not get past the
// handshake.
//
// A [Registrar] is safe for concurrent use. Each connection has one reader and one writer; the writer's queue is bounded,
// and an agent that does not drain it loses its connection.
// Source: seed 002, section 5.1; cdsp/PROTOCOL.md, "Agent and gateway".
package registrar

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/registry"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Directory is where registrations end.
type Directory interface {
	Get(id string) (directory.Entry, bool)
	// Reserve takes an AIC that nobody has had; directory.ErrExists when somebody had.
	Reserve(ctx context.Context, id string) error
	// Register commits an entry, with doc as its ACS; it is durable and visible when it returns. It returns what was stored. In the same
	// commit is what with changes, whose error leaves everything as it was; nil changes nothing.
	Register(ctx context.Context, e directory.Entry, doc *acs.ACS, with func(directory.Tx) error) (directory.Entry, error)
	// Update commits the next version of an entry; directory.ErrConflict when it is not the one that e was read from. A doc of nil leaves
	// the ACS as it is. It returns what was stored.
	Update(ctx context.Context, e directory.Entry, doc *acs.ACS) (directory.Entry, error)
	// Withdraw ends an entry on its agent's word; a tombstone stays.
	Withdraw(ctx context.Context, id, reason string) error
	// Owe remembers that the AMC must still be told of a withdrawal.
	Owe(ctx context.Context, id, reason string) error
	// Paid says that it has been told.
	Paid(ctx context.Context, id string) error
	// Adopt commits the entry of an agent that is at home here from now on, one above e.Version; directory.ErrExists when it has ended
	// here, directory.ErrConflict when a higher version is here. It returns what was stored.
	Adopt(ctx context.Context, e directory.Entry, doc *acs.ACS) (directory.Entry, error)
	// MovedTo is the other gateway of the domain that is the home of an agent with an entry here, and its version there; zero for this one.
	MovedTo(id string) registry.Home
	// Moved says that another one is its home now; it is durable when it returns.
	Moved(ctx context.Context, id string, to registry.Home) error
	// Adopted is the AICs of the agents that were at home elsewhere before they were here.
	Adopted() []string
	SetAlive(id string, alive bool)
	// SetCapacity notes how many of its places an attached agent has free, of 255.
	SetCapacity(id string, free uint8)
}

// Codes says how AICs of this domain are made.
type Codes struct {
	Prefix, ARSP, Vendor string
	Salt                 []byte
}

// Config of a registrar.
type Config struct {
	Domain      string
	Gateway     aic.AIC
	Certificate func() tls.Certificate
	Codes       Codes
	AMC         amc.Center
	Directory   Directory
	Trust       *identity.Trust
	Statuses    *identity.Statuses
	// Answer is the relay: it answers one request of an agent.
	Answer      func(ctx context.Context, a Agent, r *semreq.Request) *semreq.Response
	Lab         bool
	SessionLife time.Duration
	EnrolRate   float64 // a second from one address, 5
	UpdateRate  float64 // ACS_PUTs a second of one agent, 1, after a burst of five times that
	// Gateways serves the gateways of the domain, where this process is their AMC; nil elsewhere.
	Gateways Gateways
	// NoAgents says that this process is an AMC alone: agents enrol and attach at a gateway.
	NoAgents bool
	// Roam says that agents which were at home at another gateway of the domain may attach here; nil: none may.
	Roam *Roam
	// Audit keeps a record; it is on the disk when the call returns.
	Audit func(ctx context.Context, kind string, data any) error
	// AuditSoon keeps a record that may be lost with the power of the next second.
	AuditSoon func(kind string, data any)
	// Observe hears that an agent attached, detached or enrolled ([Attached] and so on); it may not block. nil: nobody does.
	Observe func(what Happening, aic, text string)
	Log     *slog.Logger
}

// Admitter is an AMC in this process, over the same database as the directory: it decides, reserves and issues in the commit that has the
// entry. ok is false where the steps are due one by one.
type Admitter interface {
	Admit(ctx context.Context, q *arp.AuthzRequest, csr *x509.CertificateRequest, propose amc.Propose, enter amc.Enter) (c *arp.Credential, ok bool, err error)
}

// Gateways is the AMC as gateways on other hosts see it.
type Gateways interface {
	// Serve runs the connection of a gateway or of another AMC that the handshake has verified, until it ends.
	Serve(ctx context.Context, c *endpoint.Conn, gateway string)
	// EnrolGateway admits a gateway that joins the domain.
	EnrolGateway(ctx context.Context, peer [32]byte, from netip.Addr, m *arp.Enrol) (*arp.Enrolled, error)
	// RenewLate renews the certificate of a gateway after its end.
	RenewLate(ctx context.Context, proved [32]byte, m *arp.Renew) (*arp.Credential, error)
}

// Agent is an attached agent as its connection proves it.
type Agent struct {
	AIC   string
	SPKI  [32]byte
	Scope []string // of the grant that it attached with
}

// Registrar serves agents. Create it with [New].
type Registrar struct {
	cfg    Config
	log    *slog.Logger
	enrols *lru.Cache[netip.Prefix, *rate.Limiter]
	// complaints bounds the lines that agents can cause.
	complaints *rate.Limiter

	slack time.Duration // [expirySlack], but in tests
	lame  atomic.Bool   // no agent is taken in

	mu       sync.Mutex // guards attached and conns, and get-and-add of enrols
	attached map[string]*attachment
	conns    map[string]int // connections of each AIC
}

// maxConns is how many connections one agent may have: the one that lives, and those that take its place.
const maxConns = 4

const enrolLimitersKept = 8192

// New makes a registrar.
func New(cfg Config) *Registrar {
	if cfg.EnrolRate == 0 {
		cfg.EnrolRate = 5
	}
	if cfg.UpdateRate == 0 {
		cfg.UpdateRate = 1
	}
	enrols, _ := lru.New[netip.Prefix, *rate.Limiter](enrolLimitersKept) // fails on a size below 1 only
	if cfg.Audit == nil {
		cfg.Audit = func(context.Context, string, any) error { return nil }
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Happening, string, string) {}
	}
	if cfg.AuditSoon == nil {
		cfg.AuditSoon = func(string, any) {}
	}
	return &Registrar{
		cfg: cfg, log: cfg.Log, enrols: enrols, slack: expirySlack, complaints: rate.NewLimiter(1, 20),
		attached: map[string]*attachment{}, conns: map[string]int{},
	}
}

// Face is the protocol that the registrar answers.
func (r *Registrar) Face() endpoint.Face {
	return endpoint.Face{
		ALPN: frame.ALPNControl,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: r.cfg.Certificate(), Verify: r.verify}, nil
		},
		Serve: r.serve,
	}
}

// verify admits agents of the own domain that have a live entry here, and strangers with a certificate over their own key,
// who may only enrol.
func (r *Registrar) verify(cs tls.ConnectionState) error {
	if chain := cs.PeerCertificates; identity.IsSelfSigned(chain) && namesItself(chain[0]) {
		return nil
	}
	return r.cfg.Trust.Verify(x509.ExtKeyUsageClientAuth, r.role)(cs)
}

// namesItself says whether a certificate has itself as its issuer. Behind the handshake that is a stranger, whose signature need not be
// verified again: an agent's has an issuer, and one that had none would have the rights of a stranger.
func namesItself(leaf *x509.Certificate) bool { return bytes.Equal(leaf.RawIssuer, leaf.RawSubject) }

func (r *Registrar) role(p identity.Peer) error {
	if p.Domain != r.cfg.Domain {
		return frame.Errorf(frame.IdentityMismatch, "%s is of the domain %s: only agents of %s may speak %s here", p.AIC, p.Domain, r.cfg.Domain, frame.ALPNControl)
	}
	if r.isMember(p.Bundle, p.AIC) {
		return r.cfg.Statuses.Check(string(p.AIC), p.Serial)
	}
	if p.Bundle.Source != identity.Own {
		return frame.Errorf(frame.IdentityMismatch, "%s is an agent of another AMC of the domain, %s: it attaches at a gateway of that one", p.AIC, p.Bundle.Issuer)
	}
	e, ok := r.cfg.Directory.Get(string(p.AIC))
	switch {
	case r.cfg.Roam != nil && (!ok || e.State.Offered()): // it may be at home elsewhere, or has been; ATTACH tells
	case !ok || e.State.Terminal():
		return frame.Errorf(frame.IdentityMismatch, "%s is not registered with this gateway", p.AIC)
	case e.State == directory.Suspended:
		return frame.Errorf(frame.CertStatus, "%s is suspended", p.AIC)
	case e.Provenance.SPKI != p.SPKI:
		return frame.Errorf(frame.IdentityMismatch, "%s presents a key that is not the one it is registered with", p.AIC)
	}
	return r.cfg.Statuses.Check(string(p.AIC), p.Serial)
}

// isMember says whether a verified peer of this domain, where this process is an AMC, is a gateway or another AMC.
func (r *Registrar) isMember(b *identity.Accepted, id aic.AIC) bool {
	other := b.Source != identity.Own && b.Issuer == string(id) // one that speaks in its own name, with no gateway beside it
	return r.cfg.Gateways != nil && id != r.cfg.Gateway && (other || b.IsGateway(string(id)))
}

func (r *Registrar) serve(ctx context.Context, c *endpoint.Conn) {
	leaf := c.PeerLeaf()
	if namesItself(leaf) {
		r.serveStranger(ctx, c)
		return
	}
	id, err := identity.AICOf(leaf)
	if err != nil { // the handshake verified it
		return
	}
	if b := r.cfg.Trust.Of(string(id)); b != nil && r.isMember(b, id) {
		r.cfg.Gateways.Serve(ctx, c, string(id))
		return
	}
	r.serveAgent(ctx, c, Agent{AIC: string(id), SPKI: c.PeerSPKI()})
}

// allowEnrol takes a token of the bucket of one customer's network: an IPv4 address, an IPv6 /64.
func (r *Registrar) allowEnrol(addr netip.Addr) bool {
	from := network(addr)
	r.mu.Lock()
	defer r.mu.Unlock()
	lim, ok := r.enrols.Get(from)
	if !ok {
		lim = rate.NewLimiter(rate.Limit(r.cfg.EnrolRate), max(1, int(2*r.cfg.EnrolRate)))
		r.enrols.Add(from, lim)
	}
	return lim.Allow()
}

// network is what one customer has of the Internet: an IPv4 address, an IPv6 /64.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}
