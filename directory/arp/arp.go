// Package arp is the messages between an agent and its gateway (Agent Registration Protocol, ALPN dmsc-ctl/1): enrolment,
// attachment, liveness, and the offer of a session. It is pure.
//
// ENROL is the one exchange open to a peer whose certificate no CA signed: one stream, one frame, bounded, with a token.
// Everything else needs the agent's credential. Durations are milliseconds, times unix seconds, ids 16 bytes, AICs
// upper-cased text.
// Source: seed 002, section 5.1; cdsp/PROTOCOL.md, "Agent and gateway".
package arp

import (
	"agentgw/directory/semreq"
	"agentgw/internal/frame"
)

// Draft kinds of ENROL and ACS_PUT.
const (
	DraftACS     = 0
	DraftCard    = 1 // an Agent Card of A2A 1.0 or 0.3
	DraftGateway = 2 // the sender is a gateway that joins the domain, and the draft a [GatewayDraft]; only an AMC takes it
)

// GatewayDraft is what a gateway says of itself when it joins, and again when its keys change: deterministic CBOR in the place
// of an ACS.
type GatewayDraft struct {
	Keys      []GatewayKey `cbor:"1,keyasint"`
	Addresses []HostPort   `cbor:"2,keyasint,omitempty"` // where agents reach it
}

// GatewayKey is one signing key of a gateway. Its owner is who sends it.
type GatewayKey struct {
	_         struct{} `cbor:",toarray"`
	Use       uint8
	Public    []byte // Ed25519
	NotBefore uint64
	NotAfter  uint64
	Proof     []byte // see [KeyProof]; empty for a key that the domain's bundle names as this gateway's already
}

// GatewayCodes is what a gateway that has joined needs to make AICs: in the place of the authoritative ACS.
type GatewayCodes struct {
	Prefix string `cbor:"1,keyasint"`
	ARSP   string `cbor:"2,keyasint"`
	Vendor string `cbor:"3,keyasint"`
	Salt   []byte `cbor:"4,keyasint"`
	Domain string `cbor:"5,keyasint"`
}

// Enrol is ENROL (0x60): token, certificate request and draft ACS.
type Enrol struct {
	Secret     []byte   `cbor:"1,keyasint,omitempty"` // of the enrolment token, 32 bytes; absent where a person or a rule decides
	CSR        []byte   `cbor:"2,keyasint"`           // DER
	Draft      []byte   `cbor:"3,keyasint"`           // JSON
	DraftKind  uint8    `cbor:"4,keyasint,omitempty"`
	Scope      []string `cbor:"5,keyasint,omitempty"` // what the agent wants to be allowed; absent asks for the token's whole scope
	Visibility uint8    `cbor:"6,keyasint,omitempty"` // directory.Visibility
	Allow      []string `cbor:"7,keyasint,omitempty"` // domains, with visibility listed
	PendingID  []byte   `cbor:"8,keyasint,omitempty"` // asks again after 4B
}

// FrameType is ENROL.
func (*Enrol) FrameType() frame.Type { return frame.Enrol }

// Removed is a skill that the grant did not allow, or a place in a rejected input.
type Removed struct {
	_    struct{} `cbor:",toarray"`
	Path string
	Code frame.Code
}

// Enrolled is ENROLLED (0x62). With code 4B it carries 10 and 11 only: ask again with that id. A refusal is an [Answer] instead.
type Enrolled struct {
	Code         frame.Code `cbor:"1,keyasint"`
	AIC          string     `cbor:"2,keyasint,omitempty"`
	Caps         []string   `cbor:"3,keyasint,omitempty"`
	Chain        [][]byte   `cbor:"4,keyasint,omitempty"`
	Bundle       []byte     `cbor:"5,keyasint,omitempty"`
	ACS          []byte     `cbor:"6,keyasint,omitempty"`
	EntryVersion uint64     `cbor:"7,keyasint,omitempty"`
	Grant        []byte     `cbor:"8,keyasint,omitempty"`
	Removed      []Removed  `cbor:"9,keyasint,omitempty"`
	PendingID    []byte     `cbor:"10,keyasint,omitempty"`
	RetryAfterMS uint64     `cbor:"11,keyasint,omitempty"`
}

