// Package registry is the directory at work: the entries of a store, the matcher's index over them, and who is attached now.
//
// The contract:
//
//   - What is not committed is never visible, and what is withdrawn is not offered once [Registry.Withdraw] has returned.
//   - A write that fails leaves the registry showing what the store holds, whichever that is; the caller learns the error and
//     reads again. A store that cannot even be read makes the agent invisible until it can.
//   - Reads and [Registry.Resolve] never wait for a write.
//   - What requests need of an entry is at hand ([Registry.Resolve] reads no disk but for a filter); the rest, its specification above all, is
//     read from the store.
//   - A snapshot ([Registry.WriteSnapshot], [OpenSnapshot]) is what another process may start from as long as the store's sequence is the
//     same; [Rebuild] reads all entries. Both use all cores.
//   - Liveness is a mark of this process and not stored: after a start everybody is offline until attached.
//
// Concurrency: all methods are safe. A change of one AIC owns that AIC until it is committed and visible, so changes of one
// agent happen one after the other; there is no lock over all during I/O. The index has one writer, guarded by a mutex that is
// held for computing only. Times are handed in. Errors wrap directory.ErrNotFound, ErrExists, ErrConflict and ErrClosed.
//
// Source: FORMATS, section 6; MATCHING, section 2; seed 002, section 5.
package registry
