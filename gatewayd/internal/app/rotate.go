package app

import (
	"context"
	"errors"
	"time"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/pki"
)

// keepKeys replaces certificates and signing keys when they are due, until ctx ends.
func (a *app) keepKeys(ctx context.Context) {
	every := min(time.Minute, a.home.keys.refresh/2, a.cfg.AMC.GatewayLife.Or(pki.DefaultLimits().Gateway)/20)
	tick := time.NewTicker(max(every, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			if err := a.renewCertificates(ctx, at); err != nil {
				a.log.Error("renew certificates", "err", err)
			}
			if err := a.turnKeys(ctx, at, false); err != nil {
				a.log.Error("replace signing keys", "err", err)
			}
		}
	}
}

// renewCertificates follows up the domain's CA, where it is here, and this process's own certificate.
func (a *app) renewCertificates(ctx context.Context, at time.Time) error {
	if a.remote != nil {
		return a.renewRemote(ctx, at)
	}
	a.renewing.Lock()
	defer a.renewing.Unlock()
	events, err := a.home.rotate(at)
	a.logRotation(events)
	if len(events) > 0 && a.outside != nil {
		a.outside.Renewed()
	}
	if err := errors.Join(err, a.home.renew(a.cfg, at)); err != nil {
		return err
	}
	return a.amc.Keep(ctx, a.home.gateway, a.home.current().Leaf)
}

// ReplaceCA implements admin.Gateway: the issuing CA is followed up now.
func (a *app) ReplaceCA(ctx context.Context) ([]admin.CAEvent, error) {
	if a.amc == nil {
		return nil, frame.Errorf(frame.State, "this gateway has no AMC role: the domain's CA is on the AMC's host (amc.address of the configuration)")
	}
	a.renewing.Lock()
	events, err := a.home.authority.Replace(now())
	a.renewing.Unlock()
	a.logRotation(events)
	if a.outside != nil {
		a.outside.Renewed()
	}
	out := []admin.CAEvent{}
	for _, e := range events {
		out = append(out, admin.CAEvent{Action: e.Action.String(), Name: e.Name, File: e.File, Until: e.Until.UTC()})
	}
	return out, err
}

// ReloadCA implements admin.Gateway: what an operator's verb has put into the CA's folder counts now.
func (a *app) ReloadCA(ctx context.Context) error {
	if a.amc == nil {
		return frame.Errorf(frame.State, "this gateway has no AMC role: the domain's CA is on the AMC's host (amc.address of the configuration)")
	}
	at := now()
	err := errors.Join(a.renewCertificates(ctx, at), a.turnKeys(ctx, at, false))
	if a.outside != nil {
		a.outside.Renewed()
	}
	return err
}

// turnKeys does what is due with the signing keys, and tells everybody of the bundle that it brings.
func (a *app) turnKeys(ctx context.Context, at time.Time, force bool) error {
	if a.remote != nil {
		return a.turnRemote(ctx, at, force)
	}
	a.turning.Lock()
	defer a.turning.Unlock()
	raw, err := a.home.renewBundle(at, force)
	if err != nil || raw == nil {
		return err
	}
	return a.renewOwn(ctx, raw)
}

// RotateKeys implements admin.Gateway: it begins to replace every signing key. Each takes over when its successor has been
// published for long enough.
func (a *app) RotateKeys(ctx context.Context) error {
	return a.turnKeys(ctx, now(), true)
}
