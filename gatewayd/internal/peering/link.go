package peering

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"agentgw/cdsp"
	"agentgw/cdsp/replica"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	backoffMin  = 500 * time.Millisecond
	backoffMax  = 8 * time.Second // with a dial that was begun before: who is reached again is connected within 15 s
	steadyAfter = time.Minute     // up for so long, the next back-off starts small again
	readTime    = 5 * time.Second
	writeTime   = 10 * time.Second
	expirySlack = time.Minute     // after a certificate's end, for clocks that disagree
	maxOut      = 128             // requests to one neighbour at once
	holdsAgain  = 2 * time.Second // until it is looked again whether a peer is this gateway's to dial
)

// link is a connection to a neighbour whose session is up.
type link struct {
	p       *Peering
	conn    *endpoint.Conn
	gateway string
	domain  string
	out     chan struct{} // slots for requests to it
	until   time.Time     // when the first of both ends' certificates ends
	number  uint64
}

// links counts connections.
var links atomic.Uint64

// Number implements relay.Neighbour.
func (l *link) Number() uint64 { return l.number }

// Gateway implements relay.Neighbour.
func (l *link) Gateway() string { return l.gateway }

// Domain implements relay.Neighbour.
func (l *link) Domain() string { return l.domain }

// MayQuery implements relay.Neighbour.
func (l *link) MayQuery() []string {
	if r := l.p.row(l.domain); r != nil {
		return r.MayQuery
	}
	return nil
}

// Explain implements relay.Neighbour.
func (l *link) Explain() bool {
	r := l.p.row(l.domain)
	return r != nil && r.Explain
}

// RTT implements relay.Neighbour.
func (l *link) RTT() time.Duration { return l.conn.RTT() }

// Ask implements relay.Neighbour.
func (l *link) Ask(ctx context.Context, r *semreq.Request) (*semreq.Response, error) {
	select {
	case l.out <- struct{}{}:
		defer func() { <-l.out }()
	default:
		return nil, frame.Errorf(frame.Overloaded, "%d requests to %s are under way", maxOut, l.gateway)
	}
	s, err := l.conn.Open(ctx, frame.StreamRequest)
	if err != nil {
		return nil, err
	}
	s.SetPriority(3, false)
	stop := context.AfterFunc(ctx, func() { s.Reset(frame.Cancelled) })
	defer stop()
	wait := time.Minute
	if at, ok := ctx.Deadline(); ok {
		wait = time.Until(at)
	}
	out := new(semreq.Response)
	err = s.WriteMessage(wait, r)
	if err == nil {
		s.CloseWrite()
		err = s.ReadMessage(wait, out)
	}
	if err == nil {
		err = out.Validate()
	}
	if err != nil {
		s.Reset(frame.Cancelled)
		if ctx.Err() != nil {
			return nil, frame.Errorf(frame.Deadline, "%s did not answer in time", l.gateway)
		}
		return nil, err
	}
	return out, nil
}

// serve runs one connection of a verified peer until it ends. own is the certificate that this end has shown.
func (p *Peering) serve(ctx context.Context, c *endpoint.Conn, dialled bool, own *x509.Certificate) error {
	id, err := identity.AICOf(c.PeerLeaf())
	if err != nil { // the handshake verified it
		return err
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	l := &link{p: p, conn: c, gateway: string(id), domain: p.cfg.Trust.DomainOf(string(id)), out: make(chan struct{}, maxOut), until: earlierEnd(own, c.PeerLeaf()), number: links.Add(1)}
	expired := time.AfterFunc(time.Until(c.PeerLeaf().NotAfter)+expirySlack, func() { c.Close(frame.CertStatus, "certificate expired") })
	defer expired.Stop()
	qlink := cdsp.NewQUICLink(c, l.gateway, dialled, l.until)
	handlers := endpoint.Handlers{
		frame.StreamRequest: func(ctx context.Context, s *endpoint.Stream) { p.request(ctx, l, s) },
	}
	qlink.Handle(handlers)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.Serve(ctx, handlers)
	}()
	session := p.node.Attach(ctx, qlink, l.domain, dialled)
	select {
	case <-session.Up():
		p.linkUp(l)
		<-session.Done()
	case <-session.Done():
	}
	<-served
	p.linkDown(l)
	err = session.Err()
	if r := p.row(l.domain); r != nil && err != nil && !errors.Is(err, context.Canceled) { // that is our own doing
		if strings.Contains(err.Error(), replica.RolesDiffer) {
			err = explainRoles(err, r.Row)
			if !dialled { // who has dialled logs it
				p.log.Warn("neighbour is not connected", "domain", l.domain, "remote", c.RemoteAddr().String(), "err", err)
			}
		}
		text := err.Error()
		r.lastErr.Store(&text)
	}
	return err
}

