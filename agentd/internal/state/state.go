// Package state is agentd's one database, `agent`: tasks of the local agents, and which contexts were delivered to them. It is
// durable: a write that returned survives a power cut.
//
// The whole key schema (schema 1; a change needs a new number and a way forward):
//
//	t/<AIC>/<task id>        state of a task, JSON; expires 30 days after it was last saved
//	o/<sid><msg id>          0x00: delivered, no outcome yet; 0x01 and CBOR: the outcome
//	a/<AIC>                  the audit log has the agent's enrolment
//	m/audit                  newest mark of the audit log: be64 number of lines, SHA-256 of the last
//	e/<be64 unix s>/<sid>    a session that has ended: its outcomes go when that time is past
//
// Nothing stays for ever. Of the tasks of one agent the 10 000 that were saved last are kept, for 30 days, whether they ended or
// not: one that nobody has touched for so long is not resumed. A session ends with its process: at Open each session that has
// outcomes and no end gets one.
//
// A [DB] is safe for concurrent use. Source: a2a/PROTOCOL.md, "Once"; seed 000, section 2.1 (TaskContext).
package state

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"agentgw/a2a"
	"agentgw/a2a/wire"
	"agentgw/directory/store"
	"agentgw/internal/frame"
)

const (
	schema    = 0xa9e1 // the database `agent`, schema 1
	purgeMax  = 4096   // keys in one transaction
	maxTaskID = 64
)

// How long tasks are kept.
const (
	TaskLife = 30 * 24 * time.Hour // from the last [Tasks.Save]
	MaxTasks = 10_000              // of one agent, the last saved ones; what is over goes with the next [DB.Purge]
)

// DB is the open database.
type DB struct {
	db   *badger.DB
	lock io.Closer
	once sync.Once
	err  error
}

// Open opens or makes the database in dir. Sessions of before are over: what they left goes with [DB.Purge], 10 min from now.
func Open(dir string, log *slog.Logger, opts ...store.Option) (*DB, error) {
	db, lock, err := store.OpenDB(dir, schema, log, opts...)
	if err != nil {
		return nil, fmt.Errorf("open the agents' database in %s: %w", dir, err)
	}
	d := &DB{db: db, lock: lock}
	if err := d.endSessions(time.Now()); err != nil {
		return nil, errors.Join(fmt.Errorf("open the agents' database in %s: %w", dir, err), d.Close())
	}
	return d, nil
}

// endSessions notes the end of the sessions that lived when the process was killed.
func (d *DB) endSessions(now time.Time) error {
	var alive []wire.ID
	err := d.db.View(func(txn *badger.Txn) error {
		ended := map[wire.ID]bool{}
		eachKey(txn, []byte("e/"), func(item *badger.Item) bool {
			if sid, _, ok := parseEnd(item.Key()); ok {
				ended[sid] = true
			}
			return true
		})
		o := badger.DefaultIteratorOptions
		o.Prefix, o.PrefetchValues = []byte("o/"), false
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Rewind(); it.Valid(); {
			key := it.Item().KeyCopy(nil)
			if len(key) != len(outcomeKey(wire.ID{}, wire.ID{})) {
				it.Next()
				continue
			}
			sid := wire.ID(key[2:18])
			if !ended[sid] {
				alive = append(alive, sid)
			}
			last := outcomeKey(sid, wire.ID(bytes.Repeat([]byte{0xff}, 16)))
			it.Seek(append(last, 0)) // the next session
		}
		return nil
	})
	if err != nil || len(alive) == 0 {
		return err
	}
	batch := d.db.NewWriteBatch()
	defer batch.Cancel()
	for _, sid := range alive {
		if err := batch.Set(endKey(sid, now), []byte{}); err != nil {
			return err
		}
	}
	return batch.Flush()
}

// Close closes the database. It is idempotent.
func (d *DB) Close() error {
	d.once.Do(func() { d.err = errors.Join(d.db.Close(), d.lock.Close()) })
	return d.err
}

// Tasks is the tasks of one agent.
type Tasks struct {
	db  *DB
	aic string
}

// Tasks gives the tasks of one agent; nobody sees another's.
func (d *DB) Tasks(aic string) Tasks { return Tasks{d, aic} }

func (t Tasks) key(id string) []byte { return []byte("t/" + t.aic + "/" + id) }

// Save keeps the state of a task for [TaskLife].
func (t Tasks) Save(id string, state []byte) error {
	if id == "" || len(id) > maxTaskID {
		return fmt.Errorf("task id of %d bytes: 1 to %d are allowed", len(id), maxTaskID)
	}
	err := t.db.db.Update(func(txn *badger.Txn) error {
		return txn.SetEntry(badger.NewEntry(t.key(id), state).WithTTL(TaskLife))
	})
	if err != nil {
		return fmt.Errorf("save task %s: %w", id, err)
	}
	return nil
}

// Load gives the state of a task back.
func (t Tasks) Load(id string) (state []byte, err error) {
	err = t.db.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(t.key(id))
		if err != nil {
			return err
		}
		state, err = item.ValueCopy(nil)
		return err
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, frame.Errorf(frame.NotFound, "no task %s of this agent", id)
	}
	return state, err
}

// outcome is a stored a2a.Outcome.
type outcome struct {
	Result  []byte     `cbor:"1,keyasint,omitempty"`
	Code    frame.Code `cbor:"2,keyasint,omitempty"`
	Message string     `cbor:"3,keyasint,omitempty"`
}

func outcomeKey(sid, msgID wire.ID) []byte {
	return append(append([]byte("o/"), sid[:]...), msgID[:]...)
}

