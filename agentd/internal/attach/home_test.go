package attach

import (
	"net/netip"
	"testing"

	"agentgw/directory/arp"
)

// An agent whose gateway is gone goes to another one of its domain, and stays there, whatever that one names.
func TestAnAgentStaysWhereItHasGone(t *testing.T) {
	all := []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"}
	for _, n := range []int{2, 3} {
		c := &Client{cfg: Config{Gateway: all[0], KeepHome: func(Home) error { return nil }}}
		gone := ""
		attach := func() string {
			for range 10 {
				at, err := c.where(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if at == gone {
					c.tryNext()
					continue
				}
				l := &link{gateway: "AIC of " + at, address: at}
				for _, other := range all[:n] {
					if other != at && other != gone {
						p := netip.MustParseAddrPort(other)
						l.info.Gateways = append(l.info.Gateways, arp.GatewayAt{Addresses: []arp.HostPort{{Host: p.Addr().String(), Port: p.Port()}}})
					}
				}
				c.keepHome(l, 1, []byte("statement"))
				c.succeeded()
				return at
			}
			return "nowhere"
		}
		if at := attach(); at != all[0] {
			t.Fatalf("of %d gateways first at %s", n, at)
		}
		gone = all[0]
		second := attach()
		for range 5 {
			if at := attach(); at != second || at == gone {
				t.Errorf("of %d gateways, the first gone: at %s and then at %s", n, second, at)
			}
		}
	}
}
