// Package storetest is the suite that every directory store must pass, and entries to pass it with.
//
// [Run] opens a fresh store for each case by the function that it is given, and closes it. It is for tests only. The contract
// that it checks is that of package store.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/store"

	"github.com/google/go-cmp/cmp"
)

// Now is the time of the suite's entries.
var Now = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// AIC is the canonical AIC of agent n of the suite.
func AIC(n int) string { return fmt.Sprintf("2.999.1.1.1.A.1.1.%d.0000", n+1) }

// Entry is a valid entry of one skill that has the given name and description.
func Entry(n int, name, description string) directory.Entry {
	doc := fmt.Sprintf(`{"aic":%q,"active":true,"lastModifiedTime":"2026-11-30T10:00:00+00:00","protocolVersion":"02.02","name":"Agent","description":"",
		"version":"1.0.0","provider":{"organization":"Provider %d"},"securitySchemes":{},"endPoints":[],"capabilities":{},
		"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
		"skills":[{"id":"skill","name":%q,"description":%q,"tags":["a/b"]}]}`, AIC(n), n, name, description)
	hash, err := acs.Hash([]byte(doc))
	if err != nil {
		panic(err) // the suite's own document
	}
	return directory.Entry{
		AIC: AIC(n), ACS: []byte(doc), ACSHash: hash, State: directory.Active, Version: 1, RegisteredAt: Now, LastModified: Now,
		Visibility: directory.VisiblePublic, Skills: []string{"skill"},
		Provenance: directory.Provenance{Grant: "g", Provider: directory.ProviderUnverified},
	}
}

// Run runs the suite.
func Run(t *testing.T, open func(*testing.T) *store.Store) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *store.Store)
	}{
		{"PutGet", putGet}, {"CompareAndSet", compareAndSet}, {"Tombstone", tombstone}, {"Reserve", reserve}, {"Bury", bury}, {"Due", due}, {"Editions", editions},
		{"Changes", changes}, {"Sequence", sequence}, {"PutWith", putWith}, {"Transact", transact}, {"TransactOnce", transactOnce}, {"Meta", meta}, {"ManyWriters", manyWriters}, {"LargeWrites", largeWrites},
		{"Close", closed}, {"CloseAmongWriters", closeAmongWriters}, {"Context", canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			c.run(t, s)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
	}
}

