package store_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/directory"
	"agentgw/directory/store"
	"agentgw/directory/store/storetest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func open(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := store.Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBadger(t *testing.T) {
	storetest.Run(t, func(t *testing.T) *store.Store { return open(t, t.TempDir()) })
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) *store.Store { return store.OpenMemory(new(store.Memory)) })
}

func TestReopenFindsEverything(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for n := range 20 {
		if err := s.Put(t.Context(), storetest.Entry(n, "Kite", "flies"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Tombstone(t.Context(), directory.Tombstone{AIC: storetest.AIC(3), State: directory.Withdrawn, Version: 2, At: storetest.Now}, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	defer s.Close()
	count := 0
	if err := s.All(func(directory.Entry) error { count++; return nil }); err != nil || count != 19 {
		t.Errorf("%d entries, %v", count, err)
	}
	if _, err := s.Ended(storetest.AIC(3)); err != nil {
		t.Error(err)
	}
}

// TestReopenAfterAnUncleanStop leaves the empty logs that a killed process leaves (measured fact 2), and a copy of a database
// that was never closed.
func TestReopenAfterAnUncleanStop(t *testing.T) {
	live := t.TempDir()
	s := open(t, live)
	defer s.Close()
	if err := s.Put(t.Context(), storetest.Entry(0, "Kite", "flies"), 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00099.mem", "000099.vlog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, dir)
	defer again.Close()
	if _, err := again.Get(storetest.AIC(0)); err != nil {
		t.Errorf("an acknowledged write is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "00099.mem")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the empty log is still there: %v", err)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	defer open(t, dir).Close()
	s, err := store.Open(dir, quiet)
	if err == nil {
		s.Close()
		t.Fatal("opened twice")
	}
	if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "stop that one first") {
		t.Errorf("message %q does not say where and what to do", err)
	}
}

func TestDamageIsSaidAndNothingIsDeleted(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dir, "MANIFEST")
	good, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	// Octets 4 and 5 of the manifest are the external magic: our schema.
	for name, c := range map[string]struct {
		content []byte
		say     string
	}{
		"another schema": {append(append(append([]byte{}, good[:4]...), 0, 99), good[6:]...), "schema"},
		"no manifest":    {[]byte("not a manifest at all"), "backup"},
	} {
		if err := os.WriteFile(manifest, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(dir, quiet)
		if err == nil {
			s.Close()
			t.Fatalf("%s: opened", name)
		}
		if !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: message %q does not speak of %q", name, err, c.say)
		}
	}
	if err := os.WriteFile(manifest, good, 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir).Close()
}

func TestFaults(t *testing.T) {
	var m store.Memory
	s := store.OpenMemory(&m)
	m.Fail(store.FaultLost, store.FaultReported)
	if err := s.Put(t.Context(), storetest.Entry(0, "Kite", "flies"), 0); !errors.Is(err, store.ErrFault) {
		t.Errorf("lost: %v", err)
	}
	if err := s.Put(t.Context(), storetest.Entry(1, "Kite", "flies"), 0); !errors.Is(err, store.ErrFault) {
		t.Errorf("reported: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = store.OpenMemory(&m)
	defer s.Close()
	if _, err := s.Get(storetest.AIC(0)); !errors.Is(err, directory.ErrNotFound) {
		t.Errorf("the lost write: %v", err)
	}
	if _, err := s.Get(storetest.AIC(1)); err != nil {
		t.Errorf("the persisted write: %v", err)
	}
}

// BenchmarkPut is acknowledged writes of 16 writers: what group commit is for.
func BenchmarkPut(b *testing.B) {
	s, err := store.Open(b.TempDir(), quiet)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.SetParallelism(8)
	next := make(chan int, 1)
	next <- 0
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := <-next
			next <- n + 1
			if err := s.Put(b.Context(), storetest.Entry(n, "Kite", fmt.Sprint("flies ", n)), 0); err != nil {
				b.Error(err)
			}
		}
	})
}
