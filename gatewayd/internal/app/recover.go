package app

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"agentgw/directory"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/amc"
	"agentgw/gatewayd/internal/registrar"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// metaAccepted says that the operator has given up what the audit log does not tell of the time after the backup.
const metaAccepted = "recovering-accepted"

const kindLost = "restore.lost" // one agent that has to enrol anew

// recovery is what a restored database lacks, as the audit log tells it.
//
// Standings are taken from the whole log, not only from after the backup's mark: a change is recorded before it is made, so that the mark may
// cover the record of one that the backup has not. The last word on an agent counts, and a revocation is for good.
type recovery struct {
	header   store.Header
	accepted bool
	missing  error // what the log does not tell, accepted

	last      map[string]word       // on credentials, by AIC
	withdrawn map[string]string     // reason, by AIC
	issued    map[string]amc.Issued // first credentials and registrations after the mark, by AIC
	again     []amc.Issued          // renewed after the mark, in order
	updated   map[string]bool       // AICs whose ACS changed after the mark
}

// word is what the log says of an agent's credentials.
type word struct {
	state  identity.State
	change amc.Changed
}

// recoveringHeader is the header of the backup that a database was restored from and has not caught up with; nil: none.
func recoveringHeader(s *store.Store) (*store.Header, error) {
	raw, err := s.Meta(store.MetaRecovering)
	if errors.Is(err, directory.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read whether the directory was restored: %w", err)
	}
	h, err := store.DecodeHeader(raw)
	return &h, err
}

// readRecovery reads what the audit log tells of the time after the backup that a database was restored from; nil where it was not restored.
// A log that does not tell all of it is an error, unless the operator has accepted that.
func readRecovery(s *store.Store, state string, own *identity.Accepted) (*recovery, error) {
	h, err := recoveringHeader(s)
	if err != nil || h == nil {
		return nil, err
	}
	kept, err := keptCheckpoint(s)
	if err != nil {
		return nil, err
	}
	keys, err := openAuditKeys(state, own)
	if err != nil {
		return nil, err
	}
	_, err = s.Meta(metaAccepted)
	r := &recovery{
		header: *h, accepted: err == nil, last: map[string]word{}, withdrawn: map[string]string{}, issued: map[string]amc.Issued{}, updated: map[string]bool{},
	}
	dir := filepath.Join(state, dirAudit)
	report, err := audit.Verify(dir, audit.VerifyBy(keys.find), kept)
	if damage := report.Damage(); err == nil && damage != nil && report.LastTold > h.AuditCount {
		err = damage // what was cut then may have been a revocation
	}
	marked := audit.Reaches(dir, h.AuditCount, h.AuditHash)
	if h.AuditCount == 0 {
		marked = errors.New("the backup names no audit log")
	}
	if marked != nil { // another log: every AIC in it is of somewhere else in time
		r.header.AuditCount = 0
	}
	read := audit.Read(dir, 0, r.read)
	if err == nil { // else the others say it once more
		err = errors.Join(marked, read)
	}
	if err != nil && !r.accepted {
		return nil, daemon.Usagef("the directory was restored from a backup of %s, and the audit log in %s does not tell what was revoked since: %w\n"+
			"nothing is served; put that log back and start again, or, if it is lost, give up what it would tell with `gatewayd restore --accept-lost-revocations`",
			h.Created.Format("2006-01-02 15:04:05 MST"), dir, err)
	}
	r.missing = err
	return r, nil
}

// read takes one record of the log.
func (r *recovery) read(rec audit.Record) error {
	after := rec.N > r.header.AuditCount
	states := map[string]identity.State{amc.KindSuspended: identity.Suspended, amc.KindResumed: identity.Good, amc.KindRevoked: identity.Revoked}
	var err error
	switch rec.Kind {
	case amc.KindSuspended, amc.KindResumed, amc.KindRevoked:
		var c amc.Changed
		if err = json.Unmarshal(rec.Data, &c); err == nil && r.last[c.AIC].state != identity.Revoked {
			r.last[c.AIC] = word{states[rec.Kind], c}
		}
	case registrar.KindWithdrawn:
		var w registrar.Withdrawn
		if err = json.Unmarshal(rec.Data, &w); err == nil {
			r.withdrawn[w.AIC] = w.Reason
		}
	case amc.KindIssued, amc.KindRenewed, amc.KindRekeyed:
		var i amc.Issued
		if err = json.Unmarshal(rec.Data, &i); err == nil && after {
			if rec.Kind == amc.KindIssued {
				r.issued[i.AIC] = i
			} else {
				r.again = append(r.again, i)
			}
		}
	case registrar.KindUpdated, registrar.KindRegistered:
		var of struct {
			AIC string `json:"aic"`
		}
		if err = json.Unmarshal(rec.Data, &of); err != nil || !after {
			break
		}
		if rec.Kind == registrar.KindUpdated {
			r.updated[of.AIC] = true
		} else if _, known := r.issued[of.AIC]; !known {
			r.issued[of.AIC] = amc.Issued{AIC: of.AIC} // its credential is older than the mark, and in the records
		}
	}
	if err != nil {
		return fmt.Errorf("audit record %d (%s): %w", rec.N, rec.Kind, err)
	}
	return nil
}

