package registrar

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
)

// Bounds of the sessions that may be offered to one agent and not yet begun (a2a/PROTOCOL.md, "Offers").
const (
	maxOffers       = 64
	maxOffersDomain = 16
	offerLife       = 150 * time.Second // of the token, and the leeway
)

// offer is a session token that an agent was shown.
type offer struct {
	origin string // domain of the initiator
	until  time.Time
	once   sync.Once
	acked  chan arp.OfferAck // one value
}

func (o *offer) settle(ack arp.OfferAck) { o.once.Do(func() { o.acked <- ack }) }

// Key is the hash of the key of an attached agent.
func (r *Registrar) Key(id string) ([32]byte, bool) {
	a := r.find(id)
	if a == nil {
		return [32]byte{}, false
	}
	return a.agent.SPKI, true
}

func (r *Registrar) find(id string) *attachment {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.attached[id]; a != nil && a.adopting.Load() == nil {
		return a
	}
	return nil
}

// Attached is the number of agents attached now.
func (r *Registrar) Attached() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.attached)
}

// findOn is the attachment that a connection has made: the newest, or one that lingers after it.
func (r *Registrar) findOn(id string, c *endpoint.Conn) *attachment {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.attached[id]
	for a != nil && a.conn != c {
		a = a.before
	}
	return a
}

// Drop closes an agent's connections.
func (r *Registrar) Drop(id string, code frame.Code) {
	r.mu.Lock()
	var all []*attachment
	for a := r.attached[id]; a != nil; a = a.before {
		all = append(all, a)
	}
	r.mu.Unlock()
	for _, a := range all {
		a.conn.Close(code, "")
	}
}

// Offer shows a session token to an attached agent and waits for its acknowledgement as long as ctx allows. When the agent
// has no room for another offer, mint is not called (47).
func (r *Registrar) Offer(ctx context.Context, target, origin string, home bool, mint func() ([16]byte, []byte, error)) ([]semreq.Endpoint, error) {
	a := r.find(target)
	if a == nil {
		return nil, frame.Errorf(frame.UpstreamFailed, "%s is not attached now", target)
	}
	o, cti, sat, err := a.place(origin, time.Now(), mint)
	if err != nil {
		return nil, err
	}
	if !a.send(&arp.SessionOffer{CTI: cti[:], SAT: sat}) {
		return nil, frame.Errorf(frame.UpstreamFailed, "%s does not read its control stream", target)
	}
	select {
	case ack := <-o.acked:
		if ack.Code != frame.OK {
			a.forget(cti)
			return nil, frame.Errorf(ack.Code, "%s does not take the session", target)
		}
		return r.reachable(a, ack.Endpoints, home), nil
	case <-ctx.Done():
		return nil, frame.Errorf(frame.Deadline, "%s has not acknowledged the offer: %w", target, ctx.Err())
	}
}

// place mints and records an offer, while there is room.
func (a *attachment) place(origin string, now time.Time, mint func() ([16]byte, []byte, error)) (*offer, [16]byte, []byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := 0
	for cti, o := range a.offers {
		switch {
		case now.After(o.until):
			delete(a.offers, cti)
		case o.origin == origin:
			same++
		}
	}
	if len(a.offers) >= maxOffers || same >= maxOffersDomain {
		return nil, [16]byte{}, nil, frame.Errorf(frame.Overloaded, "%s has %d sessions on offer, %d of them to %s", a.agent.AIC, len(a.offers), same, origin)
	}
	cti, sat, err := mint()
	if err != nil {
		return nil, cti, nil, err
	}
	o := &offer{origin: origin, until: now.Add(offerLife), acked: make(chan arp.OfferAck, 1)}
	a.offers[cti] = o
	return o, cti, sat, nil
}

func (a *attachment) forget(cti [16]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.offers, cti)
}

// acknowledge takes an OFFER_ACK. One with TOKEN_REPLAYED comes when the session has begun: the offer is used up and its
// place is free.
func (a *attachment) acknowledge(ack arp.OfferAck) {
	cti := [16]byte(ack.CTI)
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.offers[cti]
	if !ok {
		return
	}
	if ack.Code == frame.TokenReplayed {
		delete(a.offers, cti)
		return
	}
	o.settle(ack)
}

// screen keeps the endpoints that an agent may claim at all: IP literals; no multicast, link-local or unspecified ones; no
// loopback outside a lab; of public addresses the one that it is seen at; at most six.
func (r *Registrar) screen(claimed []semreq.Endpoint, observed netip.Addr) []semreq.Endpoint {
	var out []semreq.Endpoint
	for _, e := range claimed {
		ap, ok := e.AddrPort()
		ip := ap.Addr().Unmap()
		switch {
		case !ok, e.ALPN != frame.ALPNAgent, ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip.IsUnspecified(),
			ip.IsLoopback() && !(r.cfg.Lab && observed.Unmap().IsLoopback()),
			!ip.IsLoopback() && !ip.IsPrivate() && ip != observed.Unmap():
			continue
		}
		if out = append(out, e); len(out) == semreq.MaxEndpoints {
			break
		}
	}
	return out
}

// reachable are the endpoints that an initiator is told: abroad only the address that this gateway sees the agent at (a
// private one only in a lab), at home its interfaces too.
func (r *Registrar) reachable(a *attachment, now []semreq.Endpoint, home bool) []semreq.Endpoint {
	observed := a.conn.RemoteAddr().Addr().Unmap()
	list := a.endpoints
	if len(now) > 0 {
		list = r.screen(now, observed)
	}
	var out []semreq.Endpoint
	for _, e := range list {
		ap, _ := e.AddrPort()
		ip := ap.Addr().Unmap()
		if home || ip == observed && (r.cfg.Lab || !ip.IsPrivate()) {
			out = append(out, e)
		}
	}
	return out
}