// FrameType is ENROLLED.
func (*Enrolled) FrameType() frame.Type { return frame.Enrolled }

// Renew is RENEW (0x6E): the next certificate for a registered agent, over the key that it has or over a new one. It comes on
// a connection under the current certificate, or, when that has expired, on one that is self-signed over the same key. A
// gateway hands it to its AMC; the first issue of an agent names its grant.
type Renew struct {
	AIC string `cbor:"1,keyasint"`
	CSR []byte `cbor:"2,keyasint"`           // DER
	JTI []byte `cbor:"3,keyasint,omitempty"` // of the grant; first issue only, gateway to AMC
}

// FrameType is RENEW.
func (*Renew) FrameType() frame.Type { return frame.Renew }

// Credential is CREDENTIAL (0x70). A refusal is an [Answer] instead.
type Credential struct {
	Code   frame.Code `cbor:"1,keyasint"`
	Chain  [][]byte   `cbor:"2,keyasint"`
	Bundle []byte     `cbor:"3,keyasint"`
	Grant  []byte     `cbor:"4,keyasint,omitempty"` // signed, with the AIC; when it is another one than before
}

// FrameType is CREDENTIAL.
func (*Credential) FrameType() frame.Type { return frame.Credential }

// Attach is ATTACH (0x64), the first frame of an agent's control stream.
type Attach struct {
	AIC          string            `cbor:"1,keyasint"`
	BootID       []byte            `cbor:"2,keyasint"`
	Endpoints    []semreq.Endpoint `cbor:"3,keyasint,omitempty"` // where it takes sessions; none = it only initiates
	EntryVersion uint64            `cbor:"4,keyasint,omitempty"`
	ACSHash      []byte            `cbor:"5,keyasint,omitempty"`
	Capacity     uint8             `cbor:"6,keyasint,omitempty"` // share free, 255 = all
	Grant        []byte            `cbor:"7,keyasint,omitempty"`
	Trust        []TrustHeld       `cbor:"8,keyasint,omitempty"`
	Now          uint64            `cbor:"9,keyasint"`
	Entry        []byte            `cbor:"10,keyasint,omitempty"` // the newest [Statement] of its entry that it was given, signed
}

// TrustHeld is what somebody holds of an issuer: what is newer is sent.
type TrustHeld struct {
	_         struct{} `cbor:",toarray"`
	Issuer    string   // AIC of an AMC
	BundleSeq uint64
	StatusSeq uint64
}

// MaxTrustHeld bounds the list.
const MaxTrustHeld = 8

// Lacking is what a peer that holds held is sent of an issuer: newest says what there is, bundle and lists are it.
func Lacking(held []TrustHeld, newest TrustHeld, bundle []byte, lists [][]byte) (out []frame.Message) {
	var has TrustHeld
	for _, h := range held {
		if h.Issuer == newest.Issuer {
			has = h
		}
	}
	if has.BundleSeq < newest.BundleSeq {
		out = append(out, &Bundle{Bundle: bundle})
	}
	if has.StatusSeq < newest.StatusSeq {
		for _, list := range lists {
			out = append(out, &Status{List: list})
		}
	}
	return out
}

// FrameType is ATTACH.
func (*Attach) FrameType() frame.Type { return frame.Attach }

// AttachPolicy is what the gateway tells an agent of its policy.
type AttachPolicy struct {
	MaxContext uint64 `cbor:"1,keyasint"` // bytes of one AgentContext
	SessExpS   uint64 `cbor:"2,keyasint"` // how long a session may live
	Export     bool   `cbor:"3,keyasint,omitempty"`
}

// Attached is ATTACHED (0x66).
type Attached struct {
	Code         frame.Code       `cbor:"1,keyasint"`
	EntryVersion uint64           `cbor:"2,keyasint"`
	Gateways     []GatewayAt      `cbor:"3,keyasint,omitempty"` // the domain's others, where the agent may attach when this one is gone
	Policy       AttachPolicy     `cbor:"4,keyasint"`
	KeepaliveMS  uint64           `cbor:"5,keyasint"`
	OfflineMS    uint64           `cbor:"6,keyasint"`
	Observed     *semreq.Endpoint `cbor:"7,keyasint,omitempty"`
	WantACS      bool             `cbor:"8,keyasint,omitempty"` // the entry is another gateway's: the agent sends its ACS, and is at home here
	Now          uint64           `cbor:"9,keyasint"`
	Entry        []byte           `cbor:"10,keyasint,omitempty"` // [Statement], signed
}

