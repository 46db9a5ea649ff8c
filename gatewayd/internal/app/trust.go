package app

import (
	"context"
	"slices"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// newStatuses starts the status lists. A domain whose AMC signs none yet, as those made by an earlier version, neither tells nor
// demands any.
func (a *app) newStatuses() *identity.Statuses {
	signs := func(k identity.BundleKey) bool { return k.Use == identity.UseStatus && k.Owner == a.home.bundle.Issuer }
	if !slices.ContainsFunc(a.home.bundle.Keys, signs) {
		return nil
	}
	return identity.NewStatuses(a.trust, now)
}

// standingChanged hears of agents of other domains whose state has changed.
func (a *app) standingChanged(list []identity.Standing) {
	for _, s := range list {
		a.log.Info("standing of a foreign agent or gateway changed", "aic", s.AIC, "domain", a.trust.DomainOf(s.AIC), "state", s.State.String())
	}
}

// distrusted hears that a domain is believed no more.
func (a *app) distrusted(domain string) { a.log.Info("domain is trusted no more", "domain", domain) }

// ApprovePeer implements admin.Trust.
func (a *app) ApprovePeer(_ context.Context, r admin.ApproveRequest) error {
	fingerprint, err := identity.ParseFingerprint(r.Fingerprint)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	return a.peers.Approve(r.Domain, fingerprint)
}
