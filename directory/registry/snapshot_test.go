package registry

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/match"
	"agentgw/directory/snapshot"
	"agentgw/directory/store"
	"agentgw/directory/store/storetest"

	"github.com/google/go-cmp/cmp"
)

var snapshotID = [16]byte{7}

// peopled is a registry after some changes of every kind.
func peopled(t *testing.T, m *store.Memory) (*Registry, *store.Store) {
	t.Helper()
	r, s := open(t, m)
	for n := range 40 {
		e := storetest.Entry(n, []string{"Kite", "Boat", "Train"}[n%3], "described")
		switch n % 4 {
		case 0:
			e.ExpiresAt = now.Add(time.Hour)
		case 1:
			e.Visibility, e.Allow = directory.VisibleListed, []string{"partner.example", "other.example"}
		case 2:
			e.Provenance.SPKI = [32]byte{1}
		}
		if _, err := r.Register(t.Context(), e, nil, nil, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.SetState(t.Context(), storetest.AIC(3), directory.Suspended, now); err != nil {
		t.Fatal(err)
	}
	if err := r.Withdraw(t.Context(), storetest.AIC(4), "", now); err != nil {
		t.Fatal(err)
	}
	return r, s
}

func snapshotOf(t *testing.T, r *Registry, key []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := r.WriteSnapshot(t.Context(), &b, snapshotID, key); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func opened(s Store, file, key []byte) (*Registry, error) {
	return OpenSnapshot(context.Background(), s, bytes.NewReader(file), int64(len(file)), snapshotID, key, func(int) {})
}

func checked(t *testing.T, r *Registry) []string {
	t.Helper()
	report, err := r.Check(t.Context())
	if err != nil || report.Entries == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	return report.Problems
}

func TestASnapshotIsTheDirectory(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		var m store.Memory
		r, s := peopled(t, &m)
		got, err := opened(s, snapshotOf(t, r, key), key)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(listed(r), listed(got)); diff != "" || got.Len() != 39 {
			t.Errorf("%d entries\n%s", got.Len(), diff)
		}
		for _, reg := range []*Registry{r, got} {
			if p := checked(t, reg); p != nil {
				t.Error(p)
			}
		}
		everything := Request{Query: match.Query{Text: "kite boat train"}, Home: true, IncludeOffline: true}
		if x, y := must(r.Resolve(t.Context(), everything, now)), must(got.Resolve(t.Context(), everything, now)); !cmp.Equal(x, y) || len(x) == 0 {
			t.Errorf("found %v, then %v", x, y)
		}
		with := func(m Mark) bool { return m.Credential || m.State == directory.Suspended }
		if x, y := r.Marked(with), got.Marked(with); !slices.Equal(x, y) || len(x) != 11 {
			t.Errorf("marked %v, then %v", x, y)
		}
		e, err := got.Get(storetest.AIC(1)) // it goes on as any other
		if err != nil {
			t.Fatal(err)
		}
		if _, err := got.Update(t.Context(), e, nil, now); err != nil {
			t.Error(err)
		}
		if p := checked(t, got); p != nil {
			t.Error(p)
		}
	}
}

// A snapshot of another state, another database or another program is not used, nor is one that is not whole.
func TestASnapshotIsRefused(t *testing.T) {
	var m store.Memory
	r, s := peopled(t, &m)
	file := snapshotOf(t, r, nil)
	for n := 0; n < len(file); n += 97 {
		spoilt := bytes.Clone(file)
		spoilt[n] ^= 0x10
		for _, bad := range [][]byte{file[:n], spoilt} {
			if _, err := opened(s, bad, nil); !errors.Is(err, snapshot.ErrDamaged) {
				t.Fatalf("at %d: %v", n, err)
			}
		}
	}
	if _, err := OpenSnapshot(t.Context(), s, bytes.NewReader(file), int64(len(file)), [16]byte{8}, nil, func(int) {}); !errors.Is(err, ErrStale) {
		t.Errorf("another id: %v", err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenSnapshot(stopped, s, bytes.NewReader(file), int64(len(file)), snapshotID, nil, func(int) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a start that was called off: %v", err)
	}
	if err := r.Withdraw(t.Context(), storetest.AIC(7), "", now); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(s, file, nil); !errors.Is(err, ErrStale) {
		t.Errorf("a stale one: %v", err)
	}
	short := retold(t, snapshotOf(t, r, nil), func(kind byte) bool { return kind != blockRecords })
	if _, err := opened(s, short, nil); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("without its records: %v", err)
	}
}

// retold is a snapshot with the kept blocks only, and checksums that fit.
func retold(t *testing.T, file []byte, keep func(kind byte) bool) []byte {
	t.Helper()
	in, h, err := snapshot.NewReader(bytes.NewReader(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	out, err := snapshot.NewWriter(&b, h, nil)
	for err == nil {
		var kind byte
		var body []byte
		if kind, body, err = in.Next(nil); err == nil && keep(kind) {
			err = out.Block(kind, body)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A registry that could not read its store back has nothing to start from.
func TestNoSnapshotOfWhatIsUnsure(t *testing.T) {
	var m store.Memory
	r, _ := peopled(t, &m)
	r.unsure.Store(true)
	if _, err := r.WriteSnapshot(t.Context(), new(bytes.Buffer), snapshotID, nil); err == nil {
		t.Error("written")
	}
}

func TestCheckFindsWhatDiffers(t *testing.T) {
	for name, spoil := range map[string]func(*Registry){
		"not at hand":   func(r *Registry) { r.records.Delete(storetest.AIC(1)) },
		"at hand as":    func(r *Registry) { r.record(storetest.AIC(1)).state = directory.Deprecated },
		"entries are":   func(r *Registry) { r.count.Add(1) },
		"others in the": func(r *Registry) { r.index.Apply(match.Change{AIC: storetest.AIC(1)}) },
		"has not the word": func(r *Registry) {
			caps := r.index.Of(storetest.AIC(1))
			caps[0].Description = "another"
			r.index.Apply(match.Change{AIC: storetest.AIC(1), Caps: caps})
		},
	} {
		var m store.Memory
		r, _ := peopled(t, &m)
		spoil(r)
		if got := strings.Join(checked(t, r), "\n"); !strings.Contains(got, name) {
			t.Errorf("%s: %q", name, got)
		}
	}
	var m store.Memory
	r, _ := peopled(t, &m)
	r.owned["x"] = nil
	if _, err := r.Check(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("under change: %v", err)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x01\x01A\x01\x00\x01\x02\x01\x02\x01x"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newRegistry(nil)
		if err := r.readRecords(body); err != nil {
			return
		}
		again := newRegistry(nil)
		if err := r.writeRecords(func(_ byte, body []byte) error { return again.readRecords(body) }); err != nil || again.Len() != r.Len() {
			t.Errorf("%d entries, then %d, %v", r.Len(), again.Len(), err)
		}
	})
}
