package app

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/directory"
	"agentgw/directory/registry"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

const (
	// fileSnapshot is in the database's folder, so that whoever moves the one takes the other along.
	fileSnapshot = "index.snapshot"
	// metaSnapshot names the snapshot that goes with the database: another file, or one of before a restore, is not read.
	metaSnapshot = "index-snapshot"
	// snapshotTime is for the snapshot of a stop. A million entries take some ten seconds; what is not done then is no snapshot.
	snapshotTime = 2 * time.Minute
	snapshotBuf  = 1 << 20 // octets written at a time
	snapshotHead = 4 << 10 // octets read ahead: a block is read into its place
)

// What a directory was loaded from.
const (
	fromSnapshot = "snapshot"
	fromEntries  = "entries"
)

func (a *app) snapshotFile() string {
	return filepath.Join(a.cfg.StateDir, dirDirectory, fileSnapshot)
}

// openDirectory makes the registry: from the snapshot of the last clean stop where there is one of just this state, else from all entries.
func (a *app) openDirectory(ctx context.Context, cleanup *daemon.Cleanup) error {
	key, err := encryptionKey(a.cfg)
	if err != nil {
		return err
	}
	began := time.Now()
	// What is read of a snapshot stays, and hardly anything is left over: the collector would look at it again and again while it grows.
	percent := debug.SetGCPercent(-1)
	from := fromSnapshot
	a.registry, err = a.openSnapshot(ctx, key)
	debug.SetGCPercent(percent)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("the snapshot of the directory is not used, all entries are read instead", "file", a.snapshotFile(), "err", err)
		}
		from = fromEntries
		if a.registry, err = registry.Rebuild(ctx, a.store, a.telling("reading the directory")); err != nil {
			return err
		}
	}
	seq, err := a.store.Sequence()
	if err != nil {
		return err
	}
	if err := a.recallMoved(ctx); err != nil {
		return err
	}
	a.loaded = from
	a.log.Info("directory loaded", "from", from, "entries", a.registry.Len(), "took_ms", time.Since(began).Milliseconds())
	cleanup.Add("keep a snapshot of the directory", snapshotTime, func(ctx context.Context) error {
		return a.keepSnapshot(ctx, key, from == fromSnapshot, seq)
	})
	return nil
}

// CheckDirectory implements admin.Gateway.
func (a *app) CheckDirectory(ctx context.Context) (*admin.DirectoryCheck, error) {
	r, err := a.registry.Check(ctx)
	if errors.Is(err, registry.ErrBusy) {
		return nil, frame.Errorf(frame.Overloaded, "%w", err)
	}
	if err != nil {
		return nil, err
	}
	if len(r.Problems) > 0 {
		a.log.Error("the directory at hand is not what its store holds: restart the gateway, and keep this log", "problems", r.Problems)
	}
	return &admin.DirectoryCheck{
		Entries: r.Entries, Capabilities: r.Capabilities, Sequence: r.Sequence, Problems: slices.Concat([]string{}, r.Problems), Loaded: a.loaded,
	}, nil
}

// telling tells the log and the service manager how far a long start is.
func (a *app) telling(what string) registry.Progress {
	return func(entries int) {
		a.log.Info(what, "entries", entries)
		daemon.Progress(a.log, fmt.Sprintf("%s: %d entries", what, entries))
	}
}

func (a *app) openSnapshot(ctx context.Context, key []byte) (*registry.Registry, error) {
	id, err := a.store.Meta(metaSnapshot)
	if errors.Is(err, directory.ErrNotFound) {
		return nil, fs.ErrNotExist
	}
	if err == nil && len(id) != 16 {
		err = fmt.Errorf("an id of %d octets", len(id))
	}
	if err != nil {
		return nil, fmt.Errorf("which one goes with the store: %w", err)
	}
	f, err := os.Open(a.snapshotFile())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return registry.OpenSnapshot(ctx, a.store, bufio.NewReaderSize(f, snapshotHead), info.Size(), [16]byte(id), key, a.telling("reading the snapshot of the directory"))
}

// keepSnapshot writes the snapshot of a clean stop, unless the one that is there is of this state. Nothing changes the directory any more. A
// process that cannot write one, or is killed, costs the next start its time and nothing else: what is there then is not of the store's state.
func (a *app) keepSnapshot(ctx context.Context, key []byte, kept bool, at uint64) error {
	if seq, err := a.store.Sequence(); err != nil || seq == 0 || kept && seq == at {
		return err
	}
	began := time.Now()
	daemon.Progress(a.log, "keeping a snapshot of the directory")
	var id [16]byte
	rand.Read(id[:]) // it never fails
	file := a.snapshotFile()
	leftovers, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "."+fileSnapshot+"*")) // of a stop that was killed; the pattern is well formed
	for _, l := range leftovers {
		os.Remove(l)
	}
	f, err := renameio.NewPendingFile(file, renameio.WithTempDir(filepath.Dir(file)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer f.Cleanup()
	w := bufio.NewWriterSize(f, snapshotBuf)
	if _, err := a.registry.WriteSnapshot(ctx, w, id, key); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	a.log.Info("snapshot of the directory kept", "entries", a.registry.Len(), "took_ms", time.Since(began).Milliseconds())
	return a.store.SetMeta(ctx, metaSnapshot, id[:])
}
