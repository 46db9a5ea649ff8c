// Package store keeps a gateway's directory on disk: entries, tombstones, reserved AICs, enrolment tokens and
// small named values, in one Badger database.
//
// The contract:
//
//   - A write returns nil only after it is on the disk. An error may mean that it is not there, or that nobody knows
//     (a failed sync, a context that ended while the write was queued): read again before relying on either.
//   - Every change of an entry compares the version that the caller saw; entry, expiry and change record are one
//     transaction. An AIC that was reserved, registered or ended is never free again.
//   - Writes of several goroutines share one commit: the committer takes all that queued while the last sync ran, at most 128 and
//     about a mebibyte, and commits at once when it is idle. When the queue is full, writers wait until their context ends.
//   - All methods are safe for concurrent use, beside and after [Store.Close] too: then they return directory.ErrClosed.
//
// [OpenCache] is a second kind of database, of what can be made anew.
//
// [Store.Backup] writes one state of the open database to a file of our own format, checksummed as a whole; [Restore] makes a database
// of it in an empty folder, whole or refused by [Open]. [WithEncryptionKey] encrypts the folder. Backups read with one transaction and an
// iterator, not with Badger's stream: that takes 100 MB of heap for 2 MB of data, and several transactions when it uses several
// goroutines, so it is not one state.
//
// Nothing but this package opens the database. Values stay in the tree (ValueThreshold) and value-log GC is never run, because
// Badger 4.9.6 can bring deleted keys back otherwise; a de-listed agent that reappears would be a security fault.
// Source: PROTOCOL documents, "Badger profiles" and measured facts 1 to 4; FORMATS, section 6 (keys).
package store
