package app

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"agentgw/config"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
)

// AuditDir is where a gateway keeps its audit log.
func AuditDir(cfg *config.Gateway) string { return filepath.Join(cfg.StateDir, dirAudit) }

// AuditReport is what `gatewayd audit verify` found.
type AuditReport struct {
	Dir     string             `json:"dir"`
	Copy    bool               `json:"copy"` // it is not the folder that the gateway writes to
	OK      bool               `json:"ok"`
	Report  audit.Report       `json:"report"`
	Damage  *audit.DamageError `json:"damage,omitempty"`
	Against string             `json:"against"` // what the log was compared with beside itself

	// Later is, of a copy that ends before the gateway's own log, the number of the last record that the gateway knows of. That the copy ends
	// where it ended when it was taken nothing can prove then. 0: the end is compared too.
	Later uint64 `json:"later,omitempty"`
}

// VerifyAudit verifies a log of this gateway, or a copy of one. running is what the running gateway knows of it; nil: it does not run, and its
// database is asked. A log that is not what was written is a report, other errors are errors.
func VerifyAudit(cfg *config.Gateway, dir string, running *admin.AuditState, log *slog.Logger) (*AuditReport, error) {
	own, err := ownBundle(cfg)
	if err != nil {
		return nil, err
	}
	keys, err := openAuditKeys(cfg.StateDir, own)
	if err != nil {
		return nil, err
	}
	out := &AuditReport{Dir: dir, Against: "the running gateway"}
	var kept []byte
	if running != nil {
		kept = running.Kept
	} else {
		out.Against = "the checkpoint in the directory database"
		if kept, err = keptOffline(cfg, log); err != nil {
			return nil, err
		}
	}
	if running == nil && kept == nil {
		out.Against = "nothing: the directory database has no checkpoint"
	}
	verify := audit.VerifyBy(keys.find)
	if sameLog(dir, AuditDir(cfg)) {
		if out.Report, err = audit.Verify(dir, verify, kept); err == nil && running != nil {
			err = reachesHead(dir, running)
		}
	} else {
		out.Copy = true
		err = out.compareCopy(AuditDir(cfg), verify, running, kept)
	}
	if errors.As(err, &out.Damage) {
		return out, nil
	}
	if err == nil {
		out.Damage = out.Report.Damage() // not that of today, and not undone by a start
	}
	out.OK = err == nil && out.Damage == nil
	return out, err
}

// compareCopy verifies a copy of the gateway's log: as far as it goes, it must be the very log that the gateway has. A copy that was taken
// earlier has fewer records, and so has one that was cut: that it is shorter is told and is no damage.
func (out *AuditReport) compareCopy(own string, verify audit.Verifier, running *admin.AuditState, kept []byte) error {
	var err error
	if out.Report, err = audit.Verify(out.Dir, verify, nil); err != nil {
		return err
	}
	r := &out.Report
	began, err := audit.BeganOf(own)
	if err == nil && began != nil && (r.Began == nil || *r.Began != *began) { // a copy of the log before
		out.Against = "what the log begun after it, at " + began.At.UTC().Format(time.RFC3339) + ", says of its end"
		return began.Ends(out.Dir)
	}
	if kept != nil {
		mark, err := verify(kept)
		if err != nil {
			return fmt.Errorf("audit log: the checkpoint that was kept elsewhere: %w", err)
		}
		if mark.Count <= r.Records {
			if err := audit.Reaches(out.Dir, mark.Count, mark.Hash); err != nil {
				return err
			}
		} else {
			out.Later = mark.Count
		}
	}
	if running == nil {
		if _, err := os.Stat(own); errors.Is(err, fs.ErrNotExist) {
			return nil // this copy may be what is left
		}
	}
	if running != nil && running.Count > r.Records {
		out.Later = running.Count
	}
	if err := audit.Reaches(own, r.Records, r.Head); err != nil {
		return &audit.DamageError{What: fmt.Sprintf("this copy of %d records is not the beginning of the gateway's own log in %s; verify that one too: %v",
			r.Records, own, err)}
	}
	return nil
}

// reachesHead compares with the very last line that the gateway has written: nothing at all may be missing.
func reachesHead(dir string, s *admin.AuditState) error {
	hash, err := hex.DecodeString(s.Hash)
	if err != nil || len(hash) != 32 {
		return errors.New("the gateway's answer has no hash of 32 octets")
	}
	return audit.Reaches(dir, s.Count, [32]byte(hash))
}

func sameLog(x, y string) bool {
	same, err := sameFolder(x, y)
	return err == nil && same
}

// keptOffline reads the kept checkpoint of a gateway that does not run.
func keptOffline(cfg *config.Gateway, log *slog.Logger) ([]byte, error) {
	if _, err := os.Stat(filepath.Join(cfg.StateDir, dirDirectory)); errors.Is(err, fs.ErrNotExist) {
		return nil, daemon.Usagef("%s has no directory database, so there is nothing to compare the log with: %w", cfg.StateDir, err)
	}
	s, err := openStore(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("read the kept checkpoint: %w", err)
	}
	kept, err := keptCheckpoint(s)
	return kept, errors.Join(err, s.Close())
}

// AuditRow is one record as `gatewayd audit show` prints it.
type AuditRow struct {
	N    uint64          `json:"n"`
	Time time.Time       `json:"time"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// ShowAudit visits the records after a number, of one kind if one is given; checkpoints only where they are asked for.
func ShowAudit(dir string, after uint64, kind string, f func(AuditRow) error) error {
	if err := checkAuditKind(kind); err != nil {
		return err
	}
	return audit.Read(dir, after, func(r audit.Record) error {
		if kind == "" && r.Kind == audit.KindCheckpoint || kind != "" && r.Kind != kind {
			return nil
		}
		return f(AuditRow{r.N, r.Time, r.Kind, r.Data})
	})
}
