package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/internal/frame"
)

func TestDamageIsFoundAndNamed(t *testing.T) {
	rechain := func(ls []string, from int) []string { // what somebody without the key can do
		for i := from; i < len(ls); i++ {
			r, err := parseLine([]byte(strings.TrimSuffix(ls[i], "\n")))
			if err != nil {
				t.Fatal(err)
			}
			r.N, r.Prev = uint64(i+1), hashLine([]byte(strings.TrimSuffix(ls[i-1], "\n")))
			b, _ := appendLine(nil, r)
			ls[i] = string(b) + "\n"
		}
		return ls
	}
	for name, c := range map[string]struct {
		change func([]string) []string // of 10 records, checkpoints at 5 and 10 of them: lines 6 and 12
		line   int
		say    string
	}{
		"removed":            {func(l []string) []string { return append(l[:2:2], l[3:]...) }, 3, "1 record(s) before it were removed"},
		"removed first":      {func(l []string) []string { return l[1:] }, 1, "1 record(s) before it were removed"},
		"changed":            {func(l []string) []string { l[2] = strings.Replace(l[2], `"i":2`, `"i":3`, 1); return l }, 4, "record 3 or 4 was changed"},
		"garbled":            {func(l []string) []string { l[2] = "{\n"; return l }, 3, "was changed"},
		"empty line":         {func(l []string) []string { l[2] = "\n" + l[2]; return l }, 3, "was changed"},
		"too long":           {func(l []string) []string { l[2] = strings.Repeat("x", MaxLine) + "\n"; return l }, 3, "longer than"},
		"reordered":          {func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }, 3, "reordered"},
		"repeated":           {func(l []string) []string { l[2] += l[2]; return l }, 4, "repeated"},
		"rewritten":          {func(l []string) []string { l[2] = strings.Replace(l[2], `"i":2`, `"i":9`, 1); return rechain(l, 3) }, 6, "another state"},
		"checkpoint removed": {func(l []string) []string { return append(l[:5:5], l[6:]...) }, 6, "removed"},
		"unsealed and rewritten": {func(l []string) []string { // no checkpoint is left; only the kept one shows it
			l[2] = strings.Replace(l[2], `"i":2`, `"i":9`, 1)
			return rechain(append(append(l[:5:5], l[6:11]...), l[10]), 3)
		}, 11, "the tail after record 0 was cut or rewritten"},
		"cut":           {func(l []string) []string { return l[:8] }, 0, "the tail after record 8 was cut"},
		"cut in a line": {func(l []string) []string { return append(l[:8:8], l[8][:20]) }, 0, "the tail after record 8 was cut"},
		"emptied":       {func([]string) []string { return nil }, 0, "the tail after record 0 was cut"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, kept := written(t, 10, Config{Every: 5})
			whole(t, dir, kept)
			changed := c.change(lines(t, dir, currentName))
			if err := os.WriteFile(filepath.Join(dir, currentName), []byte(strings.Join(changed, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Verify(dir, verifier(signer(1)), kept)
			var damage *DamageError
			if !errors.As(err, &damage) || damage.Line != c.line || !strings.Contains(err.Error(), c.say) {
				t.Fatalf("got %v, want line %d: %s", err, c.line, c.say)
			}
			if c.line > 0 && !strings.Contains(err.Error(), fmt.Sprintf("%s, line %d", currentName, c.line)) {
				t.Errorf("%v does not say where", err)
			}
		})
	}
}

func TestCheckpointsOfAnotherKeyAreRefused(t *testing.T) {
	dir, kept := written(t, 3, Config{})
	if _, err := Verify(dir, verifier(signer(2)), nil); frame.CodeOf(err) != frame.Internal && !strings.Contains(err.Error(), "no accepted key") {
		t.Errorf("%v", err)
	}
	if _, err := Verify(dir, verifier(signer(2)), kept); err == nil {
		t.Error("kept checkpoint of another key passed")
	}
	other, err := signer(1).SignMessage(frame.AADGrant, "", wireCheckpoint{3, make([]byte, 32), 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier(signer(1))(other); frame.CodeOf(err) != frame.BadSignature {
		t.Errorf("a signature of another kind: %v", err)
	}
	for name, bad := range map[string]wireCheckpoint{"hash": {3, make([]byte, 31), 1}, "count": {0, make([]byte, 32), 1}, "time": {1, make([]byte, 32), 1 << 62}} {
		raw, err := signer(1).SignMessage(frame.AADAudit, "", bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := verifier(signer(1))(raw); frame.CodeOf(err) != frame.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVerifyBesideARotationCountsTheFileOnce(t *testing.T) {
	dir, kept := written(t, 3, Config{})
	if err := os.Link(filepath.Join(dir, currentName), filepath.Join(dir, oldName(1))); err != nil {
		t.Fatal(err)
	}
	if r := whole(t, dir, kept); r.Records != 4 {
		t.Errorf("%+v", r)
	}
}

func TestReachesKnowsTheMarkOfItsOwnLog(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir})
	record(t, l, 1)
	count, hash := l.Head()
	record(t, l, 2)
	shut(t, l)
	if err := Reaches(dir, count, hash); err != nil {
		t.Error(err)
	}
	if err := Reaches(dir, 0, [32]byte{}); err != nil {
		t.Error(err)
	}
	if err := Reaches(dir, count, [32]byte{1}); err == nil {
		t.Error("another log passed")
	}
	if err := Reaches(dir, 99, hash); err == nil {
		t.Error("a shorter log passed")
	}
	stop := errors.New("stop")
	if err := Read(dir, 0, func(Record) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// The mark that showed a cut is replaced while the daemon goes on; its record is what is left, in a rotated file too.
func TestRecordsOfDamageAreReported(t *testing.T) {
	dir := t.TempDir()
	l := open(t, Config{Dir: dir, MaxBytes: 10})
	record(t, l, 1)
	for range maxTold + 1 {
		if err := l.Record(t.Context(), KindDamaged, map[string]string{"what": "the tail was cut"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Record(t.Context(), KindReplaced, map[string]string{"why": "no line"}); err != nil {
		t.Fatal(err)
	}
	count, hash := l.Head()
	shut(t, l)
	r := whole(t, dir, nil)
	d := r.Damage()
	if r.Files < 3 || r.ToldCount != maxTold+2 || len(r.Told) != maxTold || d == nil {
		t.Fatalf("%+v", r)
	}
	for _, says := range []string{"record 2 (audit.damaged, ", "the tail was cut", fmt.Sprintf("%d more", maxTold+1)} {
		if !strings.Contains(d.Error(), says) {
			t.Errorf("%v does not say %q", d, says)
		}
	}
	if count != 11 {
		t.Errorf("%d records, %x", count, hash)
	}
}
