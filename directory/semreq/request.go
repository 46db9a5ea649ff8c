package semreq

import (
	"net/netip"
	"slices"

	"agentgw/internal/frame"
)

// Endpoint is where an agent listens: an IP literal, a UDP port and an ALPN protocol.
type Endpoint struct {
	_    struct{} `cbor:",toarray"`
	Host string
	Port uint16
	ALPN string
}

// AddrPort is the endpoint's address; ok is false when the host is no IP literal.
func (e Endpoint) AddrPort() (ap netip.AddrPort, ok bool) {
	ip, err := netip.ParseAddr(e.Host)
	return netip.AddrPortFrom(ip, e.Port), err == nil && e.Port != 0
}

// Constraints narrow where a request may go and what may answer it. They are the asker's, and bound by the RAT.
type Constraints struct {
	AllowDomains []string `cbor:"1,keyasint,omitempty" json:"allow_domains,omitempty"`
	DenyDomains  []string `cbor:"2,keyasint,omitempty" json:"deny_domains,omitempty"`
	MinScore     uint16   `cbor:"3,keyasint,omitempty" json:"min_score,omitempty"`
	Exclude      []string `cbor:"6,keyasint,omitempty" json:"exclude,omitempty"` // AICs
}

// Allows says whether a domain may be asked and may answer.
func (c Constraints) Allows(domain string) bool {
	return !slices.Contains(c.DenyDomains, domain) &&
		(len(c.AllowDomains) == 0 || slices.Contains(c.AllowDomains, domain))
}

// MaxScope is the most entries of a scope: those of a token.
const MaxScope = 32

// Provision asks for a session with what is found: its id, the key that the initiator will use, the scope that it wants.
type Provision struct {
	SID       []byte   `cbor:"1,keyasint"` // 16 bytes
	ISPKI     []byte   `cbor:"2,keyasint"` // 32 bytes: SHA-256 of the initiator's SubjectPublicKeyInfo
	WantScope []string `cbor:"3,keyasint,omitempty"`
}

// Flags of a request.
const (
	FlagNoForward   = 1
	FlagNoCache     = 2
	FlagLocalDomain = 4
	FlagParallel    = 8 // ask the candidates at once, and beside an own match
	knownFlags      = 15
)

// Request is SREQ (0x40). From an agent OriginGW, Via, RAT and HopVia are absent: its gateway fills them. Constraints and
// Provision stay as the bytes that they came in, for the RAT binds them.
//
//	1 req_id │ 2 attempt │ 3 origin_gw │ 4 query │ 5 qhash │ 6 hop_limit │ 7 via │ 8 budget_ms │ 9 breadth │ 10 want │
//	11 scope │ 12 rat │ 15 constraints │ 16 provision │ 17 flags │ 18 hop_via
type Request struct {
	ReqID       []byte    `cbor:"1,keyasint"`
	Attempt     uint8     `cbor:"2,keyasint,omitempty"`
	OriginGW    string    `cbor:"3,keyasint,omitempty"`
	Query       []byte    `cbor:"4,keyasint"`
	QHash       []byte    `cbor:"5,keyasint"`
	HopLimit    uint8     `cbor:"6,keyasint"`
	Via         []string  `cbor:"7,keyasint,omitempty"`
	BudgetMS    uint64    `cbor:"8,keyasint"`
	Breadth     uint8     `cbor:"9,keyasint"`
	Want        uint8     `cbor:"10,keyasint"`
	Scope       []string  `cbor:"11,keyasint,omitempty"`
	RAT         []byte    `cbor:"12,keyasint,omitempty"`
	Constraints frame.Raw `cbor:"15,keyasint,omitempty"`
	Provision   frame.Raw `cbor:"16,keyasint,omitempty"`
	Flags       uint8     `cbor:"17,keyasint,omitempty"`
	HopVia      []string  `cbor:"18,keyasint,omitempty"`
}

// FrameType is SREQ.
func (*Request) FrameType() frame.Type { return frame.SREQ }

// Validate checks everything that does not need a key or a policy. The error carries [frame.ReqInvalid].
func (r *Request) Validate() error {
	bad := func(what string) error { return frame.Errorf(frame.ReqInvalid, "semantic request: %s", what) }
	hash := Hash(r.Query)
	switch {
	case len(r.ReqID) != 16:
		return bad("req_id is not 16 bytes")
	case r.Attempt > 2:
		return bad("attempt above 2")
	case !slices.Equal(hash[:], r.QHash):
		return bad("qhash is not the hash of the query")
	case r.HopLimit > MaxHops, len(r.Via) > MaxHops, len(r.HopVia) > MaxHops:
		return bad("more than 12 hops")
	case tooLong(r.Via, maxGateway), tooLong(r.HopVia, 253), tooLong(r.Scope, maxWord):
		return bad("a name on the way or a scope is too long")
	case r.BudgetMS == 0 || r.BudgetMS > MaxBudgetMS:
		return bad("budget is not 1 to 30000 ms")
	case r.Breadth == 0 || r.Breadth > MaxBreadth:
		return bad("breadth is not 1 to 8")
	case r.Want == 0 || r.Want > MaxWant:
		return bad("want is not 1 to 20")
	case r.Flags&^knownFlags != 0:
		return bad("unknown flag")
	case len(r.Scope) > MaxScope:
		return bad("scope has more than 32 entries")
	}
	return nil
}

