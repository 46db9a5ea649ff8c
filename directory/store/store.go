package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/internal/frame"
)

// MaxValue is the largest token record or named value, in octets: far below what a transaction takes.
const MaxValue = 256 << 10

// errAbsent is how a backend says that a key is not there.
var errAbsent = errors.New("key is absent")

// reader is one consistent state of a backend. Slices are valid until the function that got the reader returns.
type reader interface {
	get(key string) ([]byte, error) // errAbsent
	// scan visits the keys with the prefix in order until f returns an error, which it returns.
	scan(prefix string, f func(key, value []byte) error) error
}

// mutation sets a key, or removes it if value is nil.
type mutation struct {
	key   string
	value []byte
}

// backend is what a Store stands on: Badger, or memory for tests.
type backend interface {
	view(f func(reader) error) error
	update(list []mutation) error // all or nothing, durable when it returns nil
	close() error
}

// Store is an open directory database.
type Store struct {
	back    backend
	queue   chan *write
	closing chan struct{}
	ended   chan struct{} // the committer has returned
	closed  chan struct{} // Close is done

	mu       sync.Mutex // guards shut; never held across I/O
	shut     bool
	readers  sync.WaitGroup // reads under way
	closeErr error          // written before closed is closed
}

func newStore(back backend) *Store {
	s := &Store{
		back: back, queue: make(chan *write, maxGroup),
		closing: make(chan struct{}), ended: make(chan struct{}), closed: make(chan struct{}),
	}
	go s.commitLoop()
	return s
}

// Close waits for reads and for the commit under way, and closes the database. Writes still queued end with ErrClosed. It may be
// called more than once and by several goroutines; all return when it is done.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.shut
	s.shut = true
	s.mu.Unlock()
	if !first {
		<-s.closed
		return s.closeErr
	}
	close(s.closing)
	<-s.ended
	s.readers.Wait()
	s.closeErr = s.back.close()
	close(s.closed)
	return s.closeErr
}

// read runs f over one state of the database, unless it is closed. f may read again, but not close.
func (s *Store) read(f func(reader) error) error {
	s.mu.Lock()
	if s.shut {
		s.mu.Unlock()
		return directory.ErrClosed
	}
	s.readers.Add(1)
	s.mu.Unlock()
	defer s.readers.Done()
	return s.back.view(f)
}

// Get is the entry of an AIC, or ErrNotFound. An ended entry is not found; see [Store.Ended].
func (s *Store) Get(aic string) (directory.Entry, error) {
	var e directory.Entry
	err := s.read(func(r reader) (err error) {
		e, err = getEntry(r, aic)
		return err
	})
	return e, err
}

func getEntry(r reader, aic string) (directory.Entry, error) {
	b, err := r.get(prefixEntry + aic)
	if errors.Is(err, errAbsent) {
		return directory.Entry{}, fmt.Errorf("entry %s: %w", aic, directory.ErrNotFound)
	}
	if err != nil {
		return directory.Entry{}, fmt.Errorf("read entry %s: %w", aic, err)
	}
	return directory.DecodeEntry(b) // it keeps nothing of it
}

// Ended is the tombstone of an AIC, or ErrNotFound.
func (s *Store) Ended(aic string) (directory.Tombstone, error) {
	var t directory.Tombstone
	err := s.read(func(r reader) error {
		b, err := r.get(prefixTomb + aic)
		if errors.Is(err, errAbsent) {
			return fmt.Errorf("tombstone %s: %w", aic, directory.ErrNotFound)
		}
		if err != nil {
			return fmt.Errorf("read tombstone %s: %w", aic, err)
		}
		t, err = directory.DecodeTombstone(b)
		return err
	})
	return t, err
}

// All visits every entry in the order of AICs, in one state of the database, until f returns an error, which it returns. f must
// not wait for anything: the database keeps old versions meanwhile.
func (s *Store) All(f func(directory.Entry) error) error {
	return s.read(func(r reader) error {
		return r.scan(prefixEntry, func(_, value []byte) error {
			e, err := directory.DecodeEntry(value)
			if err != nil {
				return err
			}
			return f(e)
		})
	})
}

var errEnough = errors.New("enough")

