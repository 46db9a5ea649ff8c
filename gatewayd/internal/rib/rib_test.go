package rib

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentgw/cdsp/cdsptest"
	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
	"agentgw/directory/store"
	"agentgw/internal/frame"
)

const me, home = "2.999.1", "home.example"

func mustOpen(t testing.TB, dir string, opts ...store.Option) (*DB, []replica.Kept, string) {
	t.Helper()
	var log bytes.Buffer
	db, kept, err := Open(dir, me, home, slog.New(slog.NewTextHandler(&log, nil)), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, kept, log.String()
}

func mustKeep(t testing.TB, db *DB, l replica.Learned) {
	t.Helper()
	if err := db.Keep(l); err != nil {
		t.Fatal(err)
	}
}

var signer = frame.NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)))

// batch signs some keys of an origin.
func batch(t testing.TB, origin string, oseq uint64, labels ...string) ([]byte, []replica.Ref) {
	t.Helper()
	var items []*wire.Item
	var refs []replica.Ref
	for _, l := range labels {
		it := &wire.Item{Key: wire.ItemKey(l, "tag", wire.LevelCoarse), OSeq: oseq, Kind: wire.KindDigest, NS: "tag", Label: l}
		it.CHash, _ = it.ContentHash()
		items, refs = append(items, it), append(refs, replica.Ref{Origin: origin, Key: it.Key})
	}
	body := &wire.Batch{Origin: origin, Domain: "far.example", OEpoch: 1, NotBefore: 2, Expires: 3, Visibility: wire.VisibleAny, MaxHops: 7, Level: wire.LevelCoarse}
	raw, err := body.Sign(signer, items)
	if err != nil {
		t.Fatal(err)
	}
	return raw, refs
}

