package identity

import (
	"fmt"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

// State is what an issuer says of a credential.
type State uint8

// States of a credential (cdsp/PROTOCOL.md, "Status").
const (
	Good      State = 0 // only in a delta: the entry of the base is gone
	Suspended State = 1
	Revoked   State = 2
)

func (s State) String() string {
	switch s {
	case Good:
		return "good"
	case Suspended:
		return "suspended"
	case Revoked:
		return "revoked"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Reasons of RFC 5280, section 5.3.1, that are used here.
const (
	ReasonUnspecified    = 0
	ReasonKeyCompromise  = 1
	ReasonSuperseded     = 4
	ReasonCessation      = 5
	ReasonHold           = 6
	ReasonRemoveFromCRL  = 8
	ReasonWithdrawn      = 9
	maxReason            = 10
	MaxStatusEntries     = 600 // of one part
	MaxStatusParts       = 16
	MaxStatus            = 48 << 10 // octets of one signed part
	MaxStatusLife        = 15 * time.Minute
	StatusGrace          = 5 * time.Minute // after Next, before other domains stop believing
	StatusHomeGrace      = 4 * time.Hour   // the same inside a domain, where credentials are short
	statusSkew           = 120 * time.Second
	maxStatusesOfForeign = 1 << 18 // entries of all issuers together
	statusShare          = 256     // entries that one issuer may have in any case: others cannot fill what is kept against it
)

// StatusEntry says how one agent or one certificate stands.
type StatusEntry struct {
	_       struct{} `cbor:",toarray"`
	Subject any      // AIC (string), or the serial number of a certificate (16 bytes)
	State   State
	Since   uint64 // unix seconds
	Reason  uint8  // RFC 5280
}

// StatusList is one signed statement of an issuer about its credentials: all that are not good (full), or what has changed
// since the list of a smaller sequence number (delta).
type StatusList struct {
	Domain  string        `cbor:"1,keyasint"`
	Issuer  string        `cbor:"2,keyasint"` // AIC of the AMC
	Seq     uint64        `cbor:"3,keyasint"`
	Issued  uint64        `cbor:"4,keyasint"` // unix seconds
	Next    uint64        `cbor:"5,keyasint"` // a newer one is due by then; at most 15 minutes after Issued
	Entries []StatusEntry `cbor:"6,keyasint,omitempty"`
	Base    uint64        `cbor:"7,keyasint,omitempty"` // of a delta: the sequence number that it changes
	Part    uint64        `cbor:"8,keyasint,omitempty"` // of a list in several parts: 1 to Of
	Of      uint64        `cbor:"9,keyasint,omitempty"`
}

// Sign makes the signed form (key of use 4).
func (l *StatusList) Sign(s frame.Signer) ([]byte, error) {
	return s.SignMessage(frame.AADStatus, "", l)
}

// SignStatus signs a list, in as many parts as it takes. A delta is never cut: more changes than one part holds are a full list's.
func SignStatus(l StatusList, s frame.Signer) ([][]byte, error) {
	entries := l.Entries
	parts := (len(entries) + MaxStatusEntries - 1) / MaxStatusEntries
	if parts > MaxStatusParts || l.Base != 0 && parts > 1 {
		return nil, frame.Errorf(frame.LimitExceeded, "status list of %d entries, a list takes %d", len(entries), MaxStatusParts*MaxStatusEntries)
	}
	if parts <= 1 {
		raw, err := l.Sign(s)
		return [][]byte{raw}, err
	}
	var out [][]byte
	for i := range parts {
		l.Part, l.Of = uint64(i+1), uint64(parts)
		l.Entries = entries[i*MaxStatusEntries : min((i+1)*MaxStatusEntries, len(entries))]
		raw, err := l.Sign(s)
		if err != nil {
			return nil, err
		}
		out = append(out, raw)
	}
	return out, nil
}

// PeekStatus is the domain that a signed list claims to be of, unverified; "" when it cannot be read.
func PeekStatus(raw []byte) string {
	signed, err := frame.ParseSigned(raw)
	if err != nil {
		return ""
	}
	var l StatusList
	if frame.Unmarshal(signed.Payload, &l) != nil || !ValidDomain(l.Domain) {
		return ""
	}
	return l.Domain
}

// OpenStatus verifies a signed list on its own: form, limits, and that the issuer of the bundle that owns the key has signed
// it. Codes: 04, 0C, 12 (a clock is wrong), 24, 2B (unknown key).
func OpenStatus(raw []byte, trust *Trust, now time.Time) (*StatusList, error) {
	if len(raw) > MaxStatus {
		return nil, frame.Errorf(frame.FrameTooLarge, "status list of %d bytes is over %d", len(raw), MaxStatus)
	}
	signed, key, err := frame.Open(raw, frame.AADStatus, trust.Keys(UseStatus))
	if err != nil {
		return nil, fmt.Errorf("status list: %w", err)
	}
	l := new(StatusList)
	if err := frame.Unmarshal(signed.Payload, l); err != nil {
		return nil, fmt.Errorf("status list: %w", err)
	}
	b := trust.Of(l.Issuer)
	if l.Domain != key.Domain || l.Issuer != key.Owner || b == nil || b.Issuer != l.Issuer {
		return nil, frame.Errorf(frame.IdentityMismatch, "status list of %s for %s is signed by %s of %s, which does not speak for it", l.Issuer, l.Domain, key.Owner, key.Domain)
	}
	return l, l.check(b, now)
}

func (l *StatusList) check(b *Accepted, now time.Time) error {
	bad := func(what string, args ...any) error {
		return frame.Errorf(frame.Malformed, "status list of %s: "+what, append([]any{l.Issuer}, args...)...)
	}
	switch {
	case l.Seq == 0 || l.Base >= l.Seq:
		return bad("sequence %d over base %d", l.Seq, l.Base)
	case l.Next < l.Issued || l.Next-l.Issued > uint64(MaxStatusLife.Seconds()):
		return bad("it may count for %s, not from %d to %d", MaxStatusLife, l.Issued, l.Next)
	case len(l.Entries) > MaxStatusEntries:
		return bad("%d entries in one part", len(l.Entries))
	case (l.Part == 0) != (l.Of == 0), l.Part > l.Of, l.Of > MaxStatusParts, l.Of != 0 && l.Base != 0:
		return bad("part %d of %d", l.Part, l.Of)
	case time.Unix(int64(l.Issued), 0).Sub(now) > statusSkew:
		return frame.Errorf(frame.ClockSkew, "status list of %s is of %s, our clock says %s: one of the clocks is wrong by more than %s",
			l.Issuer, time.Unix(int64(l.Issued), 0).UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), statusSkew)
	}
	for _, e := range l.Entries {
		switch s := e.Subject.(type) {
		case string:
			if id, err := aic.Parse(s); err != nil || string(id) != s || !b.Owns(s) {
				return bad("its entry %.64q is no AIC under its prefixes", s)
			}
		case []byte:
			if len(s) != 16 {
				return bad("a serial number of %d bytes", len(s))
			}
		default:
			return bad("an entry names neither an AIC nor a serial number")
		}
		if e.State > Revoked || e.Reason > maxReason || e.State == Good && l.Base == 0 {
			return bad("an entry with %v and reason %d", e.State, e.Reason)
		}
	}
	return nil
}
