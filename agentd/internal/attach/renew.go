package attach

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
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
	renewFinal    = 10 * time.Minute
)

// keepFresh renews the credential when half of its life is over, give or take a tenth. A renewal that does not succeed is
// tried again, ever more rarely, down to a tenth of the life; one that is refused for good is said so, and still tried.
func (c *Client) keepFresh(ctx context.Context) {
	leaf := c.Certificate().Leaf
	due := renewAt(leaf)
	retry := min(renewRetryMin, identity.Life(leaf)/20)
	for {
		if sleepUntil(ctx, due) != nil {
			return
		}
		err := c.renew(ctx)
		leaf = c.Certificate().Leaf
		life := identity.Life(leaf)
		if err == nil {
			c.setRefused(nil)
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
		if final(err) { // asking more often changes nothing: a person has to act, and is told so
			retry = max(retry, min(renewFinal, life/10))
			c.setRefused(err)
		}
		due = time.Now().Add(retry).Round(0)
		retry = max(min(2*retry, life/10), renewFloor)
	}
}

// final says whether a refusal will stay one until a person acts.
func final(err error) bool {
	switch frame.CodeOf(err) {
	case frame.Revoked, frame.Expired, frame.CertStatus, frame.Binding, frame.PolicyDenied:
		return true
	}
	return false
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
	return identity.HalfLife(leaf).Add(time.Duration((mrand.Float64() - 0.5) * 0.2 * float64(identity.Life(leaf)/2)))
}

// Renewal is a credential that takes the place of the one before.
type Renewal struct {
	Key   crypto.Signer // the same one, but for a re-key
	Chain [][]byte      // leaf first
	Grant []byte        // signed; nil: the one before counts on
	ReKey bool
}

// renew gets the next certificate over the key of the current one: on the attached connection, or when the current one has
// expired on a connection that proves the key alone.
func (c *Client) renew(ctx context.Context) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	if c.next != nil {
		return c.settle(ctx)
	}
	current := c.Certificate()
	conn, done, err := c.connForRenewal(ctx)
	if err != nil {
		return err
	}
	defer done()
	key := current.PrivateKey.(crypto.Signer) // [identity.TLSCertificate] made it of one
	return c.renewOver(ctx, conn, key, false)
}

// renewRefused renews at once because the gateway does not take the agent as it is: a gateway that was restored from a backup, for one,
// knows an older grant than the agent's. Where the certificate is refused in the handshake, which cannot say why, the key alone is
// shown: the answer is then a new certificate, or the reason.
func (c *Client) renewRefused(ctx context.Context, refusal error) bool {
	renew := c.renew
	if frame.CodeOf(refusal) == frame.TrustDenied {
		renew = c.renewWithKey
	}
	err := renew(ctx)
	c.log.Warn("the gateway does not know this credential, a new one is asked for", "refusal", refusal, "err", err)
	switch {
	case outOfService(err):
		c.setOusted(err)
	case final(err):
		c.setRefused(err)
	}
	return err == nil
}

// renewWithKey renews with nothing but the key of the current certificate.
func (c *Client) renewWithKey(ctx context.Context) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	if c.next != nil {
		return c.settle(ctx)
	}
	return c.renewProved(ctx, c.Certificate().PrivateKey.(crypto.Signer), false)
}

// ReKey replaces the agent's key under the same AIC, while it is attached. Renewed is told, and moves the sessions that run.
func (c *Client) ReKey(ctx context.Context) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	if c.next != nil { // its key is in the one place for it
		before := c.next
		if err := c.settle(ctx); err != nil {
			return fmt.Errorf("finish the re-key that was cut short: %w", err)
		}
		if c.Certificate().PrivateKey == before {
			return nil
		}
	}
	l := c.current()
	if l == nil {
		_, err := c.Attached()
		return frame.Errorf(frame.UpstreamFailed, "a re-key needs the gateway %s, and the agent is not attached: %w", c.cfg.Gateway, orUnknown(err))
	}
	key, err := identity.NewLeafKey()
	if err != nil {
		return err
	}
	if err := c.cfg.KeepNext(key); err != nil { // an answer that a crash loses is asked for again with it
		return fmt.Errorf("keep the next key: %w", err)
	}
	c.next = key
	return c.renewOver(ctx, l.conn, key, true)
}

// finishReKey asks again for what a crash, or an answer that was lost, has left open.
func (c *Client) finishReKey(ctx context.Context) {
	if !c.renewing.TryLock() { // whoever holds it settles it first too, and attaching need not wait for that
		return
	}
	defer c.renewing.Unlock()
	if c.next == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	c.log.Info("re-key that was cut short", "err", c.settle(ctx))
}

