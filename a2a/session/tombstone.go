package session

import (
	"time"

	"agentgw/a2a/wire"
)

// MaxTombstones bounds the memory of ended sessions. When it is full the one that ends first is forgotten; an INIT with its sid is
// refused all the same, since its offer is used.
const MaxTombstones = 4096

// Tombstones remember the sids of ended sessions until their sess_exp, so that a late frame gets 67 and no sid lives twice.
// The zero value is ready for use.
type Tombstones struct{ until map[wire.ID]time.Time }

// Add remembers a sid.
func (t *Tombstones) Add(sid wire.ID, until, now time.Time) {
	if t.until == nil {
		t.until = make(map[wire.ID]time.Time)
	}
	if len(t.until) >= MaxTombstones {
		t.makeRoom(now)
	}
	if until.After(now) {
		t.until[sid] = until
	}
}

// Has says whether the session of a sid has ended here.
func (t *Tombstones) Has(sid wire.ID, now time.Time) bool {
	until, ok := t.until[sid]
	return ok && now.Before(until)
}

func (t *Tombstones) makeRoom(now time.Time) {
	var first wire.ID
	for sid, until := range t.until {
		if !now.Before(until) {
			delete(t.until, sid)
		} else if f, ok := t.until[first]; !ok || until.Before(f) {
			first = sid
		}
	}
	if len(t.until) >= MaxTombstones {
		delete(t.until, first)
	}
}
