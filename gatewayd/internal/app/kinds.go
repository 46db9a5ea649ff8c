package app

import (
	"slices"
	"strings"

	"agentgw/internal/audit"
	"agentgw/internal/daemon"
)

// auditKinds are the kinds of records that a gateway's audit log can have, in order.
var auditKinds = []string{
	"agent.adopted", kindDeprecated, "agent.registered", "agent.updated", "agent.withdrawn",
	audit.KindBegan, audit.KindDamaged, audit.KindReplaced,
	"authorisation.denied", "authorisation.granted", "authorisation.pending",
	kindBackup, kindBundle, audit.KindCheckpoint,
	"credential.issued", "credential.rekeyed", "credential.renewed", "credential.resumed", "credential.revoked", "credential.suspended",
	kindImported,
	kindStarted, kindStopped,
	audit.KindLost, audit.KindRecovered,
	"peer.added", "peer.changed", "peer.removed",
	"request.answered", "request.approved", "request.forwarded", "request.refused",
	kindRestored, kindLost,
	"session.provisioned", "token.created",
	"trust.dropped", "trust.introduced", "trust.refused", "trust.renewed",
}

// checkAuditKind refuses a kind that no record can have: nothing found would say that nothing happened.
func checkAuditKind(kind string) error {
	if kind == "" || slices.Contains(auditKinds, kind) {
		return nil
	}
	return daemon.Usagef("no record is of the kind %q; the kinds are %s", kind, strings.Join(auditKinds, ", "))
}
