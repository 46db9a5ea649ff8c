package app

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/rib"
	"agentgw/internal/audit"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/secret"
)

// openStore opens the directory database, with the configured key.
func openStore(cfg *config.Gateway, log *slog.Logger) (*store.Store, error) {
	key, err := encryptionKey(cfg)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(filepath.Join(cfg.StateDir, dirDirectory), log, store.WithEncryptionKey(key))
	if errors.Is(err, store.ErrKey) {
		return nil, &daemon.UsageError{Err: err} // a restart does not help
	}
	return s, err
}

func encryptionKey(cfg *config.Gateway) ([]byte, error) {
	key, err := secret.ReadKey(cfg.EncryptionKey)
	if err != nil {
		return nil, daemon.Usagef("encryption_key: %w", err)
	}
	return key, nil
}

// Backup implements admin.Gateway: it writes the directory database into a file that is whole or not there.
func (a *app) Backup(ctx context.Context, r admin.BackupRequest) (admin.BackupAnswer, error) {
	if !filepath.IsAbs(r.File) {
		return admin.BackupAnswer{}, frame.Errorf(frame.ReqInvalid, "the path of a backup must be absolute, not %q", r.File)
	}
	if _, err := os.Lstat(r.File); err == nil {
		return admin.BackupAnswer{}, frame.Errorf(frame.ReqInvalid, "%s is there already: choose another name", r.File)
	}
	a.auditor.gate.Lock()
	defer a.auditor.gate.Unlock()
	count, hash := a.auditor.log.Head() // before the database: what comes between the two is applied again, which does no harm
	h := store.Header{Created: now(), Domain: a.cfg.Domain, Gateway: string(a.home.gateway), AuditCount: count, AuditHash: hash}
	out := admin.BackupAnswer{File: r.File, Created: h.Created.UTC(), AuditCount: count}
	var sum [32]byte
	err := writeWhole(r.File, func(f io.Writer) error {
		digest := sha256.New()
		counted := &counter{to: io.MultiWriter(f, digest)}
		err := a.store.Backup(ctx, counted, h)
		out.Octets, sum = counted.n, [32]byte(digest.Sum(nil))
		return err
	})
	if err != nil {
		return admin.BackupAnswer{}, frame.Errorf(frame.Internal, "back up into %s: %w", r.File, err)
	}
	out.SHA256 = hex.EncodeToString(sum[:])
	return out, a.audit(ctx, kindBackup, map[string]any{"sha256": out.SHA256, "octets": out.Octets, "audit_count": count})
}

