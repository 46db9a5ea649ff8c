package main

import (
	"strings"
	"testing"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/app"
	"agentgw/internal/frame"
)

func TestConfirm(t *testing.T) {
	plan := &app.PeerPlan{Domain: "peer.example", Fingerprint: "sha256:" + strings.Repeat("ab", 32), Grants: []string{"it may ask for nothing here"}}
	for answer, code := range map[string]frame.Code{
		"yes\n": frame.OK, " YES \n": frame.OK, plan.Fingerprint + "\n": frame.OK, strings.ToUpper(plan.Fingerprint): frame.OK,
		"no\n": frame.TrustDenied, "\n": frame.TrustDenied, "": frame.TrustDenied, "y\n": frame.TrustDenied, "yes, I think\n": frame.TrustDenied,
		"sha256:" + strings.Repeat("ac", 32) + "\n": frame.TrustDenied, strings.Repeat(" ", 1<<20) + "yes\n": frame.TrustDenied,
	} {
		var out strings.Builder
		err := confirm(strings.NewReader(answer), &out, plan)
		if frame.CodeOf(err) != code {
			t.Errorf("%.80q: %v, want %v", answer, err, code)
		}
		for _, say := range append(plan.Grants, plan.Domain, plan.Fingerprint) {
			if !strings.Contains(out.String(), say) {
				t.Errorf("%q is not shown", say)
			}
		}
	}
}

func TestExplanationAsText(t *testing.T) {
	var out strings.Builder
	printExplanation(&out, admin.Explanation{
		Domain: "far.example", Kind: "pending", Missing: "its bundle waits",
		Status:      &admin.StatusState{State: "stale", Seq: 7, Why: "due anew"},
		HoldsOfOurs: &admin.HeldState{BundleSeq: 1, BundleBehind: true},
		Pending:     []admin.TrustRow{{Domain: "far.example", Fingerprint: "sha256:00"}},
		Verdicts:    []admin.Verdict{{What: "identity", Why: "its bundle waits"}, {What: "connection", Passes: true, Why: "up"}},
	})
	for _, say := range []string{"far.example (pending)", "its bundle waits", "7, stale due anew", "bundle 1 (ours is newer)", "sha256:00", "identity    no", "connection  yes"} {
		if !strings.Contains(out.String(), say) {
			t.Errorf("%q is not in\n%s", say, out.String())
		}
	}
}
