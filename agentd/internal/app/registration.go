package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/agentd/internal/local"
	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
)

// ReKey implements local.Daemon.
func (a *app) ReKey(ctx context.Context, r local.AgentRequest) (local.AgentAnswer, error) {
	ag, err := a.find(r.Agent)
	if err != nil {
		return local.AgentAnswer{}, err
	}
	if err := ag.client.ReKey(ctx); err != nil {
		return local.AgentAnswer{}, err
	}
	ag.log.Info("agent has a new key")
	return ag.answer(), nil
}

func (a *agent) answer() local.AgentAnswer { return local.AgentAnswer{Agent: a.name, AIC: a.cred.AIC} }

// Update implements local.Daemon.
func (a *app) Update(ctx context.Context, r local.UpdateRequest) (local.UpdateAnswer, error) {
	ag, err := a.find(r.Agent)
	if err != nil {
		return local.UpdateAnswer{}, err
	}
	ag.updating.Lock() // two updates at once would both be of the same version
	defer ag.updating.Unlock()
	if r.Visibility == "" {
		if len(r.Allow) > 0 {
			return local.UpdateAnswer{}, frame.Errorf(frame.ReqInvalid, "--allow goes with --visibility listed")
		}
		r.Visibility, r.Allow = ag.visibility, ag.allow
	}
	var visibility directory.Visibility
	if err := visibility.UnmarshalText([]byte(r.Visibility)); err != nil {
		return local.UpdateAnswer{}, frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	version, attached := ag.client.EntryVersion()
	if !attached {
		_, err := ag.client.Attached()
		return local.UpdateAnswer{}, frame.Errorf(frame.UpstreamFailed, "agent %s is not attached: %w", ag.name, err)
	}
	done, err := ag.client.Update(ctx, &arp.ACSPut{
		AIC: ag.cred.AIC, ACS: []byte(r.ACS), Kind: draftKind([]byte(r.ACS)), Expected: max(version, ag.version), Visibility: uint8(visibility), Allow: r.Allow,
	})
	if err != nil {
		return local.UpdateAnswer{}, err
	}
	ag.version, ag.visibility, ag.allow = done.EntryVersion, r.Visibility, r.Allow
	out := local.UpdateAnswer{AIC: ag.cred.AIC, Version: done.EntryVersion, Capabilities: done.Caps, Warnings: draftWarnings([]byte(r.ACS))}
	for _, p := range done.Removed {
		out.Removed = append(out.Removed, p.Path)
	}
	return out, ag.keepUpdate(a.cfg.StateDir, done, r)
}

// keepUpdate makes the daemon serve what the gateway publishes now, and remember it.
func (a *agent) keepUpdate(state string, done *arp.ACSState, r local.UpdateRequest) error {
	a.mu.Lock()
	a.capabilities = done.Caps
	a.mu.Unlock()
	e := a.cred.enrolment
	e.Capabilities, e.EntryVersion, e.Name, e.Visibility, e.Allow = done.Caps, done.EntryVersion, nameOf(done.ACS), r.Visibility, r.Allow
	meta, err := e.encode()
	if err != nil {
		return err
	}
	dir := agentDir(state, a.name)
	if err := a.cred.owns(dir); err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, fileACS), done.ACS, 0o600); err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, fileEnrolment), meta, 0o600)
}

// Deregister implements local.Daemon. Once the gateway has confirmed, the agent is stopped with its program, and its configuration goes
// with its registration. Its folder stays for the records, beside where the name may be enrolled anew.
func (a *app) Deregister(ctx context.Context, r local.AgentRequest) (local.AgentAnswer, error) {
	ag, err := a.find(r.Agent)
	if err != nil {
		return local.AgentAnswer{}, err
	}
	if err := ag.client.Deregister(ctx, r.Reason); err != nil {
		return local.AgentAnswer{}, err
	}
	ag.log.Info("agent de-registered", "aic", ag.cred.AIC)
	recorded := a.audit.Record(ctx, "agent.deregistered", map[string]any{"aic": ag.cred.AIC})
	a.changing.Lock()
	defer a.changing.Unlock()
	err = os.Remove(filepath.Join(a.cfg.AgentsDir, ag.name+".yaml"))
	a.drop(ag)
	dir := agentDir(a.cfg.StateDir, ag.name)
	return ag.answer(), errors.Join(recorded, err, os.Rename(dir, fmt.Sprintf("%s.deregistered-%d", dir, time.Now().Unix())))
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
