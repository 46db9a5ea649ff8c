package peering

import (
	"slices"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// introduce takes a bundle that a neighbour introduces, or holds it until the operator approves it: the neighbour's row says
// which.
func (p *Peering) introduce(r *peer, raw []byte, b *identity.Accepted) (changed bool, err error) {
	if !r.AskFirst {
		changed, err = p.cfg.Trust.Introduce(raw, r.Domain, r.Introduces)
	} else {
		var held bool
		again := p.cfg.Trust.Waits(b.Domain)
		changed, held, err = p.cfg.Trust.Hold(raw, r.Domain, r.Introduces)
		if held && !again {
			p.log.Warn("introduced domain waits for approval: compare the fingerprint with its operator, then `gatewayd peer approve`",
				"domain", b.Domain, "from", r.Domain, "fingerprint", identity.FingerprintText(b.Fingerprint))
		}
	}
	switch held := p.cfg.Trust.Issuer(b.Issuer); {
	case !changed || err != nil:
	case held != nil && held.Source == identity.Vouched:
		if p.cfg.KeepIssuer != nil {
			p.cfg.KeepIssuer(held)
		}
	default:
		p.cfg.KeepPin(b.Domain, p.cfg.Trust.Domain(b.Domain))
	} // the pin of a domain that is disputed now stays: else a restart would believe whoever speaks first
	return changed, err
}

// Renew takes a newer bundle of a configured peer, wherever it came from: the bundle held vouches for it.
func (p *Peering) Renew(domain string, raw []byte) (changed bool, err error) {
	b, err := identity.ParseBundle(raw)
	if err != nil {
		return false, err
	}
	if b.Domain != domain {
		return false, frame.Errorf(frame.IdentityMismatch, "the bundle is of %s, not of %s", b.Domain, domain)
	}
	if lead := p.cfg.Trust.Domain(domain); lead != nil && lead.Issuer != b.Issuer {
		return p.vouch(b)
	}
	before := p.cfg.Trust.All()
	if changed, err = p.cfg.Trust.Renew(raw); changed {
		p.Distrusted(before) // issuers that it names no more
		p.log.Info("newer bundle of a peer", "domain", domain, "seq", b.Seq)
		if held := p.cfg.Trust.Domain(domain); held != nil && p.cfg.KeepBundle != nil {
			p.cfg.KeepBundle(domain, held)
		}
		p.news.broadcast()
		p.node.BundleAccepted()
	}
	return changed, err
}

// vouch takes the bundle of a further issuer of a domain that is trusted.
func (p *Peering) vouch(b *identity.Accepted) (changed bool, err error) {
	if changed, err = p.cfg.Trust.Vouch(b.Raw); !changed {
		return false, err
	}
	p.log.Info("bundle of a further issuer of a domain", "domain", b.Domain, "issuer", b.Issuer, "seq", b.Seq)
	if p.cfg.KeepIssuer != nil {
		p.cfg.KeepIssuer(b)
	}
	p.news.broadcast()
	p.node.BundleAccepted()
	return true, nil
}

// restore believes again what an earlier run accepted of a configured peer.
func (p *Peering) restore(domain string) {
	if p.cfg.KeptBundle == nil {
		return
	}
	if raw, root := p.cfg.KeptBundle(domain); raw != nil && p.cfg.Trust.Restore(raw, root) {
		p.log.Info("peer's bundle of an earlier run", "domain", domain, "seq", p.cfg.Trust.Domain(domain).Seq)
	}
}

// Rows are the policy rows, in no order.
func (p *Peering) Rows() (out []Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rows {
		out = append(out, r.Row)
	}
	return out
}

// Approve believes an introduced domain that waits, under the fingerprint that the operator compared.
func (p *Peering) Approve(domain string, fingerprint [32]byte) error {
	a, err := p.cfg.Trust.Approve(domain, fingerprint)
	if err != nil {
		return err
	}
	p.cfg.KeepPin(domain, a)
	p.log.Info("introduced domain approved", "domain", domain, "by", a.By, "fingerprint", identity.FingerprintText(fingerprint))
	p.news.broadcast()
	<-p.ready
	p.node.BundleAccepted()
	p.askAround(p.ctx, domain) // its status list was not taken while it waited
	return nil
}

// approveUnasked believes what waits although a row lets it in without asking now: the operator has changed the row.
func (p *Peering) approveUnasked() {
	for _, a := range p.cfg.Trust.Pending() {
		unasked := func(by string) bool {
			r := p.row(by)
			return r != nil && !r.AskFirst && identity.MayIntroduce(r.Introduces, a.Domain)
		}
		if !slices.ContainsFunc(a.By, unasked) {
			continue
		}
		if err := p.Approve(a.Domain, a.Fingerprint); err != nil {
			p.log.Warn("introduced domain is refused", "domain", a.Domain, "err", err)
		}
	}
}
