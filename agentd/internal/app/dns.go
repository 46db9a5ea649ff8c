package app

import (
	"context"
	"net/netip"

	"agentgw/config"
	"agentgw/internal/discovery"
	"agentgw/internal/frame"
	"agentgw/internal/safehttp"
)

// newResolver makes what finds the gateways of agents that name none. A domain's own gateway may well be in a private network.
func newResolver(cfg config.Discovery) *discovery.Resolver {
	mode, _ := discovery.ParseDNSSEC(cfg.DNSSEC) // the configuration was checked
	return discovery.New(discovery.Config{
		ALPN: frame.ALPNControl, Servers: cfg.Servers, DNSSEC: mode, Admit: func(ip netip.Addr) error { return safehttp.CheckAddr(ip, true) },
	})
}

// gatewayOf says what an agent's gateway is called, and how its address is found: nil where it is configured. Its own domain is the one that
// the credential is of.
func gatewayOf(c *config.LocalAgent, own string, r *discovery.Resolver) (name string, find func(context.Context) ([]string, error)) {
	domain, ok := config.GatewayDomain(c.Gateway)
	if !ok {
		return c.Gateway, nil
	}
	domain = or(domain, own)
	return "dns:" + domain, func(ctx context.Context) ([]string, error) {
		found, err := r.Find(ctx, domain)
		if err != nil {
			return nil, err
		}
		return found.Addresses(), found.Err
	}
}
