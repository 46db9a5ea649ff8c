package audit

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// disk is a file on which writes and syncs can fail, and be counted.
type disk struct {
	*os.File
	mu     sync.Mutex
	room   int // octets that can still be written; negative: no limit
	sync   error
	cut    error // of Truncate
	syncs  int
	dirty  bool // something is written and not synced
	onSync func()
}

func (d *disk) open(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	d.File = f
	return d, err
}

func (d *disk) set(f func()) { d.mu.Lock(); defer d.mu.Unlock(); f() }

func (d *disk) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty = true
	if d.room >= 0 && len(b) > d.room {
		n, _ := d.File.Write(b[:d.room])
		d.room -= n
		return n, syscall.ENOSPC
	}
	if d.room >= 0 {
		d.room -= len(b)
	}
	return d.File.Write(b)
}

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	if d.onSync != nil {
		d.onSync()
	}
	if d.sync == nil {
		d.dirty = false
	}
	return d.sync
}

func (d *disk) Truncate(n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cut != nil {
		return d.cut
	}
	return d.File.Truncate(n)
}

func TestRecordReturnsAfterTheSync(t *testing.T) {
	d := &disk{room: -1}
	l := open(t, Config{Dir: t.TempDir(), open: d.open})
	for i := range 10 {
		record(t, l, i)
		d.set(func() {
			if d.dirty || d.syncs != i+1 {
				t.Fatalf("record %d returned: dirty %v after %d syncs", i, d.dirty, d.syncs)
			}
		})
	}
	shut(t, l)
}

func TestConcurrentRecordsShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		first := true
		d.onSync = func() {
			if first {
				time.Sleep(time.Millisecond) // the others come meanwhile
			}
			first = false
		}
		l := open(t, Config{Dir: t.TempDir(), open: d.open})
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() { record(t, l, i) })
		}
		wg.Wait()
		if d.syncs > 3 {
			t.Errorf("%d syncs for 64 records", d.syncs)
		}
		shut(t, l)
	})
}

func TestAFullDiskHeals(t *testing.T) {
	for name, fault := range map[string]struct{ on, off func(*disk) }{
		"nothing fits":      {func(d *disk) { d.room = 0 }, func(d *disk) { d.room = -1 }},
		"half a line fits":  {func(d *disk) { d.room = 50 }, func(d *disk) { d.room = -1 }},
		"sync fails":        {func(d *disk) { d.sync = syscall.EIO }, func(d *disk) { d.sync = nil }},
		"cutting fails too": {func(d *disk) { d.room, d.cut = 50, syscall.EIO }, func(d *disk) { d.room, d.cut = -1, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				var s shelf
				d := &disk{room: -1}
				l := open(t, Config{Dir: dir, Keep: s.keep, open: d.open})
				record(t, l, 1)
				before, _ := l.Head()
				d.set(func() { fault.on(d) })
				if err := l.RecordSoon("soon", nil); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := l.Record(t.Context(), "now", nil); err == nil {
						t.Fatal("recorded on a broken disk")
					}
					time.Sleep(3 * time.Second)
				}
				if n, _ := l.Head(); n != before {
					t.Fatalf("head %d, want %d", n, before)
				}
				d.set(func() { fault.off(d) })
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if n, _ := l.Head(); n != before+1 {
					t.Fatalf("the record that waited was not written: head %d", n)
				}
				record(t, l, 2)
				shut(t, l)
				var kinds []string
				if err := Read(dir, 0, func(r Record) error { kinds = append(kinds, r.Kind); return nil }); err != nil {
					t.Fatal(err)
				}
				if r := whole(t, dir, s.newest()); r.Records != 4 || kinds[1] != "soon" || kinds[2] != "test.record" {
					t.Errorf("%+v %v", r, kinds)
				}
			})
		})
	}
}

func TestAFullQueueWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		busy := make(chan struct{})
		d.onSync = func() { <-busy }
		l := open(t, Config{Dir: t.TempDir(), open: d.open})
		var wg sync.WaitGroup
		wg.Go(func() { record(t, l, 0) })
		synctest.Wait() // the writer is in its sync
		for range maxPending {
			if err := l.RecordSoon("a", nil); err != nil {
				t.Fatal(err)
			}
		}
		returned := false
		wg.Go(func() {
			if err := l.RecordSoon("a", nil); err != nil {
				t.Error(err)
			}
			returned = true
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Record(ctx, "a", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a record in a full queue: %v", err)
		}
		synctest.Wait()
		if returned {
			t.Error("RecordSoon did not wait")
		}
		close(busy)
		wg.Wait()
		if n, _ := l.Head(); n < maxPending+2 {
			t.Errorf("%d lines", n)
		}
		shut(t, l)
	})
}

func TestRecordsGivenUpAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		d := &disk{room: 0}
		l := open(t, Config{Dir: dir, open: d.open, Every: 1 << 20})
		for range 2 {
			for range maxPending - 1 {
				if err := l.RecordSoon("a", nil); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Second)
		}
		d.set(func() { d.room = -1 })
		time.Sleep(5 * time.Second)
		shut(t, l)
		var lost string
		count := 0
		if err := Read(dir, 0, func(r Record) error {
			if r.Kind == KindLost {
				lost = string(r.Data)
			} else if r.Kind == "a" {
				count++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if count != maxPending || lost != `{"records":4094}` {
			t.Errorf("%d written, lost %s", count, lost)
		}
	})
}

func TestCloseSaysWhatItCouldNotWrite(t *testing.T) {
	d := &disk{room: 0}
	l := open(t, Config{Dir: t.TempDir(), open: d.open, Group: time.Hour})
	if err := l.RecordSoon("a", nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	}
}

func TestARotationThatCannotBeMadeLosesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, oldName(1)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, currentName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{Dir: dir})
	if err == nil {
		l.Close()
		t.Fatal("opened after an empty file")
	}
	if err := os.Remove(filepath.Join(dir, oldName(1))); err != nil {
		t.Fatal(err)
	}
	l = open(t, Config{Dir: dir, MaxBytes: 10})
	record(t, l, 1)
	if err := os.WriteFile(filepath.Join(dir, oldName(1)), nil, 0o600); err != nil { // the name is taken
		t.Fatal(err)
	}
	record(t, l, 2)
	if err := os.Remove(filepath.Join(dir, oldName(1))); err != nil {
		t.Fatal(err)
	}
	record(t, l, 3)
	shut(t, l)
	if r := whole(t, dir, nil); r.Files < 2 || r.Records != 4 {
		t.Errorf("%+v", r)
	}
}

func TestKeepMayRecord(t *testing.T) {
	var l *Log
	ready := make(chan struct{})
	kept := make(chan error, 16)
	l = open(t, Config{Dir: t.TempDir(), Every: 2, Keep: func(ctx context.Context, _ []byte) error {
		<-ready
		err := l.RecordSoon("kept", nil)
		kept <- err
		return err
	}})
	close(ready)
	for i := range 4 {
		record(t, l, i)
	}
	if err := <-kept; err != nil {
		t.Error(err)
	}
	shut(t, l)
}
