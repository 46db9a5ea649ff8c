package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/directory"
)

func document(skills string) []byte {
	return []byte(`{"skills":[` + skills + `]}`)
}

func TestIndexKeysFollowTheEntry(t *testing.T) {
	var m Memory
	s := OpenMemory(&m)
	defer s.Close()
	e := directory.Entry{AIC: "1.A", Version: 1, State: directory.Active, ACS: document(`{"id":"a","tags":["x/y","z","z"]},{"id":"b"}`),
		ExpiresAt: time.UnixMilli(0x0102).UTC(), RegisteredAt: time.UnixMilli(1), LastModified: time.UnixMilli(1)}
	keys := func() []string {
		var out []string
		for k := range m.data {
			if strings.HasPrefix(k, prefixTag) || strings.HasPrefix(k, prefixSkill) || strings.HasPrefix(k, prefixExpiry) {
				out = append(out, k)
			}
		}
		slices.Sort(out)
		return out
	}
	if err := s.Put(t.Context(), e, 0); err != nil {
		t.Fatal(err)
	}
	want := []string{"skill/a/1.A", "skill/b/1.A", "tag/x%2Fy/1.A/a", "tag/z/1.A/a", "x/\x00\x00\x00\x00\x00\x00\x01\x02/1.A"}
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("keys %q", got)
	}
	e.Version, e.ACS, e.ExpiresAt = 2, document(`{"id":"b","tags":["z"]}`), time.Time{}
	if err := s.Put(t.Context(), e, 1); err != nil {
		t.Fatal(err)
	}
	if got := keys(); !slices.Equal(got, []string{"skill/b/1.A", "tag/z/1.A/b"}) {
		t.Errorf("keys after an update %q", got)
	}
	e.Version, e.ACS = 3, document(`{"id":"c"}`) // the document alone
	if err := s.Put(t.Context(), e, 2); err != nil {
		t.Fatal(err)
	}
	if got := keys(); !slices.Equal(got, []string{"skill/c/1.A"}) {
		t.Errorf("keys after a new document %q", got)
	}
	e.Version, e.ExpiresAt = 4, time.UnixMilli(0x0304).UTC() // the time alone
	if err := s.Put(t.Context(), e, 3); err != nil {
		t.Fatal(err)
	}
	if got := keys(); !slices.Equal(got, []string{"skill/c/1.A", "x/\x00\x00\x00\x00\x00\x00\x03\x04/1.A"}) {
		t.Errorf("keys after a new time %q", got)
	}
	other := e // of another agent, with the same document
	other.AIC, other.Version = "1.B", 1
	if err := s.Put(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	if got := keys(); len(got) != 4 || !slices.Contains(got, "skill/c/1.B") {
		t.Errorf("keys of two agents %q", got)
	}
	if err := s.Tombstone(t.Context(), directory.Tombstone{AIC: "1.B", State: directory.Revoked, Version: 2}, 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Tombstone(t.Context(), directory.Tombstone{AIC: "1.A", State: directory.Revoked, Version: 5}, 4); err != nil {
		t.Fatal(err)
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
	if err := s.Put(t.Context(), directory.Entry{AIC: "1.A", Version: 1, State: directory.Active, ACS: document("")}, 0); err != nil {
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
