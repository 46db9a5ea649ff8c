// Package rib keeps on disk what a gateway's neighbours told it (database `rib`), so that it knows it again after a restart and hears only what
// changed.
//
// The contract: it is a cache that the neighbours can fill again. Whatever is wrong with it at a start (another version, gateway or encryption key, damage), the
// folder is moved aside, one at most, and the gateway begins without: [Open] is an error only where no database can be had at all, and then the
// gateway runs without one. Nothing here is believed: what [Open] returns is verified by the machine like what is received.
//
// [DB.Keep] writes one part of what changed as one transaction; only what is to be forgotten first goes in several, the cookie in the first of them. So a cookie
// is never there without the entries that it speaks for, but for a power cut, which may take any of the last writes: the table hash in the cookie
// tells that. Batches are kept once a neighbour, as received, as long as an entry uses them.
//
// Sizes are bounded by what the machine holds of a neighbour, and its batches by [MaxBatches]. A DB is for one writer at a time. Source: cdsp/PROTOCOL.md,
// "Kept over restarts".
package rib

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/directory/store"
	"agentgw/internal/frame"
)

// MaxBatches is how many octets of batches are kept of one neighbour: twice what one digest stream may carry.
const MaxBatches = 128 << 20

// DB is the open database.
type DB struct {
	cache *store.Cache
	peers map[string]*peer
}

// peer is which batches the kept entries of a neighbour use.
type peer struct {
	uses  map[replica.Ref]wire.ID16
	count map[wire.ID16]int // entries that use it
	size  map[wire.ID16]int
	bytes int // of the batches
}

func newPeer() *peer {
	return &peer{uses: map[replica.Ref]wire.ID16{}, count: map[wire.ID16]int{}, size: map[wire.ID16]int{}}
}

// Open opens the database in dir, which is of one gateway, and reads what it has.
func Open(dir, gateway, domain string, log *slog.Logger, opts ...store.Option) (*DB, []replica.Kept, error) {
	me := whose{gateway, domain}
	db, kept, err := open(dir, me, log, opts)
	if err == nil {
		return db, kept, nil
	}
	aside, moved := dir+".aside", errors.New("there is no folder")
	if _, stat := os.Lstat(dir); stat == nil {
		if moved = os.RemoveAll(aside); moved == nil {
			_, moved = store.MoveAside(dir, aside)
		}
	}
	if moved != nil {
		return nil, nil, fmt.Errorf("open what neighbours told before in %s: %w; move it aside: %w", dir, err, moved)
	}
	log.Warn("what neighbours told before this start cannot be used and is moved aside; they tell it again", "folder", dir, "aside", aside, "err", err)
	if db, kept, err = open(dir, me, log, opts); err != nil {
		return nil, nil, fmt.Errorf("open what neighbours told before in %s: %w", dir, err)
	}
	return db, kept, nil
}

// Remove removes the database in dir, and one that was moved aside: a restored gateway is none that was told this. No process may have it open.
func Remove(dir string) error {
	removed := dir + ".removed"
	if err := os.RemoveAll(removed); err != nil {
		return err
	}
	_, err := store.MoveAside(dir, removed) // it looks whether it is open
	return errors.Join(err, os.RemoveAll(removed), os.RemoveAll(dir+".aside"), os.RemoveAll(dir+".opening"))
}

// open opens what is in dir. A start that did not survive it has left a mark: the database below may die of damage that it does not expect.
func open(dir string, me whose, log *slog.Logger, opts []store.Option) (db *DB, kept []replica.Kept, err error) {
	mark := dir + ".opening"
	if _, err := os.Lstat(mark); err == nil {
		return nil, nil, errors.Join(errors.New("a start ended while it opened it"), os.Remove(mark))
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(mark)) }()
	cache, err := openCache(dir, log, opts)
	if err != nil {
		return nil, nil, err
	}
	db = &DB{cache: cache, peers: map[string]*peer{}}
	if err = db.claim(me); err == nil {
		kept, err = db.load()
	}
	if err != nil {
		return nil, nil, errors.Join(err, cache.Close())
	}
	return db, kept, nil
}

