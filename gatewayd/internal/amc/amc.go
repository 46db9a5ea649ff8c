// Package amc is the Agent Management Center as a role of gatewayd: it decides who may be enrolled, by the rules of an
// enrolment token, and issues the credentials that carry the decision.
//
// The contract: a token admits one agent. Its first use binds it to the key of that request; the same key may present it
// again until it expires, so that an enrolment which a crash or a lost answer cut short can be completed, and gets the same
// AIC; any other key is refused (62). Issuance is fenced: [AMC.Issue] signs only for the key that the grant names, and never
// for a second key under one AIC. Only the SHA-256 of a token's secret is kept.
//
// Safe for concurrent use. Source: seed 002, sections 4.2 and 5.1; cdsp/PROTOCOL.md, "Agent and gateway".
package amc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
	"agentgw/internal/policy"
)

// Token is what is kept of an enrolment token.
type Token struct {
	Expires uint64   `cbor:"1,keyasint" json:"expires"` // unix seconds
	Scope   []string `cbor:"2,keyasint" json:"scope"`   // what its agent may be granted at most
	Note    string   `cbor:"3,keyasint,omitempty" json:"note,omitempty"`
	SPKI    []byte   `cbor:"4,keyasint,omitempty" json:"-"` // key of the first use
	AIC     string   `cbor:"5,keyasint,omitempty" json:"aic,omitempty"`
}

// Store keeps tokens. A write that returned is durable.
type Store interface {
	PutToken(ctx context.Context, hash [32]byte, record []byte) error
	// UseToken changes a token in one transaction: change gets what is stored and returns what shall be. An unknown token is
	// directory.ErrNotFound.
	UseToken(ctx context.Context, hash [32]byte, change func(record []byte) ([]byte, error)) error
}

// Config of an AMC.
type Config struct {
	Issuer    aic.AIC // this AMC's own AIC
	Signer    pki.Signer
	Grant     frame.Signer // key of use 6
	Store     Store
	AgentLife time.Duration // of a credential; default 24 h
	Now       func() time.Time
}

// AMC authorises and issues. Create it with [New].
type AMC struct{ cfg Config }

// New makes an AMC.
func New(cfg Config) *AMC {
	if cfg.AgentLife == 0 {
		cfg.AgentLife = pki.DefaultLimits().Agent
	}
	return &AMC{cfg}
}

// Bounds of enrolment tokens.
const (
	DefaultTokenLife = 10 * time.Minute
	MaxTokenLife     = 24 * time.Hour
	grantLife        = 365 * 24 * time.Hour
)

// CreateToken makes a token and returns its secret, which is kept nowhere.
func (a *AMC) CreateToken(ctx context.Context, life time.Duration, scope []string, note string) (secret [32]byte, expires time.Time, err error) {
	if life == 0 {
		life = DefaultTokenLife
	}
	if life < time.Second || life > MaxTokenLife {
		return secret, expires, frame.Errorf(frame.ReqInvalid, "a token may live 1s to %s, not %s", MaxTokenLife, life)
	}
	if len(scope) > semreq.MaxScope {
		return secret, expires, frame.Errorf(frame.ReqInvalid, "scope of %d entries, at most %d are accepted", len(scope), semreq.MaxScope)
	}
	if len(scope) == 0 {
		scope = []string{policy.ScopeDiscover, policy.ScopeSkillInvoke + "*"}
	}
	for _, s := range scope {
		if !policy.Known(s) {
			return secret, expires, frame.Errorf(frame.ReqInvalid, "scope %q is not known: use agw.discover, acps.skill.invoke:<skill id or *>, agw.publish:<topic>, agw.context.read", s)
		}
	}
	if _, err := rand.Read(secret[:]); err != nil {
		return secret, expires, err
	}
	expires = a.cfg.Now().Add(life)
	record, err := frame.Marshal(Token{Expires: uint64(expires.Unix()), Scope: scope, Note: note})
	if err != nil {
		return secret, expires, err
	}
	if err := a.cfg.Store.PutToken(ctx, sha256.Sum256(secret[:]), record); err != nil {
		return secret, expires, fmt.Errorf("keep enrolment token: %w", err)
	}
	return secret, expires, nil
}

// Check says whether a token could still enrol the key, before anything else of the request is looked at. It changes
// nothing. Codes: 60 unknown, 61 expired, 62 used by another key.
func (a *AMC) Check(ctx context.Context, secret []byte, spki [32]byte) error {
	unchanged := errors.New("unchanged")
	err := a.use(ctx, secret, func(t *Token) error {
		if err := a.admits(t, spki); err != nil {
			return err
		}
		return unchanged
	})
	if errors.Is(err, unchanged) {
		return nil
	}
	return err
}

func (a *AMC) admits(t *Token, spki [32]byte) error {
	switch {
	case a.cfg.Now().After(time.Unix(int64(t.Expires), 0)):
		return frame.Errorf(frame.TokenExpired, "enrolment token expired at %s: ask the operator for a new one",
			time.Unix(int64(t.Expires), 0).UTC().Format(time.RFC3339))
	case len(t.SPKI) > 0 && string(t.SPKI) != string(spki[:]):
		return frame.Errorf(frame.TokenReplayed, "enrolment token has been used: each agent needs its own, ask the operator for a new one")
	}
	return nil
}

