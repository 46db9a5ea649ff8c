package attach

import (
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// held is what the gateway need not send: what this agent has of its own domain's trust.
func (c *Client) held() (out []arp.TrustHeld) {
	for _, b := range c.cfg.Trust.Issuers(c.cfg.Trust.Own().Domain) {
		seq, _ := c.cfg.Statuses.Held(b.Issuer)
		out = append(out, arp.TrustHeld{Issuer: b.Issuer, BundleSeq: b.Seq, StatusSeq: seq})
	}
	return out
}

// takeBundle takes a newer bundle of the own domain: its keys have changed. The gateway only carries it; it counts because a
// key of the one before has signed it.
func (c *Client) takeBundle(raw []byte) {
	if b, err := identity.ParseBundle(raw); err == nil && b.Issuer != c.cfg.Trust.Own().Issuer { // of another AMC of the domain
		if _, err := c.cfg.Trust.Vouch(raw); err != nil {
			c.log.Warn("bundle of another AMC of the own domain refused", "issuer", b.Issuer, "err", err)
		}
		return
	}
	changed, err := c.cfg.Trust.RenewOwn(raw)
	if err != nil {
		c.log.Warn("bundle of the own domain refused", "err", err)
		return
	}
	if !changed {
		return
	}
	c.cfg.Statuses.Forget() // of an AMC that the domain has no more
	c.log.Info("bundle of the own domain renewed", "seq", c.cfg.Trust.Own().Seq)
	if err := c.cfg.KeepBundle(raw); err != nil {
		c.log.Error("bundle not kept: it is asked for again after a restart", "err", err)
	}
}

// takeStatus takes a status list of the own domain, and ends the sessions with those who are not good any more.
func (c *Client) takeStatus(raw []byte) {
	change, err := c.cfg.Statuses.Apply(raw)
	if err != nil {
		c.log.Warn("status list refused", "err", err)
		return
	}
	for _, s := range change.Changed {
		if s.State != 0 {
			c.cfg.Revoked(&arp.SessionRevoke{Kind: arp.RevokePeer, Value: s.AIC, Code: frame.Revoked})
		}
	}
}

// setRefused notes that the credential will not be renewed until a person acts.
func (c *Client) setRefused(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

// setOusted notes that the agent's domain has taken it out of service, in the gateway's words.
func (c *Client) setOusted(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ousted = err
}
