package frame

import "fmt"

// Type is the type of a frame. All streams share the one space; even types must be understood, odd ones may be skipped.
type Type uint64

// Frame types in use (PROTOCOL documents, "Registry").
const (
	Hello            Type = 0x00
	Ack              Type = 0x02
	Resync           Type = 0x04
	Goodbye          Type = 0x06
	Keepalive        Type = 0x0A
	StatusFrame      Type = 0x0C
	BundleFrame      Type = 0x0E
	TrustGet         Type = 0x10
	Moved            Type = 0x13
	SyncBegin        Type = 0x20
	Entries          Type = 0x22
	SyncEnd          Type = 0x24
	SREQ             Type = 0x40
	SRSP             Type = 0x42
	CtlKeepalive     Type = 0x58
	Answer           Type = 0x5A
	OfferAck         Type = 0x5C
	Enrol            Type = 0x60
	Enrolled         Type = 0x62
	Attach           Type = 0x64
	Attached         Type = 0x66
	ACSPut           Type = 0x68
	ACSState         Type = 0x6A
	Deregister       Type = 0x6C
	Renew            Type = 0x6E
	Credential       Type = 0x70
	AuthzRequest     Type = 0x72
	AuthzResponse    Type = 0x74
	SessionOffer     Type = 0x76
	SessionRevoke    Type = 0x78
	SessionInit      Type = 0x80
	SessionAccept    Type = 0x82
	SessionReject    Type = 0x84
	SessionUpdate    Type = 0x86
	UpdateAck        Type = 0x88
	SessionTerminate Type = 0x8A
	A2AKeepalive     Type = 0x8C
	CtxHdr           Type = 0xA0
	CtxProgress      Type = 0xA1
	CtxErr           Type = 0xA2
)

var typeNames = map[Type]string{
	Hello: "HELLO", Ack: "ACK", Resync: "RESYNC", Goodbye: "GOODBYE", Keepalive: "KEEPALIVE", StatusFrame: "STATUS", BundleFrame: "BUNDLE", TrustGet: "TRUST_GET", Moved: "MOVED",
	SyncBegin: "SYNC_BEGIN", Entries: "ENTRIES", SyncEnd: "SYNC_END", SREQ: "SREQ", SRSP: "SRSP",
	CtlKeepalive: "CTL_KEEPALIVE", Answer: "ANSWER", OfferAck: "OFFER_ACK", Enrol: "ENROL", Enrolled: "ENROLLED",
	Attach: "ATTACH", Attached: "ATTACHED", ACSPut: "ACS_PUT", ACSState: "ACS_STATE", Deregister: "DEREGISTER",
	Renew: "RENEW", Credential: "CREDENTIAL", AuthzRequest: "AUTHZ_REQUEST", AuthzResponse: "AUTHZ_RESPONSE",
	SessionOffer: "SESSION_OFFER", SessionRevoke: "SESSION_REVOKE", SessionInit: "SESSION_INIT", SessionAccept: "SESSION_ACCEPT",
	SessionReject: "SESSION_REJECT", SessionUpdate: "SESSION_UPDATE", UpdateAck: "UPDATE_ACK",
	SessionTerminate: "SESSION_TERMINATE", A2AKeepalive: "A2A_KEEPALIVE",
	CtxHdr: "CTX_HDR", CtxProgress: "CTX_PROGRESS", CtxErr: "CTX_ERR",
}

// String is the frame's name in the specification.
func (t Type) String() string {
	if s, ok := typeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("FRAME_%02X", uint64(t))
}

// Optional says that a receiver that does not know the type may skip the frame (odd types).
func (t Type) Optional() bool { return t&1 == 1 }

// StreamType is the first varint of every stream.
type StreamType uint64

// Stream types in use.
const (
	StreamControl      StreamType = 0x01 // agw, ctl; bidirectional; opened by the dialler; exactly one
	StreamDigest       StreamType = 0x02 // agw; unidirectional; one per direction at a time
	StreamRequest      StreamType = 0x10 // agw, ctl; bidirectional; opened by the asker
	StreamRegistration StreamType = 0x12 // ctl; bidirectional; opened by the agent
	StreamA2AControl   StreamType = 0x20 // a2a; bidirectional; opened by the initiator; one a session
	StreamA2AData      StreamType = 0x21 // a2a; bidirectional; either side
)

// ALPN protocol identifiers. Private and unregistered; never `a2a`, which names another protocol.
const (
	ALPNGateway = "dmsc-agw/1" // gateway to gateway
	ALPNControl = "dmsc-ctl/1" // agent to gateway
	ALPNAgent   = "dmsc-a2a/1" // agent to agent
)
