package app

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

// newCluster is a domain of several gateways, the first of which is its AMC too.
func newCluster(t *testing.T, domain string, n int) (list []*gateway) {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "gossip.keys")
	if err := NewClusterKey(keys); err != nil {
		t.Fatal(err)
	}
	var gossip []string
	for range n {
		gossip = append(gossip, freeBoth(t))
	}
	tune := func(i int) func(*config.Gateway) {
		return func(c *config.Gateway) {
			c.Cluster = config.Cluster{Listen: gossip[i], Keys: keys, Seeds: gossip[:1]}
			if i == 0 {
				c.DNS = config.DNS{Listen: []string{"127.0.0.1:0"}, Zone: domain, Host: "gw1." + domain, Names: []string{"gw1." + domain},
					Addresses: []string{"127.0.0.1"}, TTL: config.Duration(time.Minute)}
			}
		}
	}
	list = append(list, newGatewayWith(t, domain, tune(0)))
	for i := 1; i < n; i++ {
		token, err := list[0].app.CreateToken(t.Context(), admin.TokenRequest{For: "gateway"})
		if err != nil {
			t.Fatal(err)
		}
		g := &gateway{t: t, dir: t.TempDir(), tune: tune(i)}
		if _, err := Join(t.Context(), JoinOptions{Dir: g.dir, Token: token.Token, Listen: freeAddr(t), Lab: true}); err != nil {
			t.Fatal(err)
		}
		g.start()
		g.dialler()
		list = append(list, g)
	}
	for _, g := range list {
		eventually(t, "the gateways are connected to each other", func() bool { return g.connected() == n-1 })
	}
	return list
}

// connected is how many gateways of its own domain a gateway has a session with.
func (g *gateway) connected() (n int) {
	rows, err := g.app.Members()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, m := range rows {
		if m.Session == "up" {
			n++
		}
	}
	return n
}

// What one gateway of a domain has, another finds and hands on to other domains; when one is gone, the others go on.
func TestGatewaysOfADomainFindEachOther(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 3)
	far := newGateway(t, "far.example")
	done, cert := list[0].mustEnrol()
	if _, err := list[0].attach(cert, &arp.Attach{AIC: done.AIC, BootID: make([]byte, 16), Grant: done.Grant}); err != nil {
		t.Fatal(err)
	}
	// The other domain is connected to the last of them only, and every gateway has its row.
	for _, g := range list {
		g.addPeer(far, PeerOptions{Role: "peer"})
	}
	far.addPeer(list[0], PeerOptions{Role: "peer", Addresses: []string{list[2].cfg.Listen}})
	ask := semreq.Ask{NoCache: true, Query: semreq.Query{Text: "sore throat remedies"}}
	finds := func(g *gateway) bool {
		out, err := g.app.Resolve(t.Context(), ask)
		return err == nil && out.Status == frame.OK.String() && out.Results[0].AIC == done.AIC
	}
	for _, g := range []*gateway{list[1], list[2], far} {
		eventually(t, "the agent is found from "+g.cfg.Domain, func() bool { return finds(g) })
	}

	// And the other way: the first gateway has the other domain's keys and status lists from the one that is connected to it.
	away, awayCert := far.mustEnrol()
	if _, err := far.attach(awayCert, &arp.Attach{AIC: away.AIC, BootID: make([]byte, 16), Grant: away.Grant}); err != nil {
		t.Fatal(err)
	}
	abroad := semreq.Ask{NoCache: true, Query: ask.Query, Constraints: semreq.Constraints{AllowDomains: []string{"far.example"}}}
	hears := func() string {
		out, err := list[0].app.Resolve(t.Context(), abroad)
		if err != nil || len(out.Results) == 0 {
			return ""
		}
		return out.Results[0].AIC
	}
	eventually(t, "an agent of the other domain is found", func() bool { return hears() == away.AIC })
	if err := far.app.SetStanding(t.Context(), admin.StandingRequest{AIC: away.AIC, State: "revoked"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not found any more", func() bool { return hears() == "" })
	eventually(t, "its revocation is known where it is not connected", func() bool { return list[0].app.statuses.Check(away.AIC, nil) != nil })

	list[1].stop()
	named := func() (n int) {
		for _, r := range list[0].app.names.Records() {
			if strings.Contains(r, " IN SVCB 1 ") {
				n++
			}
		}
		return n
	}
	eventually(t, "one is missed", func() bool {
		rows, err := list[0].app.Members()
		return err == nil && len(rows) == 2 && !slices.ContainsFunc(rows, func(m admin.Member) bool { return m.Gateway == string(list[1].app.home.gateway) })
	})
	if n := named(); n != 2 {
		t.Errorf("the domain's records name %d gateways of 2 that live", n)
	}
	if !finds(list[2]) || !finds(far) {
		t.Error("with one gateway gone the agent is not found")
	}
	list[1].start()
	eventually(t, "it is back", func() bool { return list[1].connected() == 2 && finds(list[1]) && named() == 3 })
}

// A peer domain that all three could dial is dialled by two of them; when one of these is gone the third takes its place.
func TestPeersAreSharedOutInADomain(t *testing.T) {
	t.Parallel()
	list := newCluster(t, "clinic.example", 3)
	far := newGateway(t, "far.example")
	far.addPeer(list[0], PeerOptions{Role: "peer"})
	for _, g := range list {
		g.addPeer(far, PeerOptions{Role: "peer", Addresses: []string{far.cfg.Listen}})
	}
	var gone *gateway
	holders := func() (out []*gateway) {
		for _, g := range list {
			if g != gone && g.peerState("far.example").State == "up" {
				out = append(out, g)
			}
		}
		return out
	}
	eventually(t, "two are connected", func() bool { return len(holders()) == 2 })
	gone = holders()[0]
	gone.stop()
	eventually(t, "two are again", func() bool { return len(holders()) == 2 })
}
