package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
)

// restoringName is the file that a folder has from before a restore writes into it until all of it is on the disk.
const restoringName = "restoring"

// restoreBatch is how many records go into one commit, within maxGroupBytes.
const restoreBatch = 5000

// Restore makes the database of a backup in a folder that must be empty or absent, or in which an earlier Restore was cut short. The
// whole backup is checked before anything is written. The restored database has the header as the named value [MetaRecovering]: its
// gateway has to catch up before it serves. Where Restore fails half way, or the process ends, the folder is not a database that
// [Open] opens; Restore can be run again.
func Restore(dir string, r io.ReadSeeker, log *slog.Logger, opts ...Option) (Header, error) {
	h, err := restore(dir, r, log, opts)
	if err != nil {
		return Header{}, fmt.Errorf("restore the directory database into %s: %w", dir, err)
	}
	return h, nil
}

func restore(dir string, r io.ReadSeeker, log *slog.Logger, opts []Option) (Header, error) {
	s, err := settingsOf(opts)
	if err != nil {
		return Header{}, err
	}
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return Header{}, err
	}
	h, sum, err := readBackup(r, func(_, _ []byte) error { return nil })
	if err != nil {
		return Header{}, fmt.Errorf("nothing was restored: %w", err)
	}
	if _, err := r.Seek(start, io.SeekStart); err != nil {
		return Header{}, err
	}
	lock, err := claim(dir)
	if err != nil {
		return Header{}, err
	}
	defer lock.Close() // it holds nothing that could be lost
	db, err := openUnderLock(dir, schema, s, log)
	if err != nil {
		return Header{}, err
	}
	if err := errors.Join(load(&badgerBackend{db, lock}, r, sum), db.Sync(), db.Close()); err != nil {
		return Header{}, err
	}
	if err := errors.Join(syncFolder(dir), os.Remove(filepath.Join(dir, restoringName)), syncFolder(dir)); err != nil {
		return Header{}, err
	}
	return h, nil
}

// load writes a backup that was found to have the checksum, and the note that it is one.
func load(to backend, r io.Reader, sum [32]byte) error {
	var list []mutation
	size := 0
	write := func() error {
		err := to.update(list)
		list, size = list[:0], 0
		return err
	}
	h, again, err := readBackup(r, func(key, value []byte) error {
		m := mutation{string(key), value}
		if more := bytesOf([]mutation{m}); len(list) == restoreBatch || len(list) > 0 && size+more > maxGroupBytes {
			if err := write(); err != nil {
				return err
			}
		}
		list = append(list, m)
		size += bytesOf(list[len(list)-1:])
		return nil
	})
	if err != nil {
		return err
	}
	if again != sum {
		return errors.New("the backup was changed while it was read; run the restore again")
	}
	if err := write(); err != nil {
		return err
	}
	header, err := EncodeHeader(h)
	if err != nil {
		return err
	}
	return to.update([]mutation{{prefixMeta + MetaRecovering, header}})
}

// claim takes a folder for a restore: it is locked, has nothing but the lock and the file that says what is going on, and that is on the disk.
func claim(dir string) (lock *os.File, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if lock, err = takeLock(filepath.Join(dir, lockName)); err != nil {
		return nil, err
	}
	if err := errors.Join(clearRestored(dir), syncFolder(filepath.Dir(dir))); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// clearRestored marks an empty folder, or removes what an earlier restore left in a marked one. Only files of a database are removed.
func clearRestored(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lockName })
	marked := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == restoringName })
	if len(entries) > 0 && !marked {
		return fmt.Errorf("the folder is not empty (it has %s); nothing was changed; move it away first", entries[0].Name())
	}
	for _, e := range entries {
		if e.Name() != restoringName && (!e.Type().IsRegular() || !ofDatabase(e.Name())) {
			return fmt.Errorf("%s is no part of a database; move it away first", filepath.Join(dir, e.Name()))
		}
	}
	if !marked {
		if err := writeMark(dir); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.Name() == restoringName {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return syncFolder(dir)
}

// MoveAside renames the folder of a database that no process has open, so that a restore finds none there. It says false, and changes
// nothing, where there is no folder, or one in which a restore was cut short: [Restore] goes on with that.
func MoveAside(dir, to string) (moved bool, err error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := takeLock(filepath.Join(dir, lockName))
	if err != nil {
		return false, fmt.Errorf("move the directory database in %s aside: %w", dir, err)
	}
	defer lock.Close()
	if err := checkRestored(dir); err != nil {
		return false, nil
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) { // rename would write over an empty folder
		return false, fmt.Errorf("move the directory database in %s aside: %s is there already", dir, to)
	}
	if err := errors.Join(os.Rename(dir, to), syncFolder(filepath.Dir(dir))); err != nil {
		return false, fmt.Errorf("move the directory database in %s aside: %w", dir, err)
	}
	return true, nil
}

func writeMark(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, restoringName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("a restore into this folder has not finished; run it again\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// ofDatabase says whether a file is one that Badger makes.
func ofDatabase(name string) bool {
	switch name {
	case badger.ManifestFilename, "MANIFEST-REWRITE", badger.KeyRegistryFileName, badger.KeyRegistryRewriteFileName, "DISCARD", "LOCK":
		return true
	}
	switch filepath.Ext(name) {
	case ".sst", ".mem", ".vlog":
		return true
	}
	return false
}

// checkRestored refuses a folder in which a restore has not finished.
func checkRestored(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, restoringName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return errors.New("a restore into it has not finished, so it is not whole; run the restore again, or move the folder away to begin anew")
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
