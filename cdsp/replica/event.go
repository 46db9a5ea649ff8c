package replica

import (
	"time"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
)

// Event is something that happened. The set is closed.
type Event interface{ event() }

// Connected: a connection to a gateway exists, its TLS identity is verified, its control stream is open.
type Connected struct {
	Conn    uint64 // unique in the life of the Replica
	Gateway string // AIC from the verified certificate
	Domain  string // domain that owns the AIC's prefix
	Dialled bool   // by us
	// Until is when the first of both ends' certificates ends; zero: not known.
	Until time.Time
}

// Disconnected: the connection is gone, whoever ended it.
type Disconnected struct {
	Conn   uint64
	Reason string // for our own history
}

// Received: a frame of the control stream or of the digest stream arrived. Frames of one stream come in order, and no
// digest frame is handed in before the neighbour's HELLO.
type Received struct {
	Conn uint64
	Msg  wire.Message
	RTT  time.Duration // smoothed, of the connection
}

// Undecodable: what arrived is not a frame of this protocol.
type Undecodable struct {
	Conn uint64
	Err  error
}

// SetNeighbours replaces the policy rows.
type SetNeighbours struct{ Rows []Neighbour }

// SetOwn replaces the own digests. Keys are unique over all groups: of two the first counts. A group or an item that breaks the
// protocol is left out, and withdrawn where it was told before; the others count, and the error names it.
type SetOwn struct{ Groups []wire.Group }

// KeysChanged: Config.Keys answers differently than before, such as after a trust bundle was accepted or removed.
type KeysChanged struct{}

// Leave: one session is about to be ended by us; its neighbour is told to keep our entries for a restart.
type Leave struct {
	Conn uint64
	Msg  string // why, for the neighbour's operator; ≤ 64 octets, nothing internal
}

// Expel: one gateway is believed no more, such as after its certificate was revoked. Its connections end with the code, and what
// it told is dropped at once.
type Expel struct {
	Gateway string
	Code    frame.Code
	Reason  string // ≤ 128 octets, nothing internal: it travels
}

// Shutdown: the gateway is about to stop; neighbours are told to keep its entries for a restart.
type Shutdown struct{}

func (Connected) event()     {}
func (Disconnected) event()  {}
func (Received) event()      {}
func (Undecodable) event()   {}
func (SetNeighbours) event() {}
func (SetOwn) event()        {}
func (KeysChanged) event()   {}
func (Leave) event()         {}
func (Expel) event()         {}
func (Shutdown) event()      {}

// Effect is something to do. Effects are carried out in their order. The set is closed.
type Effect interface{ effect() }

// Send writes a frame: SYNC_BEGIN on a digest stream of its own (an older one of this connection is reset), ENTRIES and
// SYNC_END on that stream, everything else on the control stream.
type Send struct {
	Conn uint64
	Msg  wire.Message
}

// StopDigest refuses the rest of the neighbour's current digest stream; its next one is read.
type StopDigest struct {
	Conn uint64
	Code frame.Code
}

// Close ends the connection. The Replica has forgotten it already.
type Close struct {
	Conn   uint64
	Code   frame.Code
	Reason string // ≤ 128 octets, nothing internal: it travels
}

// Retire: a connection with younger certificates has taken the place of this one, which the Replica has forgotten already. It is to be
// closed when what runs on it has had time to end.
type Retire struct{ Conn uint64 }

// Up: the session with a gateway is established: its HELLO arrived and was accepted.
type Up struct {
	Conn    uint64
	Gateway string
	Domain  string
}

// Transition is one change of a session's state, for the history.
type Transition struct {
	Conn     uint64
	Gateway  string
	From, To State
	Reason   string
}

// Changed: the tables or a neighbour's standing changed.
type Changed struct{}

// UnknownKey: entries of a neighbour were refused for a key that no accepted bundle names. Domain is what the batch claims.
type UnknownKey struct {
	Gateway string
	Domain  string
}

// Alarm: somebody must look at a neighbour.
type Alarm struct {
	Gateway string
	Text    string
}

func (Send) effect()       {}
func (StopDigest) effect() {}
func (Close) effect()      {}
func (Retire) effect()     {}
func (Up) effect()         {}
func (Transition) effect() {}
func (Changed) effect()    {}
func (UnknownKey) effect() {}
func (Alarm) effect()      {}
