package session

// State is where a session stands.
//
//	       Start                RecvAccept
//	NONE ─────────▶ INIT_SENT ─────────────▶ ESTABLISHED ──── Close, RecvTerminate, ───▶ CLOSING
//	 │                  │ RecvReject, 5 s         ▲      │     expiry, idle, limits         │
//	 │ RecvInit         ▼                         │      │                                 │ last stream ended,
//	 └─────────▶ INIT_RCVD ───────── Admit ───────┘      │ ConnLost                        │ 5 s, ConnLost
//	                    │ Refuse                         ▼                                 ▼
//	                    └────────────────────────────▶ CLOSED ◀────────────────────────────┘
type State uint8

// States. A resumed or updated session is no state of this version.
const (
	None State = iota
	InitSent
	InitRcvd
	Established
	Closing
	Closed
)

// String is the state's name in the specification.
func (s State) String() string {
	return [...]string{"NONE", "INIT_SENT", "INIT_RCVD", "ESTABLISHED", "CLOSING", "CLOSED"}[s]
}

// Role is which end of the session this is.
type Role uint8

// Roles: the initiator leads (ACI: Master Agent), the target is the partner (ACI: Invoked Agent).
const (
	Leader Role = iota
	Partner
)
