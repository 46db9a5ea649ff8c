package app

import (
	"slices"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// A replaced signing key is published long before it signs, and the one before it is verified long after; every bundle on the
// way is accepted by somebody who held the one before. The process may be killed at any step.
func TestSigningKeysTurn(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	cfg, at := &config.Gateway{StateDir: dir + "/state"}, time.Now()
	load := func() *home {
		t.Helper()
		h, err := loadHome(cfg, at)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := load()
	reader, err := identity.NewTrust(h.bundle.Raw, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	follow := func(raw []byte, err error) bool {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if raw == nil {
			return false
		}
		if _, err := reader.RenewOwn(raw); err != nil {
			t.Fatalf("a reader refuses the next bundle: %v", err)
		}
		return true
	}
	known := func(use identity.Use, kid frame.KeyID) bool {
		_, ok := reader.Keys(wireUse(use))(kid)
		return ok
	}
	before := map[identity.Use]frame.KeyID{}
	for use := range signers {
		before[use] = h.signer(use)().KeyID()
	}
	if follow(h.renewBundle(at, false)) {
		t.Error("a young key was replaced")
	}
	if !follow(h.renewBundle(at, true)) {
		t.Fatal("no successor was published")
	}
	for use := range signers {
		if now := h.signer(use)().KeyID(); now != before[use] {
			t.Errorf("the new key %s signs before anybody can know it", signers[use])
		}
	}
	h = load() // killed, started
	at = at.Add(2 * bundleRefresh)
	if follow(h.renewBundle(at, false)) {
		t.Error("the successors take over before three refreshes")
	}
	at = at.Add(bundleRefresh + 2*identity.NotBeforeSlack)
	if !follow(h.renewBundle(at, false)) {
		t.Fatal("the successors do not take over")
	}
	h = load()
	for use := range signers {
		now := h.signer(use)().KeyID()
		if now == before[use] || !known(use, now) {
			t.Errorf("key %s: replaced %v, known to readers %v", signers[use], now != before[use], known(use, now))
		}
		if !known(use, before[use]) {
			t.Errorf("what the old key %s has signed counts no more", signers[use])
		}
	}
	if !follow(h.renewBundle(at, true)) { // signed by the new key of use 5
		t.Error("a second turn does not begin")
	}
	at = at.Add(overlap + time.Hour)
	if !follow(h.renewBundle(at, false)) {
		t.Error("nothing changes when the old keys end")
	}
	for use, kid := range before {
		if known(use, kid) {
			t.Errorf("the old key %s is believed for ever", signers[use])
		}
	}
}

// A folder of before there were keys for status lists and audit logs gets them, and publishes them.
func TestOlderFolderGetsItsNewKeys(t *testing.T) {
	g := newGateway(t, "x.example")
	if len(g.app.trust.Own().Keys) != len(signers) {
		t.Errorf("%d keys are published", len(g.app.trust.Own().Keys))
	}
	if err := g.app.RotateKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(g.app.trust.Own().Keys); n != 2*len(signers) {
		t.Errorf("%d keys are published after a turn has begun", n)
	}
}

// An operator can see how far the replacement of a key is: what signs, what is published since when, and when it takes over.
func TestKeysAreListedWhileTheyTurn(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Truncate(time.Second)
	h, err := loadHome(&config.Gateway{StateDir: dir + "/state"}, at)
	if err != nil {
		t.Fatal(err)
	}
	states := func() (out []string) {
		t.Helper()
		for _, r := range h.keys.list(&h.bundle.Bundle) {
			if r.Use == "session tokens" {
				out = append(out, r.State)
			}
			if r.Published == nil || r.Use == "" || len(r.Key) != 16 {
				t.Errorf("%+v", r)
			}
		}
		return out
	}
	if got := states(); !slices.Equal(got, []string{"signs"}) {
		t.Errorf("at first %v", got)
	}
	if n := len(h.keys.list(&h.bundle.Bundle)); n != len(signers) {
		t.Errorf("%d keys of %d are listed", n, len(signers))
	}
	if _, err := h.renewBundle(at, true); err != nil {
		t.Fatal(err)
	}
	if got := states(); !slices.Equal(got, []string{"signs", "next"}) {
		t.Errorf("begun: %v", got)
	}
	next := h.keys.list(&h.bundle.Bundle)[1]
	if next.State != "next" || next.Then == nil || !next.Published.Equal(at) {
		t.Fatalf("%+v", next)
	}
	for _, early := range []time.Duration{time.Second, 0} { // the time that is told is that of the change
		if _, err := h.renewBundle(next.Then.Add(-early), false); err != nil {
			t.Fatal(err)
		}
		want := map[bool][]string{true: {"signs", "next"}, false: {"signs", "replaced"}}[early > 0]
		if got := states(); !slices.Equal(got, want) {
			t.Errorf("%v before it is due: %v", early, got)
		}
	}
}