func tooLong(list []string, n int) bool {
	return slices.ContainsFunc(list, func(s string) bool { return len(s) > n })
}

// ParsedConstraints decodes key 15; absent means none.
func (r *Request) ParsedConstraints() (c Constraints, err error) {
	if len(r.Constraints) == 0 {
		return c, nil
	}
	if err := frame.Unmarshal(r.Constraints, &c); err != nil {
		return c, err
	}
	if c.MinScore > 10_000 {
		return c, frame.Errorf(frame.ReqInvalid, "min_score %d is not 0 to 10000", c.MinScore)
	}
	if max(len(c.AllowDomains), len(c.DenyDomains), len(c.Exclude)) > maxList {
		return c, frame.Errorf(frame.ReqInvalid, "constraints have more than %d entries", maxList)
	}
	return c, nil
}

// ParsedProvision decodes key 16; nil means that no session is wanted.
func (r *Request) ParsedProvision() (*Provision, error) {
	if len(r.Provision) == 0 {
		return nil, nil
	}
	p := new(Provision)
	if err := frame.Unmarshal(r.Provision, p); err != nil {
		return nil, err
	}
	if len(p.SID) != 16 || len(p.ISPKI) != 32 || len(p.WantScope) > MaxScope {
		return nil, frame.Errorf(frame.ReqInvalid, "provision: sid of 16 and key hash of 32 bytes, at most %d scopes", MaxScope)
	}
	return p, nil
}

// Reason is why one gateway did not answer. GW is named inside its own domain only.
type Reason struct {
	_    struct{} `cbor:",toarray"`
	GW   string
	Code frame.Code
}

// Bounds of what a response explains.
const (
	maxReasons = 16
	maxGateway = 64 // bytes of an AIC
)

// Response is SRSP (0x42).
//
//	1 req_id │ 2 status │ 3 results │ 4 reasons │ 5 route │ 6 neg_ttl_ms │ 7 retry_after_ms │ 8 definitive │ 9 elapsed_ms
type Response struct {
	ReqID        []byte     `cbor:"1,keyasint"`
	Status       frame.Code `cbor:"2,keyasint"`
	Results      [][]byte   `cbor:"3,keyasint,omitempty"` // signed [Result]s, best first
	Reasons      []Reason   `cbor:"4,keyasint,omitempty"`
	Route        []string   `cbor:"5,keyasint,omitempty"` // gateways from the answering one back to the asker's
	NegTTLMS     uint64     `cbor:"6,keyasint,omitempty"` // how long a definitive NOT_FOUND may be remembered
	RetryAfterMS uint64     `cbor:"7,keyasint,omitempty"`
	Definitive   bool       `cbor:"8,keyasint,omitempty"`
	ElapsedMS    uint64     `cbor:"9,keyasint,omitempty"`
}

// FrameType is SRSP.
func (*Response) FrameType() frame.Type { return frame.SRSP }

// Validate bounds what a gateway answers.
func (r *Response) Validate() error {
	if len(r.ReqID) != 16 || len(r.Results) > MaxWant || len(r.Reasons) > maxReasons || len(r.Route) > MaxHops+1 {
		return frame.Errorf(frame.Malformed, "semantic response is over its limits")
	}
	for _, gw := range r.Route {
		if len(gw) > maxGateway {
			return frame.Errorf(frame.Malformed, "semantic response names a gateway of %d bytes", len(gw))
		}
	}
	for _, reason := range r.Reasons {
		if len(reason.GW) > maxGateway {
			return frame.Errorf(frame.Malformed, "semantic response names a gateway of %d bytes", len(reason.GW))
		}
	}
	return nil
}

// AddReason appends a reason, while there is room.
func (r *Response) AddReason(gw string, code frame.Code) {
	if len(r.Reasons) < maxReasons {
		r.Reasons = append(r.Reasons, Reason{GW: gw, Code: code})
	}
}

// Empty says that nothing is constrained.
func (c Constraints) Empty() bool {
	return c.MinScore == 0 && len(c.AllowDomains)+len(c.DenyDomains)+len(c.Exclude) == 0
}