func putGet(t *testing.T, s *store.Store) {
	_, err := s.Get(AIC(0))
	wants(t, err, directory.ErrNotFound)
	for n := range 3 {
		must(t, s.Put(t.Context(), Entry(n, "Kite", "flies"), 0))
	}
	got, err := s.Get(AIC(1))
	must(t, err)
	if diff := cmp.Diff(Entry(1, "Kite", "flies"), got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	var all []string
	must(t, s.All(func(e directory.Entry) error {
		if _, err := s.Get(e.AIC); err != nil { // reading inside a read is allowed
			return err
		}
		all = append(all, e.AIC)
		return nil
	}))
	if !slices.Equal(all, []string{AIC(0), AIC(1), AIC(2)}) {
		t.Errorf("all: %v", all)
	}
	stop := errors.New("stop")
	wants(t, s.All(func(directory.Entry) error { return stop }), stop)
}

func compareAndSet(t *testing.T, s *store.Store) {
	e := Entry(0, "Kite", "flies")
	must(t, s.Put(t.Context(), e, 0))
	wants(t, s.Put(t.Context(), e, 0), directory.ErrExists)
	e.Version = 2
	must(t, s.Put(t.Context(), e, 1))
	wants(t, s.Put(t.Context(), e, 1), directory.ErrConflict)
	if err := s.Put(t.Context(), e, 7); err == nil {
		t.Error("a version that does not follow is stored")
	}
	missing := Entry(1, "Kite", "flies")
	missing.Version = 2
	wants(t, s.Put(t.Context(), missing, 1), directory.ErrNotFound)
}

func tombstone(t *testing.T, s *store.Store) {
	e := Entry(0, "Kite", "flies")
	must(t, s.Put(t.Context(), e, 0))
	end := directory.Tombstone{AIC: e.AIC, State: directory.Withdrawn, Version: 2, At: Now, Reason: "test"}
	late := end
	late.Version = 4
	wants(t, s.Tombstone(t.Context(), late, 3), directory.ErrConflict)
	must(t, s.Tombstone(t.Context(), end, 1))
	_, err := s.Get(e.AIC)
	wants(t, err, directory.ErrNotFound)
	got, err := s.Ended(e.AIC)
	must(t, err)
	if got != end {
		t.Errorf("tombstone %+v", got)
	}
	wants(t, s.Put(t.Context(), e, 0), directory.ErrExists)
	wants(t, s.Reserve(t.Context(), e.AIC, Now), directory.ErrExists)
	wants(t, s.Tombstone(t.Context(), end, 1), directory.ErrNotFound)
	_, err = s.Ended(AIC(1))
	wants(t, err, directory.ErrNotFound)
}

func reserve(t *testing.T, s *store.Store) {
	must(t, s.Reserve(t.Context(), AIC(0), Now))
	wants(t, s.Reserve(t.Context(), AIC(0), Now), directory.ErrExists)
	must(t, s.Put(t.Context(), Entry(0, "Kite", "flies"), 0)) // what it was reserved for
	must(t, s.Put(t.Context(), Entry(1, "Kite", "flies"), 0))
	wants(t, s.Reserve(t.Context(), AIC(1), Now), directory.ErrExists)
}

func bury(t *testing.T, s *store.Store) {
	grave := directory.Tombstone{AIC: AIC(1), State: directory.Revoked, Version: 1, At: Now, Reason: "lost"}
	must(t, s.Bury(t.Context(), grave))
	wants(t, s.Bury(t.Context(), grave), directory.ErrExists)
	wants(t, s.Reserve(t.Context(), AIC(1), Now), directory.ErrExists)
	wants(t, s.Put(t.Context(), Entry(1, "Kite", "flies"), 0), directory.ErrExists)
	if got, err := s.Ended(AIC(1)); err != nil || got.State != directory.Revoked || got.Reason != "lost" {
		t.Errorf("%+v, %v", got, err)
	}
	must(t, s.Put(t.Context(), Entry(2, "Kite", "flies"), 0))
	grave.AIC = AIC(2)
	wants(t, s.Bury(t.Context(), grave), directory.ErrExists)
	if _, err := s.Get(AIC(2)); err != nil {
		t.Errorf("the entry that is there: %v", err)
	}
	must(t, s.Reserve(t.Context(), AIC(3), Now))
	grave.AIC = AIC(3)
	must(t, s.Bury(t.Context(), grave)) // reserved, and no more came of it
}

func due(t *testing.T, s *store.Store) {
	for n, after := range []time.Duration{3 * time.Second, 1 * time.Second, 2 * time.Second, 0} {
		e := Entry(n, "Kite", "flies")
		if after > 0 {
			e.ExpiresAt = Now.Add(after)
		}
		must(t, s.Put(t.Context(), e, 0))
	}
	check := func(now time.Time, limit int, want ...string) {
		t.Helper()
		got, err := s.Due(now, limit)
		must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("due %v, want %v", got, want)
		}
	}
	check(Now, 10)
	check(Now.Add(2*time.Second), 10, AIC(1), AIC(2))
	check(Now.Add(time.Hour), 1, AIC(1))
	later := Entry(1, "Kite", "flies")
	later.Version, later.ExpiresAt = 2, Now.Add(time.Minute)
	must(t, s.Put(t.Context(), later, 1))
	must(t, s.Tombstone(t.Context(), directory.Tombstone{AIC: AIC(2), State: directory.Expired, Version: 2, At: Now}, 1))
	check(Now.Add(10*time.Second), 10, AIC(0))
	check(Now.Add(time.Hour), 10, AIC(0), AIC(1))
}

// sequence counts the changes of entries, and of nothing else.
func sequence(t *testing.T, s *store.Store) {
	ctx := t.Context()
	is := func(want uint64) {
		t.Helper()
		if got, err := s.Sequence(); err != nil || got != want {
			t.Errorf("sequence %d, %v, want %d", got, err, want)
		}
	}
	is(0)
	e := Entry(0, "Kite", "")
	must(t, s.Put(ctx, e, 0))
	is(1)
	wants(t, s.Put(ctx, e, 0), directory.ErrExists)
	must(t, s.SetMeta(ctx, "x", []byte("y")))
	must(t, s.Reserve(ctx, AIC(1), Now))
	is(1)
	must(t, s.Tombstone(ctx, directory.Tombstone{AIC: e.AIC, State: directory.Withdrawn, Version: 2, At: Now}, 1))
	is(2)
}

