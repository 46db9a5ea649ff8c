package amc

import (
	"context"
	"time"
)

// Kinds of audit records that a restored gateway applies again.
const (
	KindIssued    = "credential.issued" // the first of an agent
	KindRenewed   = "credential.renewed"
	KindRekeyed   = "credential.rekeyed" // the certificates before it are void
	KindSuspended = "credential.suspended"
	KindResumed   = "credential.resumed"
	KindRevoked   = "credential.revoked" // for good
)

// Issued is the data of the records of certificates. Octets are hexadecimal.
type Issued struct {
	AIC         string    `json:"aic"`
	Gateway     string    `json:"gateway"`
	Serial      string    `json:"serial"`      // 16 octets
	Certificate string    `json:"certificate"` // SHA-256
	SPKI        string    `json:"spki"`        // SHA-256
	NotAfter    time.Time `json:"not_after"`
	Grant       string    `json:"grant"` // jti
}

// Changed is the data of the records of an agent's standing.
type Changed struct {
	AIC    string `json:"aic"`
	Reason uint8  `json:"reason"` // RFC 5280, section 5.3.1
	Why    string `json:"why"`
}

// auditSoon keeps a record that a later one of the same enrolment covers, where there will be one.
func (a *AMC) auditSoon(gateway string) func(ctx context.Context, kind string, data any) error {
	if a.cfg.AuditSoon == nil || gateway != string(a.cfg.Gateway) {
		return a.cfg.Audit
	}
	return func(_ context.Context, kind string, data any) error { return a.cfg.AuditSoon(kind, data) }
}