// explainRoles says what to change after a session that ended for its roles: neither side can know which of the two rows is wrong.
func explainRoles(err error, r Row) error {
	return frame.Errorf(frame.Policy, "%s; the row for %s here says %s: agree on customer at one end and provider at the other, or peer at both, "+
		"then `gatewayd peer add --replace --role ROLE` where it is wrong", frame.Text(err), r.Domain, r.Role)
}

// earlierEnd is when the first of two certificates ends.
func earlierEnd(own, peer *x509.Certificate) time.Time {
	if own.NotAfter.Before(peer.NotAfter) {
		return own.NotAfter
	}
	return peer.NotAfter
}

// linkUp makes a neighbour usable for requests: its HELLO has arrived.
func (p *Peering) linkUp(l *link) {
	p.mu.Lock()
	p.links[l.gateway] = l
	r := p.rows[l.domain]
	p.mu.Unlock()
	if r != nil {
		r.lastErr.Store(nil)
	}
	p.log.Info("neighbour is up", "domain", l.domain, "gateway", l.gateway, "remote", l.conn.RemoteAddr().String())
	// Its standing may have changed since the handshake, and neither StatusChanged nor Distrusted knows links before they are up.
	p.expelBad(l)
	p.expelDistrusted(l)
}

func (p *Peering) linkDown(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.links[l.gateway] != l {
		return // it was never up: the dialler's back-off counts
	}
	delete(p.links, l.gateway)
	delete(p.heldOfOurs, l.gateway)
	if r := p.rows[l.domain]; r != nil {
		r.dialAgain()
	}
	if s := p.siblings[l.gateway]; s != nil {
		s.dialAgain()
	}
}

// request answers one request of a neighbour. When the neighbour gives up its stream, the work ends.
func (p *Peering) request(ctx context.Context, l *link, s *endpoint.Stream) {
	if p.linkTo(l.gateway) != l {
		s.Reset(frame.State) // before its HELLO
		return
	}
	var req semreq.Request
	if err := s.ReadMessage(readTime, &req); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	s.SetPriority(2, false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.Context(), cancel)
	defer stop()
	if err := s.WriteMessage(writeTime, p.cfg.Answer(ctx, l, &req)); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	s.CloseWrite()
}

func (p *Peering) linkTo(gateway string) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[gateway]
}

// linkOf is the link to any gateway of a domain.
func (p *Peering) linkOf(domain string) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.domain == domain {
			return l
		}
	}
	return nil
}

// target is whom a dialler keeps connected.
type target struct {
	domain  string
	gateway string // "": any of the domain
	where   func(context.Context) ([]string, error)
}

// reached says whether there is a connection to the target, whoever made it.
func (p *Peering) reached(t target) bool {
	if t.gateway != "" {
		return p.linkTo(t.gateway) != nil
	}
	return p.linkOf(t.domain) != nil
}

// startPeer begins to dial for a row; the caller holds the lock.
func (p *Peering) startPeer(r Row) *peer {
	t := target{domain: r.Domain}
	if len(r.Addresses) > 0 || r.Discover {
		t.where = func(ctx context.Context) ([]string, error) { return p.whereTo(ctx, r) }
	}
	return &peer{r, p.startDialler(t)}
}

// startDialler begins to dial, if there is anywhere; the caller holds the lock.
func (p *Peering) startDialler(t target) *dialler {
	ctx, stop := context.WithCancel(p.ctx)
	d := &dialler{stop: stop, wake: make(chan struct{}, 1), dials: t.where != nil}
	if t.where != nil {
		p.tasks.Go(func() { p.keepDialled(ctx, d, t) })
	}
	return d
}

