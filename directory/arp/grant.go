package arp

import (
	"fmt"
	"time"

	"agentgw/internal/frame"
)

// Grant is what the Agent Management Center allows one agent: issued once, for one key, one gateway and these skills.
type Grant struct {
	JTI      []byte   `cbor:"1,keyasint"`
	GW       string   `cbor:"2,keyasint"`
	SPKI     []byte   `cbor:"3,keyasint"`
	Vendor   string   `cbor:"4,keyasint,omitempty"`
	Ontology string   `cbor:"5,keyasint,omitempty"`
	Scope    []string `cbor:"6,keyasint"`
	Nbf      uint64   `cbor:"7,keyasint"`
	Exp      uint64   `cbor:"8,keyasint"`
	AIC      string   `cbor:"9,keyasint,omitempty"` // beside a credential only
	Skills   []string `cbor:"10,keyasint,omitempty"`
}

// Sign makes the signed form (key of use 6, owned by the AMC).
func (g *Grant) Sign(s frame.Signer) ([]byte, error) { return s.SignMessage(frame.AADGrant, "", g) }

// OpenGrant verifies a grant: its signer is issuer, the AIC of the AMC that decides here (0C), and it is in force (26).
func OpenGrant(signed []byte, keys frame.KeyFunc, issuer string, now time.Time) (*Grant, error) {
	s, key, err := frame.Open(signed, frame.AADGrant, keys)
	if err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	g := new(Grant)
	if err := frame.Unmarshal(s.Payload, g); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	if key.Owner != issuer {
		return nil, frame.Errorf(frame.IdentityMismatch, "grant is signed by %s, which is not the AMC of this gateway's agents, %s", key.Owner, issuer)
	}
	if unix := uint64(now.Unix()); unix+30 < g.Nbf || unix > g.Exp {
		return nil, frame.Errorf(frame.Expired, "grant is not in force")
	}
	return g, nil
}
