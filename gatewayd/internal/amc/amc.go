// Package amc is the Agent Management Center as a role of gatewayd: the central authentication service that decides who may
// be registered, the issue and renewal of credentials, their suspension and revocation, and the status lists that tell
// everybody.
//
// The contract: a grant names one key, vendor, ontology and gateway. Issuance is fenced: [AMC.Issue] signs only what an
// unused grant names, and never for a second agent under one AIC. An AIC that was issued is never issued again, whatever
// becomes of its agent. What has been decided is on the disk, and in the audit log, before it is answered. Only the SHA-256 of a
// token's secret is kept.
//
// Safe for concurrent use. Errors carry codes, and their text is for the own domain's people.
// Source: seed 002, sections 4.2 and 5.1; cdsp/PROTOCOL.md, "Agent and gateway" and "Status".
package amc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// Center is what a gateway asks of its AMC, in this process or on another host.
type Center interface {
	// Check says early and cheaply whether a token could still enrol a key; it changes nothing. nil where only Authorise can tell.
	Check(ctx context.Context, tokenHash []byte, spki [32]byte) error
	// Authorise decides about a registration. The response is a grant, or 4B; a denial is an error.
	Authorise(ctx context.Context, q *arp.AuthzRequest) (*arp.AuthzResponse, error)
	// Issue signs the first credential of a granted agent (JTI), or the next one of a registered agent.
	Issue(ctx context.Context, gateway string, m *arp.Renew) (*arp.Credential, error)
	// Withdraw says that an agent has left for good.
	Withdraw(ctx context.Context, gateway string, m *arp.Deregister) error
}

// Tx is one change of the records.
type Tx = directory.Tx

// Store keeps the records. When Transact returns nil the change is on the disk.
type Store interface {
	Transact(ctx context.Context, change func(Tx) error) error
	Records(prefix string, f func(name string, value []byte) error) error
}

// Config of an AMC.
type Config struct {
	Domain   string
	Issuer   aic.AIC                   // this AMC's own AIC
	Prefixes []string                  // prefix.version.arsp of the AICs that it issues for
	Signer   pki.Signer                // the signing side; the built-in CA is one
	Grant    func() frame.Signer       // key of use 6
	Status   func() frame.Signer       // key of use 4
	Bundle   func() *identity.Accepted // of this AMC, as of now
	Store    Store
	Deciders []Decider
	// Publish is handed every new status list, in order. It must not block.
	Publish func(lists [][]byte)
	// Audit keeps a record; it is on the disk when the call returns. nil keeps none.
	Audit func(ctx context.Context, kind string, data any) error
	// AuditSoon keeps a record that the caller's own, later and synced one covers: the chain has one order, so that what is synced
	// later syncs it too. It is for the decision and the first credential of an enrolment at the own gateway, whose registrar records the
	// registration before it answers: one sync instead of three. nil: this AMC answers hosts that record elsewhere, and Audit is used.
	AuditSoon   func(kind string, data any) error
	Gateway     aic.AIC       // of this process, whose enrolments AuditSoon is for; other gateways' are synced here
	AgentLife   time.Duration // of an agent's credential; default 24 h
	GatewayLife time.Duration // of a gateway's; default 72 h
	// StatusLife is how long a status list counts; a third of it is how often a new one is made. Default, and at most, 15 minutes.
	StatusLife time.Duration
	Now        func() time.Time
	Log        *slog.Logger
}

// AMC authorises, issues and revokes. Create it with [New], and run it with Run.
type AMC struct {
	cfg   Config
	certs certs

	setting sync.Mutex // one change of a state at a time, in the records and in bad

	mu  sync.Mutex        // guards the rest; held while a status list is made
	bad map[string]*agent // who is suspended or revoked, by AIC
	old map[string]supers // superseded certificates, by serial number
	seq uint64            // of the newest status list
}

// supers is a certificate that a newer key has made void.
type supers struct {
	since, notAfter uint64
}

