package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/internal/daemon"
	"agentgw/internal/identity"
)

// SiblingOptions is what `gatewayd sibling add` is told.
type SiblingOptions struct {
	Bundle      string // file
	Fingerprint string // sha256:… as that AMC's operator says; "" takes the file's word
	Address     string // host:port
}

// SiblingResult is what `gatewayd sibling add` or `remove` did.
type SiblingResult struct {
	Issuer      string `json:"issuer"` // AIC of the other AMC
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Running     bool   `json:"running"` // the running AMC uses it already
}

var errNoSiblings = errors.New("other AMCs are named at an AMC (roles: [amc] or [gateway, amc]), and this gateway is none: its own AMC tells it of them")

// AddSibling makes another AMC of the own domain one that this AMC's bundle names: who trusts this AMC believes its gateways and
// agents too. The other AMC needs the same said of this one.
func AddSibling(cfg *config.Gateway, o SiblingOptions) (*SiblingResult, error) {
	if !cfg.HasRole(config.RoleAMC) {
		return nil, daemon.Usagef("%w", errNoSiblings)
	}
	if err := config.CheckHostPort(o.Address); err != nil {
		return nil, daemon.Usagef("--address: %w", err)
	}
	b, err := readBundle(o.Bundle)
	if err != nil {
		return nil, err
	}
	is := identity.FingerprintText(b.Fingerprint)
	if o.Fingerprint != "" && o.Fingerprint != is {
		return nil, notSigner(o.Bundle, is, o.Fingerprint)
	}
	if err := checkSibling(cfg, b); err != nil {
		return nil, err
	}
	base := siblingBase(cfg, b.Issuer)
	if _, err := os.Stat(base + ".yaml"); !errors.Is(err, fs.ErrNotExist) {
		return nil, daemon.Usagef("%s.yaml is there already: `gatewayd sibling remove %s` first", base, b.Issuer)
	}
	if err := os.MkdirAll(cfg.SiblingsDir, 0o755); err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(base+".bundle", b.Raw, 0o644); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("# another AMC of this domain: our bundle names it, so that who trusts us believes it too\naddress: %q\nbundle: %s.bundle\nfingerprint: %s\n",
		o.Address, filepath.Base(base), is)
	if err := renameio.WriteFile(base+".yaml", []byte(text), 0o644); err != nil {
		return nil, err
	}
	return &SiblingResult{Issuer: b.Issuer, File: base + ".yaml", Fingerprint: is}, nil
}

// checkSibling judges as the running AMC would, with everything that the files make it believe.
func checkSibling(cfg *config.Gateway, b *identity.Accepted) error {
	trust, err := trustOfFiles(cfg, "")
	if err != nil {
		return err
	}
	own := trust.Own()
	if b.Domain != own.Domain {
		return daemon.Usagef("the bundle is of %s, and another AMC is of this domain, %s: `gatewayd peer add` is for other domains", b.Domain, own.Domain)
	}
	if b.Issuer == own.Issuer {
		return daemon.Usagef("the bundle is this AMC's own")
	}
	for _, p := range b.Prefixes {
		if other := trust.OwnerOf(p); other != nil {
			return daemon.Usagef("both issue identity codes under %s: each AMC of a domain needs a part of its own, `gatewayd init --arsp` gives it one", p)
		}
	}
	others, err := readSiblings(cfg)
	if err != nil {
		return err
	}
	if _, there := others[b.Issuer]; !there && len(others) >= identity.MaxSiblings {
		return daemon.Usagef("%d other AMCs are named already, at most that many are", len(others))
	}
	return nil
}

func siblingBase(cfg *config.Gateway, issuer string) string {
	return filepath.Join(cfg.SiblingsDir, issuer)
}

// RemoveSibling has this AMC's bundle name another AMC no more: who knows that one by our word only believes it no more.
func RemoveSibling(cfg *config.Gateway, issuer string) (*SiblingResult, error) {
	id, err := aic.Parse(issuer) // it becomes a file's name
	if err != nil {
		return nil, daemon.Usagef("%q is no identity code of an AMC (`gatewayd sibling list`): %w", issuer, err)
	}
	base := siblingBase(cfg, string(id))
	if err := os.Remove(base + ".yaml"); err != nil {
		return nil, daemon.Usagef("%s is no other AMC here: %w", id, err)
	}
	if err := os.Remove(base + ".bundle"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &SiblingResult{Issuer: string(id), File: base + ".yaml"}, nil
}
