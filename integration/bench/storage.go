package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/registry"
	"agentgw/directory/store"

	"github.com/dgraph-io/badger/v4"
)

// The directory on its own: what a store and a registry that are open in this process do, beside bare Badger with the same profile and
// bytes, each value decoded. The bar of put is ACS_PUT's. Get and list read the store, in which beside the entries their editions and indexes
// are, and tell what is known of the agent now: twice the floor at most.

const (
	keptEntries = 1000
	listed      = 100 // entries of a page
	fillGC      = 400 // percent that the heap may grow between collections while directories are filled: they stay
)

// localRows are the rows of what runs in this process, with the directories that they need; a row that the bench leaves out may lack its
// directory. done closes them.
func localRows(ctx context.Context, dir, root string, wanted *regexp.Regexp) (rows []row, done func(), err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(fillGC))
	var s *storage
	var storageErr error
	var opening sync.WaitGroup
	opening.Go(func() { s, storageErr = openStorage(ctx, dir) }) // it waits for the disk, the others for the processor
	var matched []row
	for _, size := range []int{smallMatch, largeMatch} {
		m := &matching{root: root, size: size}
		of := m.rows()
		if !slices.ContainsFunc(of, func(r row) bool { return wanted.MatchString(r.name) }) {
			continue
		}
		if err = m.load(); err != nil {
			break
		}
		matched = append(matched, of...)
	}
	opening.Wait()
	switch {
	case storageErr != nil:
		return nil, nil, errors.Join(storageErr, err)
	case err != nil:
		return nil, nil, errors.Join(err, s.close())
	}
	return append(s.rows(ctx), matched...), func() { s.close() }, nil // the databases are in the bench's own temporary folder
}

// storage is a registry and a database with the same entries.
type storage struct {
	store    *store.Store
	registry *registry.Registry
	entries  []directory.Entry // as they were stored last
	db       *badger.DB
	values   [][]byte // as the store encodes the entries
	close    func() error
}

// openStorage makes both in a folder.
func openStorage(ctx context.Context, dir string) (s *storage, err error) {
	quiet := slog.New(slog.DiscardHandler)
	own, err := store.Open(filepath.Join(dir, "ours"), quiet)
	if err != nil {
		return nil, err
	}
	db, lock, err := store.OpenDB(filepath.Join(dir, "badger"), 1, quiet)
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	s = &storage{store: own, db: db, close: func() error { return errors.Join(own.Close(), db.Close(), lock.Close()) }}
	if s.registry, err = registry.Open(ctx, own); err == nil {
		err = s.fill(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// fill registers the entries, many at once, and writes what became of them into the bare database.
func (s *storage) fill(ctx context.Context) error {
	s.entries, s.values = make([]directory.Entry, keptEntries), make([][]byte, keptEntries)
	const atOnce = 20
	var errs [atOnce]error
	var filling sync.WaitGroup
	for n := range atOnce {
		filling.Go(func() {
			for i := n; i < keptEntries && errs[n] == nil; i += atOnce {
				errs[n] = s.register(ctx, i)
			}
		})
	}
	filling.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for i, v := range s.values {
		if err := batch.Set([]byte(storedAIC(i)), v); err != nil {
			return err
		}
	}
	return batch.Flush()
}

// register registers one entry.
func (s *storage) register(ctx context.Context, i int) error {
	raw, err := putSample(fmt.Sprintf("Kept %d", i), "One.")
	if err != nil {
		return err
	}
	draft, err := acs.Parse(raw)
	if err != nil {
		return err
	}
	doc, _, err := acs.Authoritative(draft, aic.AIC(storedAIC(i)), []string{"*"}, time.Now())
	if err != nil {
		return err
	}
	s.entries[i], err = s.registry.Register(ctx, directory.Entry{AIC: doc.AIC, State: directory.Active, Visibility: directory.VisibleDomain}, doc, nil, time.Now())
	if err != nil {
		return err
	}
	s.values[i], err = directory.EncodeEntry(s.entries[i])
	return err
}

func storedAIC(i int) string { return fmt.Sprintf("2.999.1.1.1.C.1.1.%06d.0000", i) }

// rows are put, get and list.
func (s *storage) rows(ctx context.Context) []row {
	at, floorAt, getAt, floorGetAt, listAt, floorListAt := 0, 0, 0, 0, 0, 0
	next := func(n *int) int { *n++; return *n * 7919 % keptEntries }
	return []row{
		{
			name: "directory put, durable, one by one", bar: 1.4, blocks: 60,
			ours:  timed(func(context.Context) error { return s.put(ctx, next(&at)) }),
			floor: timed(func(context.Context) error { return s.rawPut(next(&floorAt)) }),
		},
		{
			name: "directory get", bar: 2, blocks: 200,
			ours: timed(func(context.Context) error {
				_, err := s.registry.Get(storedAIC(next(&getAt)))
				return err
			}),
			floor: timed(func(context.Context) error { return s.rawGet(next(&floorGetAt)) }),
		},
		{
			name: fmt.Sprintf("directory list, a page of %d", listed), bar: 2, blocks: 100,
			ours:  timed(func(context.Context) error { return s.list(next(&listAt)) }),
			floor: timed(func(context.Context) error { return s.rawList(next(&floorListAt)) }),
		},
	}
}

// put stores the next version of an entry. The registry does not hear of it.
func (s *storage) put(ctx context.Context, i int) error {
	e := &s.entries[i]
	e.Version++
	return s.store.Put(ctx, *e, e.Version-1)
}

func (s *storage) rawPut(i int) error {
	return s.db.Update(func(tx *badger.Txn) error { return tx.Set([]byte(storedAIC(i)), s.values[i]) })
}

func (s *storage) rawGet(i int) error {
	return s.db.View(func(tx *badger.Txn) error {
		item, err := tx.Get([]byte(storedAIC(i)))
		if err != nil {
			return err
		}
		return item.Value(decoded)
	})
}

// decoded is an entry made of a value, as whoever reads one needs it.
func decoded(value []byte) error {
	_, err := directory.DecodeEntry(value)
	return err
}

// begin is where a page begins, so that it is a whole one.
func begin(i int) string { return storedAIC(i % (keptEntries - listed)) }

func (s *storage) list(i int) error {
	page, _ := s.registry.Page(begin(i), listed, func(registry.Mark) bool { return true })
	if len(page) != listed {
		return fmt.Errorf("a page has %d entries, want %d", len(page), listed)
	}
	return nil
}

func (s *storage) rawList(i int) error {
	return s.db.View(func(tx *badger.Txn) error {
		it := tx.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		n := 0
		for it.Seek([]byte(begin(i))); it.Valid() && n < listed; it.Next() {
			if err := it.Item().Value(decoded); err != nil {
				return err
			}
			n++
		}
		if n != listed {
			return fmt.Errorf("a scan has %d entries, want %d", n, listed)
		}
		return nil
	})
}
