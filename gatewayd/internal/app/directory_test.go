package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/config"
)

// crash ends a gateway as a kill would: nothing is kept at the end.
func (g *gateway) crash() {
	g.t.Helper()
	file := g.app.snapshotFile()
	before, readErr := os.ReadFile(file)
	id, idErr := g.app.store.Meta(metaSnapshot)
	g.stop()
	if readErr != nil {
		os.Remove(file)
	} else if err := os.WriteFile(file, before, 0o600); err != nil {
		g.t.Fatal(err)
	}
	if idErr != nil {
		return
	}
	s, err := openStore(g.cfg, g.app.log)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := s.SetMeta(context.Background(), metaSnapshot, id); err != nil {
		g.t.Error(err)
	}
	if err := s.Close(); err != nil {
		g.t.Error(err)
	}
}

// loadedFrom starts a gateway again, and holds that its directory is whole.
func (g *gateway) loadedFrom(entries int) string {
	g.t.Helper()
	g.start()
	c, err := g.app.CheckDirectory(g.t.Context())
	if err != nil || len(c.Problems) > 0 || c.Entries != entries {
		g.t.Errorf("%+v, %v", c, err)
	}
	return c.Loaded
}

func TestASnapshotIsOfACleanStop(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("encrypted ", encrypted), func(t *testing.T) {
			g := newGatewayWith(t, "start.example", func(c *config.Gateway) {
				if !encrypted {
					return
				}
				c.EncryptionKey = filepath.Join(filepath.Dir(c.StateDir), "key")
				if err := os.WriteFile(c.EncryptionKey, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			t.Cleanup(func() { g.stop() })
			for n := range 10 {
				g.imports(false, sampleLine(t, g, n, nil))
			}
			g.stop()
			raw, err := os.ReadFile(g.app.snapshotFile())
			if err != nil || bytes.Contains(raw, []byte("Throat lozenges")) == encrypted {
				t.Errorf("a snapshot of %d octets, %v", len(raw), err)
			}
			if from := g.loadedFrom(10); from != fromSnapshot {
				t.Errorf("after a clean stop from %s", from)
			}
			g.crash() // nothing has changed: it is still of this state
			if from := g.loadedFrom(10); from != fromSnapshot {
				t.Errorf("after a crash without a change from %s", from)
			}
			g.imports(false, sampleLine(t, g, 10, nil))
			g.crash()
			if from := g.loadedFrom(11); from != fromEntries || !strings.Contains(g.logs.String(), "is not used") {
				t.Errorf("after a crash from %s", from)
			}
			g.stop()
			g.spoil(func(raw []byte) []byte { raw[len(raw)/2]++; return raw })
			if from := g.loadedFrom(11); from != fromEntries {
				t.Errorf("with a damaged one from %s", from)
			}
			g.stop()
			if from := g.loadedFrom(11); from != fromSnapshot {
				t.Errorf("after the next clean stop from %s", from)
			}
		})
	}
}

// spoil changes the snapshot of a stopped gateway.
func (g *gateway) spoil(change func([]byte) []byte) {
	g.t.Helper()
	raw, err := os.ReadFile(g.app.snapshotFile())
	if err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(g.app.snapshotFile(), change(raw), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// A restored database has as many changes as it once had, and others perhaps: the snapshot of before is not its own.
func TestNoSnapshotAfterARestore(t *testing.T) {
	g := newGateway(t, "start.example")
	g.imports(false, sampleLine(t, g, 0, nil))
	file := g.backup(t)
	g.imports(false, sampleLine(t, g, 1, nil))
	g.stop()
	newest, err := os.ReadFile(g.app.snapshotFile())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadGateway(filepath.Join(g.dir, "gatewayd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(cfg, RestoreOptions{File: file}, g.app.log); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(g.app.snapshotFile()); err == nil {
		t.Error("the snapshot stayed where it was")
	}
	g.start()
	g.imports(false, sampleLine(t, g, 2, nil)) // the second change, as the other one was
	g.crash()
	if err := os.WriteFile(g.app.snapshotFile(), newest, 0o600); err != nil {
		t.Fatal(err)
	}
	if from := g.loadedFrom(2); from != fromEntries {
		t.Errorf("started from another database's %s", from)
	}
}

// What was changed behind the registry's back is found.
func TestCheckNamesWhatDiffers(t *testing.T) {
	g := newGateway(t, "start.example")
	g.imports(false, sampleLine(t, g, 0, nil))
	e, err := g.app.registry.Get(sampleAIC(t, g, 0))
	if err != nil {
		t.Fatal(err)
	}
	e.Version++
	if err := g.app.store.Put(t.Context(), e, e.Version-1); err != nil { // behind the registry's back
		t.Fatal(err)
	}
	c, err := g.app.CheckDirectory(t.Context())
	if err != nil || len(c.Problems) == 0 {
		t.Errorf("%+v, %v", c, err)
	}
}
