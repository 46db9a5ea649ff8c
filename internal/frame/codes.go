package frame

import (
	"errors"
	"fmt"
	"strings"
)

// Code is a status, reject, nack, reset or close code. All protocols share the one space (PROTOCOL documents, "Codes").
type Code uint16

// The codes. Connection-fatal are 03 to 07, 0A at HELLO, 0C to 0E and 12; every other belongs to one stream or entry.
const (
	OK               Code = 0x00
	Internal         Code = 0x01
	Shutdown         Code = 0x02
	FrameTooLarge    Code = 0x03
	Malformed        Code = 0x04
	UnexpectedFrame  Code = 0x05
	UnknownStream    Code = 0x06
	Version          Code = 0x07
	HelloTimeout     Code = 0x08
	HoldExpired      Code = 0x09
	CriticalUnknown  Code = 0x0A
	Collision        Code = 0x0B
	IdentityMismatch Code = 0x0C
	TrustDenied      Code = 0x0D
	CertStatus       Code = 0x0E
	RateLimited      Code = 0x0F
	LimitExceeded    Code = 0x10
	SendStalled      Code = 0x11
	ClockSkew        Code = 0x12
	EpochUnknown     Code = 0x20
	SeqGap           Code = 0x21
	Compacted        Code = 0x22
	Rollback         Code = 0x23
	BadSignature     Code = 0x24
	BadPath          Code = 0x25
	Expired          Code = 0x26
	Policy           Code = 0x27
	EntryTooLarge    Code = 0x28
	Equivocation     Code = 0x29
	Old              Code = 0x2A
	UnknownKey       Code = 0x2B
	NotFound         Code = 0x40
	Loop             Code = 0x41
	HopLimit         Code = 0x42
	Duplicate        Code = 0x43
	Deadline         Code = 0x44
	ScopeDenied      Code = 0x45
	PolicyDenied     Code = 0x46
	Overloaded       Code = 0x47
	UpstreamFailed   Code = 0x48
	Cancelled        Code = 0x49
	ReqInvalid       Code = 0x4A
	Pending          Code = 0x4B
	TokenInvalid     Code = 0x60
	TokenExpired     Code = 0x61
	TokenReplayed    Code = 0x62
	Binding          Code = 0x63
	Audience         Code = 0x64
	CapUnbound       Code = 0x65
	Scope            Code = 0x66
	SessionUnknown   Code = 0x67
	Revoked          Code = 0x68
	SessionLimit     Code = 0x69
	State            Code = 0x6A
	UpdateRejected   Code = 0x6B
)

var codeNames = map[Code]string{
	OK: "OK", Internal: "INTERNAL", Shutdown: "SHUTDOWN", FrameTooLarge: "FRAME_TOO_LARGE", Malformed: "MALFORMED",
	UnexpectedFrame: "UNEXPECTED_FRAME", UnknownStream: "UNKNOWN_STREAM", Version: "VERSION", HelloTimeout: "HELLO_TIMEOUT",
	HoldExpired: "HOLD_EXPIRED", CriticalUnknown: "CRITICAL_UNKNOWN", Collision: "COLLISION",
	IdentityMismatch: "IDENTITY_MISMATCH", TrustDenied: "TRUST_DENIED", CertStatus: "CERT_STATUS",
	RateLimited: "RATE_LIMITED", LimitExceeded: "LIMIT_EXCEEDED", SendStalled: "SEND_STALLED", ClockSkew: "CLOCK_SKEW",
	EpochUnknown: "EPOCH_UNKNOWN", SeqGap: "SEQ_GAP", Compacted: "COMPACTED", Rollback: "ROLLBACK",
	BadSignature: "BAD_SIGNATURE", BadPath: "BAD_PATH", Expired: "EXPIRED", Policy: "POLICY",
	EntryTooLarge: "ENTRY_TOO_LARGE", Equivocation: "EQUIVOCATION", Old: "OLD", UnknownKey: "UNKNOWN_KEY",
	NotFound: "NOT_FOUND", Loop: "LOOP", HopLimit: "HOP_LIMIT", Duplicate: "DUPLICATE", Deadline: "DEADLINE",
	ScopeDenied: "SCOPE_DENIED", PolicyDenied: "POLICY_DENIED", Overloaded: "OVERLOADED",
	UpstreamFailed: "UPSTREAM_FAILED", Cancelled: "CANCELLED", ReqInvalid: "REQ_INVALID", Pending: "PENDING",
	TokenInvalid: "TOKEN_INVALID", TokenExpired: "TOKEN_EXPIRED", TokenReplayed: "TOKEN_REPLAYED", Binding: "BINDING",
	Audience: "AUDIENCE", CapUnbound: "CAP_UNBOUND", Scope: "SCOPE", SessionUnknown: "SESSION_UNKNOWN",
	Revoked: "REVOKED", SessionLimit: "SESSION_LIMIT", State: "STATE", UpdateRejected: "UPDATE_REJECTED",
}

// String is the code's name in the specification, or `CODE_xx` for one that this version does not know.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("CODE_%02X", uint16(c))
}

// Hex is the code as the specification's tables write it: two upper-case hexadecimal digits.
func (c Code) Hex() string { return fmt.Sprintf("%02X", uint16(c)) }

// Error is a code with the detail that our own side may read. The detail never travels to another domain.
type Error struct {
	Code   Code
	Detail string
	err    error
}

// Errorf makes an [Error]; like fmt.Errorf, %w keeps the wrapped error reachable.
func Errorf(c Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: c, Detail: err.Error(), err: errors.Unwrap(err)}
}

func (e *Error) Error() string {
	tail := " (" + e.Code.Hex() + " " + e.Code.String() + ")"
	if strings.HasSuffix(e.Detail, tail) { // an error that it wraps has said it
		return e.Detail
	}
	return e.Detail + tail
}

func (e *Error) Unwrap() error { return e.err }

// Text is what an error says without its code, where it is nothing but a coded error: for places that show the code apart.
func Text(err error) string {
	if e, ok := err.(*Error); ok { //nolint:errorlint // a wrapped one has more to say than its detail
		return e.Detail
	}
	return err.Error()
}

// CodeOf is the code that err carries, [OK] for nil, and [Internal] for an error without one.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
