package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/internal/frame"
)

var start = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func signer(n byte) frame.Signer {
	seed := sha256.Sum256([]byte{n})
	return frame.NewSigner(ed25519.NewKeyFromSeed(seed[:]))
}

func verifier(s frame.Signer) Verifier {
	return VerifyBy(func(id frame.KeyID) (frame.VerifyKey, bool) {
		return frame.VerifyKey{Public: s.Public(), Owner: "1.2"}, id == s.KeyID()
	})
}

// shelf keeps checkpoints as a directory would.
type shelf struct {
	mu  sync.Mutex
	all [][]byte
}

func (s *shelf) keep(_ context.Context, raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, raw)
	return nil
}

func (s *shelf) newest() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return nil
	}
	return s.all[len(s.all)-1]
}

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	if cfg.Signer == nil {
		cfg.Signer = SignBy(signer(1))
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func record(t testing.TB, l *Log, n int) {
	t.Helper()
	if err := l.Record(t.Context(), "test.record", map[string]int{"i": n}); err != nil {
		t.Fatal(err)
	}
}

func shut(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// written is a folder with a log of n records, and the checkpoint that was kept.
func written(t testing.TB, n int, cfg Config) (dir string, kept []byte) {
	t.Helper()
	cfg.Dir = t.TempDir()
	var s shelf
	cfg.Keep = s.keep
	cfg.Now = func() time.Time { return start }
	l := open(t, cfg)
	for i := range n {
		record(t, l, i)
	}
	shut(t, l)
	return cfg.Dir, s.newest()
}

func whole(t testing.TB, dir string, kept []byte) Report {
	t.Helper()
	r, err := Verify(dir, verifier(signer(1)), kept)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lines(t testing.TB, dir, name string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")
}

func TestLinesHaveOneSpelling(t *testing.T) {
	dir, _ := written(t, 2, Config{})
	got := lines(t, dir, currentName)
	first := `{"n":1,"time":"2026-11-30T10:00:00Z","kind":"test.record","prev":"` + strings.Repeat("0", 64) + `","data":{"i":0}}` + "\n"
	if got[0] != first {
		t.Errorf("first line %s", got[0])
	}
	sum := sha256.Sum256([]byte(strings.TrimSuffix(first, "\n")))
	second := fmt.Sprintf(`{"n":2,"time":"2026-11-30T10:00:00Z","kind":"test.record","prev":"%x","data":{"i":1}}`+"\n", sum)
	if got[1] != second {
		t.Errorf("second line %s", got[1])
	}
	for name, bad := range map[string]string{
		"space":        strings.Replace(first, `,"kind"`, `, "kind"`, 1),
		"member twice": strings.Replace(first, `{"i":0}`, `{"i":1,"i":0}`, 1),
		"unknown":      strings.Replace(first, `"kind"`, `"x":1,"kind"`, 1),
		"other case":   strings.Replace(first, `"kind"`, `"KIND"`, 1),
		"not UTC":      strings.Replace(first, `00Z`, `00+00:00`, 1),
		"two objects":  strings.TrimSpace(first) + first,
		"data a list":  strings.Replace(first, `{"i":0}`, `[]`, 1),
		"no data":      strings.Replace(first, `{"i":0}`, `null`, 1),
		"upper hex":    strings.Replace(first, `"00`, `"0A`, 1),
		"kind":         strings.Replace(first, `test.record`, `Test`, 1),
	} {
		if _, err := parseLine([]byte(strings.TrimSuffix(bad, "\n"))); err == nil {
			t.Errorf("%s: %s parsed", name, bad)
		}
	}
}

func TestDataIsChecked(t *testing.T) {
	l := open(t, Config{Dir: t.TempDir()})
	for name, c := range map[string]struct {
		kind string
		data any
	}{
		"no kind": {"", nil}, "kind": {"A b", nil}, "own kind": {KindCheckpoint, nil}, "list": {"a", []int{1}}, "text": {"a", "x"},
		"channel": {"a", make(chan int)}, "too long": {"a", map[string]string{"x": strings.Repeat("y", MaxData)}},
	} {
		if err := l.Record(t.Context(), c.kind, c.data); err == nil {
			t.Errorf("%s: Record took it", name)
		}
		if err := l.RecordSoon(c.kind, c.data); err == nil {
			t.Errorf("%s: RecordSoon took it", name)
		}
	}
	if n, _ := l.Head(); n != 0 {
		t.Errorf("%d lines", n)
	}
}

func TestReopenGoesOn(t *testing.T) {
	var s shelf
	dir := t.TempDir()
	for range 3 {
		l := open(t, Config{Dir: dir, Keep: s.keep})
		for i := range 5 {
			record(t, l, i)
		}
		shut(t, l)
	}
	r := whole(t, dir, s.newest())
	if r.Records != 18 || r.Checkpoints != 3 || r.Sealed != 17 || r.Files != 1 {
		t.Errorf("%+v", r)
	}
	l := open(t, Config{Dir: dir})
	if n, h := l.Head(); n != 18 || h != r.Head {
		t.Errorf("head %d %x", n, h)
	}
	if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "stop that one first") {
		t.Errorf("second open: %v", err)
	}
	shut(t, l)
	shut(t, l)
	if err := l.Record(t.Context(), "a", nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := l.RecordSoon("a", nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if r := whole(t, dir, s.newest()); r.Records != 18 {
		t.Errorf("nothing was recorded, %d lines", r.Records)
	}
}

func TestCheckpointEvery256AndAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var s shelf
		l := open(t, Config{Dir: dir, Keep: s.keep})
		for i := range 256 {
			record(t, l, i)
		}
		synctest.Wait()
		if c, err := verifier(signer(1))(s.newest()); err != nil || c.Count != 256 {
			t.Fatalf("%+v %v", c, err)
		}
		time.Sleep(10 * time.Minute) // nothing is written: no checkpoints
		record(t, l, 256)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if c, err := verifier(signer(1))(s.newest()); err != nil || c.Count != 258 || len(s.all) != 2 {
			t.Fatalf("%+v %v, %d kept", c, err, len(s.all))
		}
		shut(t, l)
		if r := whole(t, dir, s.newest()); r.Records != 259 || r.Checkpoints != 2 || r.Sealed != 258 {
			t.Errorf("%+v", r)
		}
	})
}

func TestRecordSoonIsOnTheDiskWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Config{Dir: t.TempDir()})
		begin := time.Now()
		for range 100 {
			if err := l.RecordSoon("a", nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n, _ := l.Head(); n != 0 || time.Since(begin) != 0 {
			t.Fatalf("%d lines at once", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n, _ := l.Head(); n != 100 {
			t.Fatalf("%d lines after a second", n)
		}
		shut(t, l)
	})
}

func TestAnUnsignedLogHasNoCheckpoints(t *testing.T) {
	if SignBy(frame.Signer{}) != nil {
		t.Fatal("the zero signer signs")
	}
	dir := t.TempDir()
	l, err := Open(Config{Dir: dir, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	record(t, l, 1)
	shut(t, l)
	if r, err := Verify(dir, nil, nil); err != nil || r.Records != 1 || r.Checkpoints != 0 {
		t.Errorf("%+v %v", r, err)
	}
	signed, kept := written(t, 1, Config{})
	if _, err := Verify(signed, nil, kept); err == nil {
		t.Error("checkpoints without a key passed")
	}
}

func TestASignerThatFailsLosesNoRecord(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, Every: 1, Signer: noSigner{}})
	record(t, l, 1)
	shut(t, l)
	if r := whole(t, dir, nil); r.Records != 1 {
		t.Errorf("%+v", r)
	}
}

type noSigner struct{}

func (noSigner) Sign(Checkpoint) ([]byte, error) { return nil, errors.New("no key today") }

func TestHalfALineAfterACrash(t *testing.T) {
	for name, half := range map[string]string{"half a line": `{"n":5,"time":"2026`, "zeros": strings.Repeat("\x00", 3*MaxLine)} {
		dir, kept := written(t, 3, Config{})
		f, err := os.OpenFile(filepath.Join(dir, currentName), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(half)
		f.Close()
		if r := whole(t, dir, kept); r.Unfinished != int64(len(half)) || r.Records != 4 {
			t.Errorf("%s: %+v", name, r)
		}
		l := open(t, Config{Dir: dir})
		record(t, l, 1)
		shut(t, l)
		if r := whole(t, dir, kept); r.Unfinished != 0 || r.Records != 7 {
			t.Errorf("%s: %+v", name, r)
		}
		var said struct{ Octets int }
		Read(dir, 4, func(r Record) error {
			if r.Kind == KindRecovered {
				return json.Unmarshal(r.Data, &said)
			}
			return nil
		})
		if said.Octets != len(half) {
			t.Errorf("%s: the record says %+v", name, said)
		}
	}
}

func TestOpenRefusesADamagedEnd(t *testing.T) {
	dir, _ := written(t, 3, Config{})
	path := filepath.Join(dir, currentName)
	good, _ := os.ReadFile(path)
	for name, bad := range map[string]string{"last": string(good) + "{}\n", "first": "{}\n" + string(good), "long": string(good) + strings.Repeat("x", 2*MaxLine) + "\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(Config{Dir: dir})
		if err == nil {
			l.Close()
			t.Fatalf("%s: opened", name)
		}
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "evidence") {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(path); string(now) != bad {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestManyWritersShareOneChain(t *testing.T) {
	dir := t.TempDir()
	var s shelf
	l := open(t, Config{Dir: dir, Keep: s.keep, MaxBytes: 20_000})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				var err error
				if data := map[string]int{"w": w, "i": i}; i%2 == 0 {
					err = l.Record(t.Context(), "a", data)
				} else {
					err = l.RecordSoon("a", data)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	shut(t, l)
	r := whole(t, dir, s.newest())
	if int(r.Records) != 800+r.Checkpoints {
		t.Errorf("%+v", r)
	}
	next := map[int]int{}
	var last time.Time
	if err := Read(dir, 0, func(r Record) error {
		if r.Kind == KindCheckpoint {
			return nil
		}
		var d struct{ W, I int }
		if err := json.Unmarshal(r.Data, &d); err != nil {
			return err
		}
		if d.I != next[d.W] || r.Time.Before(last) {
			return fmt.Errorf("record %d of writer %d at %v, due is %d", d.I, d.W, r.Time, next[d.W])
		}
		next[d.W]++
		last = r.Time
		return nil
	}); err != nil {
		t.Error(err)
	}
}
