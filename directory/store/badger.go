package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
)

// lockName is our own lock. It is taken before anything in the folder is touched: Badger's own comes too late to protect the
// removal of empty files.
const lockName = "agentgw.lock"

// openAttempts: after a kill Badger 4.9.6 may need up to two more tries (measured fact 2).
const openAttempts = 4

// Open opens the directory database in a folder, and makes it if it is not there. Errors say what to do; nothing that might hold
// data is ever deleted.
func Open(dir string, log *slog.Logger, opts ...Option) (*Store, error) {
	db, lock, err := OpenDB(dir, schema, log, opts...)
	if errors.Is(err, ErrKey) {
		err = fmt.Errorf("%w; to change the key or to turn encryption on, back up as it is now, and restore with the new key", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the directory database in %s: %w", dir, err)
	}
	return newStore(&badgerBackend{db, lock}), nil
}

// ErrKey is the error of a database that was made with another encryption key, or without one: the configuration has to change, not the
// database.
var ErrKey = errors.New("wrong encryption key")

// An Option changes how a database is opened.
type Option func(*settings)

type settings struct {
	key  []byte // of the encryption at rest; empty: none
	lazy bool   // a write is durable some time after it returned
}

// WithEncryptionKey has everything that is written to the disk encrypted with AES under a key of 16, 24 or 32 octets; an empty key is no
// encryption. A database keeps for life what it was made with: another key, or none, is refused. Badger does not authenticate what it
// encrypts, so the folder's permissions still count.
func WithEncryptionKey(key []byte) Option { return func(s *settings) { s.key = bytes.Clone(key) } }

func settingsOf(opts []Option) (settings, error) {
	var s settings
	for _, o := range opts {
		o(&s)
	}
	switch len(s.key) {
	case 0, 16, 24, 32:
		return s, nil
	}
	return s, fmt.Errorf("encryption key of %d octets: it must have 16, 24 or 32", len(s.key))
}

// profile is `dir` of the PROTOCOL documents, and `rib` where writes need not be durable at once: all values in the tree, checksums verified when a table is read.
func profile(dir string, magic uint16, s settings, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithSyncWrites(!s.lazy).
		WithValueThreshold(1 << 20).
		WithMemTableSize(16 << 20).
		WithNumMemtables(3).
		WithNumLevelZeroTables(4).
		WithNumLevelZeroTablesStall(10).
		WithNumCompactors(2).
		WithBlockCacheSize(16 << 20).
		WithIndexCacheSize(16 << 20).
		WithValueLogFileSize(16 << 20).
		WithCompression(options.Snappy).
		WithChecksumVerificationMode(options.OnTableRead).
		WithMetricsEnabled(false).
		WithNumVersionsToKeep(1).
		WithDetectConflicts(true).
		WithCompactL0OnClose(true).
		WithExternalMagic(magic).
		WithEncryptionKey(s.key).
		WithLogger(badgerLog{log})
}

// OpenDB opens a database with the profile that every durable database of this project has, under a lock of our own that is
// released after the database is closed. magic names the schema: a folder of another one is refused. It is exported for the
// agent's daemon, whose database has keys of its own.
func OpenDB(dir string, magic uint16, log *slog.Logger, opts ...Option) (*badger.DB, *os.File, error) {
	s, err := settingsOf(opts)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err := takeLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, nil, err
	}
	if err = checkRestored(dir); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	db, err := openUnderLock(dir, magic, s, log)
	if err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return db, lock, nil
}

// Plain says whether a folder has a database that is not encrypted. Badger's key registry tells: after 16 octets it has a text that it reads again,
// encrypted where anything is.
func Plain(dir string) bool {
	raw, err := os.ReadFile(filepath.Join(dir, badger.KeyRegistryFileName))
	return err == nil && len(raw) >= 16 && bytes.HasPrefix(raw[16:], []byte("Hello Badger"))
}

func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another process has it open; stop that one first: %w", err), f.Close())
	}
	return f, nil
}

func openUnderLock(dir string, magic uint16, s settings, log *slog.Logger) (*badger.DB, error) {
	if err := errors.Join(checkWhole(dir), checkTables(dir, magic)); err != nil {
		return nil, err
	}
	var db *badger.DB
	var err error
	for range openAttempts {
		if err = removeEmptyLogs(dir, log); err != nil {
			return nil, err
		}
		if db, err = badger.Open(profile(dir, magic, s, log)); err == nil {
			return db, nil
		}
		// errors.Is(err, z.NewFile) is false for what Open returns; the text is all there is.
		if !strings.Contains(err.Error(), "Create a new file") {
			break
		}
	}
	switch {
	case strings.Contains(err.Error(), "external magic"):
		return nil, fmt.Errorf("it is not of schema %d, which this program reads; use the program that wrote it: %w", magic, err)
	case errors.Is(err, badger.ErrEncryptionKeyMismatch) && len(s.key) == 0:
		return nil, fmt.Errorf("it is encrypted, and no key is given (%w); nothing was changed; give the key that it was made with", ErrKey)
	case errors.Is(err, badger.ErrEncryptionKeyMismatch):
		return nil, fmt.Errorf("it was not made with this encryption key (%w); nothing was changed; give the key that it was made with, or none "+
			"if it was made without", ErrKey)
	}
	return nil, fmt.Errorf("it cannot be read and nothing was changed; check the disk, then restore the folder from a backup "+
		"or move it away to begin anew: %w", err)
}

