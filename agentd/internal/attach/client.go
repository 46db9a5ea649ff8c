package attach

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	attachTime  = 5 * time.Second // for ATTACHED: a dial that returned proves nothing yet
	backoffMin  = 500 * time.Millisecond
	backoffMax  = 10 * time.Second
	steadyAfter = 60 * time.Second // attached for so long, the next back-off starts small again
	outQueue    = 128
	maxSkew     = 120 * time.Second
	readSlack   = 500 * time.Millisecond // beyond a request's budget, for the answer to arrive
	answerTime  = 5 * time.Second        // for the answer to a keepalive: a gateway that does not give it has gone
)

// Config of a client.
type Config struct {
	Endpoint *endpoint.Endpoint
	Gateway  string // host:port; with Find what its gateway is called in messages
	// Find is the addresses of the gateway, the best first, and may have both some and an error: each attempt to attach takes the next one. It
	// grants nothing, since who answers there is judged as anybody. nil: it is at Gateway.
	Find        func(ctx context.Context) ([]string, error)
	AIC         string
	Certificate tls.Certificate
	NextKey     crypto.Signer // of a re-key that was cut short, nil for none
	// Renewed keeps a renewed credential over restarts. An error is logged; the running agent uses it anyway.
	Renewed func(Renewal) error
	// KeepNext keeps the key of a re-key before anybody hears of it; nil removes it.
	KeepNext func(key crypto.Signer) error
	Grant    []byte
	Trust    *identity.Trust
	Statuses *identity.Statuses
	// KeepBundle keeps a newer bundle of the own domain over restarts.
	KeepBundle func(raw []byte) error
	// Revoked is told which sessions end now. It must not block.
	Revoked func(m *arp.SessionRevoke)
	// Home is what is remembered of the gateway that it was attached at last. KeepHome keeps it over restarts; an error is logged.
	Home     Home
	KeepHome func(Home) error
	// ACS is the authoritative ACS as the gateway has sent it last.
	ACS func() ([]byte, error)
	// Listening is where this agent takes sessions now.
	Listening func() []semreq.Endpoint
	// Capacity is how many of this agent's places are free now, of 255: its gateway prefers the less busy of two that answer alike.
	Capacity func() uint8
	// Offered is shown a session token; its code is the acknowledgement. It must not block.
	Offered func(cti [16]byte, sat []byte) frame.Code
	Log     *slog.Logger
}

// Client keeps one agent attached. Create it with [New], run it with Run.
type Client struct {
	cfg  Config
	log  *slog.Logger
	boot [16]byte

	certificate atomic.Pointer[tls.Certificate] // the current one
	grant       atomic.Pointer[[]byte]          // that belongs to its key
	renewing    sync.Mutex                      // one renewal or re-key at a time; guards next
	next        crypto.Signer                   // of a re-key of which it is not known whether the gateway has taken it, nil for none
	switching   chan struct{}                   // holds a value when a renewed certificate waits to be attached with

	mu      sync.Mutex // guards the rest
	link    *link      // nil while detached
	lastErr error
	home    Home
	failed  int             // attempts to attach, of which address is next
	refused error           // why the credential is not renewed any more
	ousted  error           // why the agent's domain has taken it out of service, as far as the gateway has said; nil once it attaches
	since   time.Time       // detached since then; zero: attached
	waiters []chan struct{} // closed at the next attachment
}

// link is one attached connection.
type link struct {
	conn    *endpoint.Conn
	control *endpoint.Stream
	out     chan frame.Message
	info    arp.Attached
	version atomic.Uint64 // of the agent's entry
	spki    []byte        // DER SubjectPublicKeyInfo of the key that it attached under
	gateway string        // AIC
	address string        // that was dialled
}

// New makes a client; it does nothing before Run.
func New(cfg Config) (*Client, error) {
	c := &Client{cfg: cfg, log: cfg.Log, switching: make(chan struct{}, 1), since: time.Now(), next: cfg.NextKey, home: cfg.Home}
	c.certificate.Store(&cfg.Certificate)
	c.grant.Store(&cfg.Grant)
	_, err := rand.Read(c.boot[:])
	return c, err
}

// Certificate is the agent's credential as of now.
func (c *Client) Certificate() tls.Certificate { return *c.certificate.Load() }

