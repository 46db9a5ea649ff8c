package app

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"agentgw/a2a/wire"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Without its gateway an agent learns of no revocation: it begins no session after awayNew, and ends those that run after
// awayRunning (a2a/PROTOCOL.md, "Revocation").
const (
	awayNew     = 10 * time.Minute
	awayRunning = 20 * time.Minute
	awayLook    = 10 * time.Second
)

// spki is the hash of the agent's key as of now.
func (a *agent) spki() wire.Hash {
	hash, err := identity.SPKIHash(a.client.Certificate().Leaf.PublicKey)
	if err != nil { // the certificate was parsed
		panic(err)
	}
	return hash
}

// standing says why no session begins with an agent: its domain has taken it out of service, as far as it is told here, or
// nobody could have told for too long.
func (a *agent) standing(aic string) error {
	if away := a.client.Away(); away > awayNew {
		return frame.Errorf(frame.CertStatus, "no gateway for %s: who is revoked is not known", away.Round(time.Second))
	}
	return a.cred.statuses.Check(aic, nil)
}

// revoked carries out a SESSION_REVOKE.
func (a *agent) revoked(m *arp.SessionRevoke) {
	a.record("sessions.revoked", map[string]any{"aic": a.cred.AIC, "kind": m.Kind, "value": revokeValue(m.Value), "code": m.Code.Hex()})
	switch v := m.Value.(type) {
	case []byte:
		a.a2a.RevokeSession(wire.ID(v), m.Code)
	case []any: // [arp.SessionRevoke.Check] saw to it: AICs
		a.a2a.RevokePeers(func(id string) bool { return slices.Contains(v, any(id)) }, m.Code)
	case string:
		switch m.Kind {
		case arp.RevokeIssuer:
			a.a2a.RevokeIssuer(v, m.IatFloor, m.Code)
		case arp.RevokeUnder:
			a.a2a.RevokePeers(func(id string) bool { return under(id, v) }, m.Code)
		default:
			a.a2a.RevokePeer(v, m.Code)
		}
	}
}

// under says whether an AIC has a prefix "prefix.version.arsp".
func under(id, prefix string) bool {
	parsed, err := aic.Parse(id)
	return err == nil && parsed.ARSPKey() == prefix
}

// watchGateway ends the sessions of an agent that has been without its gateway for too long.
func (a *agent) watchGateway(ctx context.Context) {
	tick := time.NewTicker(awayLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if a.client.Away() > awayRunning && len(a.a2a.Sessions()) > 0 {
				a.log.Warn("sessions end: no gateway for too long", "away", a.client.Away().Round(time.Second).String())
				a.a2a.RevokeAll(frame.CertStatus, "without its gateway for too long: who is revoked is not known")
			}
		}
	}
}

// revokeValue is whom a SESSION_REVOKE is about: an AIC, or a session's id.
func revokeValue(v any) string {
	switch v := v.(type) {
	case string:
		return v[:min(len(v), 256)]
	case []byte:
		return hex.EncodeToString(v[:min(len(v), 32)])
	}
	return ""
}
