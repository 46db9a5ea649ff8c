package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"agentgw/a2a"
	"agentgw/a2a/wire"
	"agentgw/agentd/internal/attach"
	"agentgw/agentd/internal/local"
	"agentgw/agentd/internal/state"
	"agentgw/config"
	"agentgw/directory/store"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/secret"
)

// The audit log of this daemon has no signed checkpoints: its agents' keys are renewed at will, and who could write the log could use them. In
// their place the database keeps how long the log is, once a minute and at the end.
const markEvery = time.Minute

// AuditDir is where a daemon keeps its audit log.
func AuditDir(cfg *config.Agent) string { return filepath.Join(cfg.StateDir, "audit") }

// openDB opens the agents' database, with the configured key.
func openDB(cfg *config.Agent, log *slog.Logger) (*state.DB, error) {
	key, err := secret.ReadKey(cfg.EncryptionKey)
	if err != nil {
		return nil, daemon.Usagef("encryption_key: %w", err)
	}
	dir := filepath.Join(cfg.StateDir, "agent")
	db, err := state.Open(dir, log, store.WithEncryptionKey(key))
	if errors.Is(err, store.ErrKey) { // a restart does not help
		return nil, daemon.Usagef("%w; to change the key or to turn encryption on, stop agentd and move %s away: running tasks are lost", err, dir)
	}
	return db, err
}

// openAudit goes on with the log. Damage is told and stops nothing; a log whose end is damaged is moved aside.
func (a *app) openAudit(cleanup *daemon.Cleanup) error {
	dir := AuditDir(a.cfg)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	found, damage := verify(dir, a.db)
	conf := audit.Config{Dir: dir, Log: a.log}
	var err error
	if a.audit, err = audit.Open(conf); errors.Is(err, audit.ErrDamaged) {
		moved := fmt.Sprintf("%s.damaged-%s", dir, time.Now().UTC().Format("20060102T150405Z"))
		damage = fmt.Errorf("%w; it was moved to %s", err, moved)
		if err = os.Rename(dir, moved); err == nil {
			a.audit, err = audit.Open(conf)
		}
	}
	if err != nil {
		return err
	}
	if damage != nil {
		if found, damage, err = a.beginAnew(found, damage); err != nil {
			return errors.Join(err, a.audit.Close())
		}
	}
	cleanup.Add("close audit log", drainTime, func(ctx context.Context) error {
		return errors.Join(a.audit.Record(ctx, "agentd.stopped", nil), a.keepMark(), a.audit.Close())
	})
	if damage != nil {
		a.damage = damage.Error()
		a.log.Error("the audit log is not what this daemon has written; keep the folder as evidence", "dir", dir, "err", damage)
		if err := a.audit.Record(a.ctx, audit.KindDamaged, map[string]any{"what": a.damage}); err != nil {
			return err
		}
	} else if told := found.Damage(); told != nil {
		a.damage = told.Error()
		a.log.Error("the audit log has a record of damage; keep the folder as evidence: stop agentd, move it away, start again", "dir", dir, "err", told)
	} else if found.Began != nil {
		a.damage = fmt.Sprintf("ok, %v", found.Began)
	}
	return a.audit.Record(a.ctx, "agentd.started", map[string]any{"version": daemon.Version()})
}

// beginAnew records, first of all, that an empty log takes the place of one that was here. Whether an operator moved that away or somebody
// removed it cannot be told from here: it is no damage, and whoever verifies this log is told for as long as it goes on.
func (a *app) beginAnew(found audit.Report, damage error) (audit.Report, error, error) {
	if lines, _ := a.audit.Head(); lines > 0 || found.Records > 0 || errors.Is(damage, audit.ErrDamaged) {
		return found, damage, nil
	}
	count, hash, err := a.db.Mark()
	if err != nil || count == 0 {
		return found, damage, err
	}
	a.log.Warn("there is no audit log here, and there was one; if you have not moved it away, somebody else has. A new one is begun",
		"dir", AuditDir(a.cfg), "records_of_old", count)
	if err := a.audit.Record(a.ctx, audit.KindBegan, audit.BeganAfter(count, hash)); err != nil {
		return found, damage, err
	}
	found, damage = verify(AuditDir(a.cfg), a.db)
	return found, damage, nil
}

// verify checks the chain, and that the log is as long as the database says.
func verify(dir string, db *state.DB) (audit.Report, error) {
	count, hash, err := db.Mark()
	if err != nil {
		return audit.Report{}, err
	}
	return audit.VerifyMark(dir, count, hash)
}

func (a *app) keepMark() error { return a.db.SetMark(a.audit.Head()) }

func (a *app) markAudit() {
	tick := time.NewTicker(markEvery)
	defer tick.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
			if err := a.keepMark(); err != nil {
				a.log.Warn("audit log", "err", err)
			}
		}
	}
}