// Due is at most limit AICs of entries whose expiry is not after now, earliest first.
func (s *Store) Due(now time.Time, limit int) ([]string, error) {
	var due []string
	err := s.read(func(r reader) error {
		return r.scan(prefixExpiry, func(key, _ []byte) error {
			at, aic, ok := expiryOf(key)
			if !ok {
				return fmt.Errorf("expiry key %q is not one", key)
			}
			if at > uint64(max(now.UnixMilli(), 0)) || len(due) == limit {
				return errEnough
			}
			due = append(due, aic)
			return nil
		})
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("read expiry index: %w", err)
	}
	return due, nil
}

// Change is one record of the change log.
type Change struct {
	Seq     uint64 `cbor:"1,keyasint"`
	AIC     string `cbor:"2,keyasint"`
	State   uint8  `cbor:"3,keyasint"`
	Version uint64 `cbor:"4,keyasint"`
	AtMS    int64  `cbor:"5,keyasint"` // unix milliseconds of the entry's last change
}

// Changes visits the kept changes after a sequence number, oldest first; the last ten thousand are kept.
func (s *Store) Changes(after uint64, f func(Change) error) error {
	return s.read(func(r reader) error {
		return r.scan(prefixChange, func(key, value []byte) error {
			if string(key) <= changeKey(after) {
				return nil
			}
			var c Change
			if err := frame.Unmarshal(value, &c); err != nil {
				return fmt.Errorf("read change: %w", err)
			}
			return f(c)
		})
	})
}

// Sequence is the number of the last change of an entry, 0 before the first.
func (s *Store) Sequence() (seq uint64, err error) {
	err = s.read(func(r reader) error {
		last, err := r.get(keySequence)
		if errors.Is(err, errAbsent) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read change sequence: %w", err)
		}
		seq, err = fromBE64(last)
		return err
	})
	return seq, err
}

// Put stores an entry whose stored version is expected (0: there must be none, and the AIC must not have ended), and keeps the stored one
// where it is of another edition. The entry's own version must be above it. Otherwise ErrConflict, ErrExists for a first version, or ErrNotFound.
func (s *Store) Put(ctx context.Context, e directory.Entry, expected uint64) error {
	return s.PutWith(ctx, e, expected, func(directory.Tx) error { return nil })
}

// PutWith is [Store.Put] with a change of the records in the same commit, which runs as that of [Store.Transact] does. An error of it is
// returned, and nothing is stored.
func (s *Store) PutWith(ctx context.Context, e directory.Entry, expected uint64, change func(directory.Tx) error) error {
	value, err := directory.EncodeEntry(e)
	if err != nil {
		return err
	}
	if e.Version <= expected || e.State.Terminal() {
		return fmt.Errorf("put entry %s: version %d after %d in state %v", e.AIC, e.Version, expected, e.State)
	}
	return s.write(ctx, func(r reader) ([]mutation, error) {
		was, record, err := expect(r, e.AIC, expected)
		if err != nil {
			return nil, err
		}
		list := append(move(e.AIC, was.ExpiresAt, e.ExpiresAt), mutation{prefixEntry + e.AIC, value})
		if record != nil && e.Edition.Number != was.Edition {
			list = append(list, outdate(e.AIC, was.Edition, record)...)
		}
		beside, err := planned(r, change)
		if err != nil {
			return nil, err
		}
		list = append(list, beside...)
		if expected == 0 {
			list = append(list, mutation{prefixTaken + e.AIC, []byte(be64(uint64(max(e.RegisteredAt.UnixMilli(), 0))))})
		}
		return appendChange(r, list, Change{AIC: e.AIC, State: uint8(e.State), Version: e.Version, AtMS: e.LastModified.UnixMilli()})
	})
}

// Tombstone ends an entry whose stored version is expected: the entry and its indexes go, the tombstone and the last editions stay.
func (s *Store) Tombstone(ctx context.Context, t directory.Tombstone, expected uint64) error {
	value, err := directory.EncodeTombstone(t)
	if err != nil {
		return err
	}
	if expected == 0 || t.Version != expected+1 {
		return fmt.Errorf("tombstone %s: version %d after %d", t.AIC, t.Version, expected)
	}
	return s.write(ctx, func(r reader) ([]mutation, error) {
		was, record, err := expect(r, t.AIC, expected)
		if err != nil {
			return nil, err
		}
		list := append(move(t.AIC, was.ExpiresAt, time.Time{}), mutation{prefixEntry + t.AIC, nil}, mutation{prefixTomb + t.AIC, value})
		list = append(list, end(t.AIC, was.Edition, record)...)
		return appendChange(r, list, Change{AIC: t.AIC, State: uint8(t.State), Version: t.Version, AtMS: t.At.UnixMilli()})
	})
}

