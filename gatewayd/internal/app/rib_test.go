package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

func (g *gateway) hears(domain, label string) bool {
	return slices.ContainsFunc(g.app.Digests(), func(d admin.DigestRow) bool { return d.Domain == domain && d.Label == label })
}

// Row 4, of the one that restarts: it knows what its peers told it before anybody is connected, says how much of it, and a request that only a peer can
// answer goes there as soon as it is up. Where the database is damaged, or of another gateway, it starts all the same.
func TestCase04RestartKnowsWhatPeersTold(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	two.mustEnrol()
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	eventually(t, "digests", func() bool { return one.hears("two.example", "medicine") && one.peerState("two.example").Acked })
	rib := filepath.Join(one.cfg.StateDir, dirRIB)
	one.stop()
	two.stop() // nobody is there to tell it again
	one.start()
	eventually(t, "what was kept", func() bool { return one.hears("two.example", "medicine") })
	if s := one.app.Status(); s.Restored == 0 || s.Peers[0].State != "stale" || s.Peers[0].Entries != s.Restored {
		t.Errorf("restored %d, peers %+v", s.Restored, s.Peers)
	}
	for _, d := range one.app.Digests() {
		if d.Domain == "two.example" && !d.Stale {
			t.Errorf("%s is not stale", d.Label)
		}
	}
	two.start()
	eventually(t, "up again", func() bool {
		p := one.peerState("two.example")
		return p.State == "up" && p.Acked && one.hears("two.example", "medicine")
	})
	if answer, err := one.app.Resolve(t.Context(), semreq.Ask{Query: semreq.Query{Text: "sore throat remedies"}}); err != nil {
		t.Errorf("%+v %v", answer, err)
	}
	for _, c := range []struct {
		name  string
		spoil func()
	}{
		{"damaged", func() {
			tables, _ := filepath.Glob(filepath.Join(rib, "*.sst"))
			if len(tables) == 0 {
				t.Fatal("no tables")
			}
			if err := os.Truncate(tables[0], 100); err != nil {
				t.Fatal(err)
			}
		}},
		{"no folder", func() {
			if err := os.RemoveAll(rib); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(rib, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		one.stop()
		c.spoil()
		one.start()
		eventually(t, c.name+": told again", func() bool { return one.hears("two.example", "medicine") })
		if s := one.app.Status(); s.Restored != 0 {
			t.Errorf("%s: %d restored", c.name, s.Restored)
		}
	}
	if log := one.logs.String(); !strings.Contains(log, "is moved aside") {
		t.Error("nothing was moved aside")
	}
}

// A peer whose row is gone while the gateway is down is nobody's at the next start, nor is what it told; and a restored gateway has none of it.
func TestWhatPeersToldGoesWithThem(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	two.mustEnrol()
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	eventually(t, "digests", func() bool { return one.hears("two.example", "medicine") && one.peerState("two.example").Acked })
	backup := filepath.Join(t.TempDir(), "backup")
	if _, err := one.app.Backup(t.Context(), admin.BackupRequest{File: backup}); err != nil {
		t.Fatal(err)
	}
	one.stop()
	rows, err := filepath.Glob(filepath.Join(one.cfg.PeersDir, "*.yaml"))
	if err != nil || len(rows) != 1 {
		t.Fatalf("rows %v %v", rows, err)
	}
	aside := filepath.Join(t.TempDir(), "row")
	if err := os.Rename(rows[0], aside); err != nil {
		t.Fatal(err)
	}
	one.start()
	if s := one.app.Status(); s.Restored != 0 || one.hears("two.example", "medicine") {
		t.Errorf("without a row %d are restored", s.Restored)
	}
	one.stop()
	if err := os.Rename(aside, rows[0]); err != nil {
		t.Fatal(err)
	}
	two.stop()
	one.start()
	if s := one.app.Status(); s.Restored != 0 {
		t.Errorf("%d are restored that should have been forgotten", s.Restored)
	}
	one.stop()
	two.start()
	one.start()
	eventually(t, "digests again", func() bool { return one.hears("two.example", "medicine") && one.peerState("two.example").Acked })
	one.stop()
	if _, err := Restore(one.cfg, RestoreOptions{File: backup}, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(one.cfg.StateDir, dirRIB+"*")); len(left) != 0 {
		t.Errorf("after a restore there are %v", left)
	}
}

// Two domains that only a hub joins: the asker's gateway, and then the hub, restart. What was kept of the far domain, whose bundle is believed only when the hub
// introduces it again, is of use as soon as that has happened; while the hub is away the asker goes on holding what it told.
func TestRestartTwoHopsAway(t *testing.T) {
	t.Parallel()
	home, hub, far := newGateway(t, "home.example"), newGateway(t, "hub.example"), newGateway(t, "far.example")
	done, cert := far.mustEnrol()
	if _, err := far.attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		t.Fatal(err)
	}
	hub.addPeer(home, PeerOptions{Role: "customer", Transit: true})
	hub.addPeer(far, PeerOptions{Role: "customer", Transit: true})
	for _, g := range []*gateway{home, far} {
		g.addPeer(hub, PeerOptions{Role: "provider", Addresses: []string{hub.cfg.Listen}, Introduces: []string{"*.example"}, FirstUse: "auto"})
	}
	ask := semreq.Ask{Query: semreq.Query{Text: "sore throat remedies"}}
	answers := func(when string) {
		t.Helper()
		eventually(t, "an answer "+when, func() bool {
			out, err := home.app.Resolve(t.Context(), ask)
			return err == nil && out.Status == frame.OK.String() && len(out.Results) > 0
		})
	}
	answers("at first")
	eventually(t, "all acknowledged", func() bool { return home.peerState("hub.example").Acked && hub.peerState("home.example").Acked })
	entries := home.peerState("hub.example").Entries
	home.stop()
	home.start()
	if got := home.app.Status().Restored; got != entries {
		t.Errorf("%d of %d entries are restored", got, entries)
	}
	answers("after the asker's restart")
	hub.stop()
	if !home.hears("far.example", "medicine") {
		t.Error("home has forgotten far.example with the hub away")
	}
	hub.start()
	if hub.app.Status().Restored == 0 {
		t.Error("the hub has nothing kept")
	}
	eventually(t, "the hub up again", func() bool {
		if !home.hears("far.example", "medicine") {
			t.Fatal("home has forgotten far.example while the hub came back")
		}
		p := home.peerState("hub.example")
		return p.State == "up" && p.Acked
	})
	answers("after the hub's restart")
}
