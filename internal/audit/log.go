package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Defaults of a Config.
const (
	defaultMaxBytes = 64 << 20
	defaultEvery    = 256
	defaultInterval = 60 * time.Second
	defaultGroup    = time.Second
)

// maxPending is how many records may wait for the writer. When that many wait, callers wait too: the log is then as fast as the disk.
const maxPending = 4096

// keepLimit bounds one call of Config.Keep.
const keepLimit = 10 * time.Second

// ErrClosed is the error of records after [Log.Close].
var ErrClosed = errors.New("audit log is closed")

// Config is what a Log needs. Dir is due; zero values are the defaults.
type Config struct {
	Dir      string        // made with mode 0700 if it is not there
	Signer   Signer        // nil: no checkpoints
	Keep     Keeper        // gets each newest checkpoint that is on the disk; nil: nobody
	MaxBytes int64         // the file is rotated when it is larger; 64 MiB
	Every    int           // records from one checkpoint to the next; 256
	Interval time.Duration // a checkpoint is made so often if something was written since; 60 s
	Group    time.Duration // how long RecordSoon may take to be on the disk; 1 s
	Log      *slog.Logger  // nil: says nothing
	Now      func() time.Time

	open func(path string) (file, error) // tests: a disk that fails
}

func (c *Config) fill() error {
	if c.Dir == "" {
		return errors.New("no folder is given")
	}
	if c.MaxBytes < 0 || c.Every < 0 || c.Interval < 0 || c.Group < 0 {
		return errors.New("a size, count or time is negative")
	}
	orDefault(&c.MaxBytes, defaultMaxBytes)
	orDefault(&c.Every, defaultEvery)
	orDefault(&c.Interval, defaultInterval)
	orDefault(&c.Group, defaultGroup)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.open == nil {
		c.open = openFile
	}
	return nil
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Log is an open audit log.
type Log struct {
	cfg    Config
	lock   *os.File
	writer *writer // owned by the goroutine run

	now     chan struct{} // one place: the writer is to write now
	soon    chan struct{} // one place: something waits, the writer is to write within cfg.Group
	closing chan struct{}
	ended   chan struct{}
	err     error // of Close; written before ended is closed

	mu      sync.Mutex // guards what follows; never held across I/O
	shut    bool
	pending []*entry      // accepted and not yet taken by the writer, at most maxPending
	room    chan struct{} // closed, and made anew, when the writer has taken pending
	count   uint64        // lines that are on the disk
	hash    [32]byte      // of the last of them
}

// entry is one record that waits to be written.
type entry struct {
	at   time.Time
	kind string
	data json.RawMessage
	done chan error // nil: nobody waits. Else of one place: the writer never waits
}

// Open goes on with the log in a folder, or begins one. An unfinished last line, which a crash leaves, is cut off, and a record says so.
func Open(cfg Config) (*Log, error) {
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	lock, err := takeLock(filepath.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("open the audit log in %s: %w", cfg.Dir, err)
	}
	w, err := openWriter(cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the audit log in %s: %w", cfg.Dir, err), lock.Close())
	}
	l := &Log{
		cfg: cfg, lock: lock, writer: w, count: w.count, hash: w.hash, room: make(chan struct{}),
		now: make(chan struct{}, 1), soon: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	go l.run()
	return l, nil
}

// Record writes a record and returns when it is on the disk. An error may mean that it is not there, or, if ctx ended or the sync
// failed, that nobody knows. data is encoded as a JSON object; nil is an empty one.
func (l *Log) Record(ctx context.Context, kind string, data any) error {
	raw, err := encodeData(kind, data)
	if err != nil {
		return err
	}
	return l.wait(ctx, kind, raw)
}

// RecordSoon has a record written within Config.Group and returns at once; when maxPending records wait it returns when its own is on the
// disk. It returns an error where the data is not fit or the log is closed; a disk that takes nothing is logged, not returned.
func (l *Log) RecordSoon(kind string, data any) error {
	raw, err := encodeData(kind, data)
	if err != nil {
		return err
	}
	accepted, _, err := l.accept(&entry{kind: kind, data: raw})
	if accepted || err != nil {
		return err
	}
	return l.wait(context.Background(), kind, raw)
}

// wait queues a record and waits until it is on the disk.
func (l *Log) wait(ctx context.Context, kind string, raw json.RawMessage) error {
	e := &entry{kind: kind, data: raw, done: make(chan error, 1)}
	for {
		accepted, room, err := l.accept(e)
		if err != nil {
			return err
		}
		if accepted {
			break
		}
		select {
		case <-room:
		case <-l.closing:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("queue audit record: %w", ctx.Err())
		}
	}
	select {
	case err := <-e.done: // the writer answers all that was accepted
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the audit log, the record may still be written: %w", ctx.Err())
	}
}

// accept gives an entry its place and time, or the channel that tells of room. Place and time are given as one, so that times ascend.
func (l *Log) accept(e *entry) (accepted bool, room <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return false, nil, ErrClosed
	}
	if len(l.pending) >= maxPending {
		return false, l.room, nil
	}
	e.at = l.cfg.Now()
	l.pending = append(l.pending, e)
	wake := l.soon
	if e.done != nil || len(l.pending) == maxPending/2 { // half full: a burst need not wait for its time
		wake = l.now
	}
	select {
	case wake <- struct{}{}:
	default: // it has been told
	}
	return true, nil, nil
}

// take hands the writer what waits.
func (l *Log) take() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.pending
	l.pending = nil
	close(l.room)
	l.room = make(chan struct{})
	return batch
}

// Head is how many lines are on the disk, and the hash of the last of them: the mark of a backup that is taken now.
func (l *Log) Head() (count uint64, hash [32]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.hash
}

// Close writes what was accepted and a last checkpoint, and waits until that is kept. It may be called more than once and by several
// goroutines; all return when it is done, with the error of the last write.
func (l *Log) Close() error {
	l.mu.Lock()
	first := !l.shut
	l.shut = true
	l.mu.Unlock()
	if first {
		close(l.closing)
	}
	<-l.ended
	return l.err
}

// run is the writer's goroutine. It ends when the log is closed.
func (l *Log) run() {
	defer close(l.ended)
	keeper := startKeeper(l.cfg.Keep, l.cfg.Log)
	tick := time.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	var due <-chan time.Time // set while something waits
	for {
		seal := false
		select {
		case <-l.soon:
			if due == nil {
				due = time.After(l.cfg.Group)
			}
			continue
		case <-l.now:
		case <-due:
		case <-tick.C:
			seal = true
		case <-l.closing:
			err := l.write(true, keeper)
			keeper.stop()
			l.err = errors.Join(err, l.writer.close(), l.lock.Close())
			return
		}
		due = nil
		if err := l.write(seal, keeper); err != nil {
			due = time.After(l.cfg.Group) // what could not be written is tried again
		}
	}
}

// write writes what waits, and with seal a checkpoint after it, and answers. The head is set first: who was answered finds it.
func (l *Log) write(seal bool, keeper *keeper) error {
	batch := l.take()
	err := l.writer.write(batch, seal)
	l.mu.Lock()
	l.count, l.hash = l.writer.count, l.writer.hash
	l.mu.Unlock()
	for _, e := range batch {
		if e.done != nil {
			e.done <- err
		}
	}
	if raw := l.writer.takeCheckpoint(); raw != nil {
		keeper.put(raw)
	}
	return err
}
