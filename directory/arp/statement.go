package arp

import (
	"fmt"
	"time"

	"agentgw/internal/frame"
)

// Statement is what a gateway says of one agent's entry. The agent shows it at another gateway of its domain, which makes the entry anew of it
// where the agent's former gateway cannot be asked: so the agent cannot be seen by more, or offer more, than its operator has let it there. An
// agent may keep an old one; its home, of which whoever takes that did not know, calls it back as soon as it is heard.
type Statement struct {
	AIC        string        `cbor:"1,keyasint"`
	GW         string        `cbor:"2,keyasint"` // who says it
	Version    uint64        `cbor:"3,keyasint"` // of the entry
	ACSHash    []byte        `cbor:"4,keyasint"` // SHA-256 of the authoritative ACS
	SPKI       []byte        `cbor:"5,keyasint"` // SHA-256 of the agent's SubjectPublicKeyInfo
	JTI        []byte        `cbor:"6,keyasint"` // of the agent's grant
	State      uint8         `cbor:"7,keyasint"` // directory.State
	Visibility uint8         `cbor:"8,keyasint,omitempty"`
	Allow      []string      `cbor:"9,keyasint,omitempty"`
	Bound      *ReachedBound `cbor:"10,keyasint,omitempty"` // absent: the operator has set none
	Skills     []string      `cbor:"11,keyasint,omitempty"`
	Registered uint64        `cbor:"12,keyasint"`
	Exp        uint64        `cbor:"13,keyasint"` // of the entry, and of this
	IAT        uint64        `cbor:"14,keyasint"`
}

// ReachedBound is the widest that an agent may make its visibility.
type ReachedBound struct {
	Visibility uint8    `cbor:"1,keyasint"`
	Allow      []string `cbor:"2,keyasint,omitempty"`
}

// maxVersion bounds the version of an entry: each change counts one, so none is ever there.
const maxVersion = 1 << 48

// Sign makes the signed form (key of use 1, owned by the gateway).
func (s *Statement) Sign(by frame.Signer) ([]byte, error) {
	return by.SignMessage(frame.AADEntry, "", s)
}

// OpenStatement verifies a statement: signed by the gateway of the domain that it names (0C), and not over (26).
func OpenStatement(signed []byte, keys frame.KeyFunc, domain string, now time.Time) (*Statement, error) {
	opened, key, err := frame.Open(signed, frame.AADEntry, keys)
	if err != nil {
		return nil, fmt.Errorf("statement of an entry: %w", err)
	}
	s := new(Statement)
	if err := frame.Unmarshal(opened.Payload, s); err != nil {
		return nil, fmt.Errorf("statement of an entry: %w", err)
	}
	switch {
	case key.Owner != s.GW || key.Domain != domain:
		return nil, frame.Errorf(frame.IdentityMismatch, "statement of %s's entry is in the name of %s and signed by %s of %s", s.AIC, s.GW, key.Owner, key.Domain)
	case s.Version == 0 || s.Version > maxVersion || len(s.ACSHash) != 32 || len(s.SPKI) != 32 || len(s.JTI) != 16:
		return nil, frame.Errorf(frame.Malformed, "statement of %s's entry is not whole", s.AIC)
	case uint64(now.Unix()) >= s.Exp:
		return nil, frame.Errorf(frame.Expired, "statement of %s's entry is over", s.AIC)
	}
	return s, nil
}
