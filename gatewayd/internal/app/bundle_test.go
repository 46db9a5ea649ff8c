package app

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/gatewayd/internal/peering"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// peerOnPaper makes a domain that exists as a bundle only, and a gateway's files with a row for it.
func peerOnPaper(t *testing.T) (*config.Gateway, *identitytest.Domain) {
	t.Helper()
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "home.example", Listen: freeAddr(t), Lab: true}); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadGateway(filepath.Join(dir, "gatewayd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d := identitytest.New(t, "peer.example", "P1")
	if _, err := AddPeer(cfg, PeerOptions{Bundle: bundleFile(t, d.Raw), Role: "peer"}); err != nil {
		t.Fatal(err)
	}
	return cfg, d
}

func bundleFile(t *testing.T, raw []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "b.cbor")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// next is the domain's bundle one further; change may alter it, and names who signs.
func next(t *testing.T, d *identitytest.Domain, seq uint64, signer frame.Signer, change func(*identity.Bundle)) []byte {
	t.Helper()
	b := *d.Bundle
	b.Seq = seq
	if change != nil {
		change(&b)
	}
	raw, err := b.Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestBundleShow(t *testing.T) {
	_, d := peerOnPaper(t)
	v, err := ShowBundle(bundleFile(t, d.Raw))
	if err != nil {
		t.Fatal(err)
	}
	if v.Domain != d.Name || v.Seq != 1 || v.Issuer != string(d.Issuer) || len(v.Keys) != 6 || len(v.Roots) != 1 || v.Keys[0].Use != "digests and results" ||
		v.Keys[0].NotAfter.Before(time.Now()) || !strings.HasPrefix(v.Fingerprint, "sha256:") || v.Gateways[0] != string(d.Gateway) {
		t.Errorf("%+v", v)
	}
	if _, err := ShowBundle(bundleFile(t, []byte("nonsense"))); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("no bundle: %v", err)
	}
}

func TestBundleImport(t *testing.T) {
	cfg, d := peerOnPaper(t)
	other := identitytest.New(t, "peer.example", "P2") // the same name, another's keys
	stranger := identitytest.New(t, "stranger.example", "S1")
	renewed := other.Sign[identity.UseBundle]
	both := func(b *identity.Bundle) {
		b.Keys = append(b.Keys[:len(b.Keys):len(b.Keys)], identity.NewBundleKey(renewed, d.Issuer, identity.UseBundle, time.Now(), time.Hour))
	}
	for name, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"another's bundle": {other.SignBundle(t, func() *identity.Bundle { b := *other.Bundle; b.Seq = 9; return &b }()), "not signed under a key of the bundle held"},
		"no peer":          {stranger.Raw, "no configured peer"},
		"not newer":        {next(t, d, 1, d.Sign[identity.UseBundle], func(b *identity.Bundle) { b.RefreshS = 301 }), "not above"},
		"new key at once":  {next(t, d, 2, renewed, both), "not signed under a key of the bundle held"},
	} {
		if _, err := ImportBundle(cfg, bundleFile(t, c.raw), ""); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	two := next(t, d, 2, d.Sign[identity.UseBundle], both)
	if _, err := ImportBundle(cfg, bundleFile(t, two), "sha256:"+strings.Repeat("00", 32)); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("under another fingerprint: %v", err)
	}
	for i, want := range []bool{true, false} {
		done, err := ImportBundle(cfg, bundleFile(t, two), "")
		if err != nil || done.Changed != want {
			t.Fatalf("import %d: %+v %v", i+1, done, err)
		}
	}
	three, err := ImportBundle(cfg, bundleFile(t, next(t, d, 3, renewed, both)), "") // the second names the key that signs the third
	if err != nil || !three.Changed {
		t.Fatal(three, err)
	}
	row, err := config.LoadPeer(filepath.Join(cfg.PeersDir, "peer.example.yaml"))
	if err != nil || row.Fingerprint != three.Fingerprint || row.Role != "peer" {
		t.Errorf("row %+v, %v", row, err)
	}
	if trust, err := trustOfFiles(cfg, ""); err != nil || trust.Domain("peer.example").Seq != 3 {
		t.Errorf("the files do not hold together: %v", err)
	}
}

