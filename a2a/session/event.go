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
	// ConnLost says that the connection or the control stream is gone.
	ConnLost struct{}
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
		Params wire.Params
		Until  time.Time
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
		Len   uint64 // of the body
		Opens bool   // it begins an exchange, and with it a data stream
	}
)

func (Start) event()         {}
func (Admit) event()         {}
func (Refuse) event()        {}
func (Close) event()         {}
func (ConnLost) event()      {}
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
		Params wire.Params
		Until  time.Time
	}
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

func (SendInit) effect()      {}
func (CheckInit) effect()     {}
func (SendAccept) effect()    {}
func (SendReject) effect()    {}
func (SendTerminate) effect() {}
func (SendKeepalive) effect() {}
func (Opened) effect()        {}
func (StopData) effect()      {}
func (Released) effect()      {}
