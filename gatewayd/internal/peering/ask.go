package peering

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"agentgw/cdsp/wire"
	"agentgw/internal/identity"
)

// Bounds of asking neighbours for bundles and status lists. Together they stay below what a neighbour takes in a minute.
const (
	refreshEvery = 10 * time.Second       // a domain is asked for at most so often
	refreshWait  = 500 * time.Millisecond // for an answer; then it fails closed
	settleTime   = time.Second            // digests overtake the bundle that has their key: it may be right behind them
	pollEvery    = 10 * time.Second       // lists that are due are asked for
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

// begin says whether to ask for a domain now, with so many questions, and until when an answer may be awaited; the zero time: not at
// all. Of a domain that is not known there is one question.
func (a *asked) begin(domain string, questions int, known bool, now time.Time) (ask bool, until time.Time) {
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
	if len(a.at) >= maxAsked || !limiter.AllowN(now, questions) {
		return false, time.Time{}
	}
	a.at[domain] = now
	return true, now.Add(refreshWait)
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
	missed := map[string][]*identity.Accepted{} // domain -> its bundles, which lack the key
	var settle <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case domain := <-p.wanted:
			if _, noted := missed[domain]; !noted && len(missed) < cap(p.wanted) {
				missed[domain] = p.cfg.Trust.Issuers(domain)
			}
			if settle == nil {
				settle = time.After(settleTime)
			}
		case <-settle:
			settle = nil
			for domain, held := range missed {
				if slices.Equal(p.cfg.Trust.Issuers(domain), held) {
					p.askAround(ctx, domain)
				}
			}
			clear(missed)
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
		lead := a.Source != identity.Vouched
		if a.Domain != p.cfg.Domain && (p.cfg.Statuses.Due(a.Issuer) || lead && len(p.cfg.Trust.Missing(a.Domain)) > 0) {
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
	gets := p.lacking(domain)
	known := len(gets) > 0
	if !known {
		gets = []wire.TrustGet{{Domain: domain}}
	}
	first, until := p.asked.begin(domain, len(gets), known, time.Now())
	if first {
		for _, d := range ask {
			for _, get := range gets {
				p.node.AskTrust(ctx, d, get)
			}
		}
	}
	return until
}

// lacking asks for what may be newer of each issuer of a domain that is trusted, and for those of which nothing is here.
func (p *Peering) lacking(domain string) (out []wire.TrustGet) {
	for _, a := range p.cfg.Trust.Issuers(domain) {
		v := p.held(a)
		out = append(out, wire.TrustGet{Domain: domain, Issuer: v.Issuer, BundleSeq: v.BundleSeq, StatusSeq: v.StatusSeq})
	}
	for _, issuer := range p.cfg.Trust.Missing(domain) {
		out = append(out, wire.TrustGet{Domain: domain, Issuer: issuer})
	}
	return out
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
// for the bundles.
func (p *Peering) Refresh(ctx context.Context, domain string, known func() bool) bool {
	return known() || p.await(ctx, domain, known)
}
