package app

import (
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Files of an agent's folder, state_dir/agents/<name>.
const (
	fileKey       = "agent.key"
	fileChain     = "agent.pem"
	fileBundle    = "bundle.cbor"
	fileACS       = "acs.json"
	fileGrant     = "grant.cbor"
	fileEnrolment = "enrolment.json"
)

// enrolment is what an agent knows of its own registration.
type enrolment struct {
	AIC          string    `json:"aic"`
	Name         string    `json:"name"` // of its ACS
	Domain       string    `json:"domain"`
	Gateway      string    `json:"gateway"` // host:port
	Capabilities []string  `json:"capabilities"`
	EntryVersion uint64    `json:"entry_version"`
	EnrolledAt   time.Time `json:"enrolled_at"`
}

// credential is an agent's folder as it is loaded at the start.
type credential struct {
	enrolment
	certificate tls.Certificate
	spki        [32]byte
	grant       []byte
	trust       *identity.Trust
}

func agentDir(state, name string) string { return filepath.Join(state, "agents", name) }

// loadOrMakeKey keeps the key of an enrolment that was cut short, so that the same token can complete it.
func loadOrMakeKey(dir string) (crypto.Signer, error) {
	path := filepath.Join(dir, fileKey)
	key, err := identity.LoadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	fresh, err := identity.NewLeafKey()
	if err != nil {
		return nil, err
	}
	return fresh, identity.SaveKey(path, fresh)
}

// save writes what the gateway answered. The enrolment file comes last: an agent with one is whole.
func save(dir string, done *arp.Enrolled, e enrolment) error {
	if err := identity.SaveChain(filepath.Join(dir, fileChain), done.Chain); err != nil {
		return err
	}
	meta, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{fileBundle, done.Bundle}, {fileACS, done.ACS}, {fileGrant, done.Grant}, {fileEnrolment, append(meta, '\n')}} {
		if err := renameio.WriteFile(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func load(state, name string) (*credential, error) {
	dir := agentDir(state, name)
	at := func(file string) string { return filepath.Join(dir, file) }
	c := &credential{}
	meta, err := os.ReadFile(at(fileEnrolment))
	if err != nil {
		return nil, fmt.Errorf("agent %s is not enrolled (%w): run `agentd enrol --name %s …` first", name, err, name)
	}
	if err := json.Unmarshal(meta, &c.enrolment); err != nil {
		return nil, fmt.Errorf("agent %s: read %s: %w", name, at(fileEnrolment), err)
	}
	key, err := identity.LoadKey(at(fileKey))
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	chain, err := identity.LoadChain(at(fileChain))
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	if c.certificate, err = identity.TLSCertificate(chain, key); err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	if c.spki, err = identity.SPKIHash(key.Public()); err != nil {
		return nil, err
	}
	if c.grant, err = os.ReadFile(at(fileGrant)); err != nil {
		return nil, fmt.Errorf("agent %s: read grant: %w", name, err)
	}
	bundle, err := os.ReadFile(at(fileBundle))
	if err != nil {
		return nil, fmt.Errorf("agent %s: read bundle: %w", name, err)
	}
	c.trust, err = identity.NewTrust(bundle, time.Now)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	return c, nil
}

// keep writes a renewed chain into the agent's folder.
func (c *credential) keep(state, name string) func(chain [][]byte) error {
	return func(chain [][]byte) error {
		return identity.SaveChain(filepath.Join(agentDir(state, name), fileChain), chain)
	}
}

// satKeys are the keys with which the gateways of this agent's own domain sign session tokens.
func (c *credential) satKeys() frame.KeyFunc { return c.trust.Keys(identity.UseSAT) }
