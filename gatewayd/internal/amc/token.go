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
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
	"agentgw/internal/policy"
)

// Token is what is kept of an enrolment token. A token admits one agent. Its first use binds it to the key of that request;
// the same key may present it again until it expires, so that an enrolment which a crash or a lost answer cut short can be
// completed and gets the same AIC; any other key is refused (62).
type Token struct {
	Expires  uint64   `cbor:"1,keyasint"` // unix seconds
	Scope    []string `cbor:"2,keyasint"` // what its agent may be granted at most
	Note     string   `cbor:"3,keyasint,omitempty"`
	SPKI     []byte   `cbor:"4,keyasint,omitempty"` // key of the first use
	AIC      string   `cbor:"5,keyasint,omitempty"` // issued under it
	JTI      []byte   `cbor:"6,keyasint,omitempty"` // of the grant that its first use brought
	Class    uint8    `cbor:"7,keyasint,omitempty"` // what it enrols
	Gateway  string   `cbor:"8,keyasint,omitempty"` // only through this one
	Vendor   string   `cbor:"9,keyasint,omitempty"` // code that its agent gets
	Ontology string   `cbor:"10,keyasint,omitempty"`
}

// What a token enrols.
const (
	ClassAgent   = 0
	ClassGateway = 1
)

// Bounds of enrolment tokens.
const (
	DefaultTokenLife = 10 * time.Minute
	MaxTokenLife     = 24 * time.Hour
	grantLife        = 365 * 24 * time.Hour
	maxNote          = 256
)

func tokenName(hash []byte) string { return prefixToken + hex.EncodeToString(hash) }

// TokenOptions is what a new token says.
type TokenOptions struct {
	Life     time.Duration // default 10 minutes
	Scope    []string      // default: discover, and invoke every skill
	Note     string
	Class    uint8
	Gateway  string
	Vendor   string
	Ontology string
}

// CreateToken makes a token and returns its secret, which is kept nowhere.
func (a *AMC) CreateToken(ctx context.Context, o TokenOptions) (secret [32]byte, expires time.Time, err error) {
	if o.Life == 0 {
		o.Life = DefaultTokenLife
	}
	if o.Life < time.Second || o.Life > MaxTokenLife {
		return secret, expires, frame.Errorf(frame.ReqInvalid, "a token may live 1s to %s, not %s", MaxTokenLife, o.Life)
	}
	if len(o.Note) > maxNote {
		return secret, expires, frame.Errorf(frame.ReqInvalid, "a note has at most %d characters", maxNote)
	}
	if len(o.Scope) == 0 {
		o.Scope = policy.Everyday()
	}
	if err := checkScope(o.Scope); err != nil {
		return secret, expires, err
	}
	rand.Read(secret[:]) // it never fails
	expires = a.cfg.Now().Add(o.Life)
	hash := sha256.Sum256(secret[:])
	err = a.transact(ctx, func(tx Tx) error {
		return put(tx, tokenName(hash[:]), Token{
			Expires: uint64(expires.Unix()), Scope: o.Scope, Note: o.Note, Class: o.Class, Gateway: o.Gateway, Vendor: o.Vendor, Ontology: o.Ontology,
		})
	})
	if err != nil {
		return secret, expires, fmt.Errorf("keep enrolment token: %w", err)
	}
	return secret, expires, a.cfg.Audit(ctx, "token.created", map[string]any{"token": hex.EncodeToString(hash[:8]), "scope": o.Scope, "expires": expires.UTC(), "class": o.Class})
}

func checkScope(scope []string) error {
	if len(scope) > semreq.MaxScope {
		return frame.Errorf(frame.ReqInvalid, "scope of %d entries, at most %d are accepted", len(scope), semreq.MaxScope)
	}
	for _, s := range scope {
		if !policy.Known(s) {
			return frame.Errorf(frame.ReqInvalid, "scope %.80q is not known: use agw.discover, acps.skill.invoke:<skill id or *>, agw.publish:<topic>, agw.context.read", s)
		}
	}
	return nil
}

func getToken(tx Tx, hash []byte) (*Token, error) {
	raw, err := tx.Get(tokenName(hash))
	if errors.Is(err, directory.ErrNotFound) {
		return nil, frame.Errorf(frame.TokenInvalid, "enrolment token is not known here: it may be another gateway's, or mistyped; ask the operator for a new one")
	}
	if err != nil {
		return nil, err
	}
	t := new(Token)
	if err := frame.Unmarshal(raw, t); err != nil {
		return nil, fmt.Errorf("stored token: %w", err)
	}
	return t, nil
}

// Check implements Center. Codes: 60 unknown, 61 expired, 62 used by another key.
func (a *AMC) Check(_ context.Context, hash []byte, spki [32]byte) error {
	var t *Token
	found := errors.New("found")
	err := a.cfg.Store.Records(tokenName(hash), func(_ string, value []byte) error {
		t = new(Token)
		return errors.Join(frame.Unmarshal(value, t), found)
	})
	switch {
	case t == nil && err == nil || len(hash) != sha256.Size:
		return frame.Errorf(frame.TokenInvalid, "enrolment token is not known here: it may be another gateway's, or mistyped; ask the operator for a new one")
	case t == nil || !errors.Is(err, found):
		return err
	}
	return t.admits(spki[:], a.cfg.Now())
}

func (t *Token) admits(spki []byte, now time.Time) error {
	switch {
	case now.After(time.Unix(int64(t.Expires), 0)):
		return frame.Errorf(frame.TokenExpired, "enrolment token expired at %s: ask the operator for a new one",
			time.Unix(int64(t.Expires), 0).UTC().Format(time.RFC3339))
	case len(t.SPKI) > 0 && string(t.SPKI) != string(spki):
		return frame.Errorf(frame.TokenReplayed, "enrolment token has been used: each agent needs its own, ask the operator for a new one")
	}
	return nil
}

// TokenRules is the decider by enrolment tokens: whoever holds one that is known, fresh and not another key's is granted
// what the token says. It has no opinion about requests without a token, nor about agents that are registered already.
type TokenRules struct{}

// Name implements Decider.
func (TokenRules) Name() string { return "token" }

// Decide implements Decider.
func (TokenRules) Decide(tx Tx, q *Question) (Verdict, error) {
	if len(q.TokenHash) == 0 {
		return Verdict{}, nil
	}
	t, err := getToken(tx, q.TokenHash)
	if err != nil {
		return Verdict{}, err
	}
	if err := t.admits(q.SPKI, q.Now); err != nil {
		return Verdict{}, err
	}
	if t.Class != q.Class {
		return Verdict{}, frame.Errorf(frame.TokenInvalid, "this enrolment token is for another kind of member: ask the operator for one of the right class")
	}
	if t.Gateway != "" && t.Gateway != q.GW {
		return Verdict{}, frame.Errorf(frame.TokenInvalid, "this enrolment token is for the gateway %s", t.Gateway)
	}
	v := Verdict{Kind: Allow, Scope: t.Scope, Vendor: t.Vendor, Ontology: t.Ontology, JTI: t.JTI}
	if t.JTI == nil {
		t.SPKI, t.JTI = q.SPKI, q.NewJTI
	}
	return v, put(tx, tokenName(q.TokenHash), t)
}
