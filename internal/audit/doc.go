// Package audit is the audit log of a daemon: JSON lines on disk that each carry the hash of the line before, with signed
// checkpoints, so that a line that is changed, moved, repeated or removed later is found.
//
// A line is one JSON object of these members in this order, in the spelling of encoding/json and no other:
//
//	{"n":1,"time":"2026-11-30T10:00:00Z","kind":"…","prev":"<hex SHA-256 of the line before, without its newline>","data":{…}}
//
// n counts from 1 without a gap; prev of the first line is 64 zeros. Kinds of this package are `checkpoint`, whose data is
// {"cose": base64 of a signed [Checkpoint]}, `log.recovered` (an unfinished last line was cut off at the start) and `log.lost`
// (the disk took nothing for so long that records of [Log.RecordSoon] had to be given up). Data holds ids and hashes; never tokens,
// keys or payloads.
//
// The current file is audit.jsonl; over its size it is renamed to audit-<n of its first line, 12 digits>.jsonl and the chain goes on in a
// new one. Nothing is ever deleted here. One process has the folder open at a time; [Verify] and [Read] need no lock, and may run
// beside it.
//
// The contract of [Log], which is safe for concurrent use:
//
//   - [Log.Record] returns nil only after its line is on the disk; those who call at the same time share one sync.
//   - [Log.RecordSoon] returns at once; its line is on the disk within Config.Group. When the queue is full it waits for the disk.
//   - Lines are in the order in which calls were accepted.
//   - After a failed write the file is cut back to what was synced before, and the log goes on when the disk takes writes again.
//   - [Log.Close] writes everything that was accepted, and a last checkpoint.
//
// The chain alone does not show that whole lines are missing at the end, nor that everything was written anew by somebody without the
// key after the last checkpoint: the caller keeps the newest checkpoint elsewhere (Config.Keep), and hands it to [Verify].
//
// Source: seed 002, section 4.1 (logging data for auditing and governance), here of gateways too; cdsp/PROTOCOL.md, "Audit log".
package audit