// Begin implements a2a.Outcomes.
func (d *DB) Begin(sid, msgID wire.ID) (known bool, o *a2a.Outcome, err error) {
	key := outcomeKey(sid, msgID)
	err = d.db.Update(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			known, o = false, nil
			return txn.Set(key, []byte{0})
		}
		if err != nil {
			return err
		}
		known = true
		return item.Value(func(v []byte) error {
			o, err = parseOutcome(v)
			return err
		})
	})
	return known, o, err
}

func parseOutcome(v []byte) (*a2a.Outcome, error) {
	if len(v) == 0 || v[0] == 0 {
		return nil, nil
	}
	var s outcome
	if err := frame.Unmarshal(v[1:], &s); err != nil {
		return nil, fmt.Errorf("stored outcome: %w", err)
	}
	return &a2a.Outcome{Result: s.Result, Code: s.Code, Message: s.Message}, nil
}

// End implements a2a.Outcomes.
func (d *DB) End(sid, msgID wire.ID, o a2a.Outcome) error {
	b, err := frame.Marshal(outcome{o.Result, o.Code, o.Message})
	if err != nil {
		return err
	}
	return d.db.Update(func(txn *badger.Txn) error { return txn.Set(outcomeKey(sid, msgID), append([]byte{1}, b...)) })
}

// Ended implements a2a.Outcomes. When it cannot be written the outcomes stay until the next start.
func (d *DB) Ended(sid wire.ID, at time.Time) {
	d.db.Update(func(txn *badger.Txn) error { return txn.Set(endKey(sid, at), []byte{}) })
}

// endKey says that a session ended at a time; it holds when its outcomes go.
func endKey(sid wire.ID, at time.Time) []byte {
	key := binary.BigEndian.AppendUint64([]byte("e/"), uint64(at.Add(a2a.OutcomeLife).Unix()))
	return append(append(key, '/'), sid[:]...)
}

func parseEnd(key []byte) (sid wire.ID, until uint64, ok bool) {
	if len(key) != 2+8+1+16 {
		return sid, 0, false
	}
	return wire.ID(key[11:]), binary.BigEndian.Uint64(key[2:]), true
}

// Purge removes the outcomes of sessions whose time is past, and the tasks that are over [TaskLife] or [MaxTasks].
func (d *DB) Purge(now time.Time) error {
	outcomes, err := d.pastOutcomes(now)
	if err != nil {
		return err
	}
	batch := d.db.NewWriteBatch()
	defer batch.Cancel()
	for _, key := range outcomes {
		if err := batch.Delete(key); err != nil {
			return err
		}
	}
	if err := batch.Flush(); err != nil {
		return err
	}
	tasks, err := d.pastTasks(now)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(tasks, purgeMax) {
		if err := d.removeTasks(some); err != nil {
			return err
		}
	}
	return nil
}

// removeTasks removes tasks that nobody has saved again meanwhile; the transaction fails, and the next purge comes back to them,
// where somebody does so in this very moment.
func (d *DB) removeTasks(tasks []savedTask) error {
	err := d.db.Update(func(txn *badger.Txn) error {
		for _, t := range tasks {
			item, err := txn.Get(t.key)
			if errors.Is(err, badger.ErrKeyNotFound) || err == nil && item.ExpiresAt() != t.expires {
				continue
			}
			if err != nil {
				return err
			}
			if err := txn.Delete(t.key); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, badger.ErrConflict) {
		return nil
	}
	return err
}

// pastOutcomes is at most purgeMax keys; the rest goes with the next purge.
func (d *DB) pastOutcomes(now time.Time) (gone [][]byte, err error) {
	err = d.db.View(func(txn *badger.Txn) error {
		var ended [][]byte
		eachKey(txn, []byte("e/"), func(item *badger.Item) bool {
			if _, until, ok := parseEnd(item.Key()); !ok || until > uint64(now.Unix()) {
				return false
			}
			ended = append(ended, item.KeyCopy(nil))
			return len(ended) < purgeMax
		})
		for _, e := range ended {
			sid, _, _ := parseEnd(e)
			eachKey(txn, append([]byte("o/"), sid[:]...), func(item *badger.Item) bool {
				gone = append(gone, item.KeyCopy(nil))
				return len(gone) < purgeMax
			})
			if len(gone) >= purgeMax {
				return nil
			}
			gone = append(gone, e)
		}
		return nil
	})
	return gone, err
}

// savedTask is a task without its state.
type savedTask struct {
	key     []byte
	expires uint64 // unix seconds; the later it was saved the later it expires
}

func (d *DB) pastTasks(now time.Time) (gone []savedTask, err error) {
	err = d.db.View(func(txn *badger.Txn) error {
		kept := map[string][]savedTask{} // by agent
		eachKey(txn, []byte("t/"), func(item *badger.Item) bool {
			t := savedTask{item.KeyCopy(nil), item.ExpiresAt()}
			if t.expires != 0 && t.expires <= uint64(now.Unix()) { // 0: saved before tasks expired; it is the oldest
				gone = append(gone, t)
				return true
			}
			agent, _, _ := bytes.Cut(t.key[2:], []byte("/"))
			kept[string(agent)] = append(kept[string(agent)], t)
			return true
		})
		for _, tasks := range kept {
			over := len(tasks) - MaxTasks
			if over <= 0 {
				continue
			}
			slices.SortFunc(tasks, func(a, b savedTask) int { return cmp.Compare(a.expires, b.expires) })
			gone = append(gone, tasks[:over]...)
		}
		return nil
	})
	return gone, err
}

// eachKey visits keys in order, without their values, until f says false. The item is valid until f returns.
func eachKey(txn *badger.Txn, prefix []byte, f func(item *badger.Item) bool) {
	o := badger.DefaultIteratorOptions
	o.Prefix, o.PrefetchValues = prefix, false
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid() && f(it.Item()); it.Next() {
	}
}
