package registrar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Liveness of attached agents (cdsp/PROTOCOL.md, "Agent and gateway").
const (
	keepalive   = 20 * time.Second
	offline     = 45 * time.Second
	maxContext  = 1 << 20
	outQueue    = 128              // frames waiting for one agent; an agent that lets more pile up is closed
	attachTime  = 5 * time.Second  // from the handshake to ATTACHED
	expirySlack = time.Minute      // after NotAfter, for clocks that disagree
	adoptTime   = 10 * time.Second // from ATTACHED with want_acs to ACS_PUT

	replacedLinger = 10 * time.Second // for the requests of a connection that a newer one of the same process replaced
)

func sum(b []byte) [32]byte { return sha256.Sum256(b) }

// attachment is one agent's live connection.
type attachment struct {
	agent     Agent
	boot      string // names the process that attached
	conn      *endpoint.Conn
	endpoints []semreq.Endpoint
	out       chan frame.Message
	puts      *rate.Limiter            // each is a write of the directory, and a digest for every neighbour
	before    *attachment              // of the same process, while it lingers; guarded by the registrar's mutex
	declared  atomic.Pointer[declared] // by the last update on this connection; nil before
	capacity  uint8                    // as it attached
	asking    atomic.Int32             // requests of it that run

	adopting atomic.Pointer[arp.Statement] // the agent's ACS is waited for; nil: it is at home here

	mu     sync.Mutex // guards offers
	offers map[[16]byte]*offer
}

// send queues a frame for the agent; false means that its queue is full or its connection gone.
func (a *attachment) send(m frame.Message) bool {
	select {
	case a.out <- m:
		return true
	default:
		a.conn.Close(frame.SendStalled, "")
		return false
	}
}

func (r *Registrar) serveAgent(ctx context.Context, c *endpoint.Conn, agent Agent) {
	if !r.enter(agent.AIC) {
		c.Close(frame.Collision, "too many connections")
		return
	}
	defer r.leave(agent.AIC)
	var attached atomic.Bool
	late := time.AfterFunc(attachTime, func() {
		if !attached.Load() { // it holds a slot and does not use it
			c.Close(frame.HelloTimeout, "")
		}
	})
	defer late.Stop()
	expired := time.AfterFunc(time.Until(c.PeerLeaf().NotAfter)+r.slack, func() {
		r.log.Info("certificate of an agent has expired", "aic", agent.AIC)
		c.Close(frame.CertStatus, "certificate expired")
	})
	defer expired.Stop()
	c.Serve(ctx, endpoint.Handlers{
		frame.StreamControl:      func(ctx context.Context, s *endpoint.Stream) { r.control(ctx, c, s, agent, &attached) },
		frame.StreamRequest:      func(ctx context.Context, s *endpoint.Stream) { r.request(ctx, s, agent) },
		frame.StreamRegistration: func(ctx context.Context, s *endpoint.Stream) { r.registration(ctx, s, agent) },
	})
}

// enter counts a connection of an agent, unless it has too many.
func (r *Registrar) enter(aic string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns[aic] >= maxConns {
		return false
	}
	r.conns[aic]++
	return true
}

func (r *Registrar) leave(aic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns[aic]--; r.conns[aic] == 0 {
		delete(r.conns, aic)
	}
}

