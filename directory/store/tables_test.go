package store

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A table whose lengths do not add up is an error that says what to do, where Badger would panic in a goroutine of its own. One that the manifest does not
// name, such as a kill leaves unfinished, is no reason.
func TestTableOfWrongLengths(t *testing.T) {
	dir := t.TempDir()
	open := func() error {
		c, err := OpenCache(dir, 1, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return c.Close()
	}
	c, err := OpenCache(dir, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Update([]CacheWrite{{Key: "k", Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	unfinished := filepath.Join(dir, "009999.sst")
	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("a table that was not finished: %v", err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	b, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"empty":                 {},
		"three octets":          b[:3],
		"a checksum too long":   binary.BigEndian.AppendUint32(b[:len(b)-4:len(b)-4], 1<<31),
		"cut within its blocks": b[:len(b)/2],
	} {
		if err := os.WriteFile(tables[0], bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(); err == nil || !strings.Contains(err.Error(), "restore the folder from a backup") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(tables[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Errorf("whole again: %v", err)
	}
}