// Run keeps the agent attached and its credential fresh until ctx ends.
func (c *Client) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { c.keepFresh(ctx) })
	wait := backoffMin
	var renewed time.Time // because of a refusal
	for ctx.Err() == nil {
		began := time.Now()
		select {
		case <-c.switching: // what is established now uses the newest credential anyway
		default:
		}
		c.finishReKey(ctx)
		l, err := c.establish(ctx)
		if err == nil {
			ended := make(chan error, 1)
			running.Go(func() { ended <- c.serve(ctx, l) })
			select {
			case err = <-ended:
			case <-c.switching: // attach with the newer credential; the gateway lets this connection go when that is done
				wait = backoffMin
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		c.setDetached(l, err)
		if code := frame.CodeOf(err); (code == frame.IdentityMismatch || code == frame.TrustDenied) && time.Since(renewed) > renewFinal {
			if renewed = time.Now(); c.renewRefused(ctx, err) {
				continue
			}
		}
		if _, why := c.Attached(); why != nil { // what TLS says of a refused certificate tells nobody anything
			err = why
		}
		if time.Since(began) > steadyAfter {
			wait = backoffMin
		}
		c.log.Warn("not attached, will try again", "gateway", c.cfg.Gateway, "err", err, "wait", wait.Round(time.Millisecond).String())
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(mrand.Int64N(int64(wait))) + wait/2): // jitter: a restarted gateway meets its agents one by one
		}
		wait = min(2*wait, backoffMax)
	}
}

// establish dials and attaches. That the dial returns proves nothing: TLS 1.3 lets the client finish before the server has
// judged it.
func (c *Client) establish(ctx context.Context) (*link, error) {
	certificate := c.Certificate()
	address, err := c.where(ctx) // with time of its own
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	conn, err := c.dialAt(ctx, address, certificate)
	if err != nil {
		c.tryNext()
		return nil, err
	}
	l := &link{conn: conn, address: address, out: make(chan frame.Message, outQueue), spki: certificate.Leaf.RawSubjectPublicKeyInfo}
	if err = c.attach(ctx, l); err == nil && l.info.WantACS {
		err = c.settleAt(ctx, l)
	}
	if err != nil {
		c.tryNext()
		conn.Close(frame.OK, "")
		return nil, err
	}
	c.setAttached(l)
	c.succeeded()
	c.log.Info("attached", "gateway", c.cfg.Gateway, "remote", conn.RemoteAddr().String())
	return l, nil
}

// where is the address to dial now: first the one that was good last, then those that are configured, then the other gateways of the domain, which the
// last one has named; another one after each failure, so that none that is dead or not ours is dialled for ever.
func (c *Client) where(ctx context.Context) (string, error) {
	configured, err := []string{c.cfg.Gateway}, error(nil)
	if c.cfg.Find != nil {
		configured, err = c.cfg.Find(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []string
	for _, list := range [][]string{{c.home.Address}, configured, c.home.Others} {
		for _, address := range list {
			if address != "" && !slices.Contains(found, address) {
				found = append(found, address)
			}
		}
	}
	if len(found) == 0 {
		if err == nil {
			err = frame.Errorf(frame.NotFound, "no address of the gateway %s is known", c.cfg.Gateway)
		}
		return "", err
	}
	return found[c.failed%len(found)], nil
}

// succeeded has the address of the home dialled first again.
func (c *Client) succeeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = 0
}

// tryNext has another address dialled next time.
func (c *Client) tryNext() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
}

func (c *Client) attach(ctx context.Context, l *link) (err error) {
	if l.control, err = l.conn.Open(ctx, frame.StreamControl); err != nil {
		return err
	}
	id, err := identity.AICOf(l.conn.PeerLeaf())
	if err != nil {
		return err
	}
	l.gateway = string(id)
	err = l.control.WriteMessage(writeTime, &arp.Attach{
		AIC: c.cfg.AIC, BootID: c.boot[:], Endpoints: c.cfg.Listening(), Capacity: c.cfg.Capacity(), Grant: *c.grant.Load(),
		Trust: c.held(), Now: uint64(time.Now().Unix()), Entry: c.statement(),
	})
	if err != nil {
		return err
	}
	if err := l.control.ReadMessage(attachTime, &l.info); err != nil {
		return err
	}
	if skew := time.Until(time.Unix(int64(l.info.Now), 0)).Round(time.Second); l.info.Now != 0 && skew.Abs() > maxSkew {
		return frame.Errorf(frame.ClockSkew, "the gateway's clock is ahead of ours by %s (behind, if negative), more than %s: set one of them", skew, maxSkew)
	}
	if l.info.Code != frame.OK {
		return frame.Errorf(l.info.Code, "the gateway does not take the agent")
	}
	l.version.Store(l.info.EntryVersion)
	c.keepHome(l, l.info.EntryVersion, l.info.Entry)
	return nil
}

func (c *Client) role(p identity.Peer) error {
	if p.Bundle.Source != identity.Own || !p.Bundle.IsGateway(string(p.AIC)) {
		return frame.Errorf(frame.IdentityMismatch, "%s is not a gateway of this agent's own domain", p.AIC)
	}
	return nil
}