// expect checks the stored version and returns the stored record's head and the record, nil if there is none and none is expected. It
// reads no more of it: everybody waits for the committer.
func expect(r reader, aic string, expected uint64) (was directory.Head, record []byte, err error) {
	record, err = r.get(prefixEntry + aic)
	if errors.Is(err, errAbsent) {
		return was, nil, expectNone(r, aic, expected)
	}
	if err != nil {
		return was, nil, fmt.Errorf("read entry %s: %w", aic, err)
	}
	was, err = directory.DecodeHead(record)
	switch {
	case err != nil:
		return was, nil, err
	case expected == 0:
		return was, nil, fmt.Errorf("entry %s: %w", aic, directory.ErrExists)
	case was.Version != expected:
		return was, nil, fmt.Errorf("entry %s is at version %d, not %d: %w", aic, was.Version, expected, directory.ErrConflict)
	}
	return was, record, nil
}

// expectNone says whether an AIC that has no entry may get its first.
func expectNone(r reader, aic string, expected uint64) error {
	if expected != 0 {
		return fmt.Errorf("entry %s: %w", aic, directory.ErrNotFound)
	}
	if _, err := r.get(prefixTomb + aic); !errors.Is(err, errAbsent) {
		return errors.Join(fmt.Errorf("entry %s has ended: %w", aic, directory.ErrExists), err)
	}
	return nil
}

// move takes an entry from one time in the expiry index to another; the zero time is none.
func move(aic string, from, to time.Time) (list []mutation) {
	if from.Equal(to) {
		return nil
	}
	if !from.IsZero() {
		list = append(list, mutation{expiryKey(from, aic), nil})
	}
	if !to.IsZero() {
		list = append(list, mutation{expiryKey(to, aic), []byte{}})
	}
	return list
}

func appendChange(r reader, list []mutation, c Change) ([]mutation, error) {
	last, err := r.get(keySequence)
	if err != nil && !errors.Is(err, errAbsent) {
		return nil, fmt.Errorf("read change sequence: %w", err)
	}
	if err == nil {
		if c.Seq, err = fromBE64(last); err != nil {
			return nil, err
		}
	}
	c.Seq++
	value, err := frame.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode change: %w", err)
	}
	list = append(list, mutation{changeKey(c.Seq), value}, mutation{keySequence, []byte(be64(c.Seq))})
	if c.Seq > keepChanges {
		list = append(list, mutation{changeKey(c.Seq - keepChanges), nil})
	}
	return list, nil
}

// Reserve takes an AIC for good, or returns ErrExists if it was ever taken.
func (s *Store) Reserve(ctx context.Context, aic string, at time.Time) error {
	return s.write(ctx, func(r reader) ([]mutation, error) {
		m, err := reservation(r, aic, at)
		return []mutation{m}, err
	})
}

func reservation(r reader, aic string, at time.Time) (mutation, error) {
	for _, prefix := range []string{prefixTaken, prefixEntry, prefixTomb} {
		if _, err := r.get(prefix + aic); err == nil {
			return mutation{}, fmt.Errorf("reserve %s: %w", aic, directory.ErrExists)
		} else if !errors.Is(err, errAbsent) {
			return mutation{}, fmt.Errorf("reserve %s: %w", aic, err)
		}
	}
	return mutation{prefixTaken + aic, []byte(be64(uint64(max(at.UnixMilli(), 0))))}, nil
}

// Meta is a small named value, or ErrNotFound.
func (s *Store) Meta(name string) ([]byte, error) {
	var value []byte
	err := s.read(func(r reader) error {
		b, err := r.get(prefixMeta + name)
		if errors.Is(err, errAbsent) {
			return fmt.Errorf("value %q: %w", name, directory.ErrNotFound)
		}
		value = append([]byte{}, b...)
		return err
	})
	return value, err
}

// Metas is the named values whose names begin with prefix, by whole name.
func (s *Store) Metas(prefix string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := s.read(func(r reader) error {
		return r.scan(prefixMeta+prefix, func(key, value []byte) error {
			out[string(key[len(prefixMeta):])] = append([]byte{}, value...)
			return nil
		})
	})
	return out, err
}

// SetMeta stores a small named value; nil removes it.
func (s *Store) SetMeta(ctx context.Context, name string, value []byte) error {
	if err := checkValue(value); err != nil || name == "" || len(name) > 256 {
		return errors.Join(fmt.Errorf("set value %q", name), err)
	}
	value = slices.Clone(value)
	return s.write(ctx, func(reader) ([]mutation, error) { return []mutation{{prefixMeta + name, value}}, nil })
}

func checkValue(b []byte) error {
	if len(b) > MaxValue {
		return fmt.Errorf("value of %d octets, the limit is %d", len(b), MaxValue)
	}
	return nil
}