// checkWhole refuses a folder that has data and not the two files that say what they are: Badger would make these anew, and remove the
// tables that they do not name.
func checkWhole(dir string) error {
	var missing []string
	for _, name := range []string{badger.ManifestFilename, badger.KeyRegistryFileName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		} else if err != nil {
			return err
		}
	}
	if len(missing) == 0 {
		return nil
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		return err
	}
	return fmt.Errorf("it has tables and no %s; nothing was changed; restore the folder from a backup or move it away to begin anew",
		strings.Join(missing, " and no "))
}

// checkTables refuses tables whose lengths do not add up: Badger panics over them, in a goroutine of its own, where it returns an error over any other
// damage. A table ends with its index, the index's length, a checksum and the checksum's length. Only those count that the manifest names: a killed process
// leaves others unfinished. Where the manifest or a table cannot be read at all, Badger says so.
func checkTables(dir string, magic uint16) error {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return nil
	}
	defer f.Close()
	manifest, _, err := badger.ReplayManifestFile(f, magic, badger.DefaultOptions(dir))
	if err != nil {
		return nil
	}
	for id := range manifest.Tables {
		name := table.NewFilename(id, dir)
		if err := checkTable(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("table %s cannot be read: %w; nothing was changed; restore the folder from a backup or move it away to begin anew", name, err)
		}
	}
	return nil
}

func checkTable(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	left := info.Size()
	for range 2 { // the checksum, then the index
		var length [4]byte
		if left -= int64(len(length)); left < 0 {
			return io.ErrUnexpectedEOF
		}
		if _, err := f.ReadAt(length[:], left); err != nil {
			return err
		}
		if left -= int64(binary.BigEndian.Uint32(length[:])); left < 0 {
			return errors.New("its lengths do not add up")
		}
	}
	return nil
}

// removeEmptyLogs removes write-ahead and value logs of no octets, which a killed process leaves and Badger refuses.
func removeEmptyLogs(dir string, log *slog.Logger) error {
	for _, pattern := range []string{"*.mem", "*.vlog"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			if info.Size() == 0 {
				log.Warn("removing an empty database log, left by a process that was killed", "file", name)
				if err := os.Remove(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

type badgerBackend struct {
	db   *badger.DB
	lock *os.File
}

func (b *badgerBackend) view(f func(reader) error) error {
	return b.db.View(func(txn *badger.Txn) error { return f(badgerReader{txn}) })
}

func (b *badgerBackend) update(list []mutation) error {
	txn := b.db.NewTransaction(true)
	defer txn.Discard()
	for _, m := range list {
		var err error
		if m.value == nil {
			err = txn.Delete([]byte(m.key))
		} else {
			err = txn.Set([]byte(m.key), m.value)
		}
		if err != nil {
			return err
		}
	}
	return txn.Commit()
}

func (b *badgerBackend) close() error { return errors.Join(b.db.Close(), b.lock.Close()) }

type badgerReader struct{ txn *badger.Txn }

func (r badgerReader) get(key string) ([]byte, error) {
	item, err := r.txn.Get([]byte(key))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(nil)
}

func (r badgerReader) scan(prefix string, f func(key, value []byte) error) error {
	o := badger.DefaultIteratorOptions
	o.Prefix = []byte(prefix)
	it := r.txn.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if err := item.Value(func(v []byte) error { return f(item.Key(), v) }); err != nil {
			return err
		}
	}
	return nil
}

// badgerLog hands Badger's log lines on. Its Info is what it does all day: ours is Debug.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) say(level slog.Level, format string, args []any) {
	ctx := context.Background()
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "badger", "line", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

// Errorf is loud, but for what Badger says when it is not opened: it returns that error too, and the caller knows what it means, or tries again.
func (l badgerLog) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, "Received err: ") {
		l.say(slog.LevelDebug, format, args)
		return
	}
	l.say(slog.LevelError, format, args)
}

func (l badgerLog) Warningf(format string, args ...any) { l.say(slog.LevelWarn, format, args) }
func (l badgerLog) Infof(format string, args ...any)    { l.say(slog.LevelDebug, format, args) }
func (l badgerLog) Debugf(format string, args ...any)   { l.say(slog.LevelDebug, format, args) }
