package session

// State is where a session stands.
//
//	       Start               RecvAccept
//	NONE ────────▶ INIT_SENT ─────────────▶ ESTABLISHED ─── Close, RecvTerminate, ──▶ CLOSING
//	 │                 │ RecvReject, 5 s      ▲   ▲ │  │     expiry, idle, limits        │
//	 │ RecvInit        ▼                      │   │ │  │                                 │ last stream ended,
//	 └────────▶ INIT_RCVD ────── Admit ───────┘   │ │  │ ConnLost                        │ 5 s, ConnLost
//	                   │ Refuse                   │ │  ▼                                 ▼
//	                   └──────────────────────────┼─┼─ LOST ───── 60 s, Close ────────▶ CLOSED
//	                                   RecvAccept │ │  │ ▲                                ▲
//	                                       Resume │ ▼  ▼ │ 0F, 47, 5 s, ConnLost          │
//	                                             RESUMING ── any other RecvReject, Close ─┘
//
// UPDATING stands beside ESTABLISHED and is left and ended as that is: from Update to RecvUpdateAck. A partner is never RESUMING:
// Readmit takes it from ESTABLISHED, UPDATING or LOST to ESTABLISHED.
type State uint8

// States.
const (
	None State = iota
	InitSent
	InitRcvd
	Established
	Updating // an update of this side waits for its answer
	Lost     // the connection is gone, and the session waits for another one
	Resuming // the resuming SESSION_INIT waits for its answer (leader)
	Closing
	Closed
)

// String is the state's name in the specification.
func (s State) String() string {
	return [...]string{"NONE", "INIT_SENT", "INIT_RCVD", "ESTABLISHED", "UPDATING", "LOST", "RESUMING", "CLOSING", "CLOSED"}[s]
}

// Live says whether exchanges may begin.
func (s State) Live() bool { return s == Established || s == Updating }

// Role is which end of the session this is.
type Role uint8

// Roles: the initiator leads (ACI: Master Agent), the target is the partner (ACI: Invoked Agent).
const (
	Leader Role = iota
	Partner
)