func entry(t testing.TB, raw []byte, index int) []byte {
	t.Helper()
	e := wire.Entry{Op: wire.OpPut, Batch: wire.BatchHash(raw), Index: uint16(index), Path: []string{"far.example"}, Attrs: wire.Attrs{HopsLeft: 7, MetricMS: 12}}
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// puts is a part that puts all of a batch.
func puts(t testing.TB, gateway string, raw []byte, refs []replica.Ref, cookie *wire.Cookie) replica.Learned {
	l := replica.Learned{Gateway: gateway, Domain: "far.example", Transit: true, Cookie: cookie}
	for i, ref := range refs {
		l.Put = append(l.Put, replica.KeptEntry{Ref: ref, Entry: entry(t, raw, i), Batch: raw})
	}
	return l
}

// content is every key and value.
func (d *DB) content(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := d.cache.Scan("", func(key string, value []byte) error {
		out[key] = hex.EncodeToString(value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// The schema as it is on disks: who changes it gives it another number.
func TestGoldenSchema(t *testing.T) {
	if schema != 0x1b01 {
		t.Fatal("another schema: make a golden content for it beside this one")
	}
	db, _, _ := mustOpen(t, t.TempDir())
	raw, refs := batch(t, "2.999.9", 5, "x")
	mustKeep(t, db, puts(t, "2.999.2", raw, refs, &wire.Cookie{Epoch: wire.ID8{1, 2}, RIBSeq: 300, TableHash: wire.ID16{0xEE}}))
	hash := wire.BatchHash(raw)
	want := map[string]string{
		"n/whose":   "a201" + "67322e3939392e31" + "02" + "6c686f6d652e6578616d706c65",
		"c/2.999.2": "a3016b6661722e6578616d706c6502f503a3014801020000000000000219012c0350ee000000000000000000000000000000",
		"e/2.999.2/2.999.9/" + string(refs[0].Key[:]): "84008250" + hex.EncodeToString(hash[:]) + "00816b6661722e6578616d706c65a20107030c",
		"b/2.999.2/" + string(hash[:]):                hex.EncodeToString(raw),
	}
	if diff := cmp.Diff(want, db.content(t)); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
}

// Whatever is put, dropped and forgotten in whatever order, what the next start reads is what a plain model of it has, and no batch is kept that nothing uses.
func TestKeepAgainstAModel(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			db, _, _ := mustOpen(t, dir)
			model := cdsptest.Disk{}
			labels := strings.Fields("a b c d e f g h")
			for step := range 150 {
				gw := fmt.Sprint("2.999.", 2+rng.IntN(3))
				raw, refs := batch(t, "2.999.9", uint64(rng.IntN(4)), labels[rng.IntN(4):4+rng.IntN(5)]...)
				l := puts(t, gw, raw, refs, &wire.Cookie{Epoch: wire.ID8{9}, RIBSeq: uint64(step)})
				if rng.IntN(2) == 0 {
					l.Cookie = nil
				}
				l.Forget = rng.IntN(12) == 0
				kept := l.Put[:0:0]
				for _, e := range l.Put {
					switch rng.IntN(3) {
					case 0:
						l.Drop = append(l.Drop, e.Ref)
					case 1:
						kept = append(kept, e)
					}
				}
				l.Put = kept
				if rng.IntN(20) == 0 {
					l = replica.Learned{Gateway: gw, Forget: true}
				}
				mustKeep(t, db, l)
				model.Apply(l)
				if rng.IntN(40) == 0 {
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db, _, _ = mustOpen(t, dir)
				}
			}
			before := db.content(t)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db, kept, log := mustOpen(t, dir)
			if after := db.content(t); len(after) != len(before) {
				t.Errorf("the start has removed %d keys that were of no use", len(before)-len(after))
			}
			if diff := cmp.Diff(model.Kept(), kept); diff != "" || log != "" {
				t.Errorf("(-model +kept): %s\n%s", diff, log)
			}
			used := map[string]bool{}
			for gw, w := range model {
				for _, e := range w.Entries {
					used[batchKey(gw, wire.BatchHash(e.Batch))] = true
				}
			}
			for key := range db.content(t) {
				if strings.HasPrefix(key, prefixBatch) && !used[key] {
					t.Errorf("%q is kept and nothing uses it", key)
				}
			}
		})
	}
}

// What a kill or a power cut may leave, parts of what was forgotten and entries without their batch, goes at the next start and is not handed in.
func TestOrphansGo(t *testing.T) {
	dir := t.TempDir()
	db, _, _ := mustOpen(t, dir)
	raw, refs := batch(t, "2.999.9", 5, "x", "y")
	other, _ := batch(t, "2.999.9", 6, "z")
	mustKeep(t, db, puts(t, "2.999.2", raw, refs, nil))
	mustKeep(t, db, puts(t, "2.999.3", raw, refs, nil))
	if err := db.cache.Update([]store.CacheWrite{
		{Key: neighbourKey("2.999.2")},
		{Key: batchKey("2.999.3", wire.BatchHash(other)), Value: other},
		{Key: entryKey("2.999.3", replica.Ref{Origin: "2.999.9", Key: wire.ID16{1}}), Value: entry(t, bytes.Repeat([]byte("x"), 9), 0)},
	}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	db, kept, log := mustOpen(t, dir)
	if len(kept) != 1 || kept[0].Gateway != "2.999.3" || len(kept[0].Entries) != 2 || log != "" {
		t.Errorf("kept %+v\n%s", kept, log)
	}
	if got := db.content(t); len(got) != 1+1+2+1 {
		t.Errorf("%d keys remain", len(got))
	}
}

// mustAside opens a database that cannot be used, and wants it moved aside and nothing of it read.
func mustAside(t *testing.T, dir, why string, opts ...store.Option) {
	t.Helper()
	db, kept, log := mustOpen(t, dir, opts...)
	if len(kept) != 0 || !strings.Contains(log, "moved aside") || !strings.Contains(log, why) {
		t.Errorf("%d neighbours were read; log, of which %q is wanted: %s", len(kept), why, log)
	}
	raw, refs := batch(t, "2.999.9", 5, "x")
	mustKeep(t, db, puts(t, "2.999.2", raw, refs, nil))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, kept, log = mustOpen(t, dir, opts...)
	if len(kept) != 1 || log != "" {
		t.Errorf("the new one has %d neighbours; log: %s", len(kept), log)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + ".aside"); err != nil {
		t.Error(err)
	}
}

func TestUnusableIsMovedAside(t *testing.T) {
	key, wrong := store.WithEncryptionKey(bytes.Repeat([]byte{1}, 32)), store.WithEncryptionKey(bytes.Repeat([]byte{2}, 32))
	filled := func(t *testing.T, opts ...store.Option) string {
		dir := filepath.Join(t.TempDir(), "rib")
		db, _, _ := mustOpen(t, dir, opts...)
		raw, refs := batch(t, "2.999.9", 5, "x", "y")
		mustKeep(t, db, puts(t, "2.999.2", raw, refs, nil))
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	raw := func(t *testing.T, dir string, list ...store.CacheWrite) {
		c, err := store.OpenCache(dir, schema, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Update(list); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("another gateway", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "rib")
		db, _, err := Open(dir, "2.999.77", home, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
		mustAside(t, dir, "2.999.77")
	})
	t.Run("another version", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "rib")
		c, err := store.OpenCache(dir, schema+1, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		mustAside(t, dir, "schema")
	})
	t.Run("another key", func(t *testing.T) { mustAside(t, filled(t, key), "key", wrong) })
	t.Run("no key", func(t *testing.T) { mustAside(t, filled(t, key), "encrypted") })
	t.Run("a key for what is plain", func(t *testing.T) { mustAside(t, filled(t), "key", key) })
	t.Run("nobody's", func(t *testing.T) {
		dir := filled(t)
		raw(t, dir, store.CacheWrite{Key: keyWhose})
		mustAside(t, dir, "whose")
	})
	t.Run("a record that is none", func(t *testing.T) {
		dir := filled(t)
		raw(t, dir, store.CacheWrite{Key: neighbourKey("2.999.2"), Value: []byte{0x80}})
		mustAside(t, dir, "record")
	})
	t.Run("an entry that is none", func(t *testing.T) {
		dir := filled(t)
		raw(t, dir, store.CacheWrite{Key: entryKey("2.999.2", replica.Ref{Origin: "x"}), Value: []byte{0x80}})
		mustAside(t, dir, "entry")
	})
	t.Run("a batch of other octets", func(t *testing.T) {
		dir := filled(t)
		raw(t, dir, store.CacheWrite{Key: batchKey("2.999.2", wire.ID16{}), Value: []byte{0x80}})
		mustAside(t, dir, "batch")
	})
	t.Run("a start that died of it", func(t *testing.T) {
		dir := filled(t)
		if err := os.WriteFile(dir+".opening", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		mustAside(t, dir, "a start ended")
	})
	t.Run("one aside at most", func(t *testing.T) {
		dir := filled(t, key)
		mustAside(t, dir, "key", wrong)
		mustAside(t, dir, "key", key)
		if names, _ := filepath.Glob(dir + "*"); len(names) != 2 {
			t.Errorf("folders %v", names)
		}
	})
	t.Run("open", func(t *testing.T) {
		dir := filled(t, key)
		mustOpen(t, dir, key)
		if err := Remove(dir); err == nil {
			t.Error("it is removed while it is open")
		}
	})
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rib")
	if err := Remove(dir); err != nil {
		t.Errorf("where there is none: %v", err)
	}
	db, _, _ := mustOpen(t, dir)
	db.Close()
	for _, name := range []string{".aside", ".removed"} {
		if err := os.MkdirAll(dir+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if names, _ := filepath.Glob(dir + "*"); len(names) != 0 {
		t.Errorf("there still are %v", names)
	}
}

// Row 48, its half about `rib`: each file of the database is cut short, emptied, has bits turned, or is gone: the gateway starts, with what the database still has or, aside, without.
func TestDamagedRIB(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "rib")
	db, _, _ := mustOpen(t, whole)
	for i := range 40 { // both in a table and in a log
		raw, refs := batch(t, "2.999.9", uint64(i), fmt.Sprint("x", i), fmt.Sprint("y", i))
		mustKeep(t, db, puts(t, "2.999.2", raw, refs, nil))
		if i == 30 {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db, _, _ = mustOpen(t, whole)
		}
	}
	killed := filepath.Join(t.TempDir(), "killed") // as a killed process leaves it: with a log that is in use
	if err := os.CopyFS(killed, os.DirFS(whole)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(killed)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	kinds, aside := map[string]bool{}, 0
	for _, e := range entries {
		for name, damage := range map[string]func(b []byte) []byte{
			"empty": func([]byte) []byte { return []byte{} },
			"cut":   func(b []byte) []byte { return b[:len(b)/2] },
			"turned": func(b []byte) []byte {
				for range 8 {
					if n := min(len(b), 4096); n > 0 {
						b[rng.IntN(n)] ^= 0x55
					}
				}
				return b
			},
			"gone": nil,
		} {
			kinds[filepath.Ext(e.Name())] = true
			t.Run(e.Name()+" "+name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "rib")
				if err := os.CopyFS(dir, os.DirFS(killed)); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(dir, e.Name())
				b, err := os.ReadFile(file)
				if err == nil && damage != nil {
					err = os.WriteFile(file, damage(b), 0o600)
				} else if err == nil {
					err = os.Remove(file)
				}
				if err != nil {
					t.Fatal(err)
				}
				_, kept, log := mustOpen(t, dir)
				if strings.Contains(log, "moved aside") {
					aside++
				}
				for _, k := range kept { // what is there is as it was written
					for _, e := range k.Entries {
						if got, err := wire.ParseEntry(e.Entry); err != nil || got.Batch != wire.BatchHash(e.Batch) {
							t.Errorf("%v %v", got, err)
						}
					}
				}
			})
		}
	}
	if !kinds[".sst"] || !kinds[".mem"] || aside == 0 {
		t.Errorf("of the files %v the damage moved %d aside: nothing was tried", kinds, aside)
	}
}

// Entries that come and go by the tens of thousands leave no more on the disk than the database's own logs and a few times what is kept.
func TestBoundOnDisk(t *testing.T) {
	dir := t.TempDir()
	db, _, _ := mustOpen(t, dir)
	rounds := 250
	if testing.Short() {
		rounds = 60
	}
	var last []replica.Ref
	written := 0
	for i := range rounds {
		var labels []string
		for j := range 200 {
			labels = append(labels, fmt.Sprintf("%d-%d-%s", i, j, strings.Repeat("x", 90)))
		}
		raw, refs := batch(t, "2.999.9", uint64(i), labels...)
		l := puts(t, "2.999.2", raw, refs, nil)
		l.Drop, last = last, refs
		mustKeep(t, db, l)
		written += len(raw) + 200*150
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	used := int64(0)
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			used += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	db, kept, _ := mustOpen(t, dir)
	if len(kept) != 1 || len(kept[0].Entries) != 200 || len(db.content(t)) != 200+3 {
		t.Errorf("%d keys for %d neighbours", len(db.content(t)), len(kept))
	}
	t.Logf("%d octets written, %d on the disk", written, used)
	if used > 24<<20 {
		t.Errorf("%d octets are on the disk of %d written", used, written)
	}
}

func TestKeysParse(t *testing.T) {
	ref := replica.Ref{Origin: "2.999.9", Key: wire.ID16{'/', 1, '/'}}
	if gw, got, ok := parseEntryKey(entryKey("2.999.2", ref)); !ok || gw != "2.999.2" || got != ref {
		t.Errorf("%q %v %v", gw, got, ok)
	}
	if gw, got, ok := parseBatchKey(batchKey("2.999.2", ref.Key)); !ok || gw != "2.999.2" || got != ref.Key {
		t.Errorf("%q %v %v", gw, got, ok)
	}
	for _, key := range []string{"", "e/", "e/a", "e/a/b", "e/" + strings.Repeat("x", 40), "e//o/" + strings.Repeat("k", 16), "e/a/b/c/" + strings.Repeat("k", 16)} {
		if _, _, ok := parseEntryKey(key); ok {
			t.Errorf("%q is taken", key)
		}
	}
}
