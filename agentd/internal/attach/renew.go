package attach

import (
	"context"
	"crypto"
	"crypto/x509"
	mrand "math/rand/v2"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	renewTime     = 15 * time.Second
	renewRetryMin = 10 * time.Second
	renewFloor    = time.Second // between two attempts, however short a certificate's life is
	renewLook     = time.Minute // between two looks at the clock
)

// keepFresh renews the credential when half of its life is over, give or take a tenth. A renewal that does not succeed is
// tried again, ever more rarely, down to a tenth of the life; one that is refused for good is said so, and still tried.
func (c *Client) keepFresh(ctx context.Context) {
	leaf := c.Certificate().Leaf
	due := renewAt(leaf)
	retry := renewRetryMin
	for {
		if sleepUntil(ctx, due) != nil {
			return
		}
		err := c.renew(ctx)
		leaf = c.Certificate().Leaf
		life := leaf.NotAfter.Sub(leaf.NotBefore)
		if err == nil {
			due, retry = renewAt(leaf), min(renewRetryMin, life/20)
			c.log.Info("credential renewed", "until", leaf.NotAfter.UTC().Format(time.RFC3339))
			continue
		}
		if ctx.Err() != nil {
			return
		}
		level := c.log.Warn
		if time.Until(leaf.NotAfter) < life/4 {
			level = c.log.Error
		}
		level("credential not renewed", "until", leaf.NotAfter.UTC().Format(time.RFC3339), "err", err)
		due = time.Now().Add(retry).Round(0)
		retry = max(min(2*retry, life/10), renewFloor)
	}
}

// sleepUntil waits for a time of day, and at least [renewFloor]. It looks again and again: a timer stands still while the
// machine is suspended, and does not see that the clock is set.
func sleepUntil(ctx context.Context, due time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(max(time.Until(due), renewFloor), renewLook)):
		}
		if time.Until(due) <= 0 {
			return nil
		}
	}
}

func renewAt(leaf *x509.Certificate) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(life/2 + time.Duration((mrand.Float64()-0.5)*0.2*float64(life/2)))
}

// renew gets the next certificate over the key of the current one: on the attached connection, or when the current one has
// expired on a connection that proves the key alone.
func (c *Client) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	current := c.Certificate()
	l := c.current()
	if l == nil {
		conn, err := c.dialForRenewal(ctx)
		if err != nil {
			return err
		}
		defer conn.Close(frame.OK, "")
		l = &link{conn: conn}
	}
	key := current.PrivateKey.(crypto.Signer) // [identity.TLSCertificate] made it of one
	csr, err := identity.NewCSR(key)
	if err != nil {
		return err
	}
	chain, err := renewOver(ctx, l.conn, c.cfg.AIC, csr)
	if err != nil {
		return err
	}
	next, err := identity.TLSCertificate(chain, key)
	if err != nil {
		return err
	}
	if id, err := identity.AICOf(next.Leaf); err != nil || string(id) != c.cfg.AIC {
		return frame.Errorf(frame.IdentityMismatch, "the renewed certificate is not this agent's")
	}
	c.certificate.Store(&next)
	if err := c.cfg.Renewed(chain); err != nil {
		c.log.Error("renewed credential not kept: it is lost with this process", "err", err)
	}
	select {
	case c.switching <- struct{}{}:
	default:
	}
	return nil
}

// dialForRenewal connects while the agent is not attached: under the current certificate, or under one that is self-signed
// over the same key when that has expired.
func (c *Client) dialForRenewal(ctx context.Context) (*endpoint.Conn, error) {
	certificate := c.Certificate()
	if time.Now().After(certificate.Leaf.NotAfter) {
		self, err := identity.SelfSigned(certificate.PrivateKey.(crypto.Signer))
		if err != nil {
			return nil, err
		}
		certificate = self
	}
	return c.cfg.Endpoint.Dial(ctx, c.cfg.Gateway, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: certificate, Verify: c.cfg.Trust.Verify(x509.ExtKeyUsageServerAuth, c.role),
	})
}

func renewOver(ctx context.Context, conn *endpoint.Conn, aic string, csr []byte) ([][]byte, error) {
	s, err := conn.Open(ctx, frame.StreamRegistration)
	if err != nil {
		return nil, err
	}
	if err := s.WriteMessage(writeTime, &arp.Renew{AIC: aic, CSR: csr}); err != nil {
		s.Reset(frame.Cancelled)
		return nil, err
	}
	s.CloseWrite()
	t, payload, err := s.ReadFrame(renewTime)
	if err != nil {
		s.Reset(frame.Cancelled)
		return nil, err
	}
	switch t {
	case frame.Credential:
		var m arp.Credential
		if err := frame.Unmarshal(payload, &m); err != nil {
			return nil, err
		}
		if len(m.Chain) == 0 {
			return nil, frame.Errorf(frame.Malformed, "credential without a certificate")
		}
		return m.Chain, nil
	case frame.Answer:
		var a arp.Answer
		if err := frame.Unmarshal(payload, &a); err != nil {
			return nil, err
		}
		if err := a.Err(); err != nil {
			return nil, err
		}
	}
	return nil, frame.Errorf(frame.UnexpectedFrame, "the gateway answered a renewal with %v", t)
}
