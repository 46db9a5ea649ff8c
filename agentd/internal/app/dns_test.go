package app

import (
	"slices"
	"testing"

	"agentgw/config"
	"agentgw/internal/discovery/discoverytest"
	"agentgw/internal/frame"
)

// An agent whose file names no address finds the gateway of its own domain, or of the one that is named, by the records for agents.
func TestGatewayByDNS(t *testing.T) {
	s := discoverytest.New(t, discoverytest.Records(t,
		`_dmsc-agw.home.example. 300 IN SVCB 1 agw.home.example. alpn="dmsc-agw/1,dmsc-ctl/1" port=4433`, `agw.home.example. 300 IN A 10.0.0.7`,
		`_dmsc-agw.peers.example. 300 IN SVCB 1 agw.home.example. alpn="dmsc-agw/1" port=4433`,
	))
	r := newResolver(config.Discovery{Servers: []string{s.Addr}})
	defer r.Close()
	for gateway, want := range map[string]string{"": "dns:home.example", "dns:home.example": "dns:home.example"} {
		name, find := gatewayOf(&config.LocalAgent{Gateway: gateway}, "home.example", r)
		if name != want || find == nil {
			t.Fatalf("%q: %q", gateway, name)
		}
		if at, err := find(t.Context()); err != nil || !slices.Equal(at, []string{"10.0.0.7:4433"}) {
			t.Errorf("%q: %v, %v", gateway, at, err)
		}
	}
	if _, find := gatewayOf(&config.LocalAgent{Gateway: "dns:peers.example"}, "home.example", r); find == nil {
		t.Error("it is an address")
	} else if at, err := find(t.Context()); frame.CodeOf(err) != frame.NotFound {
		t.Errorf("a gateway for peers only: %v, %v", at, err)
	}
	if name, find := gatewayOf(&config.LocalAgent{Gateway: "192.0.2.1:4433"}, "home.example", r); name != "192.0.2.1:4433" || find != nil {
		t.Errorf("an address: %q", name)
	}
}