// serve runs an attached connection until it ends.
func (c *Client) serve(ctx context.Context, l *link) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var writer sync.WaitGroup
	defer writer.Wait()
	defer l.conn.Close(frame.OK, "")
	writer.Go(func() {
		c.write(ctx, l)
		l.conn.Close(frame.OK, "") // ends the reader
	})
	silent := min(time.Duration(l.info.OfflineMS)*time.Millisecond, keepaliveOf(&l.info)+answerTime)
	for {
		t, payload, err := l.control.ReadFrame(silent)
		if err != nil {
			cancel()
			return err
		}
		if err := c.receive(l, t, payload); err != nil {
			cancel()
			l.conn.Close(frame.CodeOf(err), "")
			return err
		}
	}
}

// keepaliveOf is how often the gateway wants to hear of the agent; it answers each time.
func keepaliveOf(a *arp.Attached) time.Duration {
	return max(time.Second, time.Duration(a.KeepaliveMS)*time.Millisecond)
}

func (c *Client) write(ctx context.Context, l *link) {
	tick := time.NewTicker(keepaliveOf(&l.info))
	defer tick.Stop()
	for {
		var m frame.Message
		select {
		case m = <-l.out:
		case now := <-tick.C:
			m = &arp.Keepalive{TSMS: uint64(now.UnixMilli()), Capacity: c.cfg.Capacity(), Version: c.stated(), Pad: arp.KeepalivePad}
		case <-l.conn.Draining():
			return
		case <-l.conn.Context().Done():
			return
		case <-ctx.Done():
			return
		}
		if l.control.WriteMessage(writeTime, m) != nil {
			return
		}
	}
}

func (c *Client) receive(l *link, t frame.Type, payload []byte) error {
	switch t {
	case frame.CtlKeepalive:
		var k arp.Keepalive
		if err := frame.Unmarshal(payload, &k); err != nil {
			return err
		}
		if k.Version != 0 { // a gateway of before it told the version does not
			l.version.Store(k.Version)
		}
		c.keepHome(l, k.Version, k.Entry)
		return nil
	case frame.SessionOffer:
		var o arp.SessionOffer
		if err := frame.Unmarshal(payload, &o); err != nil {
			return err
		}
		if len(o.CTI) != 16 {
			return frame.Errorf(frame.Malformed, "offer without an id")
		}
		code := c.cfg.Offered([16]byte(o.CTI), o.SAT)
		return l.send(&arp.OfferAck{CTI: o.CTI, Code: code, Endpoints: c.cfg.Listening()})
	case frame.SessionRevoke:
		var m arp.SessionRevoke
		if err := frame.Unmarshal(payload, &m); err != nil {
			return err
		}
		if err := m.Check(); err != nil {
			return err
		}
		c.cfg.Revoked(&m)
		return nil
	case frame.BundleFrame:
		var m arp.Bundle
		if err := frame.Unmarshal(payload, &m); err != nil {
			return err
		}
		c.takeBundle(m.Bundle)
		return nil
	case frame.StatusFrame:
		var m arp.Status
		if err := frame.Unmarshal(payload, &m); err != nil {
			return err
		}
		c.takeStatus(m.List)
		return nil
	}
	if t.Optional() {
		return nil
	}
	return frame.Errorf(frame.UnexpectedFrame, "got %v on the control stream", t)
}

func (l *link) send(m frame.Message) error {
	select {
	case l.out <- m:
		return nil
	default:
		return frame.Errorf(frame.SendStalled, "the gateway does not read")
	}
}

// OfferUsed tells the gateway that an offer has become a session: its place is free.
func (c *Client) OfferUsed(cti [16]byte) {
	if l := c.current(); l != nil {
		l.send(&arp.OfferAck{CTI: cti[:], Code: frame.TokenReplayed})
	}
}

func (c *Client) setAttached(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.lastErr, c.since, c.ousted = l, nil, time.Time{}, nil
	if outOfService(c.refused) { // not any more
		c.refused = nil
	}
	for _, w := range c.waiters {
		close(w)
	}
	c.waiters = nil
}

// setDetached notes that l has ended, or that none could be made (nil). A link that lives stays.
func (c *Client) setDetached(l *link, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == l || c.alive() == nil {
		c.link = nil
		if c.since.IsZero() {
			c.since = time.Now()
		}
	}
	c.lastErr = err
	if l != nil && outOfService(err) && time.Now().Before(c.Certificate().Leaf.NotAfter) { // it was good until now
		c.ousted = frame.Errorf(frame.CodeOf(err), "the agent is suspended or revoked: ask the operator of its domain")
	}
}

