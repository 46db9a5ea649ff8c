package peering

import (
	"context"
	"slices"

	"golang.org/x/time/rate"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// toldTo are the bundles that a neighbouring domain is told of: those of our own domain, and where its row says transit those of
// the peers that the operator configured. A domain's trusted bundle comes before those that it vouches for.
func (p *Peering) toldTo(domain string) (out []*identity.Accepted) {
	r := p.row(domain)
	var lead *identity.Accepted // of the domain that is looked at; those that it vouches for are behind it
	for _, a := range p.cfg.Trust.All() {
		if a.Source != identity.Vouched {
			lead = a
		}
		transit := r != nil && r.Transit && a.Domain != domain && lead.Source == identity.Configured
		inside := r != nil && r.Role == roleInternal // a gateway that is not connected to a peer itself hears of its keys from those that are
		if a.Domain == p.cfg.Domain || transit || inside {
			out = append(out, a)
		}
	}
	return out
}

// statusesFor are the status lists that a neighbour is told of: those of the bundles that it is told of.
func (p *Peering) statusesFor(domain string) [][]byte {
	if p.cfg.Statuses == nil {
		return nil
	}
	var out [][]byte
	for _, a := range p.toldTo(domain) {
		out = append(out, p.cfg.Statuses.Raw(a.Issuer)...)
	}
	return out
}

// onTrustGet answers what a neighbour asks for, as far as it is told of that domain anyway.
func (p *Peering) onTrustGet(_, domain string, get *wire.TrustGet) (bundles, statuses [][]byte) {
	for _, a := range p.toldTo(domain) {
		if a.Domain != get.Domain {
			continue
		}
		have := *get
		if have.Issuer != "" && have.Issuer != a.Issuer { // each is asked for by itself
			continue
		}
		if a.Seq > have.BundleSeq {
			bundles = append(bundles, a.Raw)
		}
		if p.cfg.Statuses == nil {
			continue
		}
		if seq, _ := p.cfg.Statuses.Held(a.Issuer); seq > have.StatusSeq {
			statuses = append(statuses, p.cfg.Statuses.Raw(a.Issuer)...)
		}
	}
	return bundles, statuses
}

// held is what this gateway holds of an issuer.
func (p *Peering) held(a *identity.Accepted) wire.TrustVersion {
	v := wire.TrustVersion{Issuer: a.Issuer, BundleSeq: a.Seq}
	if p.cfg.Statuses != nil {
		v.StatusSeq, _ = p.cfg.Statuses.Held(a.Issuer)
	}
	return v
}

// trustTold is what a neighbour hears of what is held here: of its own issuers, and of ours.
func (p *Peering) trustTold(domain string) (out []wire.TrustVersion) {
	theirs, ours := p.cfg.Trust.Issuers(domain), p.cfg.Trust.Issuers(p.cfg.Domain)
	for i := range max(len(theirs), len(ours)) { // both sides' first ones have a place in any case
		for _, list := range [][]*identity.Accepted{theirs, ours} {
			if i < len(list) && len(out) < wire.MaxTrust {
				out = append(out, p.held(list[i]))
			}
		}
	}
	return out
}

// HoldsOfOurs is what a neighbouring domain said last that it holds of our own issuer.
func (p *Peering) HoldsOfOurs(domain string) (wire.TrustVersion, bool) {
	l := p.linkOf(domain)
	if l == nil {
		return wire.TrustVersion{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.heldOfOurs[l.gateway]
	return v, ok
}

// onTrustHeld asks a neighbour for what it has newer of its own, and remembers what it holds of ours.
func (p *Peering) onTrustHeld(gateway, domain string, held []wire.TrustVersion) {
	own := p.cfg.Trust.Own()
	for _, v := range held {
		theirs := p.cfg.Trust.Issuer(v.Issuer)
		switch {
		case v.Issuer == own.Issuer:
			p.mu.Lock()
			if len(p.heldOfOurs) < maxCounted {
				p.heldOfOurs[gateway] = v
			}
			p.mu.Unlock()
		case theirs != nil && theirs.Domain == domain:
			if have := p.held(theirs); v.BundleSeq > have.BundleSeq || p.cfg.Statuses != nil && v.StatusSeq > have.StatusSeq {
				p.askAround(p.ctx, domain)
			}
		}
	}
}

// speaksFor says whether a neighbour may bring bundles and lists of a domain: its own, or where its row lets it introduce; a gateway of our own
// domain may bring any.
func speaksFor(r *peer, domain string) bool {
	return r.Role == roleInternal || r.Domain == domain || identity.MayIntroduce(r.Introduces, domain)
}

// onStatus considers a status list that a neighbour sent.
func (p *Peering) onStatus(ctx context.Context, gateway, domain string, raw []byte) error {
	r := p.row(domain)
	if r == nil || p.cfg.Statuses == nil {
		return nil
	}
	l, err := p.cfg.Statuses.Open(raw)
	switch code := frame.CodeOf(err); {
	case code == frame.UnknownKey: // newer than the bundle held, or of a domain that is not believed yet
		claimed := identity.PeekStatus(raw)
		if held := p.cfg.Trust.Domain(claimed); held == nil || !speaksFor(r, claimed) {
			return nil
		}
		p.askAround(ctx, claimed)
		return err
	case code == frame.ClockSkew: // says which clock differs, and is nobody's lie
		return err
	case err != nil:
		p.Penalise(gateway, err.Error())
		return err
	case l.Domain == p.cfg.Domain:
		return nil
	case !speaksFor(r, l.Domain):
		err := frame.Errorf(frame.IdentityMismatch, "status list of %s from %s, whose policy row does not let it introduce that domain", l.Domain, domain)
		p.Penalise(gateway, err.Error())
		return err
	}
	if seq, _ := p.cfg.Statuses.Held(l.Issuer); l.Seq <= seq {
		return nil // another introducer was faster
	}
	if !p.mayTell(l.Issuer) {
		return frame.Errorf(frame.RateLimited, "more than %d status lists of %s (issuer %s) at once: the newest is fetched later", listBurst, l.Domain, l.Issuer)
	}
	change, err := p.cfg.Statuses.Apply(raw)
	if frame.CodeOf(err) == frame.SeqGap { // its full list is missing here
		p.askAround(ctx, l.Domain)
		return nil
	}
	if err != nil || !change.New {
		return err
	}
	if p.cfg.OnStanding != nil && len(change.Changed) > 0 {
		p.cfg.OnStanding(change.Changed)
	}
	if p.gatewaysAmong(change.Changed) {
		p.node.BundleAccepted() // the keys of its digests count no more, or again
	}
	p.StatusChanged()
	return nil
}

// Every list goes on to every neighbour that is told of its domain: one issuer shall not fill what they take in a minute, nor have
// us work for each of its whims. A list that is left out is asked for when the held one is due.
const (
	listRate  = 1  // lists, or parts, of one issuer a second
	listBurst = 64 // a full list in its 16 parts, and changes behind it
)

func (p *Peering) mayTell(issuer string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.paces[issuer]
	if l == nil {
		if len(p.paces) >= maxCounted {
			clear(p.paces)
		}
		l = rate.NewLimiter(listRate, listBurst)
		p.paces[issuer] = l
	}
	return l.Allow()
}

// digestKeys finds the keys of digests, but those of gateways that are suspended or revoked: what such a gateway announced is
// dropped, whoever passed it on.
func (p *Peering) digestKeys() frame.KeyFunc {
	keys := p.cfg.Trust.Keys(identity.UseDigest)
	if p.cfg.Statuses == nil {
		return keys
	}
	return func(kid frame.KeyID) (frame.VerifyKey, bool) {
		k, ok := keys(kid)
		return k, ok && p.cfg.Statuses.Of(k.Owner) == identity.Good
	}
}

// gatewaysAmong says whether a change of standing concerns a gateway.
func (p *Peering) gatewaysAmong(list []identity.Standing) bool {
	return slices.ContainsFunc(list, func(s identity.Standing) bool {
		b := p.cfg.Trust.Of(s.AIC)
		return b != nil && b.IsGateway(s.AIC)
	})
}

// StatusChanged says that Config.Statuses holds a newer list: neighbours hear it, and a gateway that it revokes is cut off.
func (p *Peering) StatusChanged() {
	p.news.broadcast()
	select {
	case <-p.ready:
	default:
		return
	}
	p.node.StatusChanged()
	for _, l := range p.upLinks() {
		p.expelBad(l)
	}
}

// expelDistrusted cuts off a neighbour whose issuer is trusted no more.
func (p *Peering) expelDistrusted(l *link) {
	if p.cfg.Trust.Of(l.gateway) == nil {
		p.node.Expel(l.gateway, frame.TrustDenied, "its issuer is trusted no more")
	}
}

// expelBad cuts off a neighbour that is not in good standing.
func (p *Peering) expelBad(l *link) {
	if p.cfg.Statuses == nil {
		return
	}
	if err := p.cfg.Statuses.Check(l.gateway, identity.Serial(l.conn.PeerLeaf())); err != nil {
		p.log.Warn("neighbour is cut off", "domain", l.domain, "gateway", l.gateway, "err", err)
		p.node.Expel(l.gateway, frame.CertStatus, "certificate is suspended or revoked")
	}
}

func (p *Peering) upLinks() (out []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		out = append(out, l)
	}
	return out
}

// Distrusted forgets what is known of issuers whose bundles were believed before and are not now.
func (p *Peering) Distrusted(before []*identity.Accepted) {
	if p.cfg.Statuses != nil {
		p.cfg.Statuses.Forget()
	}
	trusted, same := map[string]bool{}, map[*identity.Accepted]bool{}
	for _, b := range p.cfg.Trust.All() {
		trusted[b.Issuer], same[b] = true, true
	}
	changed := map[string]bool{} // domains
	for _, b := range before {
		changed[b.Domain] = changed[b.Domain] || !same[b]
		if p.cfg.OnDistrusted != nil && !trusted[b.Issuer] {
			p.cfg.OnDistrusted(b)
		}
	}
	select {
	case <-p.ready:
	default:
		return
	}
	for _, l := range p.upLinks() {
		if changed[l.domain] {
			p.expelDistrusted(l)
		}
	}
}
