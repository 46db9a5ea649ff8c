package attach

import (
	"context"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// Home is what an agent remembers of the gateway that it is at home at: what it needs to be at home at another one of its domain when that is gone.
type Home struct {
	Gateway   string   `json:"gateway"`             // AIC
	Address   string   `json:"address"`             // host:port at which it was reached
	Version   uint64   `json:"version"`             // of the entry that the statement is of
	Statement []byte   `json:"statement,omitempty"` // [arp.Statement], signed by the gateway
	Others    []string `json:"others,omitempty"`    // host:port of the domain's other gateways
}

// maxOthers bounds the addresses that are tried one after the other.
const maxOthers = 32

// statement is the newest that the agent has. It shows it where it is at home too: that gateway may have been restored.
func (c *Client) statement() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.home.Statement
}

// stated is the version of the entry that the newest statement is of, 0 without one.
func (c *Client) stated() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.home.Statement) == 0 {
		return 0
	}
	return c.home.Version
}

// keepHome takes a statement that a gateway has sent, if it has.
func (c *Client) keepHome(l *link, version uint64, statement []byte) {
	if len(statement) == 0 {
		return
	}
	next := Home{Gateway: l.gateway, Address: l.address, Version: version, Statement: statement}
	for _, g := range l.info.Gateways[:min(len(l.info.Gateways), arp.MaxGateways)] {
		for _, at := range g.Addresses[:min(len(g.Addresses), arp.MaxGatewayAddresses)] {
			if len(next.Others) < maxOthers {
				next.Others = append(next.Others, at.String())
			}
		}
	}
	c.mu.Lock()
	c.home = next
	c.mu.Unlock()
	if err := c.cfg.KeepHome(next); err != nil {
		c.log.Error("where the agent is at home is not kept: after a restart it attaches there alone", "err", err)
	}
}

// settleAt makes a gateway this agent's home that has asked for its ACS.
func (c *Client) settleAt(ctx context.Context, l *link) error {
	doc, err := c.cfg.ACS()
	if err != nil {
		return err
	}
	state := new(arp.ACSState)
	if err := exchange(ctx, l.conn, &arp.ACSPut{AIC: c.cfg.AIC, ACS: doc, Expected: c.stated()}, frame.ACSState, state); err != nil {
		return err
	}
	l.version.Store(state.EntryVersion)
	c.keepHome(l, state.EntryVersion, state.Entry)
	c.log.Info("at home at another gateway of the domain", "gateway", l.gateway, "remote", l.conn.RemoteAddr().String())
	return nil
}
