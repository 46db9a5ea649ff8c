package secret

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadKey(t *testing.T) {
	dir := t.TempDir()
	raw := bytes.Repeat([]byte{0x8f}, 32)
	for name, c := range map[string]struct {
		content string
		want    []byte // nil: refused
	}{
		"32 octets":         {string(raw), raw},
		"24 octets":         {string(raw[:24]), raw[:24]},
		"16 octets":         {string(raw[:16]), raw[:16]},
		"64 digits":         {strings.Repeat("8F", 32) + "\n", raw},
		"32 digits":         {strings.Repeat("8f", 16), raw[:16]},
		"31 octets":         {string(raw[:31]), nil},
		"nothing":           {"", nil},
		"octets and a line": {string(raw) + "\n", nil},
	} {
		file := filepath.Join(dir, "key")
		if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadKey(file)
		if !bytes.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
		if err != nil && c.content != "" && strings.Contains(err.Error(), c.content) {
			t.Errorf("%s: the error has the content", name)
		}
	}
	if key, err := ReadKey(""); key != nil || err != nil {
		t.Errorf("no path: %x, %v", key, err)
	}
	if _, err := ReadKey(filepath.Join(dir, "absent")); err == nil {
		t.Error("an absent file is no key")
	}
}
