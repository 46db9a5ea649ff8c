package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/store"
	"agentgw/directory/store/storetest"

	"github.com/google/go-cmp/cmp"
)

var header = store.Header{
	Created: storetest.Now, Domain: "hospital.example", Gateway: "2.999.1", AuditCount: 42, AuditHash: sha256.Sum256([]byte("line 42")),
}

// filled is a store of n entries, of which the last has ended, with a token and a named value.
func filled(t testing.TB, s *store.Store, n int) {
	t.Helper()
	for i := range n {
		if err := s.Put(t.Context(), storetest.Entry(i, "Kite", fmt.Sprint("flies ", i)), 0); err != nil {
			t.Fatal(err)
		}
	}
	end := directory.Tombstone{AIC: storetest.AIC(n - 1), State: directory.Withdrawn, Version: 2, At: storetest.Now}
	for _, err := range []error{
		s.Tombstone(t.Context(), end, 1), s.Transact(t.Context(), func(tx directory.Tx) error { tx.Set("tok/01", []byte("token")); return nil }), s.SetMeta(t.Context(), "name", []byte("value")),
		s.SetMeta(t.Context(), "large", bytes.Repeat([]byte("x"), store.MaxValue)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func backup(t testing.TB, s *store.Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Backup(t.Context(), &b, header); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// content is everything that can be seen of a store.
func content(t testing.TB, s *store.Store) map[string]any {
	t.Helper()
	out := map[string]any{}
	err := errors.Join(
		s.All(func(e directory.Entry) error { out[e.AIC] = e; return nil }),
		s.Changes(0, func(c store.Change) error { out[fmt.Sprint("change ", c.Seq)] = c; return nil }),
		s.Records("tok/", func(name string, b []byte) error { out[name] = string(b); return nil }),
	)
	if err != nil {
		t.Fatal(err)
	}
	metas, err := s.Metas("")
	if err != nil {
		t.Fatal(err)
	}
	delete(metas, store.MetaRecovering)
	out["metas"] = metas
	return out
}

func TestRestoreGivesBackTheDatabase(t *testing.T) {
	for name, s := range map[string]*store.Store{"badger": open(t, t.TempDir()), "memory": store.OpenMemory(new(store.Memory))} {
		t.Run(name, func(t *testing.T) {
			defer s.Close()
			filled(t, s, 100)
			raw := backup(t, s)
			if h, err := store.CheckBackup(bytes.NewReader(raw)); err != nil || h.Gateway != header.Gateway {
				t.Fatal(h, err)
			}
			dir := filepath.Join(t.TempDir(), "new", "dir")
			got, err := store.Restore(dir, bytes.NewReader(raw), quiet)
			want := header
			want.Schema = 1
			if err != nil || got != want {
				t.Fatalf("%+v %v", got, err)
			}
			back := open(t, dir)
			defer back.Close()
			if diff := cmp.Diff(content(t, s), content(t, back)); diff != "" {
				t.Error(diff)
			}
			if err := back.Reserve(t.Context(), storetest.AIC(99), storetest.Now); !errors.Is(err, directory.ErrExists) {
				t.Errorf("an AIC that had ended is free again: %v", err)
			}
			note, err := back.Meta(store.MetaRecovering)
			if err != nil {
				t.Fatal(err)
			}
			if h, err := store.DecodeHeader(note); err != nil || h != want {
				t.Errorf("recovering: %+v %v", h, err)
			}
		})
	}
}

// TestBackupIsOneState: every entry has its change record, and no change is without its entry, while others write.
func TestBackupIsOneState(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	for n := range 80 { // more than a chunk of entries, before their changes
		if err := s.Put(t.Context(), storetest.Entry(n, "Kite", strings.Repeat("flies ", 600)), 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := 1000 * (w + 1); ctx.Err() == nil; n++ {
				if err := s.Put(t.Context(), storetest.Entry(n, "Kite", "flies"), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	slow := &slowWriter{}
	err := s.Backup(t.Context(), slow, header)
	cancel()
	writers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := store.Restore(dir, bytes.NewReader(slow.Bytes()), quiet); err != nil {
		t.Fatal(err)
	}
	back := open(t, dir)
	defer back.Close()
	entries, changes := 0, 0
	back.All(func(directory.Entry) error { entries++; return nil })
	back.Changes(0, func(c store.Change) error { changes++; return nil })
	if changes != entries || entries < 80 {
		t.Errorf("%d entries, %d changes", entries, changes)
	}
}

// slowWriter lets the writers overtake the backup.
type slowWriter struct{ bytes.Buffer }

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return w.Buffer.Write(b)
}

func TestDamagedBackupRestoresNothing(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	filled(t, s, 3)
	good := backup(t, s)
	if _, err := store.CheckBackup(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, bad []byte) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "dir")
		_, err := store.Restore(dir, bytes.NewReader(bad), quiet)
		if err == nil || !strings.Contains(err.Error(), "nothing was restored") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder was made: %v", what, err)
		}
	}
	for n := 0; n < len(good); n += 1 + len(good)/200 {
		refused(fmt.Sprint("cut at ", n), good[:n])
		flipped := bytes.Clone(good)
		flipped[n] ^= 1
		refused(fmt.Sprint("changed at ", n), flipped)
	}
	for n := len(good) - 60; n < len(good); n++ {
		refused(fmt.Sprint("cut at ", n), good[:n])
	}
	refused("longer", append(bytes.Clone(good), 0))
	refused("nothing", nil)
	refused("a huge header", append([]byte("AGWBKUP\x01"), 0xff, 0xff, 0xff, 0xff))
	ab := []byte{1, 'a', 0, 1, 'b', 0} // two records
	if _, err := store.CheckBackup(bytes.NewReader(made(t, 1, 2, ab))); err != nil {
		t.Fatal(err)
	}
	refused("another schema", made(t, 9, 2, ab))
	refused("a wrong count", made(t, 1, 1, ab))
	refused("keys that do not ascend", made(t, 1, 2, []byte{1, 'b', 0, 1, 'a', 0}))
	refused("a key twice", made(t, 1, 2, []byte{1, 'a', 0, 1, 'a', 0}))
	refused("no key", made(t, 1, 1, []byte{0, 0}))
	refused("half a record", made(t, 1, 1, []byte{1, 'a', 2, 'x'}))
}

// made is a backup of one chunk whose checksum fits.
func made(t *testing.T, schema, count uint64, chunk []byte) []byte {
	t.Helper()
	raw, err := store.EncodeHeader(store.Header{Created: storetest.Now, Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	b := []byte("AGWBKUP\x01")
	for _, piece := range [][]byte{raw, chunk, nil} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(piece))), piece...)
	}
	b = binary.BigEndian.AppendUint64(b, count)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func TestBackupEndsWithItsContextAndItsWriter(t *testing.T) {
	s := open(t, t.TempDir())
	filled(t, s, 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Backup(ctx, io.Discard, header); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Backup(t.Context(), brokenWriter{}, header); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
	s.Close()
	if err := s.Backup(t.Context(), io.Discard, header); !errors.Is(err, directory.ErrClosed) {
		t.Error(err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestRestoreTakesAnEmptyFolderOnly(t *testing.T) {
	s := open(t, t.TempDir())
	filled(t, s, 3)
	raw := backup(t, s)
	live := t.TempDir()
	other := open(t, live)
	if _, err := store.Restore(live, bytes.NewReader(raw), quiet); err == nil || !strings.Contains(err.Error(), "stop that one first") {
		t.Errorf("into an open database: %v", err)
	}
	other.Close()
	if _, err := store.Restore(live, bytes.NewReader(raw), quiet); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a database: %v", err)
	}
	open(t, live).Close()
	s.Close()
}

// cutReader serves the first pass whole, and of the second one a part.
type cutReader struct {
	bytes.Reader
	passes int
}

func (r *cutReader) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		r.passes++
	}
	return r.Reader.Seek(offset, whence)
}

func (r *cutReader) Read(b []byte) (int, error) {
	if r.passes > 0 && r.Len() < int(r.Size())/4 {
		return 0, errors.New("the disk is gone")
	}
	return r.Reader.Read(b)
}

func TestARestoreThatWasCutShortIsRefusedAndCanBeRunAgain(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	filled(t, s, 20)
	for n := range 12 { // several commits
		if err := s.SetMeta(t.Context(), fmt.Sprint("large ", n), bytes.Repeat([]byte{byte(n)}, store.MaxValue)); err != nil {
			t.Fatal(err)
		}
	}
	raw := backup(t, s)
	dir := t.TempDir()
	r := &cutReader{Reader: *bytes.NewReader(raw)}
	if _, err := store.Restore(dir, r, quiet); err == nil || r.passes != 1 {
		t.Fatalf("%v after %d passes", err, r.passes)
	}
	half, err := store.Open(dir, quiet)
	if err == nil {
		half.Close()
		t.Fatal("half a restore was opened")
	}
	if !strings.Contains(err.Error(), "run the restore again") {
		t.Error(err)
	}
	// What is not of a database is not removed.
	stray := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Restore(dir, bytes.NewReader(raw), quiet); err == nil || !strings.Contains(err.Error(), stray) {
		t.Fatal(err)
	}
	os.Remove(stray)
	if _, err := store.Restore(dir, bytes.NewReader(raw), quiet); err != nil {
		t.Fatal(err)
	}
	back := open(t, dir)
	defer back.Close()
	if diff := cmp.Diff(content(t, s), content(t, back)); diff != "" {
		t.Error(diff)
	}
}

func TestEncryptionAtRest(t *testing.T) {
	key, wrong := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	dir := t.TempDir()
	s, err := store.Open(dir, quiet, store.WithEncryptionKey(key))
	if err != nil {
		t.Fatal(err)
	}
	filled(t, s, 20)
	raw := backup(t, s)
	want := content(t, s)
	inFiles(t, dir, "hospital-secret", false)
	if err := s.SetMeta(t.Context(), "secret", []byte("hospital-secret")); err != nil {
		t.Fatal(err)
	}
	inFiles(t, dir, "hospital-secret", false) // in the log that is written first
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	inFiles(t, dir, "hospital-secret", false) // and in the tables
	plain := t.TempDir()
	p := open(t, plain)
	p.SetMeta(t.Context(), "secret", []byte("hospital-secret"))
	inFiles(t, plain, "hospital-secret", true) // so the check can see it
	p.Close()

	for name, c := range map[string]struct {
		dir  string
		opts []store.Option
		say  string
	}{
		"no key":          {dir, nil, "give the key"},
		"empty key":       {dir, []store.Option{store.WithEncryptionKey(nil)}, "give the key"},
		"wrong key":       {dir, []store.Option{store.WithEncryptionKey(wrong)}, "not made with this encryption key"},
		"key for a plain": {plain, []store.Option{store.WithEncryptionKey(key)}, "not made with this encryption key"},
		"length":          {dir, []store.Option{store.WithEncryptionKey(key[:31])}, "16, 24 or 32"},
	} {
		var said bytes.Buffer
		s, err := store.Open(c.dir, slog.New(slog.NewTextHandler(&said, nil)), c.opts...)
		if err == nil {
			s.Close()
			t.Fatalf("%s: opened", name)
		}
		if errors.Is(err, store.ErrKey) != (name != "length") || said.Len() > 0 {
			t.Errorf("%s: %v; the log says %s", name, err, &said)
		}
		if !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), c.dir) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if store.Plain(dir) || !store.Plain(plain) || store.Plain(t.TempDir()) {
		t.Error("which of the databases is encrypted is not known")
	}
	if s, err = store.Open(dir, quiet, store.WithEncryptionKey(key)); err != nil {
		t.Fatal(err)
	}
	s.SetMeta(t.Context(), "secret", nil)
	if diff := cmp.Diff(want, content(t, s)); diff != "" {
		t.Error(diff)
	}
	s.Close()
	again := t.TempDir() // a backup moves to another key
	if _, err := store.Restore(again, bytes.NewReader(raw), quiet, store.WithEncryptionKey(wrong)); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(again, quiet, store.WithEncryptionKey(wrong)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if diff := cmp.Diff(want, content(t, s)); diff != "" {
		t.Error(diff)
	}
}

// inFiles says whether a text stands in any file of a folder.
func inFiles(t *testing.T, dir, text string, want bool) {
	t.Helper()
	found := false
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found = found || bytes.Contains(b, []byte(text))
	}
	if found != want {
		t.Errorf("%q in the files: %v", text, found)
	}
}

func TestTablesWithoutTheirListAreNotRemoved(t *testing.T) {
	for _, name := range []string{"MANIFEST", "KEYREGISTRY"} {
		dir := t.TempDir()
		s := open(t, dir)
		filled(t, s, 3)
		s.Close()
		before, _ := filepath.Glob(filepath.Join(dir, "*.sst"))
		if len(before) == 0 {
			t.Fatal("no tables")
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(dir, quiet)
		if err == nil {
			s.Close()
			t.Fatalf("opened without %s", name)
		}
		if after, _ := filepath.Glob(filepath.Join(dir, "*.sst")); len(after) != len(before) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v of %v are left, %v", after, before, err)
		}
	}
}

// FuzzCheckBackup: no file makes it panic, and what passes can be restored.
func FuzzCheckBackup(f *testing.F) {
	s := store.OpenMemory(new(store.Memory))
	f.Add(backup(f, s))
	if err := s.SetMeta(f.Context(), "name", []byte("value")); err != nil {
		f.Fatal(err)
	}
	good := backup(f, s)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := store.CheckBackup(bytes.NewReader(b))
		if err != nil {
			return
		}
		if _, err := store.EncodeHeader(h); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b[:len(b)-32])
		if !bytes.Equal(sum[:], b[len(b)-32:]) {
			t.Fatal("passed with another checksum")
		}
	})
}
