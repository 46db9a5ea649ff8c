package token

import (
	"bytes"
	"crypto/sha256"
	"time"

	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// RATLifetime is the life of a RAT from iat.
const RATLifetime = 60 * time.Second

// MaxScope is how many scope strings one token holds, a RAT or a SAT: who asks for more, or grants more, gets no token (60).
const MaxScope = 32

// Bounds of a RAT's claims.
const (
	maxAIC  = 64
	maxText = 512 // one scope string, one capability identifier
	maxHops = 12  // hop_limit of a request never exceeds it
)

// RAT is the claims of a request authorization token.
//
//	{1 iss, 2 sub, 4 exp, 6 iat, 7 cti, 9 [scope], −70010 qhash, −70011 req_id, −70012 ispki, −70013 max_hops, −70014 bind}
//
// iss is the origin gateway, sub the agent that asks, ispki the hash of its key. Key 3 is reserved.
type RAT struct {
	Issuer  string   `cbor:"1,keyasint"`
	Subject string   `cbor:"2,keyasint"`
	Expires uint64   `cbor:"4,keyasint"`
	Issued  uint64   `cbor:"6,keyasint"`
	ID      []byte   `cbor:"7,keyasint"`
	Scope   []string `cbor:"9,keyasint"`
	QHash   []byte   `cbor:"-70010,keyasint"` // SHA-256 of the semantic request
	ReqID   []byte   `cbor:"-70011,keyasint"`
	SPKI    []byte   `cbor:"-70012,keyasint"` // SHA-256 of the initiator's DER SubjectPublicKeyInfo
	MaxHops uint64   `cbor:"-70013,keyasint"`
	Bind    []byte   `cbor:"-70014,keyasint"` // [Bind] of the request
}

// Bind is the hash of what no hop may alter: SHA-256 of the deterministic CBOR array [constraints, provision, flags]. The first
// two are encoded maps as they stand in the request; absent means the empty map.
func Bind(constraints, provision []byte, flags uint64) []byte {
	b := []byte{0x83}
	for _, m := range [][]byte{constraints, provision} {
		if len(m) == 0 {
			m = []byte{0xa0}
		}
		b = append(b, m...)
	}
	n, _ := frame.Marshal(flags) // an unsigned integer always encodes
	sum := sha256.Sum256(append(b, n...))
	return sum[:]
}

// MintRAT signs r. Issued is the caller's; Expires is set from it.
func MintRAT(s frame.Signer, r RAT) ([]byte, error) {
	r.Expires = r.Issued + uint64(RATLifetime/time.Second)
	if err := r.check(); err != nil {
		return nil, err
	}
	return s.SignMessage(frame.AADRAT, "", r)
}

// RATExpect is what the request around a RAT says; each must agree with the token.
type RATExpect struct {
	OriginDomain string // hop_via[0]
	QHash        []byte
	ReqID        []byte
	Bind         []byte
}

// VerifyRAT opens a RAT and checks who speaks (iss owns the key, its domain is the origin domain, sub belongs to that domain),
// its times, and that it was made for this very request. Codes: 0C for who speaks, 61 for time, 63 for another query or request,
// 4A where constraints, provision or flags were altered on the way.
func VerifyRAT(b []byte, keys frame.KeyFunc, domainOf DomainOf, want RATExpect, now time.Time) (RAT, error) {
	var r RAT
	key, err := open(b, frame.AADRAT, "", keys, &r)
	if err != nil {
		return RAT{}, err
	}
	if err := r.check(); err != nil {
		return RAT{}, err
	}
	if err := r.speaks(key, domainOf, want.OriginDomain); err != nil {
		return RAT{}, err
	}
	if !within(now, r.Issued, r.Expires) {
		return RAT{}, frame.Errorf(frame.TokenExpired, "RAT holds from %d to %d, it is %d here", r.Issued, r.Expires, now.Unix())
	}
	if !bytes.Equal(r.QHash, want.QHash) || !bytes.Equal(r.ReqID, want.ReqID) {
		return RAT{}, frame.Errorf(frame.Binding, "RAT was made for another request")
	}
	if !bytes.Equal(r.Bind, want.Bind) {
		return RAT{}, frame.Errorf(frame.ReqInvalid, "constraints, provision or flags differ from what the origin gateway signed")
	}
	return r, nil
}

func (r RAT) speaks(key frame.VerifyKey, domainOf DomainOf, origin string) error {
	switch {
	case r.Issuer != key.Owner:
		return frame.Errorf(frame.IdentityMismatch, "RAT names issuer %s, its key belongs to %s", r.Issuer, key.Owner)
	case !sameDomain(key.Domain, origin):
		return frame.Errorf(frame.IdentityMismatch, "RAT of domain %s in a request from domain %s", key.Domain, origin)
	case !sameDomain(domainOf(r.Subject), key.Domain):
		return frame.Errorf(frame.IdentityMismatch, "RAT of domain %s speaks for %s, which is not of that domain", key.Domain, r.Subject)
	}
	return nil
}

// CheckScope holds that a request asks for no more than its RAT allows (45).
func (r RAT) CheckScope(want []string) error {
	if len(want) == 0 || !policy.Covers(r.Scope, want) {
		return frame.Errorf(frame.ScopeDenied, "scope %q exceeds the %q that the origin gateway granted", want, r.Scope)
	}
	return nil
}

func (r RAT) check() error {
	switch {
	case badAIC(r.Issuer) || badAIC(r.Subject):
		return frame.Errorf(frame.TokenInvalid, "RAT without iss or sub")
	case len(r.ID) != 16 || len(r.ReqID) != 16 || len(r.QHash) != 32 || len(r.SPKI) != 32 || len(r.Bind) != 32:
		return frame.Errorf(frame.TokenInvalid, "RAT with an id or hash of the wrong length")
	case r.Issued == 0 || r.Issued > maxTime || r.Expires != r.Issued+uint64(RATLifetime/time.Second):
		return frame.Errorf(frame.TokenInvalid, "RAT does not live for %v", RATLifetime)
	case r.MaxHops > maxHops:
		return frame.Errorf(frame.TokenInvalid, "RAT allows %d hops, at most %d are", r.MaxHops, maxHops)
	}
	return checkScope(r.Scope)
}

func badAIC(aic string) bool { return aic == "" || len(aic) > maxAIC }

func checkScope(scope []string) error {
	if len(scope) == 0 || len(scope) > MaxScope {
		return frame.Errorf(frame.TokenInvalid, "token with %d scope strings, 1 to %d are due", len(scope), MaxScope)
	}
	for _, s := range scope {
		if s == "" || len(s) > maxText {
			return frame.Errorf(frame.TokenInvalid, "token with an empty or oversized scope string")
		}
	}
	return nil
}
