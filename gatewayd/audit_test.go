package main

import (
	"strings"
	"testing"
	"time"

	"agentgw/gatewayd/internal/app"
	"agentgw/internal/audit"
)

// What an operator reads must not say more than is proved, nor send him away with the folder of a copy.
func TestWhatAuditVerifyPrints(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	damage := &audit.DamageError{What: "cut"}
	for name, c := range map[string]struct {
		report  app.AuditReport
		begins  string
		has, no string
	}{
		"whole":         {app.AuditReport{OK: true, Report: audit.Report{Records: 36}}, "ok: 36 records", "", "PROVED"},
		"begun anew":    {app.AuditReport{OK: true, Report: audit.Report{Records: 2, Began: &audit.Began{Records: 43, At: at}}}, "ok: 2 ", "at least 43 records", "DAMAGED"},
		"shorter copy":  {app.AuditReport{OK: true, Copy: true, Later: 36, Report: audit.Report{Records: 31, LastAt: at}}, "the copy ends at record 31 of 2026-11-30T10:00:00Z, the gateway's log is at 36", "NOT PROVED", "DAMAGED"},
		"damaged":       {app.AuditReport{Dir: "d", Damage: damage}, "the audit log in d is DAMAGED", "stop the gateway, move", "ok"},
		"a copy's harm": {app.AuditReport{Dir: "d", Copy: true, Damage: damage}, "the audit log in d is DAMAGED", "evidence\n", "stop the gateway"},
	} {
		var b strings.Builder
		printAudit(&b, &c.report)
		if got := b.String(); !strings.HasPrefix(got, c.begins) || !strings.Contains(got, c.has) || strings.Contains(got, c.no) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
