package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

func (g *gateway) addPeer(other *gateway, o PeerOptions) {
	g.t.Helper()
	o.Bundle, o.Replace = filepath.Join(other.dir, "state", fileBundle), true
	if _, err := AddPeer(g.cfg, o); err != nil {
		g.t.Fatal(err)
	}
	if err := g.app.ReloadPeers(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// eventually polls for what other goroutines bring about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func (g *gateway) peerState(domain string) admin.PeerRow {
	for _, p := range g.app.Peers() {
		if p.Domain == domain {
			return p
		}
	}
	return admin.PeerRow{}
}

// An agent that holds connections without attaching gives them back, and cannot hold many.
func TestIdleAgentConnections(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	_, cert := g.mustEnrol()
	dial := func() *endpoint.Conn {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := g.ep.Dial(ctx, g.cfg.Listen, frame.ALPNControl, "", endpoint.Credentials{
			Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var open []*endpoint.Conn
	for range 8 {
		open = append(open, dial())
	}
	codes := map[frame.Code]int{}
	for _, c := range open {
		select {
		case <-c.Context().Done():
			codes[frame.CodeOf(c.Err())]++
		case <-time.After(8 * time.Second):
			t.Fatal("a connection that never attached is still open")
		}
	}
	if codes[frame.Collision] != 4 || codes[frame.HelloTimeout] != 4 {
		t.Errorf("8 idle connections ended with %v, want 4 refused at once and 4 after 5 s", codes)
	}
}

func TestPeersExchangeDigests(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	done, _ := two.mustEnrol()
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	eventually(t, "digests of two.example at one.example", func() bool {
		return slices.ContainsFunc(one.app.Digests(), func(d admin.DigestRow) bool { return d.Domain == "two.example" && d.Label == "medicine" })
	})
	answer, err := one.app.Resolve(t.Context(), semreq.Ask{Query: semreq.Query{Text: "sore throat remedies"}})
	if err != nil || answer.Status == "OK" {
		t.Errorf("an agent that is not attached was offered: %+v %v", answer, err)
	}
	if err := two.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the withdrawal at one.example", func() bool {
		return !slices.ContainsFunc(one.app.Digests(), func(d admin.DigestRow) bool { return d.Domain == "two.example" && d.Label == "medicine" })
	})
	// A restart: new epoch, the peer comes back by itself.
	two.stop()
	eventually(t, "one.example sees two.example gone", func() bool { return one.peerState("two.example").State != "up" })
	two.start()
	eventually(t, "up again and acknowledged", func() bool {
		p := one.peerState("two.example")
		return p.State == "up" && p.Acked
	})
}

// Where the roles of two policy rows do not match, each operator is told: what the own row says, and what must be changed.
func TestBothSidesAreToldOfRolesThatDoNotMatch(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	one.addPeer(two, PeerOptions{Role: "customer", Addresses: []string{two.cfg.Listen}})
	two.addPeer(one, PeerOptions{Role: "peer"})
	for _, c := range []struct {
		g         *gateway
		peer, own string
	}{{one, "two.example", "customer"}, {two, "one.example", "peer"}} {
		told := func(text string) bool {
			return strings.Contains(text, "roles do not match") && strings.Contains(text, "the row for "+c.peer+" here says "+c.own) && strings.Contains(text, "--role")
		}
		eventually(t, c.g.cfg.Domain+" is told", func() bool { return told(c.g.peerState(c.peer).Error) })
		eventually(t, c.g.cfg.Domain+" logs it", func() bool { return told(c.g.logs.String()) })
	}
	two.addPeer(one, PeerOptions{Role: "provider"})
	eventually(t, "up", func() bool {
		return one.peerState("two.example").State == "up" && one.peerState("two.example").Error == ""
	})
}

func TestCase01ClientCertificateRejected(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}}) // two.example knows nothing of one.example
	eventually(t, "the refusal counted as a failed dial", func() bool {
		p := one.peerState("two.example")
		return p.State != "up" && strings.Contains(p.Error, "refused")
	})
	if n := len(two.app.Peers()); n != 0 {
		t.Errorf("two.example shows %d peers", n)
	}
}

func TestCase59RoleByALPN(t *testing.T) {
	t.Parallel()
	one, two := newGateway(t, "one.example"), newGateway(t, "two.example")
	two.addPeer(one, PeerOptions{Role: "peer"})
	done, agent := two.mustEnrol()
	dial := func(g *gateway, alpn string, cert tls.Certificate) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := g.ep.Dial(ctx, g.cfg.Listen, alpn, "", endpoint.Credentials{
			Certificate: cert, Verify: g.app.trust.Verify(x509.ExtKeyUsageServerAuth, func(identity.Peer) error { return nil }),
		})
		if err != nil {
			return err
		}
		defer c.Close(frame.OK, "")
		s, err := c.Open(ctx, frame.StreamControl)
		if err != nil {
			return err
		}
		_, _, err = s.ReadFrame(5 * time.Second) // the refusal comes after the dial has returned
		return err
	}
	if err := dial(two, frame.ALPNGateway, agent); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("an agent's certificate on the gateways' protocol, inbound: %v", err)
	}
	if err := dial(two, frame.ALPNControl, one.app.home.current()); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("a peer's gateway on the agents' protocol: %v", err)
	}
	if err := dial(two, frame.ALPNGateway, one.app.home.current()); frame.CodeOf(err) == frame.TrustDenied {
		t.Errorf("the peer's gateway on its own protocol: %v", err)
	}
	// Dialled: an agent that answers at the peer's address.
	impostor, err := endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Faces: []endpoint.Face{{
		ALPN: frame.ALPNGateway,
		Credentials: func(string) (endpoint.Credentials, error) {
			return endpoint.Credentials{Certificate: agent, Verify: func(tls.ConnectionState) error { return nil }}, nil
		},
		Serve: func(_ context.Context, c *endpoint.Conn) { <-c.Context().Done() },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer impostor.Close(t.Context())
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{impostor.Addr().String()}})
	eventually(t, "the impostor refused", func() bool {
		p := one.peerState("two.example")
		return p.State != "up" && strings.Contains(p.Error, done.AIC)
	})
}

