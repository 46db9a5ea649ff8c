package app

import (
	"context"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

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
