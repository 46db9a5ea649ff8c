package app

import (
	"context"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// keepKeys replaces certificates and signing keys when they are due, until ctx ends.
func (a *app) keepKeys(ctx context.Context) {
	every := min(time.Minute, a.home.keys.refresh/2, a.cfg.AMC.GatewayLife.Or(identity.GatewayLife)/20)
	tick := time.NewTicker(max(every, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			if err := a.home.renew(a.cfg, at); err != nil {
				a.log.Error("renew own certificate", "err", err)
			}
			if err := a.turnKeys(ctx, at, false); err != nil {
				a.log.Error("replace signing keys", "err", err)
			}
		}
	}
}

// turnKeys does what is due with the signing keys, and tells everybody of the bundle that it brings.
func (a *app) turnKeys(ctx context.Context, at time.Time, force bool) error {
	a.turning.Lock()
	defer a.turning.Unlock()
	raw, err := a.home.renewBundle(at, force)
	if err != nil || raw == nil {
		return err
	}
	if _, err := a.trust.RenewOwn(raw); err != nil {
		return err
	}
	seq := a.trust.Own().Seq
	a.log.Info("own bundle renewed", "seq", seq, "keys", len(a.trust.Own().Keys))
	a.agents.Announce(&arp.Bundle{Bundle: raw})
	a.peers.TrustChanged()
	return a.audit(ctx, kindBundle, map[string]any{"seq": seq, "keys": len(a.trust.Own().Keys)})
}

// RotateKeys implements admin.Gateway: it begins to replace every signing key. Each takes over when its successor has been
// published for long enough.
func (a *app) RotateKeys(ctx context.Context) error {
	if a.amc == nil {
		return frame.Errorf(frame.State, "this gateway has no AMC role: its keys are published by the AMC, which replaces them when they are old")
	}
	return a.turnKeys(ctx, now(), true)
}
