package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"agentgw/directory"
	"agentgw/directory/match"
)

// Report is what [Registry.Check] has found.
type Report struct {
	Sequence     uint64   // of the store's last change
	Entries      int      // in the store
	Capabilities int      // that these have
	Problems     []string // at most maxProblems; none: all is equal
}

const maxProblems = 20

// ErrBusy is the error of a check that changes came between.
var ErrBusy = errors.New("the directory changes: check it while nothing does")

// Check compares what is at hand with the store, all of it: every entry, and every word of the index with what its entry's text comes to. It
// takes as long as a start without a snapshot does, and little memory. ErrBusy where an entry changes meanwhile.
func (r *Registry) Check(ctx context.Context) (Report, error) {
	var out Report
	var err error
	if out.Sequence, err = r.quiet(); err != nil {
		return out, err
	}
	problem := func(format string, args ...any) {
		if len(out.Problems) < maxProblems {
			out.Problems = append(out.Problems, fmt.Sprintf(format, args...))
		}
	}
	var stored match.Fingerprint
	var mu sync.Mutex // guards out and stored
	err = inBatches(ctx, r.store, func(int) {}, func(_ int, batch []directory.Entry) error {
		var b match.Builder
		for i := range batch {
			e := &batch[i]
			caps, err := directory.Capabilities(*e)
			if err != nil {
				return err
			}
			for _, c := range caps {
				b.Add(c)
			}
			if why := r.differs(e, caps); why != "" {
				mu.Lock()
				problem("%s %s", e.AIC, why)
				mu.Unlock()
			}
		}
		sum := b.Fingerprint()
		mu.Lock()
		defer mu.Unlock()
		stored += sum
		out.Entries += len(batch)
		out.Capabilities += b.Len()
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("check the directory: %w", err)
	}
	if n := r.Len(); n != out.Entries {
		problem("%d entries are at hand, and %d in the store", n, out.Entries)
	}
	if n := r.index.Len(); n != out.Capabilities {
		problem("%d capabilities are in the index, and %d in the store", n, out.Capabilities)
	}
	if r.index.Fingerprint() != stored {
		problem("the index has not the words that the entries in the store come to")
	}
	if after, err := r.quiet(); err != nil || after != out.Sequence {
		return out, errors.Join(ErrBusy, err)
	}
	return out, nil
}

// differs says how what is at hand of an entry differs from the one that the store has, "" where it does not.
func (r *Registry) differs(e *directory.Entry, caps []directory.Capability) string {
	rec := r.record(e.AIC)
	switch {
	case rec == nil:
		return "is in the store, and not at hand"
	case !rec.sameAs(e):
		return fmt.Sprintf("is at version %d in the store, and at hand as version %d %s", e.Version, rec.version, rec.state)
	}
	same := func(x, y directory.Capability) bool { return x.CapID == y.CapID && x.EntryVersion == y.EntryVersion }
	if !slices.EqualFunc(r.index.Of(e.AIC), caps, same) {
		return fmt.Sprintf("has %d capabilities in the store, and others in the index", len(caps))
	}
	return ""
}

// quiet is the sequence of the store's last change, if that is at hand too: nothing is under change.
func (r *Registry) quiet() (uint64, error) {
	r.mu.Lock()
	busy := len(r.owned) + len(r.pending)
	r.mu.Unlock()
	if busy > 0 {
		return 0, ErrBusy
	}
	return r.store.Sequence()
}
