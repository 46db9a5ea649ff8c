package app

import (
	"context"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const bundlePrefix = "bundle/"

// keepBundle remembers the newest bundle of a peer, behind the hash of the operator's copy that it descends from.
func (a *app) keepBundle(domain string, b *identity.Accepted) {
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	var value []byte
	if b != nil {
		root := b.Root()
		value = append(root[:], b.Raw...)
	}
	if err := a.store.SetMeta(ctx, bundlePrefix+domain, value); err != nil {
		a.log.Error("keep a peer's bundle", "domain", domain, "err", err)
	}
}

func (a *app) keptBundle(domain string) (raw []byte, root [32]byte) {
	value, err := a.store.Meta(bundlePrefix + domain)
	if err != nil || len(value) <= len(root) {
		return nil, root
	}
	return value[len(root):], [32]byte(value[:len(root)])
}

// distrusted hears that an issuer is believed no more: the sessions with its agents end.
func (a *app) distrusted(b *identity.Accepted) {
	a.log.Info("issuer is trusted no more", "domain", b.Domain, "issuer", b.Issuer)
	if b.Source == identity.Vouched {
		a.forgetIssuer(b.Issuer)
	}
	a.endSessionsWith(b, frame.Revoked)
}

// ApprovePeer implements admin.Trust.
func (a *app) ApprovePeer(_ context.Context, r admin.ApproveRequest) error {
	fingerprint, err := identity.ParseFingerprint(r.Fingerprint)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	return a.peers.Approve(r.Domain, fingerprint)
}