func changes(t *testing.T, s *store.Store) {
	e := Entry(0, "Kite", "flies")
	must(t, s.Put(t.Context(), e, 0))
	wants(t, s.Put(t.Context(), e, 0), directory.ErrExists) // no change, no record
	must(t, s.Put(t.Context(), Entry(1, "Kite", "flies"), 0))
	must(t, s.Tombstone(t.Context(), directory.Tombstone{AIC: e.AIC, State: directory.Revoked, Version: 2, At: Now}, 1))
	var got []store.Change
	must(t, s.Changes(1, func(c store.Change) error { got = append(got, c); return nil }))
	want := []store.Change{{Seq: 2, AIC: AIC(1), State: 1, Version: 1, AtMS: Now.UnixMilli()}, {Seq: 3, AIC: AIC(0), State: 5, Version: 2, AtMS: Now.UnixMilli()}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// transact checks that a transaction sees its own writes, happens whole or not at all, and stays in its part of the schema.
// putWith: an entry and the records beside it are one step.
func putWith(t *testing.T, s *store.Store) {
	refusal := errors.New("no")
	set := func(value string, err error) func(directory.Tx) error {
		return func(tx directory.Tx) error {
			tx.Set("amc/agent/x", []byte(value))
			return errors.Join(tx.Reserve(AIC(0), Now), err)
		}
	}
	record := func() string {
		var got string
		must(t, s.Records("amc/agent/", func(_ string, value []byte) error { got = string(value); return nil }))
		return got
	}
	e := Entry(0, "Kite", "flies")
	wants(t, s.PutWith(t.Context(), e, 0, set("refused", refusal)), refusal)
	if _, err := s.Get(e.AIC); !errors.Is(err, directory.ErrNotFound) || record() != "" {
		t.Errorf("a change that refuses has left %q and an entry (%v)", record(), err)
	}
	must(t, s.PutWith(t.Context(), e, 0, set("kept", nil)))
	if _, err := s.Get(e.AIC); err != nil || record() != "kept" {
		t.Errorf("record %q, entry: %v", record(), err)
	}
	wants(t, s.PutWith(t.Context(), e, 0, set("again", nil)), directory.ErrExists)
	wants(t, s.Reserve(t.Context(), e.AIC, Now), directory.ErrExists)
	if record() != "kept" {
		t.Errorf("an entry that is refused has changed the record to %q", record())
	}
}

func transact(t *testing.T, s *store.Store) {
	const a, b = "amc/agent/1", "tok/00"
	refused := errors.New("refused")
	wants(t, s.Transact(t.Context(), func(tx directory.Tx) error {
		tx.Set(a, []byte("lost"))
		return refused
	}), refused)
	must(t, s.Transact(t.Context(), func(tx directory.Tx) error {
		_, err := tx.Get(a)
		wants(t, err, directory.ErrNotFound)
		tx.Set(a, []byte("one"))
		tx.Set(b, []byte("two"))
		if v, err := tx.Get(a); err != nil || string(v) != "one" {
			t.Errorf("own write read as %q, %v", v, err)
		}
		return nil
	}))
	must(t, s.Transact(t.Context(), func(tx directory.Tx) error {
		tx.Set(b, nil)
		_, err := tx.Get(b)
		wants(t, err, directory.ErrNotFound)
		return nil
	}))
	var names []string
	must(t, s.Records("amc/", func(name string, value []byte) error {
		names = append(names, name+"="+string(value))
		return nil
	}))
	if !slices.Equal(names, []string{"amc/agent/1=one"}) {
		t.Errorf("records %q", names)
	}
	must(t, s.Put(t.Context(), Entry(0, "Kite", "flies"), 0))
	if err := s.Transact(t.Context(), func(tx directory.Tx) error { tx.Set("acs/"+AIC(0), nil); return nil }); err == nil {
		t.Error("a transaction of the AMC reached an entry")
	}
	if err := s.Transact(t.Context(), func(tx directory.Tx) error { tx.Set(a, make([]byte, store.MaxValue+1)); return nil }); err == nil {
		t.Error("an endless record was stored")
	}
	if err := s.Records("acs/", func(string, []byte) error { return nil }); err == nil {
		t.Error("entries were listed as records")
	}
}

// transactOnce lets many use up one record at once: exactly one may.
func transactOnce(t *testing.T, s *store.Store) {
	const name = "tok/secret"
	must(t, s.Transact(t.Context(), func(tx directory.Tx) error { tx.Set(name, []byte("fresh")); return nil }))
	used := errors.New("used")
	var mu sync.Mutex
	var wg sync.WaitGroup
	won := 0
	for range 32 {
		wg.Go(func() {
			err := s.Transact(context.Background(), func(tx directory.Tx) error {
				v, err := tx.Get(name)
				if err != nil || string(v) != "fresh" {
					return errors.Join(used, err)
				}
				tx.Set(name, []byte("used"))
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, used) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d used it", won)
	}
}

func meta(t *testing.T, s *store.Store) {
	_, err := s.Meta("epoch")
	wants(t, err, directory.ErrNotFound)
	must(t, s.SetMeta(t.Context(), "epoch", []byte("7")))
	must(t, s.SetMeta(t.Context(), "bundle/a.example", []byte("a")))
	must(t, s.SetMeta(t.Context(), "bundle/b.example", []byte{}))
	if b, err := s.Meta("epoch"); err != nil || string(b) != "7" {
		t.Errorf("epoch %q, %v", b, err)
	}
	all, err := s.Metas("bundle/")
	must(t, err)
	if diff := cmp.Diff(map[string][]byte{"bundle/a.example": []byte("a"), "bundle/b.example": {}}, all); diff != "" {
		t.Errorf("bundles (-want +got):\n%s", diff)
	}
	must(t, s.SetMeta(t.Context(), "epoch", nil))
	_, err = s.Meta("epoch")
	wants(t, err, directory.ErrNotFound)
	if s.SetMeta(t.Context(), "large", make([]byte, store.MaxValue+1)) == nil {
		t.Error("a value over the limit is stored")
	}
}

func manyWriters(t *testing.T, s *store.Store) {
	var wg sync.WaitGroup
	for n := range 200 {
		wg.Go(func() {
			if err := s.Put(context.Background(), Entry(n, "Kite", "flies"), 0); err != nil {
				t.Error(err)
			}
			if _, err := s.Get(AIC(n)); err != nil { // acknowledged is readable
				t.Error(err)
			}
		})
	}
	wg.Wait()
	count := 0
	must(t, s.All(func(directory.Entry) error { count++; return nil }))
	if count != 200 {
		t.Errorf("%d entries", count)
	}
}

// largeWrites queues more than one commit may take.
func largeWrites(t *testing.T, s *store.Store) {
	var wg sync.WaitGroup
	for n := range 24 {
		wg.Go(func() {
			if err := s.SetMeta(context.Background(), fmt.Sprint("large", n), make([]byte, store.MaxValue)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, err := s.Metas("large")
	must(t, err)
	if len(all) != 24 {
		t.Errorf("%d values", len(all))
	}
}

func closed(t *testing.T, s *store.Store) {
	must(t, s.Close())
	must(t, s.Close())
	wants(t, s.Put(t.Context(), Entry(0, "Kite", "flies"), 0), directory.ErrClosed)
	wants(t, s.SetMeta(t.Context(), "a", nil), directory.ErrClosed)
	_, err := s.Get(AIC(0))
	wants(t, err, directory.ErrClosed)
	wants(t, s.All(func(directory.Entry) error { return nil }), directory.ErrClosed)
}

// closeAmongWriters closes while others write: each gets nil or ErrClosed, and nobody hangs.
func closeAmongWriters(t *testing.T, s *store.Store) {
	var wg sync.WaitGroup
	for n := range 100 {
		wg.Go(func() {
			if err := s.Put(context.Background(), Entry(n, "Kite", "flies"), 0); err != nil && !errors.Is(err, directory.ErrClosed) {
				t.Error(err)
			}
			if _, err := s.Get(AIC(n)); err != nil && !errors.Is(err, directory.ErrClosed) && !errors.Is(err, directory.ErrNotFound) {
				t.Error(err)
			}
		})
		if n == 50 {
			wg.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

func canceled(t *testing.T, s *store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := s.SetMeta(ctx, "a", []byte("b"))
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// editions keeps the last version of each of the last 16 editions, and of an ended agent what it said last.
func editions(t *testing.T, s *store.Store) {
	kept := func(aic string) (out []uint64) {
		must(t, s.Editions(aic, func(e directory.Entry) error {
			if e.AIC != aic || e.Skills[0] != fmt.Sprint("skill", e.Edition.Number) {
				t.Errorf("%s, edition %d, version %d: %v", e.AIC, e.Edition.Number, e.Version, e.Skills)
			}
			out = append(out, e.Version)
			return nil
		}))
		return out
	}
	e := Entry(1, "Reader", "")
	e.Skills = []string{"skill0"}
	must(t, s.Put(t.Context(), e, 0))
	for e.Version < 40 {
		e.Version++
		if e.Version%2 == 0 { // the odd ones are renewals
			e.Edition.Number++
			e.Skills = []string{fmt.Sprint("skill", e.Edition.Number)}
		}
		must(t, s.Put(t.Context(), e, e.Version-1))
		if e.Version == 4 {
			if got := kept(e.AIC); !slices.Equal(got, []uint64{1, 3}) {
				t.Errorf("versions %v, want the last of each edition", got)
			}
		}
	}
	if got := kept(e.AIC); len(got) != 16 || got[0] != 9 || got[15] != 39 {
		t.Errorf("versions %v, want the 16 odd ones from 9 on", got)
	}
	other := Entry(10, "Reader", "")
	must(t, s.Put(t.Context(), other, 0))
	if got := kept(other.AIC); len(got) != 0 {
		t.Errorf("versions %v of an agent that has not changed", got)
	}
	must(t, s.Tombstone(t.Context(), directory.Tombstone{AIC: e.AIC, State: directory.Withdrawn, Version: 41, At: Now}, 40))
	if got := kept(e.AIC); !slices.Equal(got, []uint64{35, 37, 39, 40}) {
		t.Errorf("versions %v after the end, want the last four", got)
	}
	wants(t, s.Put(t.Context(), Entry(1, "Reader", ""), 0), directory.ErrExists)
}
