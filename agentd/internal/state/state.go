// Package state is agentd's one database, `agent`: tasks of the local agents, and which contexts were delivered to them. It is
// durable: a write that returned survives a power cut.
//
// The whole key schema (schema 1; a change needs a new number and a way forward):
//
//	t/<AIC>/<task id>        state of a task, JSON
//	o/<sid>/<msg id>         0x00: delivered, no outcome yet; 0x01 and CBOR: the outcome
//	e/<be64 unix s>/<sid>    a session that has ended then: its outcomes go when that time is past
//
// A [DB] is safe for concurrent use. Source: a2a/PROTOCOL.md, "Once"; seed 000, section 2.1 (TaskContext).
package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// DB is the open database.
type DB struct {
	db   *badger.DB
	lock io.Closer
	once sync.Once
	err  error
}

// Open opens or makes the database in dir.
func Open(dir string, log *slog.Logger) (*DB, error) {
	db, lock, err := store.OpenDB(dir, schema, log)
	if err != nil {
		return nil, fmt.Errorf("open the agents' database in %s: %w", dir, err)
	}
	return &DB{db: db, lock: lock}, nil
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

// Save keeps the state of a task.
func (t Tasks) Save(id string, state []byte) error {
	if id == "" || len(id) > maxTaskID {
		return fmt.Errorf("task id of %d bytes: 1 to %d are allowed", len(id), maxTaskID)
	}
	err := t.db.db.Update(func(txn *badger.Txn) error { return txn.Set(t.key(id), state) })
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

// Ended implements a2a.Outcomes. When it cannot be written the outcomes stay longer than they need to.
func (d *DB) Ended(sid wire.ID, at time.Time) {
	key := binary.BigEndian.AppendUint64([]byte("e/"), uint64(at.Add(a2a.OutcomeLife).Unix()))
	d.db.Update(func(txn *badger.Txn) error { return txn.Set(append(append(key, '/'), sid[:]...), []byte{}) })
}

// Purge removes the outcomes of sessions whose time is past.
func (d *DB) Purge(now time.Time) error {
	var gone [][]byte
	err := d.db.View(func(txn *badger.Txn) error {
		var ended [][]byte
		if err := eachKey(txn, []byte("e/"), func(key []byte) bool {
			if len(key) != 2+8+1+16 || binary.BigEndian.Uint64(key[2:]) > uint64(now.Unix()) {
				return false
			}
			ended = append(ended, key)
			return len(ended) < purgeMax
		}); err != nil {
			return err
		}
		for _, e := range ended {
			all := true
			eachKey(txn, append([]byte("o/"), e[11:]...), func(key []byte) bool {
				gone = append(gone, key)
				all = len(gone) < purgeMax
				return all
			})
			if !all {
				return nil // the rest goes with the next purge
			}
			gone = append(gone, e)
		}
		return nil
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	batch := d.db.NewWriteBatch()
	defer batch.Cancel()
	for _, key := range gone {
		if err := batch.Delete(key); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func eachKey(txn *badger.Txn, prefix []byte, f func(key []byte) bool) error {
	o := badger.DefaultIteratorOptions
	o.Prefix, o.PrefetchValues = prefix, false
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		if !f(it.Item().KeyCopy(nil)) {
			return nil
		}
	}
	return nil
}
