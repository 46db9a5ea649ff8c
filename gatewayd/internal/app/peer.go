package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"agentgw/config"
	"agentgw/internal/daemon"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// PeerOptions is what `gatewayd peer add` is told.
type PeerOptions struct {
	Bundle      string // file
	BundleURL   string // where newer ones are fetched
	Fingerprint string
	Addresses   []string
	Discover    bool // dial what DNS names
	Role        string
	Transit     bool
	Disclose    string // full, coarse or classes; "" is full
	Introduces  []string
	FirstUse    string // ask or auto; "" is the default of the row
	Upstream    bool
	Replace     bool // a row that is there
}

// PeerResult is what `gatewayd peer add` did.
type PeerResult struct {
	Domain      string `json:"domain"`
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
	Running     bool   `json:"running"` // the running gateway uses it already
}

// PeerPlan is what `gatewayd peer add` is about to do.
type PeerPlan struct {
	Domain, Fingerprint string
	Grants              []string // what the row would allow, in words
	raw                 []byte
	row                 string // its text
}

var errNoPeers = errors.New("an AMC alone (roles: [amc]) has no peers: they are the gateways' business, add them there")

// PlanPeer checks a peer's bundle against everything that is trusted already, and says what its row would allow. Nothing is
// written.
func PlanPeer(cfg *config.Gateway, o PeerOptions) (*PeerPlan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if !cfg.HasRole(config.RoleGateway) {
		return nil, daemon.Usagef("%w", errNoPeers)
	}
	b, err := readBundle(o.Bundle)
	if err != nil {
		return nil, err
	}
	p := &PeerPlan{Domain: b.Domain, Fingerprint: identity.FingerprintText(b.Fingerprint), raw: b.Raw}
	if o.Fingerprint != "" && !strings.EqualFold(o.Fingerprint, p.Fingerprint) {
		return nil, notSigner(o.Bundle, p.Fingerprint, o.Fingerprint)
	}
	if err := checkAgainstHome(cfg, b.Raw, b.Domain); err != nil {
		return nil, err
	}
	if file := rowFile(cfg, b.Domain); !o.Replace {
		if _, err := os.Stat(file); err == nil {
			return nil, daemon.Usagef("%s is there already: edit it, or give --replace", file)
		}
	}
	p.row = peerYAML(b.Domain, p.Fingerprint, o)
	row, err := config.ParsePeer(rowFile(cfg, b.Domain), []byte(p.row))
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	p.Grants = grants(row)
	return p, nil
}

func rowFile(cfg *config.Gateway, domain string) string {
	return filepath.Join(cfg.PeersDir, domain+".yaml")
}

// AddPeer does what [PlanPeer] says: it writes the policy row with a copy of the bundle beside it.
func AddPeer(cfg *config.Gateway, o PeerOptions) (*PeerResult, error) {
	p, err := PlanPeer(cfg, o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.PeersDir, 0o755); err != nil {
		return nil, err
	}
	file := rowFile(cfg, p.Domain)
	if err := renameio.WriteFile(filepath.Join(cfg.PeersDir, p.Domain+".bundle"), p.raw, 0o644); err != nil {
		return nil, err
	}
	if err := renameio.WriteFile(file, []byte(p.row), 0o644); err != nil {
		return nil, err
	}
	return &PeerResult{Domain: p.Domain, File: file, Fingerprint: p.Fingerprint}, nil
}

// check names the flag that is wrong.
func (o PeerOptions) check() error {
	if !slices.Contains(config.PeerRoles, o.Role) {
		return daemon.Usagef("--role %q is none of %s", o.Role, strings.Join(config.PeerRoles, ", "))
	}
	if o.Disclose != "" && !slices.Contains(config.Disclosures, o.Disclose) {
		return daemon.Usagef("--disclose %q is none of %s", o.Disclose, strings.Join(config.Disclosures, ", "))
	}
	if o.FirstUse != "" && o.FirstUse != "ask" && o.FirstUse != "auto" {
		return daemon.Usagef("--first-use %q is neither ask nor auto", o.FirstUse)
	}
	for _, a := range o.Addresses {
		if err := config.CheckHostPort(a); err != nil {
			return daemon.Usagef("--address: %w", err)
		}
	}
	if o.Fingerprint != "" {
		if _, err := identity.ParseFingerprint(o.Fingerprint); err != nil {
			return daemon.Usagef("--fingerprint: %w", err)
		}
	}
	return nil
}