// AuditHead implements local.Daemon.
func (a *app) AuditHead() local.AuditHead {
	count, hash := a.audit.Head()
	return local.AuditHead{Count: count, Hash: hex.EncodeToString(hash[:])}
}

// record keeps a record within a second.
func (a *app) record(kind string, data any) {
	if err := a.audit.RecordSoon(kind, data); err != nil {
		a.log.Error("audit record lost", "kind", kind, "err", err)
	}
}

// recordServed says that an agent is served, and the first time that it was enrolled: the verb that enrols runs beside the daemon.
func (a *app) recordServed(ag *agent) error {
	known, err := a.db.Known(ag.cred.AIC)
	if err != nil {
		return err
	}
	kind := "agent.served"
	if !known {
		kind = "agent.enrolled"
	}
	leaf := ag.cred.certificate.Leaf
	if err := a.audit.Record(a.ctx, kind, map[string]any{
		"aic": ag.cred.AIC, "name": ag.name, "serial": leaf.SerialNumber.Text(16), "certificate": hashOf(leaf.Raw),
	}); err != nil || known {
		return err
	}
	return a.db.SetKnown(ag.cred.AIC)
}

// renewed keeps a renewed credential and records it. After a re-key the sessions that run move to the new key, whether that was kept
// or not.
func (a *agent) renewed(keep func(attach.Renewal) error) func(attach.Renewal) error {
	keep = a.recordRenewed(keep)
	return func(r attach.Renewal) error {
		err := keep(r)
		if r.ReKey {
			a.a2a.KeyChanged()
		}
		return err
	}
}

// recordRenewed keeps a renewed credential, and a record of it.
func (a *agent) recordRenewed(keep func(attach.Renewal) error) func(attach.Renewal) error {
	return func(r attach.Renewal) error {
		if err := keep(r); err != nil {
			return err
		}
		kind := "credential.renewed"
		if r.ReKey {
			kind = "credential.rekeyed"
		}
		spki, err := identity.SPKIHash(r.Key.Public())
		if err != nil {
			return err
		}
		a.record(kind, map[string]any{"aic": a.cred.AIC, "certificate": hashOf(r.Chain[0]), "spki": hex.EncodeToString(spki[:])})
		return nil
	}
}

// recordSession records what has become of a session.
func (a *agent) recordSession(kind string) func(a2a.Info) {
	return func(i a2a.Info) { a.record(kind, a.session(i)) }
}

func (a *agent) recordEnded(i a2a.Info, code frame.Code) {
	data := a.session(i)
	data["code"] = code.Hex()
	a.record("session.ended", data)
}

func (a *agent) session(i a2a.Info) map[string]any {
	return map[string]any{"aic": a.cred.AIC, "sid": hex.EncodeToString(i.Sid[:]), "peer": i.Peer, "cap": hashOf([]byte(i.Cap))}
}

// recordDelivery says that a context was handed over, and not what is in it.
func (a *agent) recordDelivery(kind string, sid wire.ID, msgID, body []byte, err error) {
	data := map[string]any{
		"aic": a.cred.AIC, "sid": hex.EncodeToString(sid[:]), "size": len(body), "sha256": hashOf(body), "code": frame.CodeOf(err).Hex(),
	}
	if msgID != nil {
		data["msg"] = hex.EncodeToString(msgID)
	}
	a.record(kind, data)
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// AuditReport is what `agentd audit verify` found.
type AuditReport struct {
	Dir    string             `json:"dir"`
	OK     bool               `json:"ok"`
	Report audit.Report       `json:"report"`
	Damage *audit.DamageError `json:"damage,omitempty"`
}

// VerifyAudit verifies the log: against its end as the running daemon knows it, or against the mark in the database of one that is stopped.
func VerifyAudit(cfg *config.Agent, running *local.AuditHead, log *slog.Logger) (out *AuditReport, err error) {
	out = &AuditReport{Dir: AuditDir(cfg)}
	var count uint64
	var hash [32]byte
	if running != nil {
		raw, err := hex.DecodeString(running.Hash)
		if err != nil || len(raw) != len(hash) {
			return nil, errors.New("the daemon's answer has no hash of 32 octets")
		}
		count, hash = running.Count, [32]byte(raw)
	} else {
		db, err := openDB(cfg, log)
		if err != nil {
			return nil, err
		}
		count, hash, err = db.Mark()
		if err := errors.Join(err, db.Close()); err != nil {
			return nil, err
		}
	}
	if out.Report, err = audit.VerifyMark(out.Dir, count, hash); errors.As(err, &out.Damage) {
		return out, nil
	}
	if err == nil {
		out.Damage = out.Report.Damage() // not that of today, and not undone by a start
	}
	out.OK = err == nil && out.Damage == nil
	return out, err
}