// Request is what a gateway asks to have authorised (AUTHZ_REQUEST).
type Request struct {
	Secret  []byte
	Gateway aic.AIC
	SPKI    [32]byte
	Scope   []string // wanted; empty asks for all that the token allows
	Skills  []string // ids of the draft
}

// Authorise evaluates a request by the rules of its token and returns a grant. It binds the token to the request's key.
func (a *AMC) Authorise(ctx context.Context, r Request) (*arp.Grant, error) {
	g := &arp.Grant{JTI: make([]byte, 16), GW: string(r.Gateway), SPKI: r.SPKI[:]}
	if _, err := rand.Read(g.JTI); err != nil {
		return nil, err
	}
	err := a.use(ctx, r.Secret, func(t *Token) error {
		if err := a.admits(t, r.SPKI); err != nil {
			return err
		}
		t.SPKI = r.SPKI[:]
		g.Scope = t.Scope
		if len(r.Scope) > 0 {
			g.Scope = policy.Intersect(r.Scope, t.Scope)
		}
		g.AIC = t.AIC // a registration that was cut short goes on under its AIC
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(g.Scope) == 0 {
		return nil, frame.Errorf(frame.ScopeDenied, "nothing of the scope asked for is allowed by the token")
	}
	for _, id := range r.Skills {
		if policy.Covers(g.Scope, []string{policy.ScopeSkillInvoke + id}) {
			g.Skills = append(g.Skills, id)
		}
	}
	now := a.cfg.Now()
	g.Nbf, g.Exp = uint64(now.Unix()), uint64(now.Add(grantLife).Unix())
	return g, nil
}

// Reserve records the AIC that the gateway has reserved for the agent of a token, unless one is recorded already; it
// returns the one that counts.
func (a *AMC) Reserve(ctx context.Context, secret []byte, id aic.AIC) (aic.AIC, error) {
	err := a.use(ctx, secret, func(t *Token) error {
		if t.AIC == "" {
			t.AIC = string(id)
		}
		id = aic.AIC(t.AIC)
		return nil
	})
	return id, err
}

// Issue signs the credential of a granted agent: the chain, leaf first, and the signed grant that names the AIC.
func (a *AMC) Issue(ctx context.Context, g *arp.Grant, id aic.AIC, csr []byte, provider pki.Profile) (chain [][]byte, grant []byte, err error) {
	req, err := identity.ParseCSR(csr)
	if err != nil {
		return nil, nil, err
	}
	spki, err := identity.SPKIHash(req.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	if string(spki[:]) != string(g.SPKI) {
		return nil, nil, frame.Errorf(frame.Binding, "grant %s is for another key", hex.EncodeToString(g.JTI))
	}
	if g.AIC != "" && g.AIC != string(id) {
		return nil, nil, frame.Errorf(frame.Binding, "grant %s is for the AIC %s", hex.EncodeToString(g.JTI), g.AIC)
	}
	provider.Kind, provider.AIC, provider.Life = pki.Agent, id, a.cfg.AgentLife
	if chain, err = a.cfg.Signer.Sign(ctx, provider, req.PublicKey); err != nil {
		return nil, nil, err
	}
	named := *g
	named.AIC = string(id)
	grant, err = named.Sign(a.cfg.Grant)
	return chain, grant, err
}

// Life is how long a credential lives.
func (a *AMC) Life() time.Duration { return a.cfg.AgentLife }

// Renew signs the next credential of a registered agent over the key that it has.
func (a *AMC) Renew(ctx context.Context, id aic.AIC, spki [32]byte, csr []byte, provider pki.Profile) (chain [][]byte, err error) {
	req, err := identity.ParseCSR(csr)
	if err != nil {
		return nil, err
	}
	got, err := identity.SPKIHash(req.PublicKey)
	if err != nil {
		return nil, err
	}
	if got != spki {
		return nil, frame.Errorf(frame.Binding, "%s is registered with another key: renewal keeps the key", id)
	}
	provider.Kind, provider.AIC, provider.Life = pki.Agent, id, a.cfg.AgentLife
	return a.cfg.Signer.Sign(ctx, provider, req.PublicKey)
}

func (a *AMC) use(ctx context.Context, secret []byte, change func(*Token) error) error {
	// change writes what its caller returns: it must not run on after the caller has given up waiting.
	err := a.cfg.Store.UseToken(context.WithoutCancel(ctx), sha256.Sum256(secret), func(record []byte) ([]byte, error) {
		var t Token
		if err := frame.Unmarshal(record, &t); err != nil {
			return nil, fmt.Errorf("stored token: %w", err)
		}
		if err := change(&t); err != nil {
			return nil, err
		}
		return frame.Marshal(t)
	})
	if errors.Is(err, directory.ErrNotFound) {
		return frame.Errorf(frame.TokenInvalid, "enrolment token is not known here: it may be another gateway's, or mistyped; ask the operator for a new one")
	}
	return err
}
