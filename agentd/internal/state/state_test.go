package state

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"agentgw/a2a"
	"agentgw/a2a/wire"
	"agentgw/directory/store"
	"agentgw/internal/frame"

	"github.com/dgraph-io/badger/v4"
)

func open(t *testing.T, dir string) *DB {
	t.Helper()
	d, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestTasksSurviveAndAreTheirAgents(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	if err := d.Tasks("A").Save("t1", []byte(`{"x":1}`)); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = open(t, dir)
	if b, err := d.Tasks("A").Load("t1"); err != nil || string(b) != `{"x":1}` {
		t.Error(string(b), err)
	}
	if _, err := d.Tasks("B").Load("t1"); frame.CodeOf(err) != frame.NotFound {
		t.Errorf("another agent's task: %v", err)
	}
	if err := d.Tasks("A").Save("", nil); err == nil {
		t.Error("a task without an id is saved")
	}
}

func TestOutcomes(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	sid, msg := wire.ID{1}, wire.ID{2}
	if known, _, err := d.Begin(sid, msg); err != nil || known {
		t.Fatal(known, err)
	}
	d.Close() // a crash between delivery and outcome
	d = open(t, dir)
	if known, o, err := d.Begin(sid, msg); err != nil || !known || o != nil {
		t.Errorf("after a crash: known %v, outcome %+v, %v", known, o, err)
	}
	want := a2a.Outcome{Result: bytes.Repeat([]byte("x"), 1<<20)}
	if err := d.End(sid, msg, want); err != nil {
		t.Fatal(err)
	}
	if known, o, err := d.Begin(sid, msg); err != nil || !known || o == nil || !bytes.Equal(o.Result, want.Result) {
		t.Errorf("known %v, %v", known, err)
	}
	failed := wire.ID{3}
	d.Begin(sid, failed)
	d.End(sid, failed, a2a.Outcome{Code: frame.Deadline, Message: "late"})
	if _, o, _ := d.Begin(sid, failed); o == nil || o.Code != frame.Deadline || o.Message != "late" {
		t.Errorf("%+v", o)
	}
}

func TestPurge(t *testing.T) {
	d := open(t, t.TempDir())
	now := time.Now()
	old, live := wire.ID{1}, wire.ID{2}
	for _, sid := range []wire.ID{old, live} {
		for m := range 3 {
			if _, _, err := d.Begin(sid, wire.ID{9, byte(m)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.Ended(old, now)
	if err := d.Purge(now.Add(a2a.OutcomeLife / 2)); err != nil {
		t.Fatal(err)
	}
	if known, _, _ := d.Begin(old, wire.ID{9, 0}); !known {
		t.Error("outcomes went before their time")
	}
	if err := d.Purge(now.Add(a2a.OutcomeLife + time.Second)); err != nil {
		t.Fatal(err)
	}
	if known, _, _ := d.Begin(old, wire.ID{9, 1}); known {
		t.Error("outcomes of an ended session stay")
	}
	if known, _, _ := d.Begin(live, wire.ID{9, 1}); !known {
		t.Error("outcomes of a live session went")
	}
}

// A session that lived when the process was killed ends at the next start: its outcomes go, once, and those of others stay.
func TestOutcomesOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir)
	ended, killed := wire.ID{1}, []wire.ID{{2}, {2, 0xff}, bytes16(0xff)}
	begin := func(sid wire.ID) {
		for _, msg := range []wire.ID{{}, {9}, bytes16(0xff)} {
			d.Begin(sid, msg)
			if err := d.End(sid, msg, a2a.Outcome{Result: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	known := func(sid wire.ID) (n int) {
		for _, msg := range []wire.ID{{}, {9}, bytes16(0xff)} {
			if _, o, err := d.Begin(sid, msg); err != nil {
				t.Fatal(err)
			} else if o != nil {
				n++
			}
		}
		return n
	}
	begin(ended)
	past := time.Now().Add(-time.Minute)
	d.Ended(ended, past)
	for _, sid := range killed {
		begin(sid)
	}
	for range 2 { // the second start adds nothing
		d.Close()
		d = open(t, dir)
	}
	if n := count(d, "e/"); n != 4 {
		t.Errorf("%d ends of 4 sessions", n)
	}
	live := wire.ID{3}
	begin(live)
	if err := d.Purge(past.Add(a2a.OutcomeLife + 2*time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, sid := range killed {
		if known(sid) != 3 {
			t.Errorf("outcomes of %v went before their time", sid)
		}
	}
	if err := d.Purge(time.Now().Add(a2a.OutcomeLife + 2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if n := count(d, "o/"); n != 3 || known(live) != 3 {
		t.Errorf("%d outcomes are left, %d of the session that lives", n, known(live))
	}
	if n := count(d, "e/"); n != 0 {
		t.Errorf("%d ends are left", n)
	}
}

func bytes16(b byte) (id wire.ID) { return wire.ID(bytes.Repeat([]byte{b}, 16)) }

func count(d *DB, prefix string) (n int) {
	d.db.View(func(txn *badger.Txn) error {
		eachKey(txn, []byte(prefix), func(*badger.Item) bool { n++; return true })
		return nil
	})
	return n
}

func TestTasksAreKeptForTheirTime(t *testing.T) {
	d := open(t, t.TempDir())
	a, b := d.Tasks("A"), d.Tasks("B")
	if err := a.Save("t", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := d.Purge(now.Add(TaskLife - time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load("t"); err != nil {
		t.Errorf("a task went before its time: %v", err)
	}
	if err := d.Purge(now.Add(TaskLife + time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load("t"); frame.CodeOf(err) != frame.NotFound {
		t.Errorf("a task that nobody touched for 30 days stays: %v", err)
	}

	// More than one agent may keep: the oldest go, and only its own.
	batch := d.db.NewWriteBatch()
	defer batch.Cancel()
	for i := range MaxTasks + 5 {
		e := badger.NewEntry(a.key(fmt.Sprintf("%05d", (i*7919)%(MaxTasks+5))), []byte("{}"))
		e.ExpiresAt = uint64(now.Add(time.Hour).Unix()) + uint64(i)
		if err := batch.SetEntry(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Flush(); err != nil {
		t.Fatal(err)
	}
	first := fmt.Sprintf("%05d", 0)
	if err := errors.Join(b.Save("other", []byte("{}")), a.Save(first, []byte("{}"))); err != nil { // saved again: it is the newest now
		t.Fatal(err)
	}
	if err := d.Purge(now); err != nil {
		t.Fatal(err)
	}
	if n := count(d, "t/A/"); n != MaxTasks {
		t.Errorf("%d tasks are kept", n)
	}
	for i := range 8 {
		id := fmt.Sprintf("%05d", (i*7919)%(MaxTasks+5))
		want := frame.OK
		if i >= 1 && i <= 5 {
			want = frame.NotFound
		}
		if _, err := a.Load(id); frame.CodeOf(err) != want {
			t.Errorf("task %d by age: %v, want %v", i, err, want)
		}
	}
	if _, err := b.Load("other"); err != nil {
		t.Errorf("another agent's task: %v", err)
	}
}

func TestOneDaemonADatabase(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("two daemons have the same database open")
	}
}

// A task that is saved again while the purge looks at it stays.
func TestPurgeLeavesWhatIsSavedAgain(t *testing.T) {
	d := open(t, t.TempDir())
	a := d.Tasks("A")
	e := badger.NewEntry(a.key("t"), []byte("old"))
	e.ExpiresAt = uint64(time.Now().Add(time.Hour).Unix())
	if err := d.db.Update(func(txn *badger.Txn) error { return txn.SetEntry(e) }); err != nil {
		t.Fatal(err)
	}
	past, err := d.pastTasks(time.Now().Add(2 * time.Hour))
	if err != nil || len(past) != 1 {
		t.Fatal(past, err)
	}
	if err := errors.Join(a.Save("t", []byte("new")), d.removeTasks(past)); err != nil {
		t.Fatal(err)
	}
	if b, err := a.Load("t"); string(b) != "new" {
		t.Errorf("%s %v", b, err)
	}
	past, _ = d.pastTasks(time.Now().Add(TaskLife + time.Minute))
	if err := d.removeTasks(past); err != nil || count(d, "t/") != 0 {
		t.Errorf("%d tasks are left, %v", count(d, "t/"), err)
	}
}

func TestEncryptedStateNeedsItsKey(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	key := store.WithEncryptionKey(bytes.Repeat([]byte{1}, 16))
	for range 2 {
		d, err := Open(dir, log, key)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Tasks("A").Save("t1", []byte("{}")), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := Open(dir, log); err == nil {
		d.Close()
		t.Error("opened without its key")
	}
}
