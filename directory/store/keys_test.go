package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/directory"
)

func TestExpiryKeyFollowsTheEntry(t *testing.T) {
	var m Memory
	s := OpenMemory(&m)
	defer s.Close()
	keys := func() []string {
		var out []string
		for k := range m.data {
			if strings.HasPrefix(k, prefixExpiry) {
				out = append(out, k)
			}
		}
		slices.Sort(out)
		return out
	}
	at := func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
	e := directory.Entry{AIC: "1.A", State: directory.Active, RegisteredAt: at(1), LastModified: at(1)}
	for _, step := range []struct {
		expires time.Time
		want    []string
	}{
		{at(0x0102), []string{"x/\x00\x00\x00\x00\x00\x00\x01\x02/1.A"}},
		{at(0x0102), []string{"x/\x00\x00\x00\x00\x00\x00\x01\x02/1.A"}},
		{at(0x0304), []string{"x/\x00\x00\x00\x00\x00\x00\x03\x04/1.A"}},
		{time.Time{}, nil},
		{time.Time{}, nil},
		{at(0x0506), []string{"x/\x00\x00\x00\x00\x00\x00\x05\x06/1.A"}},
	} {
		e.Version, e.ExpiresAt = e.Version+1, step.expires
		if err := s.Put(t.Context(), e, e.Version-1); err != nil {
			t.Fatal(err)
		}
		if got := keys(); !slices.Equal(got, step.want) {
			t.Errorf("version %d: keys %q, want %q", e.Version, got, step.want)
		}
	}
	other := e // of another agent, at the same time
	other.AIC, other.Version = "1.B", 1
	if err := s.Put(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	if got := keys(); len(got) != 2 {
		t.Errorf("keys of two agents %q", got)
	}
	for _, end := range []directory.Entry{other, e} {
		if err := s.Tombstone(t.Context(), directory.Tombstone{AIC: end.AIC, State: directory.Revoked, Version: end.Version + 1}, end.Version); err != nil {
			t.Fatal(err)
		}
	}
	if got := keys(); len(got) != 0 {
		t.Errorf("keys after the end %q", got)
	}
}

func TestChangeLogIsBounded(t *testing.T) {
	s := OpenMemory(new(Memory))
	defer s.Close()
	err := s.write(t.Context(), func(reader) ([]mutation, error) {
		return []mutation{{keySequence, []byte(be64(keepChanges))}, {changeKey(1), []byte{}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), directory.Entry{AIC: "1.A", Version: 1, State: directory.Active}, 0); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	if err := s.Changes(0, func(c Change) error { got = append(got, c.Seq); return nil }); err != nil || !slices.Equal(got, []uint64{keepChanges + 1}) {
		t.Errorf("changes %v, %v", got, err)
	}
}

// TestOneGroupSeesItself plans two writes of one version in one group: the second must lose.
func TestOneGroupSeesItself(t *testing.T) {
	s := &Store{back: (*memoryBackend)(new(Memory))}
	set := func(r reader) ([]mutation, error) {
		if _, err := r.get("k"); err == nil {
			return nil, directory.ErrExists
		}
		return []mutation{{"k", []byte("v")}}, nil
	}
	group := []*write{{set, make(chan error, 1)}, {set, make(chan error, 1)}}
	if rest := s.commit(group); len(rest) != 0 {
		t.Errorf("%d writes are left", len(rest))
	}
	if first, second := <-group[0].done, <-group[1].done; first != nil || second != directory.ErrExists {
		t.Errorf("first %v, second %v", first, second)
	}
}
