package topo

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// bypass adds a second transit domain between AG1 and AG2: gateway AG4.
//
//	AG1 ── ag14 ── AG4 ── ag42 ── AG2
func (w *world) bypass() *node {
	w.t.Helper()
	wires, err := NewWires()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(wires.Close)
	ag4 := newNode(w.t, filepath.Dir(w.ag1.dir), "AG4", "gatewayd")
	for name, ends := range map[string][2]Port{
		"ag14": {{w.ag1.Namespace, netip.MustParsePrefix("10.88.14.1/24")}, {ag4.Namespace, netip.MustParsePrefix("10.88.14.4/24")}},
		"ag42": {{w.ag2.Namespace, netip.MustParsePrefix("10.88.42.2/24")}, {ag4.Namespace, netip.MustParsePrefix("10.88.42.4/24")}},
	} {
		if _, err := wires.Connect(name, ends[0], ends[1]); err != nil {
			w.t.Fatal(err)
		}
	}
	ag4.must("init", "--dir", ag4.dir, "--domain", "bypass.example", "--listen", "0.0.0.0"+listen, "--advertise", "10.88.14.4:4433", "--lab")
	ag4.start()
	bundle := func(n *node) string { return filepath.Join(n.dir, "state", "bundle.cbor") }
	for n, at := range map[*node]string{w.ag1: "10.88.14.4", w.ag2: "10.88.42.4"} {
		ag4.must("peer", "add", "--bundle", bundle(n), "--role", "customer", "--transit")
		n.must("peer", "add", "--bundle", bundle(ag4), "--role", "provider", "--address", at+listen, "--introduces", "*.example", "--first-use", "auto")
	}
	for _, n := range []*node{ag4, w.ag1, w.ag2} {
		n.must("status", "--wait", "10s")
	}
	return ag4
}

// digest is one row of `gatewayd digests -o json`.
type digest struct {
	Domain string
	Path   []string
	Stale  bool
}

// heard is what a gateway has in its digest table of a domain.
func (n *node) heard(domain string) (out []digest) {
	n.t.Helper()
	var all []digest
	if err := json.Unmarshal([]byte(n.must("digests", "-o", "json")), &all); err != nil {
		n.t.Fatal(err)
	}
	for _, d := range all {
		if d.Domain == domain {
			out = append(out, d)
		}
	}
	return out
}

// by says through which neighbour's domain all that is heard of a domain comes, "" where they differ or there is nothing.
func (n *node) by(domain string) (via string) {
	for i, d := range n.heard(domain) {
		if i > 0 && via != d.Path[0] {
			return ""
		}
		via = d.Path[0]
	}
	return via
}

// TestCase02PeerKilledAndRestarted: the process of the gateway on the way is killed and comes back at once. Its neighbour learns by a
// stateless reset that the connection is gone, keeps what it has heard, and requests go the other way in the meantime.
func TestCase02PeerKilledAndRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ag4 := w.bypass()
	names := map[string]*node{"transit.example": w.ag3, "bypass.example": ag4}
	var via string
	until(t, 20*time.Second, "AG1 hears of the pharmacy", func() bool { via = w.ag1.by("pharmacy.example"); return via != "" })
	w.mustResolve()

	killed := names[via]
	killed.process.Kill()
	killed.start()
	until(t, 10*time.Second, "it runs again", func() bool { _, exit := killed.call("", "status"); return exit == 0 })
	began := time.Now()
	w.mustResolve() // the reset comes with the first packet; then the other way counts
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the request after the reset took %v", took)
	}
	other := w.ag1.by("pharmacy.example")
	if other == "" {
		t.Errorf("AG1 has forgotten the pharmacy: %+v", w.ag1.heard("pharmacy.example"))
	}
	t.Logf("requests went by %s, then by %s", via, other)
	until(t, 30*time.Second, "the killed gateway is a neighbour again", func() bool { return w.ag1.peerUp(via) && w.ag2.peerUp(via) })
	w.mustResolve()
	w.mustComplete()
}

// TestCase03PeerHostGone: the other host is gone without a word. Requests fail within their budget until the breaker keeps them from trying,
// the session ends with the hold timer, and what was heard is kept, marked, until the peer is back.
func TestCase03PeerHostGone(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what waits for the hold timer")
	}
	t.Parallel()
	w := newWorld(t)
	w.mustResolve()
	if err := w.ag32.Cut(); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	const budget = time.Second
	for n := range 5 { // distinct questions: one that has failed is not asked again for a while
		r, exit, took := w.resolve(fmt.Sprintf("%s number %d", sore, n), budget)
		if exit == 0 || !unreachable(r.Code) || took > budget+late {
			t.Errorf("request %d: exit %d after %v, %+v; want code 44 or 48 within %v", n, exit, took, r, budget)
		}
	}
	r, exit, took := w.resolve("lozenges against a cold", budget)
	if exit == 0 || !unreachable(r.Code) || took > budget/2+late {
		t.Errorf("with the breaker open: exit %d after %v, %+v; want code 48 at once", exit, took, r)
	}
	until(t, 45*time.Second-time.Since(cut), "AG3 no longer counts on AG2", func() bool { return !w.ag3.peerUp("pharmacy.example") })
	t.Logf("the session ended %v after the cut", time.Since(cut).Round(time.Millisecond))
	until(t, 5*time.Second, "what AG3 has heard of the pharmacy is kept, and marked", func() bool {
		heard := w.ag3.heard("pharmacy.example")
		for _, d := range heard {
			if !d.Stale {
				return false
			}
		}
		return len(heard) > 0
	})
	w.heal(sore, 25*time.Second)
}

// TestCase07AsymmetricPartition: what AG3 sends to AG2 is lost, and nothing of what AG2 sends. Neither may count on the other beyond the
// hold time, and both have to be back soon after the link is whole again.
func TestCase07AsymmetricPartition(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what waits for the hold timer")
	}
	t.Parallel()
	w := newWorld(t)
	w.mustResolve()
	if err := w.ag3.lose("ag32", netip.MustParseAddr("10.88.32.2")); err != nil {
		t.Fatal(err)
	}
	w.mustFail(2 * time.Second)
	const hold = 30 * time.Second
	until(t, hold+10*time.Second, "both ends have ended the session", func() bool {
		return !w.ag3.peerUp("pharmacy.example") && !w.ag2.peerUp("transit.example")
	})
	for range 10 { // and it stays so: a connection that is half there would come up at one end
		if w.ag3.peerUp("pharmacy.example") || w.ag2.peerUp("transit.example") {
			t.Fatal("a session is up over a link that carries one way")
		}
		time.Sleep(time.Second)
	}
	if err := w.ag3.findAgain("ag32", netip.MustParseAddr("10.88.32.2")); err != nil {
		t.Fatal(err)
	}
	w.heal(sore, 25*time.Second)
}

// lose has what the node sends to an address of a link go to an Ethernet address that nobody has: it is lost without a sign.
func (n *node) lose(link string, to netip.Addr) error {
	return n.neighbour(link, to, netlink.NeighSet, net.HardwareAddr{2, 0, 0, 0xde, 0xad, 1})
}

// findAgain undoes [node.lose].
func (n *node) findAgain(link string, to netip.Addr) error {
	return n.neighbour(link, to, netlink.NeighDel, nil)
}

func (n *node) neighbour(link string, to netip.Addr, do func(*netlink.Neigh) error, at net.HardwareAddr) error {
	return n.Do(func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		return do(&netlink.Neigh{LinkIndex: l.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, IP: to.AsSlice(), HardwareAddr: at})
	})
}
