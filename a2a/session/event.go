package session

import (
	"time"

	"agentgw/a2a/wire"
	"agentgw/internal/frame"
)

// Event is what happens to a session; the set is closed.
type Event interface{ event() }

// Events of our own side.
type (
	// Start opens the session (leader).
	Start struct{}
	// Admit says that every check of the INIT passed (partner).
	Admit struct {
		Params wire.Params // final
		Until  time.Time   // sess_exp
	}
	// Refuse says that a check failed; Code is what the peer gets (partner).
	Refuse struct {
		Code       frame.Code
		RetryAfter time.Duration
	}
	// Close ends the session.
	Close struct{ Code frame.Code }
	// ConnLost says that the connection or the control stream is gone. Final says that no other can take its place: a side broke the
	// framing, or stopped.
	ConnLost struct{ Final bool }
	// Resume goes on over another connection (leader). The one that there may still be is left.
	Resume struct {
		Grant *Grant // of a new SAT, nil for none
	}
	// Readmit says that every check of a resuming INIT passed (partner).
	Readmit struct {
		Grant *Grant // of a new SAT, nil for none
	}
	// Update asks the other side for a change. It is an error with 6A where another one waits for its answer.
	Update struct {
		Change Change
		Grant  *Grant // of the change's SAT, nil for none
	}
	// AdmitUpdate says that every check of the SAT of the peer's update passed; RefuseUpdate that one failed.
	// Seq is that of the [CheckUpdate].
	AdmitUpdate struct {
		Seq   uint64
		Grant Grant
	}
	// RefuseUpdate carries the code that the peer gets.
	RefuseUpdate struct {
		Seq  uint64
		Code frame.Code
	}
	// StreamEnded says that one exchange is over.
	StreamEnded struct{}
	// Tick says that the time of [Session.NextDeadline] has come.
	Tick struct{}
)

// Events that the peer caused.
type (
	// RecvInit is a SESSION_INIT (partner).
	RecvInit struct{}
	// RecvAccept is a SESSION_ACCEPT (leader).
	RecvAccept struct {
		Params  wire.Params
		Until   time.Time
		Resumed bool
	}
	// RecvUpdate is a SESSION_UPDATE.
	RecvUpdate struct {
		Seq    uint64
		Change Change
	}
	// RecvUpdateAck is an UPDATE_ACK.
	RecvUpdateAck struct {
		Seq  uint64
		Code frame.Code
	}
	// RecvReject is a SESSION_REJECT (leader).
	RecvReject struct {
		Code       frame.Code
		RetryAfter time.Duration
	}
	// RecvTerminate is a SESSION_TERMINATE.
	RecvTerminate struct{ Code frame.Code }
	// RecvKeepalive is an A2A_KEEPALIVE.
	RecvKeepalive struct{ TimestampMS uint64 }
	// Message is one CTX_HDR, sent or received: both directions count.
	Message struct {
		Len   uint64    // of the body
		Opens bool      // it begins an exchange, and with it a data stream
		Mode  wire.Mode // of a message that opens
	}
)

func (Start) event()         {}
func (Admit) event()         {}
func (Refuse) event()        {}
func (Close) event()         {}
func (ConnLost) event()      {}
func (Resume) event()        {}
func (Readmit) event()       {}
func (Update) event()        {}
func (AdmitUpdate) event()   {}
func (RefuseUpdate) event()  {}
func (RecvUpdate) event()    {}
func (RecvUpdateAck) event() {}
func (StreamEnded) event()   {}
func (Tick) event()          {}
func (RecvInit) event()      {}
func (RecvAccept) event()    {}
func (RecvReject) event()    {}
func (RecvTerminate) event() {}
func (RecvKeepalive) event() {}
func (Message) event()       {}

// Effect is what the caller has to do; the set is closed.
type Effect interface{ effect() }

// Effects.
type (
	// SendInit sends the SESSION_INIT.
	SendInit struct{}
	// CheckInit runs the target's checks; their outcome comes back as [Admit] or [Refuse].
	CheckInit struct{}
	// SendAccept sends the SESSION_ACCEPT.
	SendAccept struct {
		Params  wire.Params
		Until   time.Time
		Resumed bool
	}
	// SendUpdate sends a SESSION_UPDATE.
	SendUpdate struct {
		Seq    uint64
		Change Change
	}
	// CheckUpdate runs the checks of INIT on the SAT of the peer's update; their outcome comes back as [AdmitUpdate] or [RefuseUpdate].
	CheckUpdate struct {
		Seq uint64
		SAT []byte
	}
	// SendUpdateAck answers the peer's update.
	SendUpdateAck struct {
		Seq  uint64
		Code frame.Code
	}
	// Updated says what has become of this side's update.
	Updated struct{ Code frame.Code }
	// Changed says that the session allows something else from now on.
	Changed struct{}
	// Left says that the session is without a connection; it waits for another one until Until.
	Left struct{ Until time.Time }
	// Resumed says that data may flow again, over the new connection.
	Resumed struct{}
	// SendReject sends the SESSION_REJECT.
	SendReject struct {
		Code       frame.Code
		RetryAfter time.Duration
	}
	// SendTerminate sends the SESSION_TERMINATE.
	SendTerminate struct{ Code frame.Code }
	// SendKeepalive sends an A2A_KEEPALIVE.
	SendKeepalive struct{ TimestampMS, EchoMS uint64 }
	// Opened says that data may flow.
	Opened struct{}
	// StopData says that no new exchange may begin; those that run may end.
	StopData struct{ Code frame.Code }
	// Released says that the session is over: abort what still runs, forget it, and keep its sid in [Tombstones] until Until.
	Released struct {
		Code  frame.Code
		Until time.Time
	}
)

func (SendUpdate) effect()    {}
func (CheckUpdate) effect()   {}
func (SendUpdateAck) effect() {}
func (Updated) effect()       {}
func (Changed) effect()       {}
func (Left) effect()          {}
func (Resumed) effect()       {}
func (SendInit) effect()      {}
func (CheckInit) effect()     {}
func (SendAccept) effect()    {}
func (SendReject) effect()    {}
func (SendTerminate) effect() {}
func (SendKeepalive) effect() {}
func (Opened) effect()        {}
func (StopData) effect()      {}
func (Released) effect()      {}
