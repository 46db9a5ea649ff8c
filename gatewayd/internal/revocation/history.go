package revocation

import (
	"slices"
	"time"

	"agentgw/internal/pki"
)

// history is what deltas need of the lists before them.
type history struct {
	number int64         // of the newest list
	last   []pki.Revoked // its entries
	bases  []*base       // full lists that somebody may still hold, oldest first: three at most are valid at once
}

// base is a full list that deltas may be over.
type base struct {
	number  int64
	made    time.Time
	entries []pki.Revoked
	held    map[string]pki.Revoked // all holds of this list and of those after it, by serial
}

// add remembers a list that was signed.
func (h *history) add(number int64, made time.Time, entries []pki.Revoked, asBase bool) {
	h.number, h.last = number, entries
	if asBase {
		h.bases = append(h.bases, &base{number: number, made: made, entries: entries, held: map[string]pki.Revoked{}})
	}
	for _, b := range h.bases {
		for _, r := range entries {
			if r.Reason == pki.ReasonHold {
				b.held[r.Serial.String()] = r
			}
		}
	}
}

// forget drops the bases that are no longer needed: one made before a time, when the next one is that old as well.
func (h *history) forget(before time.Time) {
	for len(h.bases) > 1 && !h.bases[1].made.After(before) {
		h.bases = slices.Delete(h.bases, 0, 1)
	}
}

// was is the base as a delta must see it: its entries, and the holds of lists after it that have been lifted since. Whoever has
// such a later list must be told too.
func (b *base) was(is []pki.Revoked) []pki.Revoked {
	out := slices.Clone(b.entries)
	known := map[string]bool{}
	for _, r := range slices.Concat(b.entries, is) {
		known[r.Serial.String()] = true
	}
	for serial, r := range b.held {
		if !known[serial] {
			out = append(out, r)
		}
	}
	return out
}

func same(a, b pki.Revoked) bool {
	return a.Serial.Cmp(b.Serial) == 0 && a.Reason == b.Reason && a.At.Equal(b.At) && a.Issuer == b.Issuer
}
