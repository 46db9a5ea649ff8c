package semreq

import (
	"bytes"
	"fmt"
	"time"

	"agentgw/directory"
	"agentgw/internal/frame"
)

// MaxResultLife bounds Result.Exp − now.
const MaxResultLife = 60 * time.Second

const clockLeeway = 30 * time.Second

// Skill is the public text of a capability, over which the origin scores a foreign result with its own matcher.
type Skill struct {
	Name        string   `cbor:"1,keyasint" json:"name"`
	Description string   `cbor:"2,keyasint,omitempty" json:"description,omitempty"` // ≤ 512 bytes
	Tags        []string `cbor:"3,keyasint,omitempty" json:"tags,omitempty"`
	In          []string `cbor:"4,keyasint,omitempty" json:"in,omitempty"`
	Out         []string `cbor:"5,keyasint,omitempty" json:"out,omitempty"`
}

// MaxSkillText bounds Skill.Description in a result.
const MaxSkillText = 512

// Result is what the resolving gateway signs (COSE, key of use 1).
type Result struct {
	ReqID     []byte     `cbor:"1,keyasint"`
	QHash     []byte     `cbor:"2,keyasint"`
	AIC       string     `cbor:"3,keyasint"`
	Cap       string     `cbor:"4,keyasint"`
	Score     uint16     `cbor:"5,keyasint"`           // per-myriad, by the resolver's matcher
	Endpoints []Endpoint `cbor:"6,keyasint,omitempty"` // only beside a SAT
	TSPKI     []byte     `cbor:"7,keyasint,omitempty"` // SHA-256 of the target's SubjectPublicKeyInfo
	GW        string     `cbor:"8,keyasint"`
	Exp       uint64     `cbor:"9,keyasint"`
	ACSVer    uint64     `cbor:"10,keyasint,omitempty"`
	SAT       []byte     `cbor:"11,keyasint,omitempty"`
	Skill     Skill      `cbor:"12,keyasint"`
}

// Bounds of one result; twenty of them fit a response.
const (
	MaxEndpoints = 6
	MaxResult    = 6 << 10 // signed
	maxName      = 1024    // bytes of a skill's name
	maxWords     = 32      // tags, and media types of one direction
	maxWordBytes = 256     // of one of these
)

// Clip brings a skill's text within the bounds of a result.
func (s Skill) Clip() Skill {
	s.Name, s.Description = clip(s.Name, maxName), clip(s.Description, MaxSkillText)
	room := MaxResult / 4 // a quarter of a result for the lists, the rest for texts, token and signature
	for _, list := range []*[]string{&s.Tags, &s.In, &s.Out} {
		kept := make([]string, 0, min(len(*list), maxWords))
		for _, w := range *list {
			if len(kept) < maxWords && len(w) <= maxWordBytes && room >= len(w)+3 {
				room -= len(w) + 3
				kept = append(kept, w)
			}
		}
		*list = kept
	}
	return s
}

// clip cuts s to at most n bytes at a character's border.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

func (s Skill) fits() bool {
	if len(s.Name) > maxName || len(s.Description) > MaxSkillText {
		return false
	}
	for _, list := range [][]string{s.Tags, s.In, s.Out} {
		if len(list) > maxWords {
			return false
		}
	}
	return true // the words are bounded by MaxResult
}

// reachable says whether every endpoint is an IP literal with a port that speaks the agents' protocol: a result must not make
// anybody look up names or call other services.
func (r *Result) reachable() bool {
	for _, e := range r.Endpoints {
		if _, ok := e.AddrPort(); !ok || e.ALPN != frame.ALPNAgent {
			return false
		}
	}
	return true
}

// Sign makes the signed form.
func (r *Result) Sign(s frame.Signer) ([]byte, error) { return s.SignMessage(frame.AADResult, "", r) }

// OpenResult verifies a signed result and everything that binds it: the key is of use 1, the signer is the gateway that
// the result names (0C), target AIC and capability are under that gateway's own domain (0C), it answers this request and
// this query (4A), and it is fresh (26). domainOf gives the domain of an AIC.
func OpenResult(signed []byte, reqID, qhash []byte, keys frame.KeyFunc, domainOf func(string) string, now time.Time) (*Result, error) {
	if len(signed) > MaxResult {
		return nil, frame.Errorf(frame.Malformed, "result of %d bytes is over %d", len(signed), MaxResult)
	}
	s, key, err := frame.Open(signed, frame.AADResult, keys)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	r := new(Result)
	if err := frame.Unmarshal(s.Payload, r); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	capAIC, _, err := directory.ParseCapID(r.Cap)
	exp := time.Unix(int64(r.Exp), 0)
	switch {
	case r.GW != key.Owner:
		return nil, frame.Errorf(frame.IdentityMismatch, "result of %s is signed by %s", r.GW, key.Owner)
	case domainOf(r.AIC) != key.Domain:
		return nil, frame.Errorf(frame.IdentityMismatch, "gateway of %s answers with the AIC %s, which is not that domain's", key.Domain, r.AIC)
	case err != nil || capAIC != r.AIC:
		return nil, frame.Errorf(frame.IdentityMismatch, "result's capability %q is not its agent's", r.Cap)
	case !bytes.Equal(r.ReqID, reqID) || !bytes.Equal(r.QHash, qhash):
		return nil, frame.Errorf(frame.ReqInvalid, "result answers another request")
	case now.After(exp.Add(clockLeeway)):
		return nil, frame.Errorf(frame.Expired, "result expired at %s", exp.UTC().Format(time.RFC3339))
	case exp.Sub(now) > MaxResultLife+clockLeeway:
		return nil, frame.Errorf(frame.Expired, "result claims to live until %s, over %s", exp.UTC().Format(time.RFC3339), MaxResultLife)
	case len(r.Endpoints) > MaxEndpoints || !r.Skill.fits() || !r.reachable():
		return nil, frame.Errorf(frame.Malformed, "result is over its limits, or names no addresses of agents")
	case len(r.SAT) > 0 && len(r.TSPKI) != 32:
		return nil, frame.Errorf(frame.Malformed, "result with a session token names no target key")
	}
	return r, nil
}

// PeekResult reads a result without verifying it: for an agent, whose own gateway has verified it, and which trusts that
// gateway and no other.
func PeekResult(signed []byte) (*Result, error) {
	s, err := frame.ParseSigned(signed)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	r := new(Result)
	return r, frame.Unmarshal(s.Payload, r)
}