// control runs an agent's control stream from ATTACH to its end. The connection ends with it.
func (r *Registrar) control(ctx context.Context, c *endpoint.Conn, s *endpoint.Stream, agent Agent, done *atomic.Bool) {
	a, attached, held, err := r.attach(ctx, c, s, agent)
	done.Store(true)
	if err != nil {
		defer c.Close(frame.OK, "")
		r.log.Info("attach refused", "aic", agent.AIC, "err", err)
		s.WriteMessage(writeTime, &arp.Attached{Code: frame.CodeOf(err), Now: uint64(time.Now().Unix())})
		s.CloseWrite()
		waitClosed(c)
		return
	}
	defer r.detach(a)
	if err := s.WriteMessage(writeTime, attached); err != nil {
		c.Close(frame.CodeOf(err), "")
		return
	}
	if a.adopting.Load() != nil {
		late := time.AfterFunc(adoptTime, func() {
			if a.adopting.Load() != nil { // it is no agent of this gateway, and shall not be taken for one
				c.Close(frame.HelloTimeout, "")
			}
		})
		defer late.Stop()
	}
	r.greet(a, held)
	r.cfg.Observe(Attached, agent.AIC, c.RemoteAddr().String())
	r.log.Info("agent attached", "aic", agent.AIC, "remote", c.RemoteAddr().String(), "endpoints", len(a.endpoints))
	var writer sync.WaitGroup
	defer writer.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	writer.Go(func() {
		for {
			select {
			case m := <-a.out:
				if s.WriteMessage(writeTime, m) != nil {
					c.Close(frame.SendStalled, "")
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	drained := make(chan struct{})
	writer.Go(func() {
		select {
		case <-c.Draining(): // nothing new; requests that run are answered, then the endpoint closes the connection
			close(drained)
			s.Reset(frame.Shutdown)
		case <-ctx.Done():
		}
	})
	err = r.readControl(s, a)
	r.cfg.Observe(Detached, agent.AIC, errText(err))
	r.log.Info("agent detached", "aic", agent.AIC, "err", err)
	select {
	case <-drained:
	default:
		c.Close(frame.OK, "")
	}
}

// waitClosed gives the peer a moment to read the last frame and to close the connection itself.
func waitClosed(c *endpoint.Conn) {
	select {
	case <-c.Context().Done():
	case <-time.After(time.Second):
	}
}

func (r *Registrar) attach(ctx context.Context, c *endpoint.Conn, s *endpoint.Stream, agent Agent) (*attachment, *arp.Attached, []arp.TrustHeld, error) {
	var m arp.Attach
	if err := s.ReadMessage(readTime, &m); err != nil {
		return nil, nil, nil, err
	}
	e, grant, stated, err := r.mayAttach(&m, agent)
	if err != nil {
		return nil, nil, nil, err
	}
	agent.Scope = grant.Scope
	if stated == nil && r.cfg.Directory.MovedTo(agent.AIC).Gateway != "" {
		if e, err = r.comeBack(ctx, e); err != nil {
			return nil, nil, nil, err
		}
	}
	observed := c.RemoteAddr()
	a := &attachment{
		agent: agent, boot: string(m.BootID), conn: c, out: make(chan frame.Message, outQueue), offers: map[[16]byte]*offer{}, capacity: m.Capacity,
		endpoints: r.screen(m.Endpoints, observed.Addr()), puts: rate.NewLimiter(rate.Limit(r.cfg.UpdateRate), max(1, int(5*r.cfg.UpdateRate))),
	}
	a.adopting.Store(stated)
	r.mu.Lock()
	before := r.attached[agent.AIC]
	if before != nil && before.boot == a.boot {
		a.before = before
	}
	r.attached[agent.AIC] = a
	if stated == nil {
		r.cfg.Directory.SetCapacity(agent.AIC, m.Capacity)
		r.cfg.Directory.SetAlive(agent.AIC, true) // under the lock: else a detach of before could come after it
	}
	r.mu.Unlock()
	switch { // the newer connection is the one that lives
	case before == nil:
	case before.boot == a.boot: // the same process, with a renewed credential or over another path: what runs may end
		time.AfterFunc(replacedLinger, func() {
			r.mu.Lock()
			a.before = nil
			r.mu.Unlock()
			before.conn.Close(frame.Collision, "")
		})
	default:
		before.conn.Close(frame.Collision, "")
	}
	if e, ok := r.cfg.Directory.Get(agent.AIC); stated == nil && (!ok || !e.State.Offered() || r.cfg.Directory.MovedTo(agent.AIC).Gateway != "") { // taken away since: [Registrar.Drop] came too early
		r.detach(a)
		return nil, nil, nil, frame.Errorf(frame.IdentityMismatch, "no active entry")
	}
	return a, &arp.Attached{
		EntryVersion: e.Version, Gateways: r.cfg.Roam.gateways(), WantACS: stated != nil, Entry: r.stated(e, stated == nil),
		Policy:      arp.AttachPolicy{MaxContext: maxContext, SessExpS: uint64(r.cfg.SessionLife.Seconds())},
		KeepaliveMS: uint64(keepalive.Milliseconds()), OfflineMS: uint64(offline.Milliseconds()),
		Observed: &semreq.Endpoint{Host: observed.Addr().String(), Port: observed.Port(), ALPN: frame.ALPNControl},
		Now:      uint64(time.Now().Unix()),
	}, m.Trust, nil
}

// mayAttach holds an ATTACH against the directory, the clock and the grant that comes with it. An agent whose entry is another gateway's, or newer
// there, brings that one's statement of it, which is returned.
func (r *Registrar) mayAttach(m *arp.Attach, agent Agent) (e directory.Entry, grant *arp.Grant, stated *arp.Statement, err error) {
	if r.lame.Load() {
		return e, nil, nil, errLame
	}
	if m.AIC != agent.AIC {
		return e, nil, nil, frame.Errorf(frame.IdentityMismatch, "attaches as %s", m.AIC)
	}
	if len(m.Trust) > arp.MaxTrustHeld {
		return e, nil, nil, frame.Errorf(frame.Malformed, "ATTACH names %d issuers", len(m.Trust))
	}
	now := time.Now()
	if skew := now.Sub(time.Unix(int64(m.Now), 0)).Abs(); m.Now != 0 && skew > maxSkew {
		return e, nil, nil, frame.Errorf(frame.ClockSkew, "its clock and ours differ by %s, more than %s: set one of them", skew.Round(time.Second), maxSkew)
	}
	grant, err = arp.OpenGrant(m.Grant, r.cfg.Trust.Keys(identity.UseGrant), r.issuer(), now)
	if err != nil {
		return e, nil, nil, err
	}
	if grant.AIC != agent.AIC || string(grant.SPKI) != string(agent.SPKI[:]) {
		return e, nil, nil, frame.Errorf(frame.IdentityMismatch, "presents the grant of %s", grant.AIC)
	}
	e, ok := r.cfg.Directory.Get(agent.AIC)
	if stated, err = r.statement(m, agent, now); err != nil {
		return e, nil, nil, err
	}
	spki, jti := e.Provenance.SPKI, e.Provenance.Grant
	switch {
	case ok && !e.State.Offered():
		return e, nil, nil, frame.Errorf(frame.IdentityMismatch, "no active entry")
	case stated != nil && (!ok || stated.Version > e.Version):
		spki, jti = [32]byte(stated.SPKI), hex.EncodeToString(stated.JTI)
	case !ok:
		return e, nil, nil, frame.Errorf(frame.IdentityMismatch, "no active entry")
	default:
		stated = nil // what is here is newer
	}
	if err := r.newerElsewhere(agent.AIC, stated); err != nil {
		return e, nil, nil, err
	}
	if spki != agent.SPKI { // re-keyed since the handshake
		return e, nil, nil, frame.Errorf(frame.IdentityMismatch, "its key is not the one it is registered with any more")
	}
	if hex.EncodeToString(grant.JTI) != jti { // the newer one may allow less
		return e, nil, nil, frame.Errorf(frame.IdentityMismatch, "presents a grant that a newer one has replaced: it has to renew its credential")
	}
	return e, grant, stated, nil
}

// maxSkew is how far two clocks may differ.
const maxSkew = 120 * time.Second

// issuer is the AIC of the AMC that grants for this gateway's agents.
func (r *Registrar) issuer() string { return r.cfg.Trust.Own().Issuer }

func (r *Registrar) detach(a *attachment) {
	r.mu.Lock()
	current := r.attached[a.agent.AIC] == a
	if current {
		delete(r.attached, a.agent.AIC)
		r.cfg.Directory.SetAlive(a.agent.AIC, false)
	}
	for p := r.attached[a.agent.AIC]; p != nil; p = p.before { // so that the chain is never longer than [maxConns]
		if p.before == a {
			p.before = a.before
		}
	}
	r.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.offers {
		o.settle(arp.OfferAck{Code: frame.UpstreamFailed})
	}
}

// noteCapacity passes on what an agent says of itself, unless a newer attachment speaks for it.
func (r *Registrar) noteCapacity(a *attachment, free uint8) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attached[a.agent.AIC] == a {
		a.capacity = free
		r.cfg.Directory.SetCapacity(a.agent.AIC, free)
	}
}

// readControl reads until the stream ends or the agent has been silent for too long.
func (r *Registrar) readControl(s *endpoint.Stream, a *attachment) error {
	for {
		t, payload, err := s.ReadFrame(offline)
		if err != nil {
			return err
		}
		switch t {
		case frame.CtlKeepalive:
			var k arp.Keepalive
			if err := frame.Unmarshal(payload, &k); err != nil {
				a.conn.Close(frame.Malformed, "")
				return err
			}
			r.noteCapacity(a, k.Capacity)
			e, _ := r.cfg.Directory.Get(a.agent.AIC)
			news := k.Version != 0 && k.Version != e.Version && e.State.Offered()
			if !a.send(&arp.Keepalive{TSMS: uint64(time.Now().UnixMilli()), EchoTSMS: k.TSMS, Version: e.Version, Pad: arp.KeepalivePad, Entry: r.stated(e, news)}) {
				return frame.Errorf(frame.SendStalled, "agent does not read")
			}
		case frame.OfferAck:
			var ack arp.OfferAck
			if err := frame.Unmarshal(payload, &ack); err != nil || len(ack.CTI) != 16 {
				a.conn.Close(frame.Malformed, "")
				return frame.Errorf(frame.Malformed, "OFFER_ACK cannot be read")
			}
			a.acknowledge(ack)
		default:
			if !t.Optional() {
				a.conn.Close(frame.UnexpectedFrame, "")
				return frame.Errorf(frame.UnexpectedFrame, "got %v on an agent's control stream", t)
			}
		}
	}
}

// request answers one semantic request. When the agent gives up its stream, the work ends.
func (r *Registrar) request(ctx context.Context, s *endpoint.Stream, agent Agent) {
	var req semreq.Request
	if err := s.ReadMessage(readTime, &req); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	a := r.findOn(agent.AIC, s.Conn())
	if a == nil || a.adopting.Load() != nil {
		s.Reset(frame.State) // it has not attached on this connection, or is not at home yet
		return
	}
	s.SetPriority(2, false)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(s.Context(), cancel)
	defer stop()
	a.asking.Add(1)
	defer a.asking.Add(-1) // when the answer is written
	out := r.cfg.Answer(ctx, a.agent, &req)
	if err := s.WriteMessage(writeTime, out); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	s.CloseWrite()
}
