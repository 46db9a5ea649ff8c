package aaap

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// ClientConfig of a client.
type ClientConfig struct {
	Address     string // host:port of the AMC
	Gateway     string // AIC
	Issuer      string // AIC of the AMC
	AMC         string // AIC of the process at Address; empty: the AMC itself, or any gateway of its bundle
	Certificate func() tls.Certificate
	Trust       *identity.Trust
	Statuses    *identity.Statuses
	Addresses   []arp.HostPort // where agents reach this gateway
	// Status and Bundle take what the AMC pushes. They may be slow: the AMC waits, and gives up after ten seconds.
	Status func(ctx context.Context, raw []byte)
	Bundle func(ctx context.Context, raw []byte)
	Log    *slog.Logger
}

// Client is a gateway's AMC on another host. It implements amc.Center. Create it with [NewClient], run it with Run.
type Client struct {
	cfg  ClientConfig
	boot [16]byte

	mu      sync.Mutex // guards the rest
	ep      *endpoint.Endpoint
	conn    *endpoint.Conn // nil while detached
	lastErr error
}

// NewClient makes a client; nothing is dialled before Run.
func NewClient(cfg ClientConfig) *Client {
	c := &Client{cfg: cfg}
	rand.Read(c.boot[:]) // it never fails
	return c
}

// Run keeps the gateway attached to its AMC until ctx ends.
func (c *Client) Run(ctx context.Context, ep *endpoint.Endpoint) {
	c.mu.Lock()
	c.ep = ep
	c.mu.Unlock()
	wait := backoffMin
	for ctx.Err() == nil {
		began := time.Now()
		err := c.attach(ctx, ep)
		c.set(nil, err)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			wait = backoffMin
		}
		c.cfg.Log.Warn("not attached to the AMC, will try again", "amc", c.cfg.Address, "err", err, "wait", wait.Round(time.Millisecond).String())
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(mrand.Int64N(int64(wait))) + wait/2):
		}
		wait = min(2*wait, backoffMax)
	}
}

func (c *Client) set(conn *endpoint.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.lastErr = conn, err
}

// Address is host:port of the AMC.
func (c *Client) Address() string { return c.cfg.Address }

// Attached says whether the AMC is reached, and if not why.
func (c *Client) Attached() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil, c.lastErr
}

// Role admits the AMC and nobody else.
func (c *Client) Role(p identity.Peer) error {
	known := string(p.AIC) == c.cfg.AMC || c.cfg.AMC == "" && (string(p.AIC) == p.Bundle.Issuer || p.Bundle.IsGateway(string(p.AIC)))
	if !c.cfg.Trust.Home(p.Bundle) || p.Bundle.Issuer != c.cfg.Issuer || !known {
		return frame.Errorf(frame.IdentityMismatch, "%s is not the AMC %s of this gateway's own domain", p.AIC, c.cfg.Issuer)
	}
	return nil
}

func (c *Client) dial(ctx context.Context, ep *endpoint.Endpoint, certificate tls.Certificate) (*endpoint.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	return ep.Dial(ctx, c.cfg.Address, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: certificate, Verify: c.cfg.Trust.Verify(x509.ExtKeyUsageServerAuth, c.Role),
	})
}

// attach makes one connection and serves it until it ends.
func (c *Client) attach(ctx context.Context, ep *endpoint.Endpoint) error {
	conn, err := c.dial(ctx, ep, c.cfg.Certificate())
	if err != nil {
		return err
	}
	defer conn.Close(frame.OK, "")
	st, err := conn.Open(ctx, frame.StreamControl)
	if err != nil {
		return err
	}
	m := &arp.Attach{AIC: c.cfg.Gateway, BootID: c.boot[:], Now: uint64(time.Now().Unix())}
	for _, b := range c.cfg.Trust.Issuers(c.cfg.Trust.Own().Domain) {
		seq, _ := c.cfg.Statuses.Held(b.Issuer)
		m.Trust = append(m.Trust, arp.TrustHeld{Issuer: b.Issuer, BundleSeq: b.Seq, StatusSeq: seq})
	}
	for _, a := range c.cfg.Addresses {
		m.Endpoints = append(m.Endpoints, semreq.Endpoint{Host: a.Host, Port: a.Port, ALPN: frame.ALPNControl})
	}
	if err := st.WriteMessage(writeTime, m); err != nil {
		return err
	}
	var info arp.Attached
	if err := st.ReadMessage(attachTime, &info); err != nil {
		return err
	}
	if info.Code != frame.OK {
		return frame.Errorf(info.Code, "the AMC does not take this gateway")
	}
	c.set(conn, nil)
	c.cfg.Log.Info("attached to the AMC", "amc", c.cfg.Address)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	writer.Go(func() { writeControl(ctx, conn, st, nil) })
	return c.read(ctx, st)
}