func TestStartErrorsSayWhat(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "one.example")
	second := *g.cfg
	var cleanup daemon.Cleanup
	_, err := Start(t.Context(), &second, slog.New(slog.DiscardHandler), &cleanup)
	if err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("a second gateway on the same state: %v", err)
	}
	cleanup.Run()
	for _, file := range []string{fileBundle, fileGatewayKey, fileGatewayChain, pki.FileIssuingKey} {
		dir := t.TempDir()
		if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "state", file)); err != nil {
			t.Fatal(err)
		}
		if _, err := loadHome(&config.Gateway{StateDir: filepath.Join(dir, "state")}, time.Now()); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("without %s: %v", file, err)
		}
	}
	if _, err := Init(InitOptions{Dir: g.dir, Domain: "y.example"}); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("init over a domain that is there: %v", err)
	}
	if _, err := Init(InitOptions{Dir: t.TempDir(), Domain: "No Domain"}); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("init of no domain: %v", err)
	}
}

func TestARSPOfDomain(t *testing.T) {
	seen := map[string]string{}
	for i := range 2000 {
		d := fmt.Sprintf("d%d.example", i)
		a := aic.Index(d)
		if len(a) < 1 || len(a) > 6 || a[0] == '0' {
			t.Fatalf("%s: %q", d, a)
		}
		if other, ok := seen[a]; ok {
			t.Errorf("%s and %s share %s", d, other, a)
		}
		seen[a] = d
	}
}

func TestOwnCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	h, err := loadHome(&config.Gateway{StateDir: state}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before := h.current().Leaf.SerialNumber
	if err := h.renew(&config.Gateway{StateDir: state}, time.Now().Add(pki.DefaultLimits().Gateway*2/3)); err != nil {
		t.Fatal(err)
	}
	if h.current().Leaf.SerialNumber.Cmp(before) == 0 {
		t.Error("the certificate is the same after two thirds of its life")
	}
}

// The domain's CA is followed up at a start after a long rest too, and what it issues is of the roots that the bundle names.
func TestIssuingCARotatesWithTheGateway(t *testing.T) {
	dir := t.TempDir()
	if _, err := Init(InitOptions{Dir: dir, Domain: "x.example", Listen: "127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	for _, x := range []struct {
		days int
		want []pki.Action
	}{{1, nil}, {200, []pki.Action{pki.Prepared}}, {310, []pki.Action{pki.Activated}}, {800, []pki.Action{pki.Retired, pki.Prepared, pki.Activated, pki.Retired}}} {
		at := time.Now().AddDate(0, 0, x.days)
		h, err := loadHome(&config.Gateway{StateDir: state}, at)
		if err != nil {
			t.Fatalf("day %d: %v", x.days, err)
		}
		var got []pki.Action
		for _, e := range h.events {
			got = append(got, e.Action)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("day %d: %v, want %v", x.days, got, x.want)
		}
		if !h.authority.Root().Equal(h.authority.Roots()[0]) || !bytes.Equal(h.bundle.Roots[0], h.authority.Root().Raw) {
			t.Errorf("day %d: the CA is of a root that the bundle does not name", x.days)
		}
		trust, err := identity.NewTrust(h.bundle.Raw, func() time.Time { return at })
		if err != nil {
			t.Fatal(err)
		}
		var chain []*x509.Certificate
		for _, der := range h.current().Certificate {
			c, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			chain = append(chain, c)
		}
		if _, err := trust.VerifyChain(chain, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("day %d: %v", x.days, err)
		}
	}
}

func sha(b []byte) [32]byte { return sha256.Sum256(b) }

// Connections between gateways are made anew before the certificates of their ends end, and requests find a neighbour all the time.
func TestNeighboursOutliveTheirCertificates(t *testing.T) {
	t.Parallel()
	short := func(c *config.Gateway) { c.AMC.GatewayLife = config.Duration(4 * time.Second) }
	one, two := newGatewayWith(t, "one.example", short), newGatewayWith(t, "two.example", short)
	two.addPeer(one, PeerOptions{Role: "peer"})
	one.addPeer(two, PeerOptions{Role: "peer", Addresses: []string{two.cfg.Listen}})
	var first time.Time
	eventually(t, "the neighbours up", func() bool { // the session is up a moment before its connection is noted
		p := one.peerState("two.example")
		if p.State != "up" || p.Until == nil {
			return false
		}
		first = *p.Until
		return true
	})
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if p := one.peerState("two.example"); p.State != "up" || p.Until == nil {
			t.Fatalf("the neighbour is %s: %s", p.State, p.Error)
		}
	}
	if last := *one.peerState("two.example").Until; !last.After(first.Add(time.Second)) {
		t.Errorf("the connection's certificates end at %v, at first at %v", last, first)
	}
}
