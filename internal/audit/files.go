package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	currentName = "audit.jsonl"
	lockName    = "audit.lock"
	oldPrefix   = "audit-"
	oldSuffix   = ".jsonl"
	oldDigits   = 12 // at least; names sort up to a million million lines, and we sort by number
)

// file is what the log needs of the current file, so that tests can let a disk fail. Writes go to its end.
type file interface {
	Write(b []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
}

func openFile(path string) (file, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
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

// syncDir makes renames and new files in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func oldName(first uint64) string {
	return fmt.Sprintf("%s%0*d%s", oldPrefix, oldDigits, first, oldSuffix)
}

// parseOldName is the number of the first line of a file that was rotated away.
func parseOldName(name string) (first uint64, ok bool) {
	digits, begins := strings.CutPrefix(name, oldPrefix)
	digits, ends := strings.CutSuffix(digits, oldSuffix)
	if !begins || !ends {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && name == oldName(first)
}

// oldFiles are the names of the files that were rotated away, in the order of the chain.
func oldFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, e := range entries {
		if first, ok := parseOldName(e.Name()); ok {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	names := make([]string, len(firsts))
	for i, first := range firsts {
		names[i] = oldName(first)
	}
	return names, nil
}

// openReader opens a file of the log for reading, or nil where there is none. Anything but a regular file is refused before it can block.
func openReader(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// MoveAside renames the folder of a log that no process has open.
func MoveAside(dir, to string) error {
	lock, err := takeLock(filepath.Join(dir, lockName))
	if err != nil {
		return fmt.Errorf("move the audit log in %s aside: %w", dir, err)
	}
	defer lock.Close()
	if err := errors.Join(os.Rename(dir, to), syncDir(filepath.Dir(dir))); err != nil {
		return fmt.Errorf("move the audit log in %s aside: %w", dir, err)
	}
	return nil
}
