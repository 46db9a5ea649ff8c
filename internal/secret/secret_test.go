package secret

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, dir, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // the umask does not count
		t.Fatal(err)
	}
	return path
}

func TestSecretsAreTheirOwnersAlone(t *testing.T) {
	t.Setenv(credentialsVariable, "")
	dir := t.TempDir()
	for _, mode := range []os.FileMode{0o600, 0o400, 0o700} {
		path := write(t, dir, "good", "s3cret\n", mode)
		if b, err := Read(path); err != nil || string(b) != "s3cret\n" {
			t.Errorf("%04o: %q %v", mode, b, err)
		}
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666, 0o440} {
		path := write(t, dir, "bad", "s3cret", mode)
		b, err := Read(path)
		if err == nil || b != nil || !strings.Contains(err.Error(), "chmod 0600 "+path) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%04o: %q %v", mode, b, err)
		}
	}
}

func TestOnlyRegularFilesOfSize(t *testing.T) {
	t.Setenv(credentialsVariable, "")
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir, "/dev/null"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "regular") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if b, err := Read(write(t, dir, "full", strings.Repeat("x", MaxSize), 0o600)); err != nil || len(b) != MaxSize {
		t.Errorf("%d octets, %v", len(b), err)
	}
	if _, err := Read(write(t, dir, "long", strings.Repeat("x", MaxSize+1), 0o600)); err == nil {
		t.Error("too long and read")
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write(t, dir, "open", "x", 0o644), link); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(link); err == nil {
		t.Error("a link hides the mode")
	}
}

func TestCredentialsOfTheServiceManagerComeFirst(t *testing.T) {
	dir, credentials := t.TempDir(), t.TempDir()
	t.Setenv(credentialsVariable, credentials)
	path := write(t, dir, "gateway.key", "from the path", 0o600)
	read := func(want string) {
		t.Helper()
		if b, err := Read(path); err != nil || string(b) != want {
			t.Errorf("%q %v, want %q", b, err, want)
		}
	}
	read("from the path")
	write(t, credentials, "gateway.key", "credential", 0o400)
	read("credential")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	read("credential")
	write(t, credentials, "gateway.key", "credential", 0o444)
	if _, err := Read(path); err == nil {
		t.Error("a credential that all may read")
	}
}

func TestARootOwnedCredentialMayShowItsMask(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI_ROOT") == "1" {
			t.Fatal("CI_ROOT=1 and no root")
		}
		t.Skip("needs root: the file has to be root's")
	}
	credentials := t.TempDir()
	t.Setenv(credentialsVariable, credentials)
	path := write(t, credentials, "k", "x", 0o440)
	if b, err := Read("/nowhere/k"); err != nil || !bytes.Equal(b, []byte("x")) {
		t.Error(string(b), err)
	}
	if err := os.Chown(path, 65534, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Read("/nowhere/k"); err == nil {
		t.Error("0440 of somebody else")
	}
}

// An error says where the secret was looked for: a path in full, whatever folder the process is in, and the credentials.
func TestErrorsNameWhereItWasLookedFor(t *testing.T) {
	dir, credentials := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	write(t, dir, "open.key", "x", 0o644)
	for _, c := range []struct {
		credentials, file string
		want              []string
	}{
		{"", "none.key", []string{filepath.Join(dir, "none.key")}},
		{"", "open.key", []string{filepath.Join(dir, "open.key")}},
		{credentials, "none.key", []string{filepath.Join(dir, "none.key"), credentials}},
		{credentials, "open.key", []string{filepath.Join(dir, "open.key"), credentials}},
	} {
		t.Setenv(credentialsVariable, c.credentials)
		_, err := Read(c.file)
		if err == nil {
			t.Fatalf("%+v: read", c)
		}
		if errors.Is(err, fs.ErrNotExist) != (c.file == "none.key") {
			t.Errorf("%+v: %v", c, err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not name %s", err, want)
			}
		}
	}
}
