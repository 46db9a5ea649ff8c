package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"agentgw/directory"
)

// Cache is a database of what can be made anew: what a killed process wrote is there, and after a power cut the last writes may not be. Keys and values
// are its owner's. All methods may be called from any goroutine, after Close too: then they return directory.ErrClosed.
type Cache struct {
	mu   sync.RWMutex // held for reading while the database is used, for writing by Close
	db   *badger.DB   // nil: closed
	lock *os.File
}

// CacheWrite sets a key, or removes it if Value is nil.
type CacheWrite struct {
	Key   string
	Value []byte
}

// MaxCacheWrite is about how many octets of keys and values go into one [Cache.Update]; of keys there may be 5000.
const MaxCacheWrite = maxGroupBytes

// OpenCache opens the cache in a folder, and makes it if it is not there. magic names the schema: a folder of another one is refused. Whatever is wrong,
// nothing is changed: the owner may move the folder away and begin anew.
func OpenCache(dir string, magic uint16, log *slog.Logger, opts ...Option) (*Cache, error) {
	db, lock, err := OpenDB(dir, magic, log, append(opts, func(s *settings) { s.lazy = true })...)
	if err != nil {
		return nil, err
	}
	return &Cache{db: db, lock: lock}, nil
}

// Update writes all of the list or nothing.
func (c *Cache) Update(list []CacheWrite) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.db == nil {
		return directory.ErrClosed
	}
	txn := c.db.NewTransaction(true)
	defer txn.Discard()
	for _, w := range list {
		var err error
		if w.Value == nil {
			err = txn.Delete([]byte(w.Key))
		} else {
			err = txn.Set([]byte(w.Key), w.Value)
		}
		if err != nil {
			return fmt.Errorf("write %d keys to the cache: %w", len(list), err)
		}
	}
	if err := txn.Commit(); err != nil {
		return fmt.Errorf("write %d keys to the cache: %w", len(list), err)
	}
	return nil
}

// Scan visits the keys with a prefix in order until f returns an error, which it returns. The value is valid until f returns.
func (c *Cache) Scan(prefix string, f func(key string, value []byte) error) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.db == nil {
		return directory.ErrClosed
	}
	return c.db.View(func(txn *badger.Txn) error {
		return badgerReader{txn}.scan(prefix, func(key, value []byte) error { return f(string(key), value) })
	})
}

// Close may be called more than once.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db == nil {
		return nil
	}
	db := c.db
	c.db = nil
	return errors.Join(db.Close(), c.lock.Close())
}
