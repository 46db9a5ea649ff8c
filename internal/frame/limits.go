package frame

// Limits on what a peer may send. Every bound on a frame's size is here; bounds on its content stand beside its message.
const (
	MaxControl      = 64 << 10  // control frames of gateways, agents and sessions
	MaxDigest       = 256 << 10 // ENTRIES: 256 entries with the batches that they use first
	MaxRequest      = 128 << 10 // SREQ, SRSP: 20 results with a token each
	MaxRegistration = 256 << 10 // ENROL, ENROLLED, ACS_PUT: an ACS of 64 KiB each way, with chain and bundle or a statement
	MaxSessionInit  = 4 << 10   // SESSION_INIT: refused before any state is kept (a2a/PROTOCOL.md)

	maxSkipped = 16 << 10 // an unknown optional frame is read past, not kept
)

// Limit is the largest payload accepted for a frame of type t, in bytes.
func Limit(t Type) int {
	switch t {
	case SyncBegin, Entries, SyncEnd:
		return MaxDigest
	case SREQ, SRSP:
		return MaxRequest
	case Enrol, Enrolled, Renew, Credential, ACSPut, ACSState:
		return MaxRegistration
	case SessionInit:
		return MaxSessionInit
	}
	if _, known := typeNames[t]; !known && t.Optional() {
		return maxSkipped
	}
	return MaxControl
}