// GatewayAt is a gateway and where it is.
type GatewayAt struct {
	_         struct{} `cbor:",toarray"`
	AIC       string
	Addresses []HostPort
}

// MaxGateways bounds the list, and MaxGatewayAddresses that of one.
const (
	MaxGateways         = 16
	MaxGatewayAddresses = 4
)

// FrameType is ATTACHED.
func (*Attached) FrameType() frame.Type { return frame.Attached }

// KeepalivePad makes a keepalive long enough (≥ 48 bytes) that a peer which restarted answers it with a stateless reset.
var KeepalivePad = make([]byte, 40)

// Keepalive is CTL_KEEPALIVE (0x58), both ways.
type Keepalive struct {
	TSMS     uint64 `cbor:"1,keyasint"`
	EchoTSMS uint64 `cbor:"2,keyasint,omitempty"`
	Capacity uint8  `cbor:"3,keyasint,omitempty"`
	Version  uint64 `cbor:"5,keyasint,omitempty"` // of the agent's entry now, from the gateway: its operator changes entries too; from the agent, that of its statement
	Pad      []byte `cbor:"6,keyasint"`
	Entry    []byte `cbor:"7,keyasint,omitempty"` // from the gateway to an agent whose statement is of another version
}

// FrameType is CTL_KEEPALIVE.
func (*Keepalive) FrameType() frame.Type { return frame.CtlKeepalive }

// SessionOffer is SESSION_OFFER (0x76): the gateway shows the target a token before it hands it to the initiator.
type SessionOffer struct {
	CTI []byte `cbor:"1,keyasint"`
	SAT []byte `cbor:"2,keyasint"`
}

// FrameType is SESSION_OFFER.
func (*SessionOffer) FrameType() frame.Type { return frame.SessionOffer }

// OfferAck is OFFER_ACK (0x5C): the target keeps the offer (00), or says why not.
type OfferAck struct {
	CTI       []byte            `cbor:"1,keyasint"`
	Code      frame.Code        `cbor:"2,keyasint"`
	Endpoints []semreq.Endpoint `cbor:"3,keyasint,omitempty"`
}

// FrameType is OFFER_ACK.
func (*OfferAck) FrameType() frame.Type { return frame.OfferAck }

// Answer is ANSWER (0x5A): for verbs without an answer of their own, and for any that fails.
type Answer struct {
	Code         frame.Code `cbor:"1,keyasint"`
	Msg          string     `cbor:"2,keyasint,omitempty"` // ≤ 256 bytes, for the agent's people: what, where, what to do
	RetryAfterMS uint64     `cbor:"3,keyasint,omitempty"`
	Detail       []Removed  `cbor:"4,keyasint,omitempty"`
}

// FrameType is ANSWER.
func (*Answer) FrameType() frame.Type { return frame.Answer }

// Bounds of answers.
const (
	MaxMsg    = 256
	maxDetail = 64
	maxPath   = 256
)

// Refusal makes the ANSWER of an error. What an agent is told of its own registration is the whole text: agent and gateway
// are of one domain.
func Refusal(err error) *Answer {
	return &Answer{Code: frame.CodeOf(err), Msg: clip(frame.Text(err), MaxMsg)}
}

// Err is the error that an answer stands for, nil for OK.
func (a *Answer) Err() error {
	if a.Code == frame.OK {
		return nil
	}
	return frame.Errorf(a.Code, "%s", a.Msg)
}

// AddDetail appends one place and its code, while there is room.
func (a *Answer) AddDetail(path string, code frame.Code) {
	if len(a.Detail) < maxDetail {
		a.Detail = append(a.Detail, Removed{Path: clip(path, maxPath), Code: code})
	}
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
