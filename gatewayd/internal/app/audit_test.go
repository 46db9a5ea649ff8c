package app

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/audit"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

func (g *gateway) auditDir() string { return filepath.Join(g.cfg.StateDir, dirAudit) }

// records are the kinds of the log, with those about an agent as `kind AIC`.
func (g *gateway) records() []string {
	g.t.Helper()
	var out []string
	err := ShowAudit(g.auditDir(), 0, "", func(r AuditRow) error {
		var of struct {
			AIC string `json:"aic"`
		}
		if err := json.Unmarshal(r.Data, &of); err != nil {
			return err
		}
		out = append(out, strings.TrimSpace(r.Kind+" "+of.AIC))
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// verify is `gatewayd audit verify` of a gateway that is stopped.
func (g *gateway) verify() *AuditReport {
	g.t.Helper()
	r, err := VerifyAudit(g.cfg, g.auditDir(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

func TestAuditHoldsAnAgentsLife(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	token := g.token()
	key, csr := newKey(t)
	done, err := g.enrol(token, key, csr, pharmacyACS)
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"suspended", "good"} {
		g.setStanding(done.AIC, state)
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"gateway.started", "token.created", "authorisation.granted", "credential.issued " + done.AIC, "agent.registered " + done.AIC,
		"credential.suspended " + done.AIC, "credential.resumed " + done.AIC, "agent.withdrawn " + done.AIC, "credential.revoked " + done.AIC,
	}
	if got := g.records(); !slices.Equal(got, want) {
		t.Errorf("the log holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	state := g.app.AuditState()
	if r, err := VerifyAudit(g.cfg, g.auditDir(), &state, slog.New(slog.DiscardHandler)); err != nil || !r.OK || r.Report.Records != state.Count {
		t.Errorf("while it runs: %+v, %v", r, err)
	}
	eventually(t, "status says ok", func() bool { return g.app.Status().Audit == "ok" })
	g.stop()
	if r := g.verify(); !r.OK || r.Report.Checkpoints == 0 || r.Against != "the checkpoint in the directory database" {
		t.Errorf("stopped: %+v", r)
	}
	raw, err := os.ReadFile(filepath.Join(g.auditDir(), "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for what, secret := range map[string][]byte{"the token": token.Secret, "the grant": done.Grant} {
		if bytes.Contains(raw, []byte(hex.EncodeToString(secret))) {
			t.Errorf("the log holds %s", what)
		}
	}
}

// harm changes the lines of a log's file.
func harm(t *testing.T, file string, change func(lines []string) []string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := change(strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n"))
	text := strings.Join(lines, "")
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What was done to the log while the gateway was off is found by the verb and by the next start, which goes on all the same.
func TestAuditDamageIsToldAndStopsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(lines []string) []string
		says   string
		moved  bool // the log could not be gone on with
	}{
		"changed": {func(l []string) []string {
			l[1] = strings.Replace(l[1], "token.created", "token.created2", 1)
			return l
		}, "was changed", false},
		"removed":     {func(l []string) []string { return slices.Delete(l, 1, 2) }, "removed", false},
		"reordered":   {func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }, "reordered", false},
		"cut tail":    {func(l []string) []string { return l[:len(l)-2] }, "cut", false},
		"last broken": {func(l []string) []string { l[len(l)-1] = "{}\n"; return l }, "changed", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, "pharmacy.example")
			g.mustEnrol()
			g.stop()
			if r := g.verify(); !r.OK {
				t.Fatalf("before: %+v", r.Damage)
			}
			harm(t, filepath.Join(g.auditDir(), "audit.jsonl"), c.change)
			r := g.verify()
			if r.OK || !strings.Contains(r.Damage.What, c.says) {
				t.Errorf("%+v", r.Damage)
			}
			g.start()
			eventually(t, "status tells", func() bool { s := g.app.Status().Audit; return s != "ok" && s != "being verified" })
			want := audit.KindDamaged
			if c.moved {
				want = audit.KindReplaced
			}
			eventually(t, "it is recorded", func() bool {
				raw, _ := os.ReadFile(filepath.Join(g.auditDir(), "audit.jsonl"))
				return strings.Contains(string(raw), `"kind":"`+want+`"`)
			})
			g.mustEnrol() // it serves
			told := g.app.Status().Audit
			g.stop()
			if c.says != "cut" && !c.moved {
				return // the chain itself is broken for good
			}
			// The marks are replaced now; the record stays, at every start.
			for range 2 {
				if r := g.verify(); r.OK || r.Report.ToldCount != 1 || !strings.Contains(r.Damage.What, "tells of damage") {
					t.Errorf("after a restart: %+v, %+v", r, r.Damage)
				}
				g.start()
				eventually(t, "status still tells", func() bool { return strings.Contains(g.app.Status().Audit, "tells of damage") })
				g.stop()
			}
			if what := strings.TrimPrefix(told, "audit log: "); !strings.Contains(g.verify().Damage.What, what) {
				t.Errorf("%s\ndoes not say %s", g.verify().Damage.What, what)
			}
		})
	}
}

// A folder that was moved away, deliberately or not, is in the first record of the new log, which is no damage; the old one still verifies
// against that.
func TestALogThatWasMovedAwayIsToldByTheNextOne(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	g.mustEnrol()
	g.stop()
	old := g.verify().Report
	away := filepath.Join(t.TempDir(), "audit")
	if err := os.Rename(g.auditDir(), away); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g.start()
		eventually(t, "status tells", func() bool { return strings.HasPrefix(g.app.Status().Audit, "ok, begun anew at ") })
		state := g.app.AuditState()
		if r, err := VerifyAudit(g.cfg, g.auditDir(), &state, slog.New(slog.DiscardHandler)); err != nil || !r.OK || r.Report.Began == nil {
			t.Errorf("while it runs: %+v, %v", r, err)
		}
		g.stop()
		if r := g.verify(); !r.OK || r.Report.Began == nil || r.Report.Began.Records != old.Sealed || r.Report.ToldCount != 0 {
			t.Errorf("%+v, %+v", r, r.Damage)
		}
	}
	if got := g.records()[:2]; !slices.Equal(got, []string{audit.KindBegan, kindStarted}) {
		t.Errorf("it begins with %v", got)
	}
	check := func() *AuditReport {
		t.Helper()
		r, err := VerifyAudit(g.cfg, away, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := check(); !r.OK || !strings.Contains(r.Against, "begun after it") {
		t.Errorf("the old one: %+v, %+v", r, r.Damage)
	}
	harm(t, filepath.Join(away, "audit.jsonl"), func(l []string) []string { return l[:len(l)-2] })
	if r := check(); r.OK || !strings.Contains(r.Damage.What, "cut") {
		t.Errorf("the old one, cut: %+v, %+v", r, r.Damage)
	}
}

// After damage: stop, move away, start, and all is well again.
func TestMovingADamagedLogAwayEndsTheDamage(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	g.mustEnrol()
	g.stop()
	harm(t, filepath.Join(g.auditDir(), "audit.jsonl"), func(l []string) []string { return l[:len(l)-2] })
	g.start()
	eventually(t, "it is recorded", func() bool { return slices.Contains(g.records(), audit.KindDamaged) })
	g.stop()
	if err := os.Rename(g.auditDir(), filepath.Join(t.TempDir(), "audit")); err != nil {
		t.Fatal(err)
	}
	g.start()
	eventually(t, "status is ok", func() bool { return strings.HasPrefix(g.app.Status().Audit, "ok, ") })
	g.stop()
	if r := g.verify(); !r.OK {
		t.Errorf("%+v", r.Damage)
	}
}

// A copy that is shorter may be an older one, or cut: it is not just ok. One that tells another story than the gateway's own log is damaged.
func TestTheEndOfAShorterCopyIsNotProved(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	g.mustEnrol()
	quiet := slog.New(slog.DiscardHandler)
	check := func(dir string, running bool) *AuditReport {
		t.Helper()
		var state *admin.AuditState
		if running {
			s := g.app.AuditState()
			state = &s
		}
		r, err := VerifyAudit(g.cfg, dir, state, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := placeAudit(g.auditDir(), whole, "x"); err != nil {
		t.Fatal(err)
	}
	if r := check(whole, true); !r.OK || r.Later != 0 {
		t.Errorf("a whole copy: %+v, %+v", r, r.Damage)
	}
	count := g.app.AuditState().Count
	harm(t, filepath.Join(whole, "audit.jsonl"), func(l []string) []string { return l[:len(l)-2] })
	if r := check(whole, true); !r.OK || r.Later != count || r.Report.Records != count-2 || r.Report.LastAt.IsZero() {
		t.Errorf("a cut copy while the gateway runs: %+v, %+v", r, r.Damage)
	}
	g.stop()
	if r := check(whole, false); !r.OK || r.Later <= r.Report.Records {
		t.Errorf("a cut copy of a stopped gateway: %+v, %+v", r, r.Damage)
	}
	g.start()
	other := newGateway(t, "pharmacy.example")
	other.stop()
	harm(t, filepath.Join(other.auditDir(), "audit.jsonl"), func(l []string) []string { return l[:1] })
	if r := check(other.auditDir(), true); r.OK || !strings.Contains(r.Damage.What, "is not the beginning") {
		t.Errorf("a log of another gateway: %+v, %+v", r, r.Damage)
	}
}

// A log that was sealed by keys which are long replaced still verifies.
func TestAuditVerifiesAfterItsKeyWasReplaced(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	g.stop()
	g.start()
	_, fresh, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := maps.Clone(*g.app.home.keys.current.Load())
	old := keys[useAudit]
	keys[useAudit] = frame.NewSigner(fresh)
	g.app.home.keys.current.Store(&keys)
	g.mustEnrol()
	g.stop() // seals with the new key, which no bundle names
	if r := g.verify(); !r.OK || r.Report.Checkpoints < 2 {
		t.Errorf("%+v", r)
	}
	own, err := ownBundle(g.cfg)
	if err != nil {
		t.Fatal(err)
	}
	own.Keys = slices.DeleteFunc(own.Keys, func(k identity.BundleKey) bool { return bytes.Equal(k.Public, old.Public()) })
	ring, err := openAuditKeys(g.cfg.StateDir, own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Verify(g.auditDir(), audit.VerifyBy(ring.find), nil); err != nil {
		t.Errorf("once the bundle has forgotten the old key: %v", err)
	}
}

// A denial and what ends an agent wait for the disk: when the log takes nothing, they fail, and nothing is registered.
func TestNothingIsRegisteredUnlessRecorded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, _ := g.mustEnrol()
	token := g.token()
	g.app.auditor.log.Close()
	key, csr := newKey(t)
	if _, err := g.enrol(token, key, csr, pharmacyACS); err == nil {
		t.Error("an enrolment is answered that could not be recorded")
	}
	if err := g.app.SetStanding(t.Context(), admin.StandingRequest{AIC: done.AIC, State: "revoked"}); err == nil {
		t.Error("a revocation is answered that could not be recorded")
	}
	g.app.auditor.log, _ = audit.Open(audit.Config{Dir: t.TempDir()}) // for the end
}