// read takes what the AMC pushes.
func (c *Client) read(ctx context.Context, st *endpoint.Stream) error {
	for {
		t, payload, err := st.ReadFrame(silence)
		if err != nil {
			return err
		}
		switch t {
		case frame.CtlKeepalive:
		case frame.StatusFrame:
			var m arp.Status
			if err := frame.Unmarshal(payload, &m); err != nil {
				return err
			}
			c.cfg.Status(ctx, m.List)
		case frame.BundleFrame:
			var m arp.Bundle
			if err := frame.Unmarshal(payload, &m); err != nil {
				return err
			}
			c.cfg.Bundle(ctx, m.Bundle)
		default:
			if !t.Optional() {
				return frame.Errorf(frame.UnexpectedFrame, "the AMC sent %v", t)
			}
		}
	}
}

// ask makes one exchange. An ANSWER with a code is the error that it stands for.
func (c *Client) ask(ctx context.Context, m frame.Message, want frame.Type, out frame.Message) error {
	c.mu.Lock()
	conn, why := c.conn, c.lastErr
	c.mu.Unlock()
	if conn == nil {
		return frame.Errorf(frame.UpstreamFailed, "the AMC at %s cannot be reached now, so nothing new can be registered or renewed: try again later (%w)", c.cfg.Address, orNotYet(why))
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answered, err := exchange(ctx, conn, m, want, out)
	if err != nil && !answered { // the connection's own words would not say whose it is
		return frame.Errorf(frame.UpstreamFailed, "the AMC at %s does not answer, so nothing new can be registered or renewed: try again later (%w)", c.cfg.Address, err)
	}
	return err
}

// exchange says whether the AMC has answered; an error may be its answer.
func exchange(ctx context.Context, conn *endpoint.Conn, m frame.Message, want frame.Type, out frame.Message) (answered bool, err error) {
	st, err := conn.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { st.Reset(frame.Cancelled) })
	defer stop()
	if err := st.WriteMessage(writeTime, m); err != nil {
		st.Reset(frame.Cancelled)
		return false, err
	}
	st.CloseWrite()
	t, payload, err := st.ReadFrame(askTime)
	if err != nil {
		st.Reset(frame.Cancelled)
		return false, err
	}
	if t == frame.Answer {
		var a arp.Answer
		if err := frame.Unmarshal(payload, &a); err != nil {
			return true, err
		}
		if err := a.Err(); err != nil || want == frame.Answer {
			return true, err
		}
	}
	if t != want {
		return true, frame.Errorf(frame.UnexpectedFrame, "the AMC answered %v with %v", m.FrameType(), t)
	}
	return true, frame.Unmarshal(payload, out)
}

type notYet struct{}

func (notYet) Error() string { return "no attempt has ended yet" }

func orNotYet(err error) error {
	if err == nil {
		return notYet{}
	}
	return err
}

// Check implements amc.Center: only the AMC knows its tokens, and it is asked when the rest of a request is good.
func (c *Client) Check(context.Context, []byte, [32]byte) error { return nil }

// Authorise implements amc.Center.
func (c *Client) Authorise(ctx context.Context, q *arp.AuthzRequest) (*arp.AuthzResponse, error) {
	out := new(arp.AuthzResponse)
	if err := c.ask(ctx, q, frame.AuthzResponse, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Issue implements amc.Center.
func (c *Client) Issue(ctx context.Context, _ string, m *arp.Renew) (*arp.Credential, error) {
	out := new(arp.Credential)
	if err := c.ask(ctx, m, frame.Credential, out); err != nil {
		return nil, err
	}
	if len(out.Chain) == 0 {
		return nil, frame.Errorf(frame.Malformed, "credential without a certificate")
	}
	return out, nil
}

// Withdraw implements amc.Center.
func (c *Client) Withdraw(ctx context.Context, _ string, m *arp.Deregister) error {
	return c.ask(ctx, m, frame.Answer, nil)
}

// PutKeys has the AMC publish this gateway's signing keys, and returns the bundle that does.
func (c *Client) PutKeys(ctx context.Context, keys []arp.GatewayKey) ([]byte, error) {
	keys = slices.Clone(keys)
	for i := range keys {
		if keys[i].Proof == nil {
			keys[i].Proof = []byte{} // nil has no place in a payload
		}
	}
	raw, err := frame.Marshal(arp.GatewayDraft{Keys: keys, Addresses: c.cfg.Addresses})
	if err != nil {
		return nil, err
	}
	out := new(arp.ACSState)
	err = c.ask(ctx, &arp.ACSPut{AIC: c.cfg.Gateway, ACS: raw, Kind: arp.DraftGateway}, frame.ACSState, out)
	return out.ACS, err
}

// RenewLate renews the certificate of this gateway after it has expired, with nothing but the key.
func (c *Client) RenewLate(ctx context.Context, key crypto.Signer, m *arp.Renew) (*arp.Credential, error) {
	c.mu.Lock()
	ep := c.ep
	c.mu.Unlock()
	if ep == nil {
		return nil, frame.Errorf(frame.UpstreamFailed, "not started yet")
	}
	self, err := identity.SelfSigned(key)
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx, ep, self)
	if err != nil {
		return nil, err
	}
	defer conn.Close(frame.OK, "")
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out := new(arp.Credential)
	_, err = exchange(ctx, conn, m, frame.Credential, out)
	return out, err
}
