package peering

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"agentgw/cdsp/wire"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Bounds of asking neighbours for bundles and status lists. Together they stay below what a neighbour takes in a minute.
const (
	refreshEvery = 10 * time.Second       // a domain is asked for at most so often
	refreshWait  = 500 * time.Millisecond // for an answer; then it fails closed
	pollEvery    = 30 * time.Second       // lists that are due are asked for
	maxAsked     = 4096                   // domains that are remembered as asked for
)

// news wakes those who wait for a bundle or a list.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

// next is closed when something is accepted after the call.
func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) broadcast() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// asked remembers when a domain was last asked for. Names of unknown domains come from requests, so they have a share of their
// own: a flood of them holds up no domain that is trusted.
type asked struct {
	mu             sync.Mutex
	at             map[string]time.Time
	known, unknown *rate.Limiter
}

func newAsked() asked {
	return asked{at: map[string]time.Time{}, known: rate.NewLimiter(1.5, 60), unknown: rate.NewLimiter(1, 20)}
}

// begin says whether to ask for a domain now, and until when an answer may be awaited; the zero time: not at all.
func (a *asked) begin(domain string, known bool, now time.Time) (ask bool, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.at[domain]; ok && now.Sub(last) < refreshEvery {
		return false, last.Add(refreshWait)
	}
	if len(a.at) >= maxAsked {
		for d, at := range a.at {
			if now.Sub(at) >= refreshEvery {
				delete(a.at, d)
			}
		}
	}
	limiter := a.known
	if !known {
		limiter = a.unknown
	}
	if len(a.at) >= maxAsked || !limiter.AllowN(now, 1) {
		return false, time.Time{}
	}
	a.at[domain] = now
	return true, now.Add(refreshWait)
}

