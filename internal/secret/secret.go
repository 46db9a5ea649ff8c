// Package secret reads files that hold secrets: private keys, keys of encryption at rest, shared keys.
//
// The contract: [Read] takes a secret from the credentials of the service manager where they have a file of the same base name, else from
// the path that was asked for, and only from a regular file that nobody but its owner may read or write. It keeps nothing and is safe for
// concurrent use. Errors never hold any of the content.
//
// Source: systemd.exec(5), LoadCredential; seed 002, section 4.1 (an agent keeps its credentials itself).
package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MaxSize is the largest secret, in octets.
const MaxSize = 64 << 10

// credentialsVariable names the folder that systemd makes for LoadCredential= and its kin.
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// Read reads the secret of a path. With $CREDENTIALS_DIRECTORY set, a file there of the path's base name comes first, so that one
// configuration serves with and without credentials. A file that is in neither place is fs.ErrNotExist.
// Errors name the places that were tried, in full: the path of a configuration may be relative.
func Read(path string) ([]byte, error) {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	dir := os.Getenv(credentialsVariable)
	if dir == "" {
		return read(path, false)
	}
	b, err := read(filepath.Join(dir, filepath.Base(path)), true)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	if b, err = read(path, false); err != nil {
		return nil, fmt.Errorf("%w; the credentials in %s have no %s", err, dir, filepath.Base(path))
	}
	return b, nil
}

func read(path string, credential bool) ([]byte, error) {
	// Without O_NONBLOCK a pipe in the file's place would make us wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat() // of what is open, which nobody can swap any more
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	if err := check(path, info, credential); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	if len(b) > MaxSize {
		return nil, fmt.Errorf("read secret %s: it is longer than %d octets; is this the right file?", path, MaxSize)
	}
	return b, nil
}

func check(path string, info fs.FileInfo, credential bool) error {
	mode := info.Mode()
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("read secret %s: it is not a regular file", path)
	case mode.Perm()&0o077 == 0:
		return nil
	case credential && mode.Perm()&0o037 == 0 && ownedByRoot(info):
		return nil // systemd lets the service read by an access list, whose mask shows as the group's rights
	}
	return fmt.Errorf("read secret %s: its mode is %04o, and group and others must have no rights; run `chmod 0600 %s`, and make a new secret "+
		"if somebody may have read it", path, mode.Perm(), path)
}

func ownedByRoot(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0
}
