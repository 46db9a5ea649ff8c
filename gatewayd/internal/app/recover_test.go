package app

import (
	"context"
	"crypto"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

func newKey(t *testing.T) (crypto.Signer, []byte) {
	t.Helper()
	key := identitytest.NewKey(t)
	csr, err := identity.NewCSR(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, csr
}

func (g *gateway) backup(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	done, err := g.app.Backup(t.Context(), admin.BackupRequest{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != done.Octets || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, %+v", info, err, done)
	}
	return file
}

func (g *gateway) restore(t *testing.T, o RestoreOptions) *RestoreResult {
	t.Helper()
	done, err := Restore(g.cfg, o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// mustNotStart wants a start to be refused, and nothing to be left open.
func (g *gateway) mustNotStart(t *testing.T, says string) {
	t.Helper()
	cfg, err := config.LoadGateway(filepath.Join(g.dir, "gatewayd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var cleanup daemon.Cleanup
	_, err = Start(ctx, cfg, slog.New(slog.DiscardHandler), &cleanup)
	cancel()
	if daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), says) {
		t.Errorf("the start: %v", err)
	}
	if err := cleanup.Run(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cfg.Control); err == nil {
		t.Error("its control socket is open")
	}
}

// old is what a gateway did after a backup was made of it.
type old struct {
	suspended, revoked, withdrawn, rekeyed, lost, kept *arp.Enrolled
	newSPKI                                            [32]byte
	lostToken, usedToken                               arp.Token
	lostKey                                            crypto.Signer
	lostCSR                                            []byte
}

func (g *gateway) liveOn(t *testing.T) (o old, backup string) {
	t.Helper()
	for _, e := range []**arp.Enrolled{&o.suspended, &o.revoked, &o.withdrawn, &o.kept} {
		*e, _ = g.mustEnrol()
	}
	done, cert := g.mustEnrol()
	o.rekeyed, o.usedToken, o.lostToken = done, g.token(), g.token()
	g.age(done.AIC, time.Minute)
	backup = g.backup(t)
	g.setStanding(o.suspended.AIC, "suspended")
	g.setStanding(o.revoked.AIC, "revoked")
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: o.withdrawn.AIC, Reason: "left"}); err != nil {
		t.Fatal(err)
	}
	key, csr := newKey(t)
	if _, err := g.renew(cert, done.AIC, csr); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.newSPKI, err = identity.SPKIHash(key.Public()); err != nil {
		t.Fatal(err)
	}
	o.lostKey, o.lostCSR = newKey(t)
	if o.lost, err = g.enrol(o.lostToken, o.lostKey, o.lostCSR, pharmacyACS); err != nil {
		t.Fatal(err)
	}
	return o, backup
}

// check holds that no revocation is undone, and no AIC given out twice.
func (o old) check(t *testing.T, g *gateway) {
	t.Helper()
	for name, c := range map[string]struct {
		of   *arp.Enrolled
		want directory.State
	}{
		"suspended": {o.suspended, directory.Suspended}, "revoked": {o.revoked, directory.Revoked}, "withdrawn": {o.withdrawn, directory.Withdrawn},
		"registered since": {o.lost, directory.Revoked}, "kept": {o.kept, directory.Active}, "with a new key": {o.rekeyed, directory.Active},
	} {
		if state := g.stateOf(t, c.of.AIC); state != c.want {
			t.Errorf("the agent that was %s is %v", name, state)
		}
	}
	for _, e := range []*arp.Enrolled{o.revoked, o.withdrawn, o.lost} {
		if s, err := g.app.amc.Agent(e.AIC); err != nil || s.State != identity.Revoked {
			t.Errorf("the AMC's record of %s: %+v, %v", e.AIC, s, err)
		}
	}
	if e, err := g.app.registry.Get(o.rekeyed.AIC); err != nil || e.Provenance.SPKI != o.newSPKI {
		t.Errorf("the old key of the agent with a new one counts again (%v)", err)
	}
	if err := g.app.store.Reserve(t.Context(), o.lost.AIC, time.Now()); !errors.Is(err, directory.ErrExists) {
		t.Errorf("the AIC of an agent that was registered since is free: %v", err)
	}
	if _, err := g.enrol(o.lostToken, o.lostKey, o.lostCSR, pharmacyACS); frame.CodeOf(err) != frame.TokenInvalid {
		t.Errorf("its token: %v", err)
	}
	key, csr := newKey(t)
	if _, err := g.enrol(o.usedToken, key, csr, pharmacyACS); frame.CodeOf(err) != frame.TokenInvalid {
		t.Errorf("a token from before the restore: %v", err)
	}
	cert, err := identity.TLSCertificate(o.lost.Chain, o.lostKey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.attach(cert, &arp.Attach{AIC: o.lost.AIC, BootID: make([]byte, 16), Grant: o.lost.Grant}); err == nil {
		t.Error("an agent whose registration is lost attaches")
	}
	if _, err := g.app.store.Meta(store.MetaRecovering); !errors.Is(err, directory.ErrNotFound) {
		t.Errorf("it is still recovering: %v", err)
	}
	if done, _ := g.mustEnrol(); done.AIC == o.lost.AIC {
		t.Error("an AIC twice")
	}
}

func TestCase67RestoreFromAnOldBackup(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	o, backup := g.liveOn(t)
	seq, _ := g.app.statuses.Held(string(g.app.home.issuer))
	if _, err := Restore(g.cfg, RestoreOptions{File: backup}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "stop that one first") {
		t.Errorf("while the gateway runs: %v", err)
	}
	g.stop()
	done := g.restore(t, RestoreOptions{File: backup})
	if !done.Restored || done.Missing != "" || done.Before == "" {
		t.Errorf("%+v", done)
	}
	g.start()
	o.check(t, g)
	eventually(t, "a newer status list", func() bool { n, _ := g.app.statuses.Held(string(g.app.home.issuer)); return n > seq })
	if r := g.records(); !strings.Contains(strings.Join(r, "\n"), kindLost+" "+o.lost.AIC+"\n") || !strings.Contains(strings.Join(r, "\n"), kindRestored) {
		t.Errorf("the log:\n%s", strings.Join(r, "\n"))
	}
	g.stop()

	// A crash in the midst of it: all of it once more.
	g.start()
	if err := g.app.store.SetMeta(t.Context(), store.MetaRecovering, mustHeader(t, backup)); err != nil {
		t.Fatal(err)
	}
	g.stop()
	g.start()
	o.check(t, g)
	g.stop()

	// Without the log nothing is served, until it is back or the operator has given it up.
	away := filepath.Join(t.TempDir(), "audit")
	if err := os.Rename(g.auditDir(), away); err != nil {
		t.Fatal(err)
	}
	if done := g.restore(t, RestoreOptions{File: backup}); done.Missing == "" {
		t.Errorf("%+v", done)
	}
	g.mustNotStart(t, "--accept-lost-revocations")
	g.mustNotStart(t, "--accept-lost-revocations") // it is no wiser the second time
	if done := g.restore(t, RestoreOptions{Audit: away}); done.Missing != "" {
		t.Errorf("with the log back: %+v", done)
	}
	g.start()
	o.check(t, g)
	g.stop()

	if err := os.RemoveAll(g.auditDir()); err != nil {
		t.Fatal(err)
	}
	g.restore(t, RestoreOptions{File: backup})
	g.mustNotStart(t, "--accept-lost-revocations")
	if done := g.restore(t, RestoreOptions{AcceptLost: true}); !done.Accepted || done.Missing != "" {
		t.Errorf("%+v", done)
	}
	g.start()
	if state := g.stateOf(t, o.revoked.AIC); state != directory.Active {
		t.Errorf("what was given up: the revoked agent is %v", state)
	}
	eventually(t, "status is ok", func() bool { return strings.HasPrefix(g.app.Status().Audit, "ok, begun anew at ") })
	g.stop()
	if r := g.verify(); !r.OK {
		t.Errorf("after what was given up: %+v", r.Damage)
	}
}

// Whoever cuts the end of the log, and restores an old backup, undoes no revocation: the database that is replaced knows better.
func TestRestoreWantsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, _ := g.mustEnrol()
	backup := g.backup(t)
	g.setStanding(done.AIC, "revoked")
	g.stop()
	harm(t, filepath.Join(g.auditDir(), "audit.jsonl"), func(l []string) []string { return l[:len(l)-3] }) // revoked, stopped, checkpoint
	if r := g.restore(t, RestoreOptions{File: backup}); !strings.Contains(r.Missing, "cut") {
		t.Errorf("%+v", r)
	}
	g.mustNotStart(t, "nothing is served")
}

// A start over the cut log, which replaces the mark, does not make that log one that tells all.
func TestRestoreIsNotContentWithALogThatWasCutEarlier(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, _ := g.mustEnrol()
	backup := g.backup(t)
	g.setStanding(done.AIC, "revoked")
	g.stop()
	harm(t, filepath.Join(g.auditDir(), "audit.jsonl"), func(l []string) []string { return l[:len(l)-3] }) // revoked, stopped, checkpoint
	g.start()
	eventually(t, "it is recorded", func() bool { return slices.Contains(g.records(), audit.KindDamaged) })
	g.stop()
	if r := g.restore(t, RestoreOptions{File: backup}); !strings.Contains(r.Missing, "tells of damage") {
		t.Errorf("%+v", r)
	}
	g.mustNotStart(t, "nothing is served")
}

func mustHeader(t *testing.T, backup string) []byte {
	t.Helper()
	f, err := os.Open(backup)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := store.CheckBackup(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := store.EncodeHeader(h)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The log of another gateway, or one that was begun anew, is not what happened since.
func TestRestoreWantsTheLogOfTheBackup(t *testing.T) {
	t.Parallel()
	g, other := newGateway(t, "pharmacy.example"), newGateway(t, "pharmacy.example")
	for range 3 {
		other.mustEnrol()
	}
	g.mustEnrol()
	backup := g.backup(t)
	g.stop()
	other.stop()
	if _, err := Restore(other.cfg, RestoreOptions{File: backup}, slog.New(slog.DiscardHandler)); daemon.ExitCode(err) != daemon.ExitUsage {
		t.Errorf("into another gateway's folder: %v", err)
	}
	if done := g.restore(t, RestoreOptions{File: backup, Audit: other.auditDir()}); done.Missing == "" || done.AuditBefore == "" {
		t.Errorf("%+v", done)
	}
	g.mustNotStart(t, "nothing is served")
}

func TestDirectoryIsEncryptedWhereTheConfigurationSaysSo(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	done, _ := g.mustEnrol()
	backup := g.backup(t)
	g.stop()
	yaml := filepath.Join(g.dir, "gatewayd.yaml")
	raw, err := os.ReadFile(yaml)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(g.dir, "at-rest.key"), []byte(strings.Repeat("5a", 32)+"\n"), 0o600),
		os.WriteFile(yaml, append(raw, "encryption_key: at-rest.key\n"...), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if g.cfg, err = config.LoadGateway(yaml); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var cleanup daemon.Cleanup
	_, err = Start(ctx, g.cfg, slog.New(slog.DiscardHandler), &cleanup)
	cancel()
	if daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), "encryption key") {
		t.Errorf("a plain database with a key: %v", err)
	}
	cleanup.Run()
	if r := g.restore(t, RestoreOptions{File: backup}); !r.BeforePlain || r.kept == nil {
		t.Errorf("of the plain database that was there: %+v", r)
	}
	g.start()
	if state := g.stateOf(t, done.AIC); state != directory.Active {
		t.Errorf("%v", state)
	}
	g.stop()
	for _, pattern := range []string{"*.sst", "*.mem", "*.vlog"} {
		files, _ := filepath.Glob(filepath.Join(g.cfg.StateDir, dirDirectory, pattern))
		for _, f := range files {
			if raw, err := os.ReadFile(f); err != nil || strings.Contains(string(raw), done.AIC) {
				t.Errorf("%s holds the AIC in clear text (%v)", f, err)
			}
		}
	}
	if r := g.restore(t, RestoreOptions{File: backup}); r.BeforePlain || r.Before == "" || r.kept == nil {
		t.Errorf("of the encrypted one: %+v", r)
	}
}
