package state

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"agentgw/a2a"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"
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

func TestOneDaemonADatabase(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("two daemons have the same database open")
	}
}
