package app

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/aaap"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/identity"
)

// A gateway whose AMC is on another host has in its own log what that AMC has done to its agents' credentials, in the AMC's words: a restored
// backup catches up from it, whether or not the AMC can be reached.

// center is the AMC on another host as the registrar sees it.
type center struct {
	*aaap.Client
	a *app
}

// Issue implements amc.Center.
func (c center) Issue(ctx context.Context, gateway string, m *arp.Renew) (*arp.Credential, error) {
	done, err := c.Client.Issue(ctx, gateway, m)
	if err != nil || len(m.JTI) > 0 { // a first credential is followed by the record of the registration
		return done, err
	}
	if err := c.a.mirrorReKey(ctx, gateway, m, done); err != nil { // the old key is void already: nothing helps the agent but the answer
		c.a.log.Error("a re-key is not recorded: a restored backup would not know the new key", "aic", m.AIC, "err", err)
	}
	return done, nil
}

// mirrorReKey records a certificate that is over another key than the agent's entry has.
func (a *app) mirrorReKey(ctx context.Context, gateway string, m *arp.Renew, done *arp.Credential) error {
	e, err := a.registry.Get(m.AIC)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(done.Chain[0])
	if err != nil {
		return err
	}
	spki := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	if e.Provenance.SPKI == spki {
		return nil
	}
	grant, err := arp.OpenGrant(done.Grant, a.trust.Keys(identity.UseGrant), a.trust.Own().Issuer, now())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(done.Chain[0])
	return a.audit(ctx, amc.KindRekeyed, amc.Issued{
		AIC: m.AIC, Gateway: gateway, Serial: hex.EncodeToString(leaf.SerialNumber.FillBytes(make([]byte, 16))),
		Certificate: hex.EncodeToString(sum[:]), SPKI: hex.EncodeToString(spki[:]), NotAfter: leaf.NotAfter.UTC(), Grant: hex.EncodeToString(grant.JTI),
	})
}

// mirrorStanding records a state that an own agent is about to get by the AMC's status list. It gets it even if that fails.
func (a *app) mirrorStanding(ctx context.Context, c identity.Standing) {
	e, err := a.registry.Get(c.AIC)
	if a.remote == nil || err != nil {
		return
	}
	kind, suspended := amc.KindRevoked, e.State == directory.Suspended // an entry that is there is not revoked
	switch {
	case c.State == identity.Suspended && !suspended:
		kind = amc.KindSuspended
	case c.State == identity.Good && suspended:
		kind = amc.KindResumed
	case c.State != identity.Revoked:
		return // it is so already
	}
	if err := a.audit(ctx, kind, amc.Changed{AIC: c.AIC, Why: "the status list of the AMC says so"}); err != nil {
		a.log.Error("a change of standing is not recorded: a restored backup would not know it", "aic", c.AIC, "state", c.State.String(), "err", err)
	}
}