type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// writeWhole makes a file of mode 0600 that nobody sees before all of it is on the disk.
func writeWhole(path string, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".backup-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it has another name then
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil { // unlike a rename it never takes the place of another file
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// RestoreOptions is what `gatewayd restore` is told.
type RestoreOptions struct {
	File       string // empty: only AcceptLost
	Audit      string // folder of the audit log that goes into the state folder
	AcceptLost bool
}

// RestoreResult is what it did.
type RestoreResult struct {
	Restored    bool      `json:"restored"`
	Created     time.Time `json:"created"`
	AuditCount  uint64    `json:"audit_count"`
	Before      string    `json:"before,omitempty"`       // folder of the database that was there
	BeforePlain bool      `json:"before_plain,omitempty"` // that one is not encrypted
	AuditBefore string    `json:"audit_before,omitempty"` // folder of the log that was there
	Accepted    bool      `json:"accepted"`
	Missing     string    `json:"missing,omitempty"` // why the gateway will not serve yet

	kept []byte // newest checkpoint of the database that was there
}

// Restore makes the directory database of a stopped gateway from a backup. What was there is moved aside. The gateway catches up
// from its audit log when it starts. What neighbours told is no part of a backup and is removed: they tell it again.
func Restore(cfg *config.Gateway, o RestoreOptions, log *slog.Logger) (*RestoreResult, error) {
	own, err := ownBundle(cfg)
	if err != nil {
		return nil, err
	}
	out := &RestoreResult{}
	stamp := now().UTC().Format("20060102T150405.000Z")
	if o.File != "" {
		if err := out.restore(cfg, o.File, stamp, log); err != nil {
			return nil, err
		}
	}
	s, err := openStore(cfg, log)
	if err != nil {
		return nil, err
	}
	if err := out.prepare(cfg, s, o, own, stamp); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return out, s.Close()
}

// ownBundle is the bundle of the state folder: keys and certificates are not part of a backup.
func ownBundle(cfg *config.Gateway) (*identity.Accepted, error) {
	raw, err := os.ReadFile(filepath.Join(cfg.StateDir, fileBundle))
	if err != nil {
		return nil, fmt.Errorf("read own bundle: %w; copy the files of the state folder back first, a backup has the directory only", err)
	}
	return identity.ParseBundle(raw)
}

// ownAIC is the AIC of the process that the state folder is of: a domain has several, each with its own directory.
func ownAIC(cfg *config.Gateway) (aic.AIC, error) {
	file := filepath.Join(cfg.StateDir, fileGatewayChain)
	chain, err := identity.LoadChain(file)
	if err != nil {
		return "", err
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return "", fmt.Errorf("read certificate %s: %w", file, err)
	}
	return identity.AICOf(leaf)
}

func (out *RestoreResult) restore(cfg *config.Gateway, file, stamp string, log *slog.Logger) error {
	f, err := os.Open(file)
	if err != nil {
		return daemon.Usagef("open the backup: %w", err)
	}
	defer f.Close()
	h, err := store.CheckBackup(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	id, err := ownAIC(cfg)
	if err != nil {
		return err
	}
	if h.Domain != cfg.Domain || h.Gateway != string(id) {
		return daemon.Usagef("%s is of %s of the domain %s, and this folder is of %s of %s: choose the right one", file, h.Gateway, h.Domain, id, cfg.Domain)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	key, err := encryptionKey(cfg)
	if err != nil {
		return err
	}
	dir := filepath.Join(cfg.StateDir, dirDirectory)
	before := dir + ".before-" + stamp
	out.kept = keptBefore(cfg, dir, log)
	moved, err := store.MoveAside(dir, before)
	if err != nil {
		return err
	}
	if moved {
		out.Before, out.BeforePlain = before, store.Plain(before)
	}
	if h, err = store.Restore(dir, f, log, store.WithEncryptionKey(key)); err != nil {
		return fmt.Errorf("%w (the database that was there is in %s)", err, before)
	}
	if err := rib.Remove(filepath.Join(cfg.StateDir, dirRIB)); err != nil {
		return fmt.Errorf("remove what neighbours told: %w; remove it by hand", err)
	}
	out.Restored, out.Created, out.AuditCount = true, h.Created, h.AuditCount
	return nil
}

// keptBefore is the newest checkpoint that the database which is about to be replaced knows; nil where it cannot be read. The backup's own is
// as old as the backup, and would not show that the end of the log was cut since.
func keptBefore(cfg *config.Gateway, dir string, log *slog.Logger) []byte {
	if _, err := os.Stat(filepath.Join(dir, "MANIFEST")); err != nil {
		return nil
	}
	var s *store.Store
	var err error
	if store.Plain(dir) { // encryption may be what the restore turns on
		s, err = store.Open(dir, log)
	} else {
		s, err = openStore(cfg, log)
	}
	if err != nil { // damaged, perhaps why it is replaced; or in use, which comes to light next
		log.Warn("the database that is replaced cannot be read: that the end of the audit log is whole is known up to the backup only", "err", err)
		return nil
	}
	defer s.Close()
	kept, err := keptCheckpoint(s)
	if err != nil {
		return nil
	}
	return kept
}

// prepare puts the audit log in its place, notes what the operator accepts, and says whether the gateway will serve.
func (out *RestoreResult) prepare(cfg *config.Gateway, s *store.Store, o RestoreOptions, own *identity.Accepted, stamp string) error {
	h, err := recoveringHeader(s)
	if err != nil {
		return err
	}
	if h == nil {
		return daemon.Usagef("the directory is not one that was restored: there is nothing to accept; name the backup to restore")
	}
	if o.Audit != "" {
		before, err := placeAudit(o.Audit, filepath.Join(cfg.StateDir, dirAudit), stamp)
		if err != nil {
			return err
		}
		out.AuditBefore = before
	}
	ctx, cancel := context.WithTimeout(context.Background(), auditTime)
	defer cancel()
	if out.kept != nil {
		if err := s.SetMeta(ctx, metaCheckpoint, out.kept); err != nil {
			return err
		}
	}
	if o.AcceptLost {
		if err := s.SetMeta(ctx, metaAccepted, []byte{1}); err != nil {
			return err
		}
		out.Accepted = true
	}
	if _, err := readRecovery(s, cfg.StateDir, own); err != nil {
		out.Missing = err.Error()
	}
	return nil
}

// placeAudit copies the files of an audit log into the state folder; a log that is there is moved aside.
func placeAudit(from, to, stamp string) (before string, err error) {
	files, err := filepath.Glob(filepath.Join(from, "audit*.jsonl"))
	if err != nil || len(files) == 0 {
		return "", daemon.Usagef("--audit %s: it has no audit*.jsonl (%w)", from, errors.Join(err, fs.ErrNotExist))
	}
	if same, err := sameFolder(from, to); err != nil || same {
		return "", err
	}
	draft := to + ".restore-" + stamp
	if err := os.Mkdir(draft, 0o700); err != nil {
		return "", err
	}
	for _, file := range files {
		if err := copyFile(file, filepath.Join(draft, filepath.Base(file))); err != nil {
			return "", fmt.Errorf("copy the audit log: %w", err)
		}
	}
	if _, err := os.Lstat(to); err == nil {
		before = to + ".before-" + stamp
		if err := audit.MoveAside(to, before); err != nil {
			return "", err
		}
	}
	return before, os.Rename(draft, to)
}

func sameFolder(x, y string) (bool, error) {
	one, err := os.Stat(x)
	if err != nil {
		return false, err
	}
	two, err := os.Stat(y)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(one, two), err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
