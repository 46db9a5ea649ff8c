// Package attach is an agent's side towards its gateway (ALPN dmsc-ctl/1): enrolment, staying attached, and asking.
//
// [Enrol] needs nothing but a token and a key: the token names the gateway's key, and the agent trusts that one key. Where a
// domain enrols without tokens, its user names the gateway's key, and the request waits for a person. A
// [Client] keeps one agent attached: it dials again with back-off when the connection goes, and queues nothing; a call made
// while it is detached fails with a clear error within its own deadline.
//
// Safe for concurrent use. Source: seed 002, section 5.1; cdsp/PROTOCOL.md, "Agent and gateway".
package attach

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	writeTime = 10 * time.Second
	enrolTime = 15 * time.Second
)

// Enrolment is what an agent presents.
type Enrolment struct {
	Token      arp.Token
	Key        crypto.Signer
	Draft      []byte // JSON: an ACS, or an Agent Card
	Kind       uint8  // which: a draft kind of package arp
	Scope      []string
	Visibility uint8
	Allow      []string
	Pending    []byte // asks again about a request that waits for approval
}

// Refused is a gateway's refusal with the places in the draft that it names.
type Refused struct {
	arp.Answer
	err error
}

func (r *Refused) Error() string {
	text := r.err.Error()
	for _, d := range r.Detail {
		text += "\n  " + d.Path
	}
	return text
}

func (r *Refused) Unwrap() error { return r.err }

// Lost is an enrolment that was presented and not answered: the gateway may have registered the agent, and the same request with the same key
// completes it.
type Lost struct{ err error }

func (l *Lost) Error() string { return l.err.Error() }

func (l *Lost) Unwrap() error { return l.err }

// Enrol presents e at the first address of the token that answers, and returns the credential with the address. The
// error is a [Refused] or a [Lost] where e was presented.
func Enrol(ctx context.Context, ep *endpoint.Endpoint, e Enrolment) (*arp.Enrolled, string, error) {
	if len(e.Token.Secret) > 0 && e.Token.Expired(time.Now()) {
		return nil, "", frame.Errorf(frame.TokenExpired, "enrolment token expired at %s: ask the operator for a new one",
			time.Unix(int64(e.Token.Exp), 0).UTC().Format(time.RFC3339))
	}
	cert, err := identity.SelfSigned(e.Key)
	if err != nil {
		return nil, "", err
	}
	pin := [32]byte(e.Token.GatewayPK)
	var otherKey atomic.Bool // that a gateway has shown: TLS hides it behind an alert
	pinned := identity.VerifyPinned(pin, time.Now)
	cred := endpoint.Credentials{Certificate: cert, Verify: func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) > 0 && sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo) != pin {
			otherKey.Store(true)
		}
		return pinned(cs)
	}}
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	var errs []error
	for _, a := range e.Token.Addresses {
		c, err := ep.Dial(ctx, a.String(), frame.ALPNControl, "", cred)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done, err := enrolOver(ctx, c, e)
		c.Close(frame.OK, "")
		var refused *Refused
		if err != nil && !errors.As(err, &refused) {
			err = &Lost{err}
		}
		return done, a.String(), err
	}
	if otherKey.Load() {
		if len(e.Token.Secret) == 0 {
			return nil, "", frame.Errorf(frame.IdentityMismatch, "the gateway's key is not the --gateway-pin: see `pin` of `gatewayd status`")
		}
		return nil, "", frame.Errorf(frame.IdentityMismatch, "the gateway's key is not the one that the token names: ask its operator for a new token")
	}
	return nil, "", frame.Errorf(frame.UpstreamFailed, "no gateway of the token answers: %w", errors.Join(errs...))
}

func enrolOver(ctx context.Context, c *endpoint.Conn, e Enrolment) (*arp.Enrolled, error) {
	csr, err := identity.NewCSR(e.Key)
	if err != nil {
		return nil, err
	}
	out := new(arp.Enrolled)
	return out, exchange(ctx, c, &arp.Enrol{
		Secret: e.Token.Secret, CSR: csr, Draft: e.Draft, DraftKind: e.Kind,
		Scope: e.Scope, Visibility: e.Visibility, Allow: e.Allow, PendingID: e.Pending,
	}, frame.Enrolled, out)
}