// openCache has a panic over damaged files count as an error: the database below is not meant to be fatal to anybody.
func openCache(dir string, log *slog.Logger, opts []store.Option) (c *store.Cache, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	return store.OpenCache(dir, schema, log, opts...)
}

// claim checks whose the database is; one that is empty becomes this gateway's.
func (d *DB) claim(me whose) error {
	var is *whose
	some := false
	err := d.cache.Scan("", func(key string, value []byte) error {
		some = true
		if key != keyWhose {
			return nil
		}
		is = &whose{}
		return frame.Unmarshal(value, is)
	})
	switch {
	case err != nil:
		return err
	case is == nil && some:
		return errors.New("it does not say whose it is")
	case is == nil:
		value, err := encode(me)
		if err != nil {
			return err
		}
		return d.cache.Update([]store.CacheWrite{{Key: keyWhose, Value: value}})
	case *is != me:
		return fmt.Errorf("it is of the gateway %s of %s", is.Gateway, is.Domain)
	}
	return nil
}

// load reads everything, and removes what belongs to nothing: a kill or a power cut may leave some. What cannot be read is an error: the database is not
// what this program wrote.
func (d *DB) load() ([]replica.Kept, error) {
	var out []replica.Kept
	var orphans []store.CacheWrite
	place := map[string]int{}
	err := d.cache.Scan(prefixNeighbour, func(key string, value []byte) error {
		var r record
		if err := frame.Unmarshal(value, &r); err != nil {
			return fmt.Errorf("record %q: %w", key, err)
		}
		gateway := key[len(prefixNeighbour):]
		place[gateway] = len(out)
		d.peers[gateway] = newPeer()
		out = append(out, replica.Kept{Gateway: gateway, Domain: r.Domain, Transit: r.Transit, Cookie: r.Cookie})
		return nil
	})
	if err != nil {
		return nil, err
	}
	batches, err := d.loadBatches(&orphans)
	if err != nil {
		return nil, err
	}
	err = d.cache.Scan(prefixEntry, func(key string, value []byte) error {
		gateway, ref, ok := parseEntryKey(key)
		e, err := wire.ParseEntry(value)
		if err != nil || !ok {
			return fmt.Errorf("key %q, or its value, is none of an entry: %w", key, err)
		}
		p, batch := d.peers[gateway], batches[gateway][e.Batch]
		if p == nil || batch == nil {
			orphans = append(orphans, store.CacheWrite{Key: key})
			return nil
		}
		p.use(ref, e.Batch, len(batch))
		k := &out[place[gateway]]
		k.Entries = append(k.Entries, replica.KeptEntry{Ref: ref, Entry: append([]byte{}, value...), Batch: batch})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for gateway, of := range batches {
		for hash := range of {
			if d.peers[gateway].count[hash] == 0 {
				orphans = append(orphans, store.CacheWrite{Key: batchKey(gateway, hash)})
			}
		}
	}
	return out, d.remove(orphans)
}

func (d *DB) loadBatches(orphans *[]store.CacheWrite) (map[string]map[wire.ID16][]byte, error) {
	out := map[string]map[wire.ID16][]byte{}
	err := d.cache.Scan(prefixBatch, func(key string, value []byte) error {
		gateway, hash, ok := parseBatchKey(key)
		if !ok || wire.BatchHash(value) != hash {
			return fmt.Errorf("key %q is none of a batch, or not of these octets", key)
		}
		if d.peers[gateway] == nil {
			*orphans = append(*orphans, store.CacheWrite{Key: key})
			return nil
		}
		if out[gateway] == nil {
			out[gateway] = map[wire.ID16][]byte{}
		}
		out[gateway][hash] = append([]byte{}, value...)
		return nil
	})
	return out, err
}

func (p *peer) use(ref replica.Ref, hash wire.ID16, size int) {
	p.uses[ref] = hash
	if p.count[hash]++; p.count[hash] == 1 {
		p.size[hash] = size
		p.bytes += size
	}
}

// unuse says whether nothing uses the batch of the entry any more.
func (p *peer) unuse(ref replica.Ref) (hash wire.ID16, unused bool) {
	hash, ok := p.uses[ref]
	if !ok {
		return hash, false
	}
	delete(p.uses, ref)
	if p.count[hash]--; p.count[hash] > 0 {
		return hash, false
	}
	p.bytes -= p.size[hash]
	delete(p.count, hash)
	delete(p.size, hash)
	return hash, true
}

// Keep writes one part of what a neighbour told. After an error nobody knows what of it was written: the caller must have everything of the neighbour
// written again, beginning with Forget.
func (d *DB) Keep(l replica.Learned) error {
	if l.Forget {
		if err := d.forget(l.Gateway); err != nil {
			return fmt.Errorf("forget what %s told: %w", l.Gateway, err)
		}
	}
	if len(l.Put)+len(l.Drop) == 0 && l.Cookie == nil && d.peers[l.Gateway] == nil {
		return nil
	}
	if err := d.write(l); err != nil {
		return fmt.Errorf("keep what %s told: %w", l.Gateway, err)
	}
	return nil
}

func (d *DB) write(l replica.Learned) error {
	p := d.peers[l.Gateway]
	if p == nil {
		p = newPeer()
		d.peers[l.Gateway] = p
	}
	value, err := encode(record{Domain: l.Domain, Transit: l.Transit, Cookie: l.Cookie})
	if err != nil {
		return err
	}
	list := []store.CacheWrite{{Key: neighbourKey(l.Gateway), Value: value}}
	touched := map[wire.ID16][]byte{} // batches that came into use or went out of it, with their octets where those are at hand
	for _, ref := range l.Drop {
		list = append(list, store.CacheWrite{Key: entryKey(l.Gateway, ref)})
		if hash, unused := p.unuse(ref); unused {
			touched[hash] = nil
		}
	}
	for _, e := range l.Put {
		entry, err := wire.ParseEntry(e.Entry)
		if err != nil {
			return err
		}
		list = append(list, store.CacheWrite{Key: entryKey(l.Gateway, e.Ref), Value: e.Entry})
		if old, unused := p.unuse(e.Ref); unused {
			touched[old] = nil
		}
		if p.count[entry.Batch] == 0 {
			touched[entry.Batch] = e.Batch
		}
		p.use(e.Ref, entry.Batch, len(e.Batch))
	}
	for hash, raw := range touched {
		if p.count[hash] == 0 {
			raw = nil
		}
		list = append(list, store.CacheWrite{Key: batchKey(l.Gateway, hash), Value: raw})
	}
	if p.bytes > MaxBatches {
		return fmt.Errorf("its entries use %d octets of batches, over the limit of %d", p.bytes, MaxBatches)
	}
	return d.cache.Update(list)
}

// removeAtOnce is how many keys go in one transaction.
const removeAtOnce = 2000

// forget removes everything of a neighbour, what makes it count first.
func (d *DB) forget(gateway string) error {
	delete(d.peers, gateway)
	if err := d.cache.Update([]store.CacheWrite{{Key: neighbourKey(gateway)}}); err != nil {
		return err
	}
	var list []store.CacheWrite
	for _, prefix := range []string{prefixEntry, prefixBatch} {
		err := d.cache.Scan(prefix+gateway+"/", func(key string, _ []byte) error {
			list = append(list, store.CacheWrite{Key: key})
			return nil
		})
		if err != nil {
			return err
		}
	}
	return d.remove(list)
}

func (d *DB) remove(list []store.CacheWrite) error {
	for len(list) > 0 {
		n := min(len(list), removeAtOnce)
		if err := d.cache.Update(list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// Close closes the database. It may be called more than once.
func (d *DB) Close() error { return d.cache.Close() }