// settle finds out whether the gateway has taken the next key, which is for it to say: until then neither key may be given up. Where
// it has not, the old one is renewed: the AMC may have heard of the next one, and counts the certificate held as superseded.
func (c *Client) settle(ctx context.Context) error {
	err := c.renewProved(ctx, c.next, true)
	if frame.CodeOf(err) != frame.Binding {
		return err
	}
	if err := c.cfg.KeepNext(nil); err != nil {
		return err
	}
	c.next = nil
	return c.renewProved(ctx, c.Certificate().PrivateKey.(crypto.Signer), false)
}

// renewProved renews on a connection that proves the key alone.
func (c *Client) renewProved(ctx context.Context, key crypto.Signer, reKey bool) error {
	conn, err := c.dialWith(ctx, key)
	if err != nil {
		return err
	}
	defer conn.Close(frame.OK, "")
	return c.renewOver(ctx, conn, key, reKey)
}

func (c *Client) renewOver(ctx context.Context, conn *endpoint.Conn, key crypto.Signer, reKey bool) error {
	csr, err := identity.NewCSR(key)
	if err != nil {
		return err
	}
	m, err := askRenewal(ctx, conn, c.cfg.AIC, csr)
	if err != nil {
		return err
	}
	next, err := identity.TLSCertificate(m.Chain, key)
	if err != nil {
		return err
	}
	if id, err := identity.AICOf(next.Leaf); err != nil || string(id) != c.cfg.AIC {
		return frame.Errorf(frame.IdentityMismatch, "the renewed certificate is not this agent's")
	}
	if len(m.Grant) > 0 {
		c.grant.Store(&m.Grant)
	}
	c.certificate.Store(&next)
	if err := c.cfg.Renewed(Renewal{Key: key, Chain: m.Chain, Grant: m.Grant, ReKey: reKey}); err != nil {
		c.log.Error("renewed credential not kept: it is lost with this process", "err", err)
	}
	if reKey {
		c.next = nil
	}
	select {
	case c.switching <- struct{}{}:
	default:
	}
	return nil
}

// connForRenewal is the attached connection, or one made for the purpose. done closes the latter.
func (c *Client) connForRenewal(ctx context.Context) (conn *endpoint.Conn, done func(), err error) {
	if l := c.current(); l != nil {
		return l.conn, func() {}, nil
	}
	conn, err = c.dialForRenewal(ctx)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { conn.Close(frame.OK, "") }, nil
}

// dialForRenewal connects while the agent is not attached: under the current certificate, or under one that is self-signed
// over the same key when that has expired.
func (c *Client) dialForRenewal(ctx context.Context) (*endpoint.Conn, error) {
	certificate := c.Certificate()
	if time.Now().After(certificate.Leaf.NotAfter) {
		return c.dialWith(ctx, certificate.PrivateKey.(crypto.Signer))
	}
	return c.dial(ctx, certificate)
}

// dialWith connects with nothing but a key.
func (c *Client) dialWith(ctx context.Context, key crypto.Signer) (*endpoint.Conn, error) {
	self, err := identity.SelfSigned(key)
	if err != nil {
		return nil, err
	}
	return c.dial(ctx, self)
}

func (c *Client) dial(ctx context.Context, certificate tls.Certificate) (*endpoint.Conn, error) {
	address, err := c.where(ctx)
	if err != nil {
		return nil, err
	}
	return c.dialAt(ctx, address, certificate)
}

func (c *Client) dialAt(ctx context.Context, address string, certificate tls.Certificate) (*endpoint.Conn, error) {
	return c.cfg.Endpoint.Dial(ctx, address, frame.ALPNControl, "", endpoint.Credentials{
		Certificate: certificate, Verify: c.cfg.Trust.Verify(x509.ExtKeyUsageServerAuth, c.role),
	})
}

// askRenewal sends one RENEW and reads what comes.
func askRenewal(ctx context.Context, conn *endpoint.Conn, aic string, csr []byte) (*arp.Credential, error) {
	m := new(arp.Credential)
	if err := exchange(ctx, conn, &arp.Renew{AIC: aic, CSR: csr}, frame.Credential, m); err != nil {
		return nil, err
	}
	if len(m.Chain) == 0 {
		return nil, frame.Errorf(frame.Malformed, "credential without a certificate")
	}
	return m, nil
}