// outOfService says whether a gateway's refusal may mean that the agent was suspended or revoked.
func outOfService(err error) bool {
	code := frame.CodeOf(err)
	return code == frame.CertStatus || code == frame.Revoked
}

// current is the attached connection, nil without one. One that has ended counts no more, whoever has noticed it yet.
func (c *Client) current() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alive()
}

func (c *Client) alive() *link {
	if c.link != nil && c.link.conn.Context().Err() != nil {
		return nil
	}
	return c.link
}

// Attached says whether the agent is attached, and if not why. That its domain has taken it out of service, or that its credential is
// refused for good, are better reasons than what the last attempt met.
func (c *Client) Attached() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	attached := c.alive() != nil
	if !attached && c.ousted != nil {
		return false, c.ousted
	}
	if !attached && c.refused != nil {
		return false, c.refused
	}
	return attached, c.lastErr
}

// Away is how long the agent has been without its gateway.
func (c *Client) Away() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}

// WaitAttached returns when the agent is attached, or with ctx.
func (c *Client) WaitAttached(ctx context.Context) error {
	return c.await(ctx, func(*link) bool { return true })
}

// WaitCurrent returns when the agent is attached under its current key, or with ctx: after a re-key the gateway provisions sessions for
// the new one over a connection of that alone.
func (c *Client) WaitCurrent(ctx context.Context) error {
	return c.await(ctx, func(l *link) bool {
		return bytes.Equal(l.spki, c.Certificate().Leaf.RawSubjectPublicKeyInfo)
	})
}

// await waits for a link that is good for something; good must not wait.
func (c *Client) await(ctx context.Context, good func(*link) bool) error {
	for {
		c.mu.Lock()
		if l := c.alive(); l != nil && good(l) {
			c.mu.Unlock()
			return nil
		}
		w := make(chan struct{})
		c.waiters = append(c.waiters, w)
		c.mu.Unlock()
		select {
		case <-w:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SPKI is the hash of this agent's key.
func (c *Client) SPKI() ([32]byte, error) { return identity.SPKIHash(c.Certificate().Leaf.PublicKey) }

// Resolve sends one semantic request and waits for the response, at most its budget and a little. When ctx ends first the
// gateway is told, and stops working on it. A connection that breaks meanwhile is waited for, and the request sent once more,
// while its budget lasts.
func (c *Client) Resolve(ctx context.Context, r *semreq.Request) (*semreq.Response, error) {
	budget := time.Duration(r.BudgetMS)*time.Millisecond + readSlack
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	out, err := c.ask(limited, r)
	for tries := 0; tries < 2 && frame.CodeOf(err) == frame.UpstreamFailed && c.WaitAttached(limited) == nil; tries++ { // the first may meet the end of the same connection
		again := *r
		left := time.Until(began.Add(budget)) - readSlack // as much as the caller still waits for an answer
		again.BudgetMS = uint64(max(left.Milliseconds(), 1))
		again.ReqID = make([]byte, 16) // a gateway further on may have seen the first one
		rand.Read(again.ReqID)         // it never fails
		out, err = c.ask(limited, &again)
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, frame.Errorf(frame.Deadline, "the gateway %s does not answer; is it down? (%w)", c.cfg.Gateway, err)
	}
	return out, err
}

// ask sends a request once. A gateway answers within a request's budget, whatever the answer is: one that does not has gone
// without a word, and its connection is given up.
func (c *Client) ask(ctx context.Context, r *semreq.Request) (*semreq.Response, error) {
	l := c.current()
	if l == nil {
		_, err := c.Attached()
		return nil, frame.Errorf(frame.UpstreamFailed, "not attached to the gateway %s: %w", c.cfg.Gateway, orUnknown(err))
	}
	s, err := l.conn.Open(ctx, frame.StreamRequest)
	if err != nil {
		if ctx.Err() == nil { // it has ended, and has not said so everywhere yet: nobody shall wait for it to be used
			l.conn.Close(frame.OK, "")
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { s.Reset(frame.Cancelled) })
	defer stop()
	if err := s.WriteMessage(writeTime, r); err != nil {
		return nil, err
	}
	s.CloseWrite()
	asked, out := time.Now(), new(semreq.Response)
	if err := s.ReadMessage(time.Minute, out); err != nil {
		s.Reset(frame.Cancelled)
		if ctx.Err() != nil && time.Since(asked) > time.Duration(r.BudgetMS)*time.Millisecond+readSlack/2 {
			l.conn.Close(frame.Deadline, "")
		}
		return nil, err
	}
	return out, out.Validate()
}

type notYet struct{}

func (notYet) Error() string { return "no attempt has ended yet" }

func orUnknown(err error) error {
	if err == nil {
		return notYet{}
	}
	return err
}