// toldTo are the bundles that a neighbouring domain is told of: our own, and where its row says transit those of the peers
// that the operator configured.
func (p *Peering) toldTo(domain string) []*identity.Accepted {
	all := p.cfg.Trust.All()
	r := p.row(domain)
	return slices.DeleteFunc(slices.Clone(all), func(a *identity.Accepted) bool {
		return a.Source != identity.Own && (r == nil || !r.Transit || a.Source != identity.Configured || a.Domain == domain)
	})
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
		if have.Issuer != a.Issuer { // of this issuer it holds nothing
			have.BundleSeq, have.StatusSeq = 0, 0
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

// trustTold is what a neighbour hears of what is held here: of its own issuer, and of ours.
func (p *Peering) trustTold(domain string) (out []wire.TrustVersion) {
	if a := p.cfg.Trust.Domain(domain); a != nil {
		out = append(out, p.held(a))
	}
	return append(out, p.held(p.cfg.Trust.Own()))
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
	theirs, own := p.cfg.Trust.Domain(domain), p.cfg.Trust.Own()
	for _, v := range held {
		switch {
		case v.Issuer == own.Issuer:
			p.mu.Lock()
			if len(p.heldOfOurs) < maxCounted {
				p.heldOfOurs[gateway] = v
			}
			p.mu.Unlock()
		case theirs != nil && v.Issuer == theirs.Issuer:
			if have := p.held(theirs); v.BundleSeq > have.BundleSeq || p.cfg.Statuses != nil && v.StatusSeq > have.StatusSeq {
				p.askAround(p.ctx, domain)
			}
		}
	}
}

// speaksFor says whether a neighbour may bring bundles and lists of a domain: its own, or where its row lets it introduce.
func speaksFor(r *peer, domain string) bool {
	return r.Domain == domain || identity.MayIntroduce(r.Introduces, domain)
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
	p.StatusChanged()
	return nil
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
		if err := p.cfg.Statuses.Check(l.gateway, identity.Serial(l.conn.PeerLeaf())); err != nil {
			p.log.Warn("neighbour is cut off", "domain", l.domain, "gateway", l.gateway, "err", err)
			p.node.Expel(l.gateway, frame.CertStatus, "certificate is suspended or revoked")
		}
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

// distrusted forgets what is known of domains whose bundles are gone.
func (p *Peering) distrusted(gone []string) {
	if p.cfg.Statuses != nil {
		p.cfg.Statuses.Forget()
	}
	for _, domain := range gone {
		if p.cfg.OnDistrusted != nil && p.cfg.Trust.Domain(domain) == nil {
			p.cfg.OnDistrusted(domain)
		}
	}
}

// onUnknownKey has the domain's bundle asked for; it is called by the digest machine, which must not wait.
func (p *Peering) onUnknownKey(_, domain string) {
	select {
	case p.wanted <- domain:
	default:
	}
}

// pollTrust asks for bundles whose keys were missed, and for lists that are due.
func (p *Peering) pollTrust(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case domain := <-p.wanted:
			p.askAround(ctx, domain)
		case <-tick.C:
			p.refreshDue(ctx)
		}
	}
}

func (p *Peering) refreshDue(ctx context.Context) {
	if p.cfg.Statuses == nil {
		return
	}
	for _, a := range p.cfg.Trust.All() {
		if a.Source != identity.Own && p.cfg.Statuses.Due(a.Issuer) {
			p.askAround(ctx, a.Domain)
		}
	}
}

// askAround asks the neighbours that could know for a domain's newer bundle and status list: the domain itself, else whoever may
// introduce it. It says until when an answer may be awaited; the zero time when none is to be had.
func (p *Peering) askAround(ctx context.Context, domain string) time.Time {
	var ask []string
	for _, l := range p.upLinks() {
		if r := p.row(l.domain); r != nil && speaksFor(r, domain) && !slices.Contains(ask, l.domain) {
			ask = append(ask, l.domain)
		}
	}
	if slices.Contains(ask, domain) {
		ask = []string{domain}
	}
	if len(ask) == 0 || domain == p.cfg.Domain || p.cfg.Trust.Waits(domain) {
		return time.Time{}
	}
	get := wire.TrustGet{Domain: domain}
	a := p.cfg.Trust.Domain(domain)
	if a != nil {
		v := p.held(a)
		get.Issuer, get.BundleSeq, get.StatusSeq = v.Issuer, v.BundleSeq, v.StatusSeq
	}
	first, until := p.asked.begin(domain, a != nil, time.Now())
	if first {
		for _, d := range ask {
			p.node.AskTrust(ctx, d, get)
		}
	}
	return until
}

// await waits, once the neighbours were asked, until is holds or no answer can come any more.
func (p *Peering) await(ctx context.Context, domain string, is func() bool) bool {
	arrived := p.news.next()
	until := p.askAround(ctx, domain)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for !is() {
		select {
		case <-arrived:
			arrived = p.news.next()
		case <-timer.C:
			return is()
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Standing implements relay.Network: whether an AIC, and the certificate with this serial number (nil: any), is in good standing by
// a fresh list of its domain. Where none is here the neighbours that could know are asked, for 500 ms at most; then it fails
// closed with an error that names the domain and since when.
func (p *Peering) Standing(ctx context.Context, id string, serial []byte) error {
	s := p.cfg.Statuses
	if s == nil {
		return nil
	}
	if err := s.Check(id, serial); err != nil {
		return err
	}
	domain := p.cfg.Trust.DomainOf(id)
	if domain != "" && domain != p.cfg.Domain && s.Fresh(id) != nil {
		p.await(ctx, domain, func() bool { return s.Fresh(id) == nil })
	}
	if err := s.Fresh(id); err != nil {
		return err
	}
	return s.Check(id, serial)
}

// Refresh implements relay.Network: a signature of a domain came under a key that its bundle here does not name. It asks once
// for the bundle, and says whether a newer one has come.
func (p *Peering) Refresh(ctx context.Context, domain string) bool {
	seq := func() uint64 {
		if a := p.cfg.Trust.Domain(domain); a != nil {
			return a.Seq
		}
		return 0
	}
	before := seq()
	return p.await(ctx, domain, func() bool { return seq() > before })
}