// RemovePeer takes a peer domain's policy row and bundle away.
func RemovePeer(cfg *config.Gateway, domain string) error {
	if !identity.ValidDomain(domain) { // it becomes a file's name
		return daemon.Usagef("%q is no domain", domain)
	}
	file := filepath.Join(cfg.PeersDir, domain+".yaml")
	if err := os.Remove(file); err != nil {
		return daemon.Usagef("no policy row of %s: %w", domain, err)
	}
	if err := os.Remove(filepath.Join(cfg.PeersDir, domain+".bundle")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// checkAgainstHome refuses a bundle that the gateway would refuse when it starts.
func checkAgainstHome(cfg *config.Gateway, raw []byte, domain string) error {
	trust, err := trustOfFiles(cfg, domain)
	if err != nil {
		return err
	}
	_, err = trust.Configure(raw, [32]byte{})
	return err
}

// trustOfFiles is what the files make a gateway believe, without one peer domain.
func trustOfFiles(cfg *config.Gateway, without string) (*identity.Trust, error) {
	own, err := ExportBundle(cfg)
	if err != nil {
		return nil, err
	}
	trust, err := identity.NewTrust(own, now)
	if err != nil {
		return nil, err
	}
	others, err := readSiblings(cfg)
	if err != nil {
		return nil, err
	}
	for _, o := range others {
		trust.Recall([][]byte{o.bundle.Raw})
	}
	rows, err := config.LoadPeers(cfg.PeersDir)
	if err != nil {
		return nil, &daemon.UsageError{Err: err}
	}
	for _, r := range rows {
		if r.Domain == without {
			continue
		}
		if err := configure(trust, r); err != nil {
			return nil, err
		}
	}
	return trust, nil
}

// configure gives a policy row's bundle to trust.
func configure(trust *identity.Trust, r *config.Peer) error {
	raw, err := os.ReadFile(r.Bundle)
	if err != nil {
		return fmt.Errorf("bundle of the peer %s: %w", r.Domain, err)
	}
	var pin [32]byte
	if r.Fingerprint != "" {
		if pin, err = identity.ParseFingerprint(r.Fingerprint); err != nil {
			return err
		}
	}
	a, err := trust.Configure(raw, pin)
	if err != nil {
		return err
	}
	if a.Domain != r.Domain {
		return fmt.Errorf("policy row of %s names the bundle of %s: %s", r.Domain, a.Domain, r.Bundle)
	}
	return nil
}

func peerYAML(domain, fingerprint string, o PeerOptions) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# policy row: what this domain grants %s; what is not granted is denied\n", domain)
	fmt.Fprintf(&b, "domain: %s\nrole: %s            # what the peer is to us\n", domain, o.Role)
	if len(o.Addresses) > 0 {
		fmt.Fprintf(&b, "addresses: [%s]\n", quoted(o.Addresses))
	}
	if o.Discover {
		fmt.Fprintln(&b, "discover: true    # dial what the domain's DNS records name, then addresses")
	}
	fmt.Fprintf(&b, "bundle: %s.bundle\nfingerprint: %s\n", domain, fingerprint)
	fmt.Fprintf(&b, "may_query: [%s]\n", quoted(policy.Everyday()))
	export := "own"
	if o.Transit {
		export = "transit"
	}
	fmt.Fprintf(&b, "export: %s\n", export)
	if o.Disclose != "" {
		fmt.Fprintf(&b, "disclose: %s\n", o.Disclose)
	}
	if o.BundleURL != "" {
		fmt.Fprintf(&b, "bundle_url: %q\n", o.BundleURL)
	}
	if len(o.Introduces) > 0 {
		fmt.Fprintf(&b, "introduces: [%s]\n", quoted(o.Introduces))
	}
	if o.FirstUse != "" {
		fmt.Fprintf(&b, "first_use: %s\n", o.FirstUse)
	}
	if o.Upstream {
		fmt.Fprintln(&b, "upstream: true")
	}
	return b.String()
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}
