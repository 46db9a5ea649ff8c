package state

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

var keyMark = []byte("m/audit")

// SetMark keeps how long the audit log is, so that one which is cut later shows.
func (d *DB) SetMark(count uint64, hash [32]byte) error {
	value := append(binary.BigEndian.AppendUint64(nil, count), hash[:]...)
	if err := d.db.Update(func(txn *badger.Txn) error { return txn.Set(keyMark, value) }); err != nil {
		return fmt.Errorf("keep the mark of the audit log: %w", err)
	}
	return nil
}

// Mark is the newest mark; a count of 0 where there is none.
func (d *DB) Mark() (count uint64, hash [32]byte, err error) {
	raw, err := d.get(keyMark)
	switch {
	case err != nil || raw == nil:
		return 0, hash, err
	case len(raw) != 8+len(hash):
		return 0, hash, fmt.Errorf("mark of the audit log of %d octets", len(raw))
	}
	return binary.BigEndian.Uint64(raw), [32]byte(raw[8:]), nil
}

// Known says whether an agent's enrolment is in the audit log; SetKnown that it is.
func (d *DB) Known(aic string) (bool, error) {
	raw, err := d.get([]byte("a/" + aic))
	return raw != nil, err
}

// SetKnown says that an agent's enrolment is in the audit log.
func (d *DB) SetKnown(aic string) error {
	return d.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("a/"+aic), []byte{1}) })
}

// get is a value, nil where there is none.
func (d *DB) get(key []byte) (raw []byte, err error) {
	err = d.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			raw, err = item.ValueCopy(nil)
		}
		return err
	})
	return raw, err
}
