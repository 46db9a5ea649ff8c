package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentgw/directory"
)

// tx is one change of the records that an Agent Management Center keeps beside the directory. Names are those under `tok/` and `amc/`
// in the key schema.
type tx struct {
	r    reader
	list []mutation
	over map[string][]byte
	err  error
}

// Get is a record as this transaction sees it, or directory.ErrNotFound. The slice is the caller's.
func (t *tx) Get(name string) ([]byte, error) {
	if v, ok := t.over[name]; ok {
		if v == nil {
			return nil, fmt.Errorf("record %s: %w", name, directory.ErrNotFound)
		}
		return slices.Clone(v), nil
	}
	v, err := t.r.get(name)
	if errors.Is(err, errAbsent) {
		return nil, fmt.Errorf("record %s: %w", name, directory.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", name, err)
	}
	return slices.Clone(v), nil
}

// Set stores a record, or removes it if value is nil. A name outside the schema or a value over MaxValue fails the transaction.
func (t *tx) Set(name string, value []byte) {
	if err := checkRecord(name, value); err != nil {
		t.err = errors.Join(t.err, err)
		return
	}
	value = slices.Clone(value)
	t.over[name] = value
	t.list = append(t.list, mutation{name, value})
}

// Reserve takes an AIC for good with the rest of the transaction, or returns directory.ErrExists if it was ever taken.
func (t *tx) Reserve(aic string, at time.Time) error {
	m, err := reservation(t.r, aic, at)
	if err == nil {
		t.list = append(t.list, m)
	}
	return err
}

const maxRecordName = 256

func checkRecord(name string, value []byte) error {
	if !strings.HasPrefix(name, prefixToken) && !strings.HasPrefix(name, prefixAMC) || len(name) > maxRecordName {
		return fmt.Errorf("record name %.80q is not in the key schema", name)
	}
	return checkValue(value)
}

// Transact runs change as one step that no other write can come between; an error of it leaves everything as it was and is
// returned. change runs on the committer: it must be quick, and it may run again, or in vain if the commit fails; only its
// last run counts. When Transact returns nil the change is on the disk.
func (s *Store) Transact(ctx context.Context, change func(directory.Tx) error) error {
	return s.write(ctx, func(r reader) ([]mutation, error) { return planned(r, change) })
}

// planned is what a change comes to.
func planned(r reader, change func(directory.Tx) error) ([]mutation, error) {
	t := &tx{r: r, over: map[string][]byte{}}
	if err := change(t); err != nil {
		return nil, err
	}
	return t.list, t.err
}

// Records visits the records whose names begin with prefix, in order, until f returns an error, which it returns. f must not
// wait for anything. The slice is valid until f returns.
func (s *Store) Records(prefix string, f func(name string, value []byte) error) error {
	if err := checkRecord(prefix, nil); err != nil {
		return err
	}
	return s.read(func(r reader) error {
		return r.scan(prefix, func(key, value []byte) error { return f(string(key), value) })
	})
}