// A row's URL brings the newer bundle; what the bundle held does not vouch for changes nothing.
func TestBundleIsFetched(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "home.example")
	d := identitytest.New(t, "peer.example", "P1")
	stranger := identitytest.New(t, "peer.example", "P2")
	var served atomic.Pointer[[]byte]
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(*served.Load()) }))
	defer web.Close()
	if _, err := AddPeer(g.cfg, PeerOptions{Bundle: bundleFile(t, d.Raw), Role: "peer", BundleURL: web.URL + "/bundle"}); err != nil {
		t.Fatal(err)
	}
	if err := g.app.ReloadPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		raw  []byte
		seq  uint64
		code frame.Code
	}{
		{stranger.SignBundle(t, func() *identity.Bundle { b := *stranger.Bundle; b.Seq = 9; return &b }()), 1, frame.TrustDenied},
		{identitytest.New(t, "else.example", "E1").Raw, 1, frame.IdentityMismatch},
		{next(t, d, 2, d.Sign[identity.UseBundle], nil), 2, frame.OK},
		{d.Raw, 2, frame.OK}, // older: changes nothing
	} {
		served.Store(&c.raw)
		var got error
		f := g.app.newFetcher()
		f.round(t.Context(), func(_ string, _ bool, err error) { got = err })
		if seq := g.app.trust.Domain("peer.example").Seq; seq != c.seq || frame.CodeOf(got) != c.code {
			t.Errorf("bundle %d is held, want %d; %v", seq, c.seq, got)
		}
	}
}

// Fetching keeps to the domain's own pace, within bounds, and forgets rows that are gone.
func TestFetchIsDue(t *testing.T) {
	rows := []peering.Row{{Domain: "a.example", BundleURL: "https://a.example/b"}, {Domain: "b.example"}}
	f := &fetcher{rows: func() []peering.Row { return rows }, every: func(string) time.Duration { return time.Second }, last: map[string]fetched{}}
	now := time.Now()
	if due := f.due(now); len(due) != 1 || due[0].Domain != "a.example" {
		t.Fatalf("due %v", due)
	}
	f.keep(rows[0], errors.New("unreachable"))
	if len(f.due(now.Add(50*time.Second))) != 0 || len(f.due(now.Add(70*time.Second))) != 1 {
		t.Error("a domain that wants to be asked each second is asked more often than each minute, or never")
	}
	if last, ok := f.of("a.example"); !ok || last.Err == nil {
		t.Errorf("last %+v", last)
	}
	rows[0].BundleURL = "https://www.a.example/b"
	if len(f.due(now)) != 1 {
		t.Error("another URL waits for the old one's time")
	}
	rows = nil
	f.due(now)
	if _, ok := f.of("a.example"); ok {
		t.Error("a row that is gone is remembered")
	}
}

// A peer that has changed the key which signs its bundles twice is known after a restart, although the operator's copy vouches for
// neither; a new copy of the operator's counts before what was kept.
func TestRenewedBundleOutlivesARestart(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "home.example")
	d := identitytest.New(t, "peer.example", "P1")
	second := identitytest.New(t, "peer.example", "P2").Sign[identity.UseBundle]
	third := identitytest.New(t, "peer.example", "P3").Sign[identity.UseBundle]
	names := func(signers ...frame.Signer) func(*identity.Bundle) {
		return func(b *identity.Bundle) {
			b.Keys = slices.DeleteFunc(slices.Clone(b.Keys), func(k identity.BundleKey) bool { return k.Use == identity.UseBundle })
			for _, s := range signers {
				b.Keys = append(b.Keys, identity.NewBundleKey(s, d.Issuer, identity.UseBundle, time.Now(), time.Hour))
			}
		}
	}
	if _, err := AddPeer(g.cfg, PeerOptions{Bundle: bundleFile(t, d.Raw), Role: "peer"}); err != nil {
		t.Fatal(err)
	}
	if err := g.app.ReloadPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := d.Sign[identity.UseBundle]
	for _, raw := range [][]byte{next(t, d, 2, first, names(first, second)), next(t, d, 3, second, names(second, third)), next(t, d, 4, third, names(third))} {
		if changed, err := g.app.peers.Renew("peer.example", raw); !changed || err != nil {
			t.Fatal(changed, err)
		}
	}
	g.stop()
	g.start()
	if seq := g.app.trust.Domain("peer.example").Seq; seq != 4 {
		t.Errorf("after a restart bundle %d is believed", seq)
	}
	other := identitytest.New(t, "peer.example", "P1")
	other.Bundle.Seq = 1
	other.Bundle.Issued++
	if _, err := AddPeer(g.cfg, PeerOptions{Bundle: bundleFile(t, other.SignBundle(t, other.Bundle)), Role: "peer", Replace: true}); err != nil {
		t.Fatal(err)
	}
	g.stop()
	g.start()
	if seq := g.app.trust.Domain("peer.example").Seq; seq != 1 {
		t.Errorf("what was kept (bundle %d) counts more than the operator's new copy", seq)
	}
	if err := RemovePeer(g.cfg, "peer.example"); err != nil {
		t.Fatal(err)
	}
	if err := g.app.ReloadPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if raw, _ := g.app.keptBundle("peer.example"); raw != nil {
		t.Error("what was kept stays after the peer was removed")
	}
}
