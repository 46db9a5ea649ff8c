package directory

import "fmt"

// State is where an entry stands in its life. The numbers are those of the wire.
//
//	PENDING → ACTIVE ⇄ SUSPENDED
//	          ACTIVE ⇄ DEPRECATED → SUSPENDED
//	any of these → WITHDRAWN | REVOKED | EXPIRED   (terminal; a tombstone is kept)
//
// `offline` is a liveness mark and not a state (FORMATS, section 6).
type State uint8

// The states.
const (
	Pending    State = 0 // waits for the Agent Management Center
	Active     State = 1
	Suspended  State = 2
	Deprecated State = 3 // still offered, on its way out
	Withdrawn  State = 4 // de-registered or de-listed
	Revoked    State = 5
	Expired    State = 6
)

var stateNames = [...]string{"PENDING", "ACTIVE", "SUSPENDED", "DEPRECATED", "WITHDRAWN", "REVOKED", "EXPIRED"}

// String is the specification's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("STATE(%d)", uint8(s))
}

// Offered says whether an entry in this state is resolved to: the ACS member `active`.
func (s State) Offered() bool { return s == Active || s == Deprecated }

// Terminal says whether nothing follows this state.
func (s State) Terminal() bool { return s >= Withdrawn && s <= Expired }

// May says whether a change from s to next is one of the drawn transitions; staying is allowed outside terminal states.
func (s State) May(next State) bool {
	switch {
	case s.Terminal() || next > Expired:
		return false
	case s == next || next.Terminal():
		return true
	case s == Pending || s == Suspended:
		return next == Active
	case s == Deprecated: // a suspension finds an agent wherever it is; what it is resumed to is ACTIVE
		return next == Active || next == Suspended
	}
	return s == Active && (next == Suspended || next == Deprecated)
}

// MarshalText makes JSON and YAML carry the name.
func (s State) MarshalText() ([]byte, error) {
	if int(s) >= len(stateNames) {
		return nil, fmt.Errorf("state %d has no name", uint8(s))
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads the name.
func (s *State) UnmarshalText(b []byte) error {
	for i, n := range stateNames {
		if n == string(b) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("state %q is not one of %v", b, stateNames)
}

// Visibility is who may learn of an entry. The numbers are those of the digest.
type Visibility uint8

// The visibilities (FORMATS, section 6).
const (
	VisibleDomain  Visibility = 0 // the Agent Autonomous Domain itself
	VisibleListed  Visibility = 1 // the domains of the entry's allow list
	VisiblePublic  Visibility = 2 // everybody
	VisiblePrivate Visibility = 3 // in no digest and in no answer but its owner's
)

var visibilityNames = [...]string{"domain", "listed", "public", "private"}

// String is the configuration's word.
func (v Visibility) String() string {
	if int(v) < len(visibilityNames) {
		return visibilityNames[v]
	}
	return fmt.Sprintf("visibility(%d)", uint8(v))
}

// MarshalText makes JSON and YAML carry the word.
func (v Visibility) MarshalText() ([]byte, error) {
	if int(v) >= len(visibilityNames) {
		return nil, fmt.Errorf("visibility %d has no name", uint8(v))
	}
	return []byte(v.String()), nil
}

// UnmarshalText reads the word.
func (v *Visibility) UnmarshalText(b []byte) error {
	for i, n := range visibilityNames {
		if n == string(b) {
			*v = Visibility(i)
			return nil
		}
	}
	return fmt.Errorf("visibility %q is not one of %v", b, visibilityNames)
}
