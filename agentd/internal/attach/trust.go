package attach

import (
	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// held is what the gateway need not send: what this agent has of its own domain's trust.
func (c *Client) held() []arp.TrustHeld {
	own := c.cfg.Trust.Own()
	seq, _ := c.cfg.Statuses.Held(own.Issuer)
	return []arp.TrustHeld{{Issuer: own.Issuer, BundleSeq: own.Seq, StatusSeq: seq}}
}

// takeBundle takes a newer bundle of the own domain: its keys have changed. The gateway only carries it; it counts because a
// key of the one before has signed it.
func (c *Client) takeBundle(raw []byte) {
	changed, err := c.cfg.Trust.RenewOwn(raw)
	if err != nil {
		c.log.Warn("bundle of the own domain refused", "err", err)
		return
	}
	if !changed {
		return
	}
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
