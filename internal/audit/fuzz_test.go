package audit

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzVerify: no content of the files makes Verify panic, and what passes can be gone on with.
func FuzzVerify(f *testing.F) {
	dir, kept := written(f, 3, Config{Every: 2, MaxBytes: 200}) // short, so that most of the time is not spent on shortening
	current, err := os.ReadFile(filepath.Join(dir, currentName))
	if err != nil {
		f.Fatal(err)
	}
	first, err := os.ReadFile(filepath.Join(dir, oldName(1)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first, current, kept)
	f.Add(first, []byte{}, []byte(nil))
	f.Add([]byte("{}\n"), []byte("{"), []byte{0xd2})
	f.Add([]byte{}, first, kept)
	f.Fuzz(func(t *testing.T, old, current, kept []byte) {
		dir := t.TempDir()
		if len(old) > 0 {
			os.WriteFile(filepath.Join(dir, oldName(1)), old, 0o600)
		}
		os.WriteFile(filepath.Join(dir, currentName), current, 0o600)
		r, err := Verify(dir, verifier(signer(1)), kept)
		if err != nil {
			return
		}
		l, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatalf("verified as %+v, and does not open: %v", r, err)
		}
		if n, h := l.Head(); r.Unfinished == 0 && (n != r.Records || h != r.Head) {
			t.Fatalf("verified %d, opened %d", r.Records, n)
		}
		l.Close()
	})
}
