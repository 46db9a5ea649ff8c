package app

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/directory"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

const (
	dirAudit       = "audit"            // in the state folder
	metaCheckpoint = "audit/checkpoint" // in the directory database: the newest one
	auditTime      = 10 * time.Second   // for a record that no request waits for
)

// Kinds of the audit records of the gateway itself.
const (
	kindStarted    = "gateway.started"
	kindStopped    = "gateway.stopped"
	kindBundle     = "bundle.renewed"
	kindDeprecated = "agent.deprecated"
	kindBackup     = "backup.made"
	kindRestored   = "restore.completed"
)

// auditor is the audit log of a gateway.
type auditor struct {
	dir   string
	keys  *auditKeys
	log   *audit.Log
	kept  []byte                 // checkpoint that the directory had at the start; nil: none
	moved string                 // folder of a log that could not be gone on with
	state atomic.Pointer[string] // for status
	gate  sync.Mutex             // one backup at a time
}

// openAudit goes on with the log. One whose end is damaged is moved aside, and a new one begun: the gateway is worth more.
func (a *app) openAudit(cleanup *daemon.Cleanup) (err error) {
	u := &a.auditor
	u.dir = filepath.Join(a.cfg.StateDir, dirAudit)
	if u.keys, err = openAuditKeys(a.cfg.StateDir, a.home.bundle); err != nil {
		return err
	}
	if u.kept, err = keptCheckpoint(a.store); err != nil {
		return err
	}
	conf := audit.Config{
		Dir: u.dir, Signer: checkpointSigner{a.home.signer(a.home.auditUse()), u.keys}, Log: a.log,
		Keep: func(ctx context.Context, raw []byte) error { return a.store.SetMeta(ctx, metaCheckpoint, raw) },
	}
	u.log, err = audit.Open(conf)
	if errors.Is(err, audit.ErrDamaged) {
		u.moved = fmt.Sprintf("%s.damaged-%s", u.dir, now().UTC().Format("20060102T150405Z"))
		u.say("%v; it was moved to %s", err, u.moved)
		a.log.Error("the audit log is damaged at its end; keep it as evidence, a new one is begun", "moved_to", u.moved, "err", err)
		if err = os.Rename(u.dir, u.moved); err == nil {
			u.log, err = audit.Open(conf)
		}
	}
	if err != nil {
		return err
	}
	cleanup.Add("close audit log", drainTime, func(ctx context.Context) error {
		return errors.Join(u.log.Record(ctx, kindStopped, nil), u.log.Close())
	})
	return nil
}

func keptCheckpoint(s *store.Store) ([]byte, error) {
	kept, err := s.Meta(metaCheckpoint)
	if errors.Is(err, directory.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the kept checkpoint of the audit log: %w", err)
	}
	return kept, nil
}

func (u *auditor) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	u.state.Store(&text)
}

// standing is what `gatewayd status` says of the log.
func (u *auditor) standing() string {
	if s := u.state.Load(); s != nil {
		return *s
	}
	return "being verified"
}

// audit keeps a record of this gateway; it is on the disk when the call returns.
func (a *app) audit(ctx context.Context, kind string, data any) error {
	return a.auditor.log.Record(ctx, kind, data)
}

// auditSoon keeps a record within a second.
func (a *app) auditSoon(kind string, data any) {
	if err := a.auditor.log.RecordSoon(kind, data); err != nil {
		a.log.Error("audit record lost", "kind", kind, "err", err)
	}
}

// begin records the start, and what was done to the log before it. Nothing is served before that is on the disk.
func (a *app) begin(ctx context.Context) error {
	if a.auditor.moved != "" {
		data := map[string]any{"moved_to": filepath.Base(a.auditor.moved), "why": a.auditor.standing()}
		if err := a.audit(ctx, audit.KindReplaced, data); err != nil {
			return err
		}
	} else if err := a.beginAnew(ctx); err != nil {
		return err
	}
	return a.audit(ctx, kindStarted, map[string]any{
		"gateway": string(a.home.gateway), "version": daemon.Version(), "bundle_seq": a.home.bundle.Seq, "agents": a.registry.Len(),
	})
}

// beginAnew records, first of all, that an empty log takes the place of one that was here. Whether an operator moved that away or somebody
// removed it cannot be told from here: it is no damage, and whoever verifies this log is told for as long as it goes on.
func (a *app) beginAnew(ctx context.Context) error {
	u := &a.auditor
	if count, _ := u.log.Head(); count > 0 || u.kept == nil {
		return nil
	}
	mark, err := audit.VerifyBy(u.keys.find)(u.kept)
	if err != nil {
		return nil // checkAudit says so
	}
	a.log.Warn("there is no audit log here, and there was one; if you have not moved it away, somebody else has. A new one is begun",
		"dir", u.dir, "records_of_old", mark.Count)
	return a.audit(ctx, audit.KindBegan, audit.BeganAfter(mark.Count, mark.Hash))
}

// checkAudit verifies the log as the start has found it. Damage is told loudly, and stops nothing: agents and peers have done no wrong.
func (a *app) checkAudit(ctx context.Context) {
	u := &a.auditor
	if u.moved != "" {
		return // said already
	}
	verify := audit.VerifyBy(u.keys.find)
	report, err := audit.Verify(u.dir, func(raw []byte) (audit.Checkpoint, error) {
		if err := ctx.Err(); err != nil { // a long log shall not hold up the end of the daemon
			return audit.Checkpoint{}, err
		}
		return verify(raw)
	}, u.kept)
	switch {
	case ctx.Err() != nil:
	case err == nil && report.Damage() != nil:
		u.say("%v", report.Damage())
		a.log.Error("the audit log has a record of damage; keep the folder as evidence: stop the gateway, move it away, start again",
			"dir", u.dir, "err", report.Damage())
	case err == nil && report.Began != nil:
		u.say("ok, %v", report.Began)
	case err == nil:
		u.say("ok")
	default:
		u.say("%v", err)
		a.log.Error("the audit log is not what this gateway has written; keep the folder as evidence", "dir", u.dir, "err", err)
		ask, cancel := context.WithTimeout(ctx, auditTime)
		defer cancel()
		if err := a.audit(ask, audit.KindDamaged, map[string]any{"what": err.Error()}); err != nil {
			a.log.Error("audit record lost", "kind", audit.KindDamaged, "err", err)
		}
	}
}

// AuditState implements admin.Gateway: what a verifier beside the gateway compares the log with.
func (a *app) AuditState() admin.AuditState {
	count, hash := a.auditor.log.Head()
	out := admin.AuditState{Count: count, Hash: hex.EncodeToString(hash[:])}
	if kept, err := keptCheckpoint(a.store); err == nil {
		out.Kept = kept
	}
	return out
}

// checkpointSigner signs with the key of the moment, once that key is among those that are kept for verifying.
type checkpointSigner struct {
	signer func() frame.Signer
	keys   *auditKeys
}

// Sign implements audit.Signer.
func (s checkpointSigner) Sign(c audit.Checkpoint) ([]byte, error) {
	key := s.signer()
	if err := s.keys.add(key.Public()); err != nil {
		return nil, err
	}
	return audit.SignBy(key).Sign(c)
}

// auditKeysOf are the keys of use 4 in a bundle: those that this gateway's checkpoints may be signed with are among them.
func auditKeysOf(b *identity.Accepted) []identity.BundleKey {
	var out []identity.BundleKey
	for _, k := range b.Keys {
		if k.Use == wireUse(useAudit) && (b.IsGateway(k.Owner) || k.Owner == b.Issuer) {
			out = append(out, k)
		}
	}
	return out
}
