package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/a2a"
	"agentgw/a2a/wire"
	"agentgw/config"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
)

// running is an agentd without agents in this process.
func running(t *testing.T, cfg *config.Agent) (a *app, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a = &app{cfg: cfg, log: slog.New(slog.DiscardHandler), ctx: ctx}
	var cleanup daemon.Cleanup
	var err error
	if a.db, err = openDB(cfg, a.log); err != nil {
		t.Fatal(err)
	}
	cleanup.Add("close database", drainTime, func(context.Context) error { return a.db.Close() })
	if err := a.openAudit(&cleanup); err != nil {
		t.Fatal(errors.Join(err, cleanup.Run()))
	}
	return a, func() {
		t.Helper()
		cancel()
		if err := cleanup.Run(); err != nil {
			t.Error(err)
		}
	}
}

func TestAuditOfSessionsAndDeliveries(t *testing.T) {
	t.Parallel()
	cfg := &config.Agent{StateDir: t.TempDir()}
	a, stop := running(t, cfg)
	ag := &agent{cred: &credential{enrolment: enrolment{AIC: "2.999.A"}}, record: a.record}
	info := a2a.Info{Sid: wire.ID{1}, Peer: "2.999.B", Cap: "2.999.A/sell"}
	ag.recordSession("session.opened")(info)
	ag.recordDelivery("delivery.received", info.Sid, []byte{2}, []byte("the payload"), nil)
	ag.recordEnded(info, frame.Shutdown)
	head := a.AuditHead()
	if r, err := VerifyAudit(cfg, &head, a.log); err != nil || !r.OK {
		t.Errorf("while it runs: %+v, %v", r, err)
	}
	stop()
	var kinds []string
	if err := audit.Read(AuditDir(cfg), 0, func(r audit.Record) error {
		kinds = append(kinds, r.Kind)
		if bytes.Contains(r.Data, []byte("payload")) {
			t.Errorf("record %d has the payload", r.N)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(kinds, " "), "agentd.started session.opened delivery.received session.ended agentd.stopped"; got != want {
		t.Errorf("recorded %s, want %s", got, want)
	}
}

func TestCutAuditLogIsTold(t *testing.T) {
	t.Parallel()
	cfg := &config.Agent{StateDir: t.TempDir()}
	_, stop := running(t, cfg)
	stop()
	if r, err := VerifyAudit(cfg, nil, slog.New(slog.DiscardHandler)); err != nil || !r.OK || r.Report.Records != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	file := filepath.Join(AuditDir(cfg), "audit.jsonl")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, raw[:bytes.IndexByte(raw, '\n')+1], 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := VerifyAudit(cfg, nil, slog.New(slog.DiscardHandler)); err != nil || r.OK || !strings.Contains(r.Damage.What, "cut") {
		t.Errorf("a cut tail: %+v, %v", r, err)
	}
	for range 2 { // the mark is replaced, the record stays
		a, stop := running(t, cfg)
		if !strings.Contains(a.damage, "cut") {
			t.Errorf("the next start says %q", a.damage)
		}
		stop()
		r, err := VerifyAudit(cfg, nil, slog.New(slog.DiscardHandler))
		if err != nil || r.OK || r.Report.ToldCount != 1 || !strings.Contains(r.Damage.What, "cut") {
			t.Errorf("after a restart: %+v, %v", r, err)
		}
	}
}

func TestALogThatWasMovedAwayIsToldByTheNextOne(t *testing.T) {
	t.Parallel()
	cfg := &config.Agent{StateDir: t.TempDir()}
	_, stop := running(t, cfg)
	stop()
	if err := os.Rename(AuditDir(cfg), filepath.Join(t.TempDir(), "audit")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a, stop := running(t, cfg)
		if !strings.HasPrefix(a.damage, "ok, begun anew at ") {
			t.Errorf("the next start says %q", a.damage)
		}
		head := a.AuditHead()
		if r, err := VerifyAudit(cfg, &head, a.log); err != nil || !r.OK {
			t.Errorf("while it runs: %+v, %v", r, err)
		}
		stop()
		if r, err := VerifyAudit(cfg, nil, slog.New(slog.DiscardHandler)); err != nil || !r.OK || r.Report.Began == nil || r.Report.Began.Records != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestDatabaseIsEncryptedWhereTheConfigurationSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := &config.Agent{StateDir: dir, EncryptionKey: filepath.Join(dir, "key")}
	if err := os.WriteFile(cfg.EncryptionKey, bytes.Repeat([]byte("a7"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop := running(t, cfg)
	stop()
	quiet := slog.New(slog.DiscardHandler)
	_, err := openDB(&config.Agent{StateDir: dir}, quiet)
	if daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), "encrypted") {
		t.Errorf("without the key: %v", err)
	}
	if err := os.WriteFile(cfg.EncryptionKey, bytes.Repeat([]byte("b7"), 32), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = openDB(cfg, quiet)
	if daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), "move "+filepath.Join(dir, "agent")+" away") ||
		strings.Contains(err.Error(), "restore") {
		t.Errorf("with another key: %v", err)
	}
}
