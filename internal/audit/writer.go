package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// writer is the current file and the end of the chain. One goroutine owns it.
//
// What is on the disk for sure is the first size octets of the file: count lines, the last of them with the hash. Everything after that is
// of a write that failed, and is cut off before the next one.
type writer struct {
	cfg   Config
	file  file // nil after a rotation that could not make the new file
	size  int64
	torn  bool   // something may be after size
	first uint64 // number of the file's first line; 0: none yet
	count uint64
	hash  [32]byte
	since int // records after the last checkpoint

	again      []*entry // records of RecordSoon that could not be written yet, at most maxPending
	lost       uint64   // of them, given up
	checkpoint []byte   // the newest that is on the disk and not yet handed on
	failing    bool     // the last write failed, and that was said
	stuck      bool     // the last rotation failed, and that was said
}

// openWriter finds the end of the chain and, where a crash left an unfinished line, cuts it off and says so in a record.
func openWriter(cfg Config) (*writer, error) {
	t, err := findTail(cfg.Dir)
	if err != nil {
		return nil, err
	}
	w := &writer{cfg: cfg, size: t.size, first: t.first, count: t.count, hash: t.hash, torn: t.torn > 0}
	if t.pending && t.count > 0 {
		w.since = 1 // how many does not matter: the next tick seals them
	}
	if err := w.ready(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if t.torn > 0 {
		cfg.Log.Warn("the audit log had an unfinished last line, left by a crash; it was cut off", "octets", t.torn, "after_record", t.count)
		data, err := json.Marshal(map[string]int64{"octets": t.torn})
		if err == nil {
			err = w.put([]*entry{{at: cfg.Now(), kind: KindRecovered, data: data}}, false)
		}
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *writer) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

func (w *writer) takeCheckpoint() []byte {
	raw := w.checkpoint
	w.checkpoint = nil
	return raw
}

// write writes a batch after what is left of earlier ones, and syncs. When it fails, those records for which nobody waits stay for the
// next time.
func (w *writer) write(batch []*entry, seal bool) error {
	all := append(w.again, batch...)
	if len(all) == 0 && (!seal || w.since == 0) {
		return nil
	}
	lost := w.lost
	if lost > 0 {
		data, err := json.Marshal(map[string]uint64{"records": lost})
		if err != nil {
			return err
		}
		all = append([]*entry{{at: w.cfg.Now(), kind: KindLost, data: data}}, all...)
	}
	err := w.put(all, seal)
	if err == nil {
		w.again, w.lost = nil, 0
	} else {
		w.postpone(append(w.again, batch...))
	}
	w.tell(err)
	return err
}

// postpone keeps the oldest records that nobody waits for, and counts those for which there is no place.
func (w *writer) postpone(all []*entry) {
	w.again = nil
	for _, e := range all {
		switch {
		case e.done != nil:
		case len(w.again) < maxPending:
			w.again = append(w.again, e)
		default:
			w.lost++
		}
	}
}

// tell logs when writing begins to fail, and when it works again.
func (w *writer) tell(err error) {
	switch {
	case err != nil && !w.failing:
		w.cfg.Log.Error("the audit log cannot be written; make room on its disk or mend it", "dir", w.cfg.Dir, "err", err)
	case err == nil && w.failing:
		w.cfg.Log.Info("the audit log can be written again", "dir", w.cfg.Dir)
	}
	w.failing = err != nil
}

// ready opens the file where it is not open, and cuts off what a failed write left.
func (w *writer) ready() error {
	if w.file == nil {
		f, err := w.cfg.open(filepath.Join(w.cfg.Dir, currentName))
		if err != nil {
			return err
		}
		if err := syncDir(w.cfg.Dir); err != nil {
			return errors.Join(err, f.Close())
		}
		w.file = f
	}
	if w.torn {
		if err := w.file.Truncate(w.size); err != nil {
			return err
		}
		w.torn = false
	}
	return nil
}

// put appends entries, checkpoints where they are due, and syncs: all of it is on the disk, or none of it counts.
func (w *writer) put(entries []*entry, seal bool) error {
	if err := w.ready(); err != nil {
		return fmt.Errorf("write to the audit log: %w", err)
	}
	if w.size > w.cfg.MaxBytes {
		if err := w.rotate(); err != nil {
			return fmt.Errorf("rotate the audit log: %w", err)
		}
	}
	g := group{w: w, out: bufio.NewWriterSize(w.file, MaxLine), first: w.first, count: w.count, hash: w.hash, since: w.since}
	w.torn = true
	err := g.add(entries, seal)
	if err == nil {
		err = g.out.Flush()
	}
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write to the audit log: %w", err), w.ready())
	}
	w.torn = false
	w.size += g.size
	w.first, w.count, w.hash, w.since = g.first, g.count, g.hash, g.since
	if g.checkpoint != nil {
		w.checkpoint = g.checkpoint
	}
	return nil
}

// rotate renames the current file and begins the next. Everything in the current one is synced. Where the name cannot be changed the
// log goes on in the current file: that it is long is no reason to lose records.
func (w *writer) rotate() error {
	old := filepath.Join(w.cfg.Dir, oldName(w.first))
	_, err := os.Lstat(old)
	switch {
	case err == nil:
		err = fmt.Errorf("%s is there already", old) // rename would write over it
	case errors.Is(err, fs.ErrNotExist):
		err = os.Rename(filepath.Join(w.cfg.Dir, currentName), old)
	}
	if err != nil {
		if !w.stuck {
			w.cfg.Log.Error("the audit log cannot be rotated; its file grows on. Mend the folder", "dir", w.cfg.Dir, "err", err)
		}
		w.stuck = true
		return nil
	}
	w.stuck = false
	err = w.file.Close()
	w.file, w.size, w.first = nil, 0, 0
	return errors.Join(err, w.ready())
}

// group is the lines of one write, ahead of the writer until they are synced.
type group struct {
	w          *writer
	out        *bufio.Writer
	line       []byte
	size       int64
	first      uint64
	count      uint64
	hash       [32]byte
	since      int
	checkpoint []byte
}

func (g *group) add(entries []*entry, seal bool) error {
	for _, e := range entries {
		if err := g.append(e.at, e.kind, e.data); err != nil {
			return err
		}
		if g.since++; g.since >= g.w.cfg.Every {
			if err := g.seal(e.at); err != nil {
				return err
			}
		}
	}
	if seal && g.since > 0 {
		return g.seal(g.w.cfg.Now())
	}
	return nil
}

// seal appends a checkpoint of the chain so far.
func (g *group) seal(at time.Time) error {
	g.since = 0
	if g.w.cfg.Signer == nil {
		return nil
	}
	raw, err := g.w.cfg.Signer.Sign(Checkpoint{g.count, g.hash, at})
	if err != nil {
		g.w.cfg.Log.Error("a checkpoint of the audit log cannot be signed; records are written without it", "err", err)
		return nil
	}
	data, err := encodeCheckpointData(raw)
	if err != nil {
		return err
	}
	g.checkpoint = raw
	return g.append(at, KindCheckpoint, data)
}

func (g *group) append(at time.Time, kind string, data json.RawMessage) error {
	var err error
	if g.line, err = appendLine(g.line[:0], Record{g.count + 1, at, kind, g.hash, data}); err != nil {
		return err
	}
	if g.count++; g.first == 0 {
		g.first = g.count
	}
	g.hash = hashLine(g.line)
	g.line = append(g.line, '\n')
	g.size += int64(len(g.line))
	_, err = g.out.Write(g.line)
	return err
}
