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

	"agentgw/agentd/internal/attach"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// Files of an agent's folder, state_dir/agents/<name>.
const (
	fileKey       = "agent.key"
	fileNextKey   = "agent.key.next" // of a re-key, until it is over
	fileChain     = "agent.pem"
	fileBundle    = "bundle.cbor"
	fileACS       = "acs.json"
	fileGrant     = "grant.cbor"
	fileEnrolment = "enrolment.json"
	fileHome      = "home.json" // of an agent whose domain has several gateways
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
	Visibility   string    `json:"visibility,omitempty"`
	Allow        []string  `json:"allow,omitempty"`
}

// credential is an agent's folder as it is loaded at the start.
type credential struct {
	enrolment
	certificate tls.Certificate
	next        crypto.Signer // of a re-key that was cut short, nil for none
	grant       []byte
	home        attach.Home
	trust       *identity.Trust
	statuses    *identity.Statuses
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
	meta, err := e.encode()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{fileBundle, done.Bundle}, {fileACS, done.ACS}, {fileGrant, done.Grant}, {fileEnrolment, meta}} {
		if err := renameio.WriteFile(filepath.Join(dir, f.name), f.data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (e enrolment) encode() ([]byte, error) {
	b, err := json.MarshalIndent(e, "", "  ")
	return append(b, '\n'), err
}

func load(state, name string) (*credential, error) {
	dir := agentDir(state, name)
	at := func(file string) string { return filepath.Join(dir, file) }
	c := &credential{}
	var err error
	if c.enrolment, err = loadEnrolment(state, name); err != nil {
		return nil, err
	}
	key, err := identity.LoadKey(at(fileKey))
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	chain, err := identity.LoadChain(at(fileChain))
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	if c.next, err = identity.LoadKey(at(fileNextKey)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	if c.certificate, err = identity.TLSCertificate(chain, key); err != nil && c.next != nil { // killed between the two files
		c.certificate, err = identity.TLSCertificate(chain, c.next)
	}
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	if c.grant, err = os.ReadFile(at(fileGrant)); err != nil {
		return nil, fmt.Errorf("agent %s: read grant: %w", name, err)
	}
	if err := c.loadHome(at(fileHome)); err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	bundle, err := os.ReadFile(at(fileBundle))
	if err != nil {
		return nil, fmt.Errorf("agent %s: read bundle: %w", name, err)
	}
	c.trust, err = identity.NewTrust(bundle, time.Now)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", name, err)
	}
	c.statuses = identity.NewStatuses(c.trust, time.Now)
	return c, nil
}

// sameAs says whether a folder still has the enrolment that this credential is of. A renewal changes nothing of that; a folder that
// cannot be read is being replaced by one of a new enrolment, and the agent goes on as it is until that has ended.
func (c *credential) sameAs(state, name string) bool {
	now, err := loadEnrolment(state, name)
	return err != nil || now.same(c.enrolment)
}

func (e enrolment) same(o enrolment) bool { return e.AIC == o.AIC && e.EnrolledAt.Equal(o.EnrolledAt) }

func loadEnrolment(state, name string) (enrolment, error) {
	e, err := readEnrolment(agentDir(state, name))
	if errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("agent %s is not enrolled (%w): run `agentd enrol --name %s …` first", name, err, name)
	}
	if err != nil {
		return e, fmt.Errorf("agent %s: %w", name, err)
	}
	return e, nil
}

func readEnrolment(dir string) (e enrolment, err error) {
	file := filepath.Join(dir, fileEnrolment)
	meta, err := os.ReadFile(file)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(meta, &e); err != nil {
		return e, fmt.Errorf("read %s: %w", file, err)
	}
	return e, nil
}

// keep writes a renewed credential into the agent's folder. Of a re-key the key comes last: a start after a crash in between
// finds the chain's key beside it.
func (c *credential) keep(dir string) func(attach.Renewal) error {
	return func(r attach.Renewal) error {
		if err := c.owns(dir); err != nil {
			return err
		}
		if r.Grant != nil {
			if err := renameio.WriteFile(filepath.Join(dir, fileGrant), r.Grant, 0o600); err != nil {
				return err
			}
		}
		if err := identity.SaveChain(filepath.Join(dir, fileChain), r.Chain); err != nil || !r.ReKey {
			return err
		}
		return os.Rename(filepath.Join(dir, fileNextKey), filepath.Join(dir, fileKey))
	}
}

// keepNext writes the key of a re-key, or removes it.
func (c *credential) keepNext(dir string) func(crypto.Signer) error {
	file := filepath.Join(dir, fileNextKey)
	return func(key crypto.Signer) error {
		if err := c.owns(dir); err != nil {
			return err
		}
		if key == nil {
			return os.Remove(file)
		}
		return identity.SaveKey(file, key)
	}
}

func (c *credential) loadHome(file string) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &c.home)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// keepHome writes where the agent is at home.
func (c *credential) keepHome(dir string) func(attach.Home) error {
	return func(h attach.Home) error {
		if err := c.owns(dir); err != nil {
			return err
		}
		raw, err := json.MarshalIndent(h, "", "  ")
		if err != nil {
			return err
		}
		return renameio.WriteFile(filepath.Join(dir, fileHome), append(raw, '\n'), 0o600)
	}
}

// keepBundle writes a renewed bundle.
func (c *credential) keepBundle(dir string) func([]byte) error {
	return func(raw []byte) error {
		if err := c.owns(dir); err != nil {
			return err
		}
		return renameio.WriteFile(filepath.Join(dir, fileBundle), raw, 0o600)
	}
}

// owns is an error where the folder is not this credential's any more: a new enrolment under its name has ended, and the agent of before
// runs until the daemon is told.
func (c *credential) owns(dir string) error {
	if now, err := readEnrolment(dir); err != nil || !now.same(c.enrolment) {
		return fmt.Errorf("%s is for a new enrolment now", dir)
	}
	return nil
}

// satKeys are the keys with which the gateways of this agent's own domain sign session tokens.
func (c *credential) satKeys() frame.KeyFunc { return c.trust.Keys(identity.UseSAT) }
