package arp

import "agentgw/internal/frame"

// Attributes are what an agent says of its provider; nobody has proved them.
type Attributes struct {
	Organization string `cbor:"1,keyasint,omitempty" json:"organization,omitempty"`
	Country      string `cbor:"2,keyasint,omitempty" json:"country,omitempty"` // ISO 3166-1 alpha-2
	Address      string `cbor:"3,keyasint,omitempty" json:"address,omitempty"` // network address of the enroller, as its gateway sees it
	Name         string `cbor:"4,keyasint,omitempty" json:"name,omitempty"`
}

// AuthzRequest is AUTHZ_REQUEST (0x72): a gateway asks the central authentication service whether an agent may be registered,
// or registered anew. The gateway vouches that the key was proved to it.
type AuthzRequest struct {
	ReqID      []byte     `cbor:"1,keyasint"` // 16 bytes
	GW         string     `cbor:"2,keyasint"` // AIC of the gateway that asks
	SPKI       []byte     `cbor:"3,keyasint"`
	Vendor     string     `cbor:"4,keyasint,omitempty"`
	Ontology   string     `cbor:"5,keyasint,omitempty"`
	Attributes Attributes `cbor:"6,keyasint"`
	Scope      []string   `cbor:"7,keyasint,omitempty"` // wanted; absent asks for all that may be had
	TokenHash  []byte     `cbor:"8,keyasint,omitempty"` // SHA-256 of the secret of an enrolment token
	ACSHash    []byte     `cbor:"9,keyasint,omitempty"`
	Skills     []string   `cbor:"10,keyasint,omitempty"` // ids in the draft
	AIC        string     `cbor:"11,keyasint,omitempty"` // of a registered agent, whose attributes have changed
	PendingID  []byte     `cbor:"12,keyasint,omitempty"` // asks again after 4B
}

// FrameType is AUTHZ_REQUEST.
func (*AuthzRequest) FrameType() frame.Type { return frame.AuthzRequest }

// AuthzResponse is AUTHZ_RESPONSE (0x74): a grant (00), a denial, or 4B: a person has to decide, ask again later.
type AuthzResponse struct {
	ReqID        []byte     `cbor:"1,keyasint"`
	Code         frame.Code `cbor:"2,keyasint"`
	Grant        []byte     `cbor:"3,keyasint,omitempty"` // signed
	Reason       string     `cbor:"4,keyasint,omitempty"` // for the agent's people, ≤ 256 bytes
	PendingID    []byte     `cbor:"5,keyasint,omitempty"`
	RetryAfterMS uint64     `cbor:"6,keyasint,omitempty"`
}

// FrameType is AUTHZ_RESPONSE.
func (*AuthzResponse) FrameType() frame.Type { return frame.AuthzResponse }

// ACSPut is ACS_PUT (0x68): an agent replaces its ACS.
type ACSPut struct {
	AIC        string   `cbor:"1,keyasint"`
	ACS        []byte   `cbor:"2,keyasint"` // JSON, whole
	Kind       uint8    `cbor:"3,keyasint,omitempty"`
	Expected   uint64   `cbor:"4,keyasint"` // entry version that it replaces
	Visibility uint8    `cbor:"5,keyasint,omitempty"`
	Allow      []string `cbor:"6,keyasint,omitempty"`
}

// FrameType is ACS_PUT.
func (*ACSPut) FrameType() frame.Type { return frame.ACSPut }

// ACSState is ACS_STATE (0x6A): the entry as it is now. A refusal is an [Answer] instead.
type ACSState struct {
	Code         frame.Code `cbor:"1,keyasint"`
	EntryVersion uint64     `cbor:"2,keyasint"`
	State        uint8      `cbor:"3,keyasint"` // directory.State
	Caps         []string   `cbor:"4,keyasint,omitempty"`
	ACS          []byte     `cbor:"5,keyasint,omitempty"`
	Removed      []Removed  `cbor:"6,keyasint,omitempty"`
	Entry        []byte     `cbor:"7,keyasint,omitempty"` // [Statement], signed
}

// FrameType is ACS_STATE.
func (*ACSState) FrameType() frame.Type { return frame.ACSState }

// Deregister is DEREGISTER (0x6C): an agent leaves for good, or a gateway tells its AMC that one has. The answer is an [Answer].
type Deregister struct {
	AIC    string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint,omitempty"`
}

// FrameType is DEREGISTER.
func (*Deregister) FrameType() frame.Type { return frame.Deregister }

// What a SESSION_REVOKE names.
const (
	RevokeSession = 0 // one session, by sid
	RevokePeer    = 1 // all sessions with an AIC
	RevokeIssuer  = 2 // all sessions whose token a gateway issued before a time
	RevokeUnder   = 3 // all sessions with AICs under a prefix "prefix.version.arsp": a domain is trusted no more
)

// SessionRevoke is SESSION_REVOKE (0x78): the gateway tells an agent which sessions end now.
type SessionRevoke struct {
	Kind     uint8      `cbor:"1,keyasint"`
	Value    any        `cbor:"2,keyasint"` // sid (16 bytes), AIC, or prefix; of kind RevokePeer also a list of AICs
	IatFloor uint64     `cbor:"3,keyasint,omitempty"`
	Code     frame.Code `cbor:"4,keyasint"`
}

// FrameType is SESSION_REVOKE.
func (*SessionRevoke) FrameType() frame.Type { return frame.SessionRevoke }

// MaxRevoked is how many AICs one SESSION_REVOKE names: of 64 octets each they fit a control frame.
const MaxRevoked = 900

// Check says whether the value fits the kind.
func (m *SessionRevoke) Check() error {
	ok := false
	switch v := m.Value.(type) {
	case []byte:
		ok = m.Kind == RevokeSession && len(v) == 16
	case string:
		ok = m.Kind != RevokeSession && m.Kind <= RevokeUnder && v != ""
	case []any:
		ok = m.Kind == RevokePeer && len(v) > 0 && len(v) <= MaxRevoked
		for _, id := range v {
			text, isText := id.(string)
			ok = ok && isText && text != ""
		}
	}
	if !ok {
		return frame.Errorf(frame.Malformed, "SESSION_REVOKE of kind %d names nothing", m.Kind)
	}
	return nil
}

// Status is STATUS (0x0C) on a control stream: a signed status list.
type Status struct {
	List []byte `cbor:"1,keyasint"`
}

// FrameType is STATUS.
func (*Status) FrameType() frame.Type { return frame.StatusFrame }

// Bundle is BUNDLE (0x0E) on a control stream: a signed trust bundle of the agent's own domain.
type Bundle struct {
	Bundle []byte `cbor:"1,keyasint"`
}

// FrameType is BUNDLE.
func (*Bundle) FrameType() frame.Type { return frame.BundleFrame }
