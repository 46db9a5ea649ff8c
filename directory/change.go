package directory

import (
	"errors"
	"fmt"
	"time"

	"agentgw/internal/frame"
)

// Errors that every store and the registry return; callers branch on them.
var (
	ErrNotFound = errors.New("no such entry in this directory")
	ErrConflict = errors.New("the entry was changed by somebody else in between")
	ErrExists   = errors.New("the AIC is taken; AICs are never used twice")
	ErrClosed   = errors.New("the directory is closed")
)

// Tx is one change of the records that are kept beside the entries: all of it happens, or nothing. Names are those of package store.
type Tx interface {
	Get(name string) ([]byte, error) // ErrNotFound
	Set(name string, value []byte)   // nil removes
	// Reserve takes an AIC for good, or returns ErrExists if it was ever taken.
	Reserve(aic string, at time.Time) error
}

// Tombstone is what remains of an entry after a terminal state. It keeps the AIC from being used again.
type Tombstone struct {
	AIC     string
	State   State // Withdrawn, Revoked or Expired
	Version uint64
	At      time.Time
	Reason  string // at most MaxReason octets, for operators
}

// MaxReason is the longest reason kept, in octets.
const MaxReason = 256

type storedTombstone struct {
	Format  uint64 `cbor:"1,keyasint"`
	AIC     string `cbor:"2,keyasint"`
	State   uint8  `cbor:"3,keyasint"`
	Version uint64 `cbor:"4,keyasint"`
	At      int64  `cbor:"5,keyasint,omitempty"`
	Reason  string `cbor:"6,keyasint,omitempty"`
}

// EncodeTombstone is the record that a store keeps; the encoding has the rules of [EncodeEntry].
func EncodeTombstone(t Tombstone) ([]byte, error) {
	if !t.State.Terminal() || t.AIC == "" || len(t.Reason) > MaxReason {
		return nil, fmt.Errorf("tombstone %q: state %v, reason of %d octets", t.AIC, t.State, len(t.Reason))
	}
	return frame.Marshal(storedTombstone{entryFormat, t.AIC, uint8(t.State), t.Version, milli(t.At), t.Reason})
}

// DecodeTombstone reads a stored record.
func DecodeTombstone(b []byte) (Tombstone, error) {
	var s storedTombstone
	if err := frame.Unmarshal(b, &s); err != nil {
		return Tombstone{}, fmt.Errorf("decode tombstone: %w", err)
	}
	if s.Format != entryFormat || !State(s.State).Terminal() {
		return Tombstone{}, fmt.Errorf("decode tombstone %s: format %d, state %v", s.AIC, s.Format, State(s.State))
	}
	return Tombstone{s.AIC, State(s.State), s.Version, fromMilli(s.At), s.Reason}, nil
}
