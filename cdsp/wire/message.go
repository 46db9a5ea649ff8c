package wire

import (
	"unicode/utf8"

	"agentgw/internal/frame"
)

// Message is one frame of the control stream or the digest stream. The set is closed.
type Message interface {
	frame.Message
	check() error
}

// Parse reads the payload of a frame of type t. Codes: [frame.Malformed], [frame.CriticalUnknown], and
// [frame.UnexpectedFrame] for a type that this protocol does not have.
func Parse(t frame.Type, payload []byte) (Message, error) {
	m := newMessage(t)
	if m == nil {
		return nil, frame.Errorf(frame.UnexpectedFrame, "%v does not belong to this protocol", t)
	}
	if err := frame.Unmarshal(payload, m); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// Append appends m as a whole frame; m must satisfy its own limits.
func Append(b []byte, m Message) ([]byte, error) {
	if err := m.check(); err != nil {
		return b, err
	}
	return frame.AppendMessage(b, m)
}

func newMessage(t frame.Type) Message {
	switch t {
	case frame.Hello:
		return &Hello{}
	case frame.Ack:
		return &Ack{}
	case frame.Resync:
		return &Resync{}
	case frame.Goodbye:
		return &Goodbye{}
	case frame.Keepalive:
		return &Keepalive{}
	case frame.StatusFrame:
		return &Status{}
	case frame.BundleFrame:
		return &Bundle{}
	case frame.TrustGet:
		return &TrustGet{}
	case frame.Moved:
		return &Moved{}
	case frame.SyncBegin:
		return &SyncBegin{}
	case frame.Entries:
		return &Entries{}
	case frame.SyncEnd:
		return &SyncEnd{}
	}
	return nil
}

// OnDigestStream says whether frames of type t travel on the digest stream; the others travel on the control stream.
func OnDigestStream(t frame.Type) bool {
	return t == frame.SyncBegin || t == frame.Entries || t == frame.SyncEnd
}

func malformed(format string, args ...any) error {
	return frame.Errorf(frame.Malformed, format, args...)
}

func checkText(what, s string, limit int) error {
	if len(s) > limit {
		return malformed("%s of %d octets is over its limit of %d", what, len(s), limit)
	}
	if !utf8.ValidString(s) { // decoding refuses it before; this keeps our own from being sent
		return malformed("%s is not UTF-8", what)
	}
	return nil
}

func checkName(what, s string, limit int) error {
	if s == "" {
		return malformed("%s is empty", what)
	}
	return checkText(what, s, limit)
}

func checkTrust(trust []TrustVersion) error {
	if len(trust) > MaxTrust {
		return malformed("%d trust versions are over the limit of %d", len(trust), MaxTrust)
	}
	for _, t := range trust {
		if err := checkName("trust issuer", t.Issuer, MaxAIC); err != nil {
			return err
		}
	}
	return nil
}