// New loads what an AMC knows.
func New(cfg Config) (*AMC, error) {
	if cfg.AgentLife == 0 {
		cfg.AgentLife = pki.DefaultLimits().Agent
	}
	if cfg.GatewayLife == 0 {
		cfg.GatewayLife = pki.DefaultLimits().Gateway
	}
	if cfg.StatusLife == 0 {
		cfg.StatusLife = identity.MaxStatusLife
	}
	if cfg.Audit == nil {
		cfg.Audit = func(context.Context, string, any) error { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &AMC{cfg: cfg, bad: map[string]*agent{}, old: map[string]supers{}}
	a.certs = certs{by: map[string]held{}, bad: map[string]standing{}}
	err := cfg.Store.Records(prefixAgent, func(name string, value []byte) error {
		ag := new(agent)
		if err := frame.Unmarshal(value, ag); err != nil {
			return fmt.Errorf("record %s: %w", name, err)
		}
		a.note(name[len(prefixAgent):], ag)
		return nil
	})
	if err == nil {
		a.seq, err = a.loadSeq()
	}
	if err != nil {
		return nil, fmt.Errorf("load the records of the AMC: %w", err)
	}
	return a, nil
}

// The names of the records.
const (
	prefixToken   = "tok/"
	prefixAgent   = "amc/agent/"
	prefixGrant   = "amc/grant/"
	prefixPending = "amc/pend/"
	nameStatus    = "amc/status/seq"
)

// agent is what an AMC keeps of one AIC, for good.
type agent struct {
	SPKI       []byte         `cbor:"1,keyasint"`
	Gateway    string         `cbor:"2,keyasint"` // that asked for it
	Attributes arp.Attributes `cbor:"3,keyasint"`
	Scope      []string       `cbor:"4,keyasint"`
	Skills     []string       `cbor:"5,keyasint,omitempty"`
	Grant      []byte         `cbor:"6,keyasint"` // jti
	GrantExp   uint64         `cbor:"7,keyasint"`
	Decider    string         `cbor:"8,keyasint"`
	State      identity.State `cbor:"9,keyasint,omitempty"`
	Since      uint64         `cbor:"10,keyasint,omitempty"` // of the state, unix seconds
	Reason     uint8          `cbor:"11,keyasint,omitempty"` // RFC 5280
	Certs      []certificate  `cbor:"12,keyasint,omitempty"` // not ended yet, and the newest
	Why        string         `cbor:"13,keyasint,omitempty"` // the operator's words for the state
	Class      uint8          `cbor:"14,keyasint,omitempty"` // ClassAgent or ClassGateway
	DNSNames   []string       `cbor:"15,keyasint,omitempty"` // of a gateway
}

// certificate is one that was issued.
type certificate struct {
	_          struct{} `cbor:",toarray"`
	Serial     []byte   // 16 bytes
	NotAfter   uint64
	Superseded uint64 // since when a newer key has made it void; 0: not
}

// newest is the certificate that ends last, nil without one.
func (g *agent) newest() *certificate {
	var out *certificate
	for i := range g.Certs {
		if c := &g.Certs[i]; out == nil || c.NotAfter >= out.NotAfter {
			out = c
		}
	}
	return out
}

// isOf says whether a gateway may speak for an agent: it is the one that the agent was registered at, or the gateway is that
// very member itself.
func (g *agent) isOf(gateway, id string) bool { return g.Gateway == gateway || gateway == id }

// maxCerts is how many certificates of one agent are alive at once: all are remembered, for CRL, OCSP and the status list.
const maxCerts = 32

func getAgent(tx Tx, id string) (*agent, error) {
	raw, err := tx.Get(prefixAgent + id)
	if errors.Is(err, directory.ErrNotFound) {
		return nil, frame.Errorf(frame.NotFound, "%s was not issued by this AMC", id)
	}
	if err != nil {
		return nil, err
	}
	g := new(agent)
	if err := frame.Unmarshal(raw, g); err != nil {
		return nil, fmt.Errorf("record of %s: %w", id, err)
	}
	return g, nil
}

func put(tx Tx, name string, v any) error {
	raw, err := frame.Marshal(v)
	if err != nil {
		return fmt.Errorf("record %s: %w", name, err)
	}
	tx.Set(name, raw)
	return nil
}

// transact runs a change whose outcome the caller waits for: it must not run on after the caller has given up.
func (a *AMC) transact(ctx context.Context, change func(Tx) error) error {
	return a.cfg.Store.Transact(context.WithoutCancel(ctx), change)
}

var errUnchanged = errors.New("unchanged")

// look runs a check that changes nothing.
func (a *AMC) look(ctx context.Context, check func(Tx) error) error {
	err := a.transact(ctx, func(tx Tx) error {
		if err := check(tx); err != nil {
			return err
		}
		return errUnchanged
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// Life is how long an agent's credential lives.
func (a *AMC) Life() time.Duration { return a.cfg.AgentLife }
