package app

import (
	"context"
	"path/filepath"

	"agentgw/cdsp/replica"
	"agentgw/config"
	"agentgw/directory/store"
	"agentgw/gatewayd/internal/rib"
	"agentgw/internal/daemon"
)

// learned is what neighbours told before this start, and the database that keeps what they tell.
type learned struct {
	kept []replica.Kept
	db   *rib.DB // nil: nothing is kept
}

// openRIB opens what neighbours told before. That it cannot is never a reason not to start: they tell it again.
func (a *app) openRIB(cleanup *daemon.Cleanup) error {
	if !a.cfg.HasRole(config.RoleGateway) {
		return nil
	}
	key, err := encryptionKey(a.cfg)
	if err != nil {
		return err
	}
	a.learned.db, a.learned.kept, err = rib.Open(filepath.Join(a.cfg.StateDir, dirRIB), string(a.home.gateway), a.cfg.Domain, a.log, store.WithEncryptionKey(key))
	if err != nil {
		a.log.Warn("what neighbours tell is not kept over a restart", "err", err)
		return nil
	}
	cleanup.Add("close what neighbours told", drainTime, func(context.Context) error { return a.learned.db.Close() })
	return nil
}

// keep writes down what neighbours tell; nil where there is no database.
func (l *learned) keep() func(replica.Learned) error {
	if l.db == nil {
		return nil
	}
	return l.db.Keep
}
