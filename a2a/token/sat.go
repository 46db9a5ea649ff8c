package token

import (
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// ContentTypeSAT is the protected header 3 of a SAT.
const ContentTypeSAT = "application/dmsc-sat+cwt"

// Lifetimes of a SAT and of the session that it opens, both from iat.
const (
	SATLifetime       = 120 * time.Second // time to start the session
	SessionLifetime   = time.Hour         // default of sess_exp
	MaxSessionLife    = 8 * time.Hour
	satLifetimeSecond = uint64(SATLifetime / time.Second)
)

// SAT is the claims of a session authorization token.
//
//	{1 iss, 2 sub, 3 aud, 4 exp, 5 nbf, 6 iat, 7 cti, 8 cnf {−70001: bstr32}, 9 [scope], −70002 tspki, −70003 sid, −70004 cap,
//	 −70005 sess_exp, −70006 limits, −70008 txn, −70009 upd}
//
// iss is a gateway of the target's domain, sub the initiator, aud the target. −70007 is reserved.
type SAT struct {
	Issuer     string    `cbor:"1,keyasint"`
	Subject    string    `cbor:"2,keyasint"`
	Audience   string    `cbor:"3,keyasint"`
	Expires    uint64    `cbor:"4,keyasint"`
	NotBefore  uint64    `cbor:"5,keyasint"`
	Issued     uint64    `cbor:"6,keyasint"`
	ID         wire.ID   `cbor:"7,keyasint"` // names the offer; single use
	Confirm    Confirm   `cbor:"8,keyasint"`
	Scope      []string  `cbor:"9,keyasint"`
	TargetSPKI wire.Hash `cbor:"-70002,keyasint"`
	Sid        wire.ID   `cbor:"-70003,keyasint"`
	Cap        string    `cbor:"-70004,keyasint"`
	SessExp    uint64    `cbor:"-70005,keyasint"`
	Limits     Limits    `cbor:"-70006,keyasint,omitempty"`
	Txn        wire.ID   `cbor:"-70008,keyasint"` // req_id of the request, for the audit
	Update     bool      `cbor:"-70009,keyasint,omitempty"`
}

// Confirm names the one key under which the token may be used (RFC 8747).
type Confirm struct {
	SPKI wire.Hash `cbor:"-70001,keyasint"` // SHA-256 of the initiator's DER SubjectPublicKeyInfo
}

// Limits bound one session; both ends count both directions. Zero means no limit of that kind.
type Limits struct {
	MaxBytes    uint64 `cbor:"1,keyasint,omitempty"` // bodies, together
	MaxMessages uint64 `cbor:"2,keyasint,omitempty"`
	MaxStreams  uint64 `cbor:"3,keyasint,omitempty"` // data streams opened
	RatePerSec  uint64 `cbor:"4,keyasint,omitempty"` // messages a second
	IdleSeconds uint64 `cbor:"5,keyasint,omitempty"`
}

// MintSAT signs s. Issued is the caller's; Expires and NotBefore are set from it, and SessExp where it is zero.
func MintSAT(signer frame.Signer, s SAT) ([]byte, error) {
	s.NotBefore, s.Expires = s.Issued, s.Issued+satLifetimeSecond
	if s.SessExp == 0 {
		s.SessExp = s.Issued + uint64(SessionLifetime/time.Second)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	b, err := signer.SignMessage(frame.AADSAT, ContentTypeSAT, s)
	if err == nil && len(b) > MaxSize {
		return nil, frame.Errorf(frame.TokenInvalid, "SAT of %d bytes is over its limit of %d", len(b), MaxSize)
	}
	return b, err
}

// VerifySAT opens a SAT and checks who speaks: iss owns the key, and iss and aud stand under one domain (0C).
func VerifySAT(b []byte, keys frame.KeyFunc, domainOf DomainOf) (SAT, error) {
	var s SAT
	key, err := open(b, frame.AADSAT, ContentTypeSAT, keys, &s)
	if err != nil {
		return SAT{}, err
	}
	if err := s.check(); err != nil {
		return SAT{}, err
	}
	if s.Issuer != key.Owner {
		return SAT{}, frame.Errorf(frame.IdentityMismatch, "SAT names issuer %s, its key belongs to %s", s.Issuer, key.Owner)
	}
	if !sameDomain(domainOf(s.Audience), key.Domain) {
		return SAT{}, frame.Errorf(frame.IdentityMismatch, "SAT of domain %s for %s, which is not of that domain", key.Domain, s.Audience)
	}
	return s, nil
}

// ReadSAT reads the claims without verifying the signature: for the initiator, who holds no key of the target's domain and has
// the token from its own gateway, which verified it.
func ReadSAT(b []byte) (SAT, error) {
	if len(b) == 0 || len(b) > MaxSize {
		return SAT{}, frame.Errorf(frame.TokenInvalid, "SAT of %d bytes, at most %d are accepted", len(b), MaxSize)
	}
	signed, err := frame.ParseSigned(b)
	if err != nil {
		return SAT{}, invalid(err)
	}
	var s SAT
	if signed.ContentType() != ContentTypeSAT {
		return SAT{}, frame.Errorf(frame.TokenInvalid, "token of content type %q is not a SAT", signed.ContentType())
	}
	if err := frame.Unmarshal(signed.Payload, &s); err != nil {
		return SAT{}, invalid(err)
	}
	return s, s.check()
}

// Presented is who shows a SAT to whom, and for what.
type Presented struct {
	Target    string    // AIC of the agent that it is shown to
	Initiator string    // AIC of the verified TLS peer
	SPKI      wire.Hash // key of the verified TLS peer
	Sid       wire.ID
	Cap       string
}

// CheckPresented holds a SAT against the session that is asked for: aud (64), sub, cnf, sid and cap (63), in this order.
func (s SAT) CheckPresented(p Presented) error {
	switch {
	case s.Audience != p.Target:
		return frame.Errorf(frame.Audience, "SAT is for %s, not for %s", s.Audience, p.Target)
	case s.Subject != p.Initiator:
		return frame.Errorf(frame.Binding, "SAT was given to %s, %s shows it", s.Subject, p.Initiator)
	case s.Confirm.SPKI != p.SPKI:
		return frame.Errorf(frame.Binding, "SAT is bound to another key of %s", s.Subject)
	case s.Sid != p.Sid:
		return frame.Errorf(frame.Binding, "SAT is bound to another session")
	case s.Cap != p.Cap:
		return frame.Errorf(frame.Binding, "SAT is bound to %s, not to %s", s.Cap, p.Cap)
	}
	return nil
}

// CheckTime holds that a session may start with this token now (61).
func (s SAT) CheckTime(now time.Time) error {
	if !within(now, s.NotBefore, s.Expires) {
		return frame.Errorf(frame.TokenExpired, "SAT starts sessions from %d to %d, it is %d here", s.NotBefore, s.Expires, now.Unix())
	}
	return nil
}

// CheckScope holds that the token grants no more than allowed (66).
func (s SAT) CheckScope(allowed []string) error {
	if !policy.Covers(allowed, s.Scope) {
		return frame.Errorf(frame.Scope, "SAT grants %q, at most %q was asked for", s.Scope, allowed)
	}
	return nil
}

// Started is the last moment at which this token may start a session, leeway included.
func (s SAT) Started() time.Time { return time.Unix(int64(s.Expires), 0).Add(Leeway) }

// Ends is the end of the session that this token starts.
func (s SAT) Ends() time.Time { return time.Unix(int64(s.SessExp), 0) }

func (s SAT) check() error {
	switch {
	case badAIC(s.Issuer) || badAIC(s.Subject) || badAIC(s.Audience):
		return frame.Errorf(frame.TokenInvalid, "SAT without iss, sub or aud")
	case s.ID == wire.ID{} || s.Sid == wire.ID{} || s.Txn == wire.ID{}:
		return frame.Errorf(frame.TokenInvalid, "SAT without cti, sid or txn")
	case s.Confirm.SPKI == wire.Hash{} || s.TargetSPKI == wire.Hash{}:
		return frame.Errorf(frame.TokenInvalid, "SAT bound to no key")
	case s.Cap == "" || len(s.Cap) > maxText:
		return frame.Errorf(frame.TokenInvalid, "SAT without a capability")
	case s.Issued == 0 || s.Issued > maxTime || s.NotBefore != s.Issued || s.Expires != s.Issued+satLifetimeSecond:
		return frame.Errorf(frame.TokenInvalid, "SAT does not start sessions for %v from iat", SATLifetime)
	case s.SessExp <= s.Issued || s.SessExp > s.Issued+uint64(MaxSessionLife/time.Second):
		return frame.Errorf(frame.TokenInvalid, "SAT allows a session beyond %v", MaxSessionLife)
	}
	return checkScope(s.Scope)
}
