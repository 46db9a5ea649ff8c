package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRotationCarriesTheChainOn(t *testing.T) {
	var s shelf
	dir := t.TempDir()
	for range 2 {
		l := open(t, Config{Dir: dir, Keep: s.keep, MaxBytes: 1000, Every: 7})
		for i := range 30 {
			record(t, l, i)
		}
		shut(t, l)
	}
	r := whole(t, dir, s.newest())
	old, err := oldFiles(dir)
	if err != nil || len(old) < 8 || r.Files != len(old)+1 || old[0] != "audit-000000000001.jsonl" {
		t.Fatalf("%v %v, %+v", old, err, r)
	}
	var got []uint64
	if err := Read(dir, 20, func(r Record) error { got = append(got, r.N); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != int(r.Records)-20 || got[0] != 21 || got[len(got)-1] != r.Records {
		t.Errorf("read %v of %d", got, r.Records)
	}
	first, _ := parseOldName(old[2])
	for what, change := range map[string]func(dir string) error{
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, old[3])) },
		"cut":     func(dir string) error { return os.Truncate(filepath.Join(dir, old[3]), 20) },
		"renamed": func(dir string) error {
			return os.Rename(filepath.Join(dir, old[2]), filepath.Join(dir, oldName(first+1)))
		},
	} {
		saved := t.TempDir()
		if err := os.CopyFS(saved, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := change(saved); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(saved, verifier(signer(1)), nil); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestReopenBetweenTheFilesOfARotation is a process that ended after the rename and before the new file, or before its first line.
func TestReopenBetweenTheFilesOfARotation(t *testing.T) {
	for _, empty := range []bool{false, true} {
		dir, kept := written(t, 3, Config{})
		if err := os.Rename(filepath.Join(dir, currentName), filepath.Join(dir, oldName(1))); err != nil {
			t.Fatal(err)
		}
		if empty {
			if err := os.WriteFile(filepath.Join(dir, currentName), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		whole(t, dir, kept)
		l := open(t, Config{Dir: dir})
		record(t, l, 4)
		shut(t, l)
		if r := whole(t, dir, kept); r.Records != 6 || r.Files != 2 {
			t.Errorf("%+v", r)
		}
	}
}