// recover brings a restored database up to the audit log. It is all done again after a crash in the midst of it.
func (a *app) recover(ctx context.Context) error {
	r := a.recovery
	if r == nil {
		return nil
	}
	lost, err := a.buryLost(ctx, r)
	if err == nil {
		err = a.reapply(ctx, r)
	}
	tokens := 0
	if err == nil && a.amc != nil {
		tokens, err = a.amc.VoidTokens(ctx)
	}
	if err != nil {
		return fmt.Errorf("catch up with the audit log after the restore: %w", err)
	}
	outdated := 0
	for id := range r.updated {
		if _, err := a.registry.Get(id); err == nil {
			outdated++
			a.log.Warn("the ACS of this agent is older than what it last published; have it update", "aic", id)
		}
	}
	done := map[string]any{
		"created": r.header.Created, "audit_count": r.header.AuditCount, "lost": lost, "outdated": outdated, "tokens_void": tokens, "accepted": r.missing != nil,
	}
	if r.missing != nil {
		text := r.missing.Error()
		done["missing"] = text[:min(len(text), 1024)]
	}
	if err := a.audit(ctx, kindRestored, done); err != nil {
		return err
	}
	if err := errors.Join(a.store.SetMeta(ctx, metaAccepted, nil), a.store.SetMeta(ctx, store.MetaRecovering, nil)); err != nil {
		return err
	}
	a.log.Warn("caught up after the restore", "backup_of", r.header.Created, "agents_lost", lost, "acs_outdated", outdated, "tokens_void", tokens)
	return nil
}

// buryLost ends the AICs that were given out after the backup: their entries cannot be made again, for the log does not have them.
func (a *app) buryLost(ctx context.Context, r *recovery) (lost int, err error) {
	const why = "registered after the backup that was restored: it has to enrol anew"
	for _, id := range slices.Sorted(maps.Keys(r.issued)) {
		if _, err := a.registry.Get(id); err == nil {
			continue // the backup was read a moment after its mark
		}
		if _, err := a.store.Ended(id); err == nil {
			continue
		}
		if _, left := r.withdrawn[id]; !left && r.last[id].state != identity.Revoked {
			lost++
			a.log.Warn("an agent's registration is lost with the restore; it has to enrol anew", "aic", id)
			if err := a.audit(ctx, kindLost, map[string]any{"aic": id}); err != nil {
				return lost, err
			}
		}
		if err := a.revokeLost(ctx, r.issued[id], why); err != nil {
			return lost, err
		}
		err := a.store.Bury(ctx, directory.Tombstone{AIC: id, State: directory.Revoked, Version: 1, At: now(), Reason: why})
		if err != nil && !errors.Is(err, directory.ErrExists) {
			return lost, err
		}
	}
	return lost, nil
}

func (a *app) revokeLost(ctx context.Context, i amc.Issued, why string) error {
	switch {
	case a.amc == nil:
		return a.store.SetMeta(ctx, owedPrefix+i.AIC, []byte(why))
	case i.Serial == "":
		return a.amc.Reapply(ctx, identity.Revoked, amc.Changed{AIC: i.AIC, Why: why})
	}
	return a.amc.Bury(ctx, i, why)
}

// reapply brings about what the log says of agents that the database knows.
func (a *app) reapply(ctx context.Context, r *recovery) error {
	newest := map[string]amc.Issued{}
	for _, i := range r.again {
		newest[i.AIC] = i
		if a.amc == nil {
			continue
		}
		if err := a.amc.Reissued(ctx, i); err != nil && frame.CodeOf(err) != frame.NotFound {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(newest)) {
		if err := a.reissued(ctx, newest[id]); err != nil {
			return err
		}
	}
	if err := a.standAgain(ctx, r.last); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(r.withdrawn)) {
		if err := a.withdrawAgain(ctx, id, r.withdrawn[id]); err != nil {
			return err
		}
	}
	if a.amc == nil {
		return nil
	}
	return a.catchUp(ctx)
}

// standAgain gives agents the states that the log says last: by the records of the AMC, or, where that is on another host, in the directory
// alone, of which the AMC's next status list has the last word.
func (a *app) standAgain(ctx context.Context, last map[string]word) error {
	for _, id := range slices.Sorted(maps.Keys(last)) {
		w := last[id]
		var err error
		if a.amc != nil {
			err = a.amc.Reapply(ctx, w.state, w.change)
		} else if err = a.follow(ctx, identity.Standing{AIC: id, State: w.state}); errors.Is(err, directory.ErrNotFound) {
			err = nil // ended, or lost
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reissued notes the newest certificate and key in an agent's entry.
func (a *app) reissued(ctx context.Context, i amc.Issued) error {
	e, err := a.registry.Get(i.AIC)
	if err != nil {
		return nil // ended, or lost
	}
	spki, err1 := hex.DecodeString(i.SPKI)
	cert, err2 := hex.DecodeString(i.Certificate)
	if err := errors.Join(err1, err2); err != nil || len(spki) != 32 || len(cert) != 32 {
		return fmt.Errorf("audit record of a certificate of %s is malformed: %w", i.AIC, err)
	}
	if e.Provenance.SPKI == [32]byte(spki) && e.Provenance.CertSHA256 == [32]byte(cert) {
		return nil
	}
	e.Provenance.SPKI, e.Provenance.CertSHA256, e.Provenance.Grant = [32]byte(spki), [32]byte(cert), i.Grant
	_, err = a.registry.Update(ctx, e, now())
	return err
}

func (a *app) withdrawAgain(ctx context.Context, id, reason string) error {
	if err := a.registry.Withdraw(ctx, id, reason, now()); err != nil && !errors.Is(err, directory.ErrNotFound) {
		return err
	}
	if a.amc == nil {
		return a.store.SetMeta(ctx, owedPrefix+id, []byte(reason))
	}
	return a.amc.Reapply(ctx, identity.Revoked, amc.Changed{AIC: id, Reason: identity.ReasonCessation, Why: reason})
}
