package wire

import (
	"strings"

	"agentgw/internal/frame"
)

// Version is the one version of the session protocol that this package speaks.
const Version = 1

// Message is one of the messages of this package; the set is closed.
type Message interface {
	frame.Message
	// check says what is wrong with the values of a decoded message.
	check() error
}

// Append appends m as a whole frame. It refuses a message that [ReadControl] or [ReadData] would refuse.
func Append(b []byte, m Message) ([]byte, error) {
	if err := m.check(); err != nil {
		return b, err
	}
	return frame.AppendMessage(b, m)
}

// Parse decodes the payload of one frame of type t, on either stream. Unknown types are [frame.UnexpectedFrame].
func Parse(t frame.Type, payload []byte) (Message, error) {
	m := empty(t)
	if m == nil {
		return nil, frame.Errorf(frame.UnexpectedFrame, "%v is not a frame of this protocol", t)
	}
	if limit := frame.Limit(t); len(payload) > limit {
		return nil, frame.Errorf(frame.FrameTooLarge, "%v of %d bytes is over its limit of %d", t, len(payload), limit)
	}
	if err := frame.Unmarshal(payload, m); err != nil {
		return nil, err
	}
	return m, m.check()
}

func empty(t frame.Type) Message {
	switch t {
	case frame.SessionInit:
		return &SessionInit{}
	case frame.SessionAccept:
		return &SessionAccept{}
	case frame.SessionReject:
		return &SessionReject{}
	case frame.SessionUpdate:
		return &SessionUpdate{}
	case frame.UpdateAck:
		return &UpdateAck{}
	case frame.SessionTerminate:
		return &SessionTerminate{}
	case frame.A2AKeepalive:
		return &Keepalive{}
	case frame.CtxHdr:
		return &CtxHdr{}
	case frame.CtxProgress:
		return &CtxProgress{}
	case frame.CtxErr:
		return &CtxErr{}
	}
	return nil
}

// Source is where frames come from: a [frame.Reader], or a stream with its deadlines.
type Source interface {
	Next() (frame.Type, []byte, error)
}

// ReadControl reads the next message of a control stream (0x20). io.EOF means that the peer ended it between two frames.
func ReadControl(r Source) (Message, error) { return read(r, frame.SessionInit, frame.A2AKeepalive) }

// ReadData reads the next message of a data stream (0x21). The raw body behind a [CtxHdr] is the caller's to read.
func ReadData(r Source) (Message, error) { return read(r, frame.CtxHdr, frame.CtxErr) }

func read(r Source, first, last frame.Type) (Message, error) {
	for range maxSkipped {
		t, payload, err := r.Next()
		if err != nil {
			return nil, err
		}
		known := empty(t) != nil
		switch {
		case known && t >= first && t <= last:
			return Parse(t, payload)
		case known || !t.Optional():
			return nil, frame.Errorf(frame.UnexpectedFrame, "%v has no place on this stream", t)
		}
	}
	return nil, frame.Errorf(frame.UnexpectedFrame, "more than %d unknown frames in a row", maxSkipped)
}

func malformed(format string, args ...any) error {
	return frame.Errorf(frame.Malformed, format, args...)
}

// checkAIC holds the wire form of an AIC: canonical upper-case text. What it means is for package directory/aic.
func checkAIC(who, aic string) error {
	if aic == "" || len(aic) > MaxAIC || strings.ToUpper(aic) != aic {
		return malformed("%s is not the canonical text of an AIC", who)
	}
	return nil
}
