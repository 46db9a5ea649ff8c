package store

import (
	"context"
	"errors"
	"fmt"

	"agentgw/directory"
)

// Bury ends an AIC that has no entry here: it is taken for good, and nothing is ever registered under it. ErrExists where it has an entry
// or a tombstone. It is for AICs of registrations that a restored backup does not have.
func (s *Store) Bury(ctx context.Context, t directory.Tombstone) error {
	value, err := directory.EncodeTombstone(t)
	if err != nil {
		return err
	}
	return s.write(ctx, func(r reader) ([]mutation, error) {
		for _, prefix := range []string{prefixEntry, prefixTomb} {
			if _, err := r.get(prefix + t.AIC); err == nil {
				return nil, fmt.Errorf("bury %s: %w", t.AIC, directory.ErrExists)
			} else if !errors.Is(err, errAbsent) {
				return nil, fmt.Errorf("bury %s: %w", t.AIC, err)
			}
		}
		return []mutation{
			{prefixTaken + t.AIC, []byte(be64(uint64(max(t.At.UnixMilli(), 0))))},
			{prefixTomb + t.AIC, value},
		}, nil
	})
}