// dialAgain wakes a dialler: a connection of its target has ended.
func (d *dialler) dialAgain() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// whereTo is what to dial for a row: what DNS says now, then the configured addresses, which nothing that was learned takes away.
func (p *Peering) whereTo(ctx context.Context, r Row) (out []string, err error) {
	if r.Discover && p.cfg.Find != nil {
		if out, err = p.cfg.Find(ctx, r.Domain); err != nil {
			p.log.Debug("gateways of a neighbour by DNS", "domain", r.Domain, "err", err)
		}
	}
	for _, a := range r.Addresses {
		if !slices.Contains(out, a) {
			out = append(out[:len(out):len(out)], a)
		}
	}
	return out, err
}

// keepDialled keeps one connection to a target up. While there is one, whoever made it, it waits, and keeps itself informed of where
// to dial: when the connection ends DNS may not answer.
func (p *Peering) keepDialled(ctx context.Context, d *dialler, t target) {
	if t.gateway != "" && t.gateway < p.cfg.Gateway {
		select {
		case <-time.After(siblingLater):
		case <-ctx.Done():
		}
	}
	wait := backoffMin
	for n := 0; ctx.Err() == nil; n++ {
		if t.gateway == "" && p.cfg.Holds != nil && !p.cfg.Holds(t.domain) {
			select {
			case <-ctx.Done():
			case <-time.After(holdsAgain):
			}
			continue
		}
		if p.reached(t) {
			n = -1 // the first address comes first again
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
				continue
			case <-time.After(backoffMax): // the link may have gone between the look and the wait
				_, _ = t.where(ctx) // asks where its time is over
				continue
			}
		}
		began := time.Now()
		d.atOnce.Store(false)
		address := ""
		addresses, err := t.where(ctx)
		if len(addresses) > 0 {
			address = addresses[n%len(addresses)]
			err = p.dial(ctx, t, address)
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			wait = backoffMin
		}
		select {
		case <-d.wake: // the end of what this dial made is no reason to dial at once
		default:
		}
		if d.atOnce.Load() {
			wait = backoffMin
			continue
		}
		if err != nil {
			text := err.Error()
			d.lastErr.Store(&text)
		}
		level := slog.LevelInfo
		if frame.CodeOf(err) == frame.Policy { // it will not pass by itself
			level = slog.LevelWarn
		}
		p.log.Log(ctx, level, "neighbour is not connected", "domain", t.domain, "address", address, "err", err, "again_in", wait.Round(time.Millisecond).String())
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-time.After(wait/2 + rand.N(wait/2)):
		}
		wait = min(2*wait, backoffMax)
	}
}

// dial makes one connection and serves it until it ends. That the dial returns proves nothing: TLS 1.3 lets the client
// finish before the server has judged it. A refusal comes as the error of the session, and counts as a failed dial.
func (p *Peering) dial(ctx context.Context, t target, address string) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	own := p.cfg.Certificate()
	c, err := p.ep.Dial(dialCtx, address, frame.ALPNGateway, "", endpoint.Credentials{
		Certificate: own, Verify: p.cfg.Trust.Verify(x509.ExtKeyUsageServerAuth, func(who identity.Peer) error {
			if who.Domain != t.domain || t.gateway != "" && string(who.AIC) != t.gateway { // an address may be anybody's: DNS and gossip have no identities
				return frame.Errorf(frame.IdentityMismatch, "%s of %s answers at %s, where %s of %s is looked for", who.AIC, who.Domain, address, cmp.Or(t.gateway, "a gateway"), t.domain)
			}
			return p.role(who)
		}),
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	p.tasks.Go(func() { p.rejuvenate(ctx, ended, t, address, earlierEnd(own.Leaf, c.PeerLeaf())) })
	return p.serve(c.Context(), c, true, own.Leaf) // the node ends it, with a goodbye, when it stops or the row goes
}

// rejuvenate connects anew before the certificates of a connection end, when both ends have had time to renew theirs: the younger
// connection takes its place, and requests find a neighbour all the time.
func (p *Peering) rejuvenate(ctx context.Context, ended <-chan struct{}, t target, address string, end time.Time) {
	left := time.Until(end)
	for _, at := range []time.Time{end.Add(-left / 4), end.Add(-left / 16)} {
		timer := time.NewTimer(time.Until(at))
		select {
		case <-timer.C:
		case <-ended:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if err := p.dial(ctx, t, address); err != nil {
			p.log.Debug("connection for younger certificates has ended", "address", address, "err", err)
		}
		select {
		case <-ended: // it took the place
			return
		default:
		}
	}
}
