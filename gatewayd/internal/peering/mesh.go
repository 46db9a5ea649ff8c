package peering

import (
	"context"
	"maps"
	"slices"
	"time"

	"agentgw/cdsp/wire"
)

// Sibling is another gateway of the own domain, and where it is.
type Sibling struct {
	Gateway   string
	Addresses []string // host:port
}

// internal is the policy row of the own domain, whose gateways hear everything and may ask for anything. No operator writes it.
func (p *Peering) internal() Row {
	return Row{Domain: p.cfg.Domain, Role: roleInternal, MayQuery: []string{"*"}, Transit: true, Disclose: wire.LevelFull, Explain: true}
}

const roleInternal = "internal"

// siblingLater is how much later the gateway with the larger AIC dials: of two connections the one that the smaller dialled is kept.
const siblingLater = time.Second

// SetSiblings says which other gateways of the own domain are alive: this one keeps connected to each of them. One that is not named is not
// dialled any more; a connection to it goes on while it carries. It needs Config.Mesh.
func (p *Peering) SetSiblings(ctx context.Context, list []Sibling) error {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := maps.Clone(p.siblings)
	for _, s := range list {
		old := gone[s.Gateway]
		delete(gone, s.Gateway)
		if s.Gateway == p.cfg.Gateway || old != nil && slices.Equal(old.Addresses, s.Addresses) {
			continue
		}
		if old != nil {
			old.stop()
		}
		t := target{domain: p.cfg.Domain, gateway: s.Gateway}
		if len(s.Addresses) > 0 {
			t.where = func(context.Context) ([]string, error) { return s.Addresses, nil }
		}
		p.siblings[s.Gateway] = &sibling{s, p.startDialler(t)}
	}
	for gateway, s := range gone {
		s.stop()
		delete(p.siblings, gateway)
	}
	return nil
}

// sibling is another gateway of the own domain with its dialler.
type sibling struct {
	Sibling
	*dialler
}

// Connected says whether there is a session with a gateway.
func (p *Peering) Connected(gateway string) bool { return p.linkTo(gateway) != nil }

// TellMoved tells another gateway of the own domain, or with "" all that are connected, that an agent is at home here.
func (p *Peering) TellMoved(gateway string, m wire.Moved) {
	select {
	case <-p.ready:
		p.node.TellMoved(gateway, m)
	default: // whoever connects hears it then
	}
}

// introducer is the row by which a bundle counts that a gateway of the own domain passes on: that of the bundle's domain, else the only one that
// may introduce it here. Where several may, it does not say which of them has: each gateway believes what it hears from one of these itself. nil
// without such a row.
func (p *Peering) introducer(domain string) (only *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if domain == p.cfg.Domain {
		return nil
	}
	if r := p.rows[domain]; r != nil {
		return r
	}
	for _, r := range p.rows {
		if r.Role != roleInternal && speaksFor(r, domain) {
			if only != nil {
				return nil
			}
			only = r
		}
	}
	return only
}
