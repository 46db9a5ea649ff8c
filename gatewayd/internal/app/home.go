package app

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// Files of a gateway's state folder.
const (
	fileGatewayKey   = "gateway.key"
	fileGatewayChain = "gateway.pem"
	fileBundle       = "bundle.cbor"
	dirDirectory     = "dir"
	dirRIB           = "rib"
)

// home is a gateway's state as it is loaded at the start.
type home struct {
	certificate atomic.Pointer[tls.Certificate]
	gateway     aic.AIC
	issuer      aic.AIC
	bundle      *identity.Accepted
	authority   *pki.CA     // nil without the role amc
	events      []pki.Event // of the rotation at the start
	keys        *keyring
	siblings    func() []identity.Sibling // the other AMCs of the domain; nil: those that the bundle names

	sinceMu sync.Mutex // guards since
	since   map[[32]byte]time.Time
}

// signer is the key of a use as of the moment that it is asked for.
func (h *home) signer(use identity.Use) func() frame.Signer { return h.keys.signer(use) }

// roots are the certificates that this domain's chains end in.
func (h *home) roots() [][]byte {
	var out [][]byte
	for _, r := range h.authority.Roots() {
		out = append(out, r.Raw)
	}
	return out
}

// carried remembers that bundles carry these roots from now on, as far as this process can say.
func (h *home) carried(roots [][]byte, at time.Time) {
	h.sinceMu.Lock()
	defer h.sinceMu.Unlock()
	known := map[[32]byte]time.Time{}
	for _, raw := range roots {
		sum := sha256.Sum256(raw)
		known[sum] = or(h.since[sum], at)
	}
	h.since = known
}

// carriedSince says since when bundles carry a root. A bundle that lies in the folder has reached nobody while this process was away.
func (h *home) carriedSince(root *x509.Certificate) (time.Time, bool) {
	h.sinceMu.Lock()
	defer h.sinceMu.Unlock()
	at, ok := h.since[sha256.Sum256(root.Raw)]
	return at, ok
}

// loadHome reads keys and certificates and checks that they belong together. The gateway's own certificate is renewed by
// the domain's CA when more than half of its life is over.
func loadHome(cfg *config.Gateway, now time.Time) (*home, error) {
	state := cfg.StateDir
	at := func(name string) string { return filepath.Join(state, name) }
	raw, err := os.ReadFile(at(fileBundle))
	if err != nil {
		return nil, fmt.Errorf("read own bundle: %w; `gatewayd init` makes a domain", err)
	}
	h := &home{}
	if h.bundle, err = identity.ParseBundle(raw); err != nil {
		return nil, fmt.Errorf("read own bundle %s: %w", at(fileBundle), err)
	}
	h.issuer = aic.AIC(h.bundle.Issuer)
	if cfg.HasRole(config.RoleAMC) {
		o := authorityOptions(cfg)
		o.Published = h.carriedSince
		if h.authority, err = pki.OpenDir(state, o); err != nil {
			return nil, err
		}
		h.carried(h.bundle.Roots, now)
		if h.events, err = h.rotate(now); err != nil {
			return nil, fmt.Errorf("rotate issuing CA: %w", err)
		}
	}
	if err := h.renew(cfg, now); err != nil {
		return nil, err
	}
	h.keys = &keyring{
		dir: state, gateway: h.gateway, issuer: h.issuer, refresh: cfg.AMC.Refresh.Or(bundleRefresh), age: cfg.AMC.SigningAge.Or(signingAge),
	}
	if err := h.keys.load(usesOf(cfg)); err != nil {
		return nil, err
	}
	if h.authority != nil {
		if _, err := h.renewBundle(now, false); err != nil {
			return nil, err
		}
	}
	if cfg.HasRole(config.RoleGateway) && !h.bundle.IsGateway(string(h.gateway)) {
		return nil, fmt.Errorf("own bundle %s does not name the gateway %s of %s", at(fileBundle), h.gateway, at(fileGatewayChain))
	}
	return h, nil
}

// usesOf are the uses whose keys this process has.
func usesOf(cfg *config.Gateway) []identity.Use {
	var out []identity.Use
	if cfg.HasRole(config.RoleGateway) {
		out = append(out, gatewayUses...)
	}
	if cfg.HasRole(config.RoleAMC) {
		out = append(out, amcUses...)
	}
	return out
}

// authorityOptions is the configuration as the CA sees it.
func authorityOptions(cfg *config.Gateway) pki.Options {
	l := pki.DefaultLimits()
	l.Agent, l.Gateway, l.Issuing = cfg.AMC.AgentLife.Or(l.Agent), cfg.AMC.GatewayLife.Or(l.Gateway), cfg.AMC.IssuingLife.Or(l.Issuing)
	return pki.Options{
		Domain: cfg.Domain, Limits: l, BaseURL: cfg.AMC.PKIURL, Deltas: cfg.AMC.PKIListen != "", Refresh: cfg.AMC.Refresh.Or(bundleRefresh),
	}
}

// rotate has the domain's CA do what is due in its life, and remembers what there is to say of it.
func (h *home) rotate(now time.Time) (events []pki.Event, err error) {
	for range maxRotations {
		e, err := h.authority.Rotate(now)
		if err != nil || e.Action == pki.Nothing {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

const maxRotations = 8 // steps in a row; more than two are due only after years of rest

// current is the gateway's certificate as of now.
func (h *home) current() tls.Certificate { return *h.certificate.Load() }

// renew loads the gateway's certificate, and has the domain's CA issue the next one when half of its life is over. Where the CA
// is another host's, due says that it must be asked.
func (h *home) renew(cfg *config.Gateway, now time.Time) error {
	chainFile := filepath.Join(cfg.StateDir, fileGatewayChain)
	key, err := h.key(cfg)
	if err != nil {
		return err
	}
	chain, err := identity.LoadChain(chainFile)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return fmt.Errorf("read certificate %s: %w", chainFile, err)
	}
	id, err := identity.AICOf(leaf)
	if err != nil {
		return fmt.Errorf("read certificate %s: %w", chainFile, err)
	}
	if h.gateway == "" { // the first time; later it is read without a lock
		h.gateway = id
	}
	short := time.Duration(cfg.AMC.GatewayLife)
	tooLong := short > 0 && leaf.NotAfter.After(now.Add(short+identity.NotBeforeSlack)) // the configuration has been changed
	if h.authority == nil || now.Before(identity.HalfLife(leaf)) && !tooLong {
		return h.use(chain, key)
	}
	profile := pki.Profile{Kind: pki.Gateway, AIC: h.gateway, DNSNames: dnsNames(cfg.Advertise), Life: time.Duration(cfg.AMC.GatewayLife)}
	if chain, err = h.authority.Issue(profile, key.Public(), now); err != nil {
		return fmt.Errorf("renew own certificate: %w", err)
	}
	return h.keep(cfg, chain, key)
}

func (h *home) key(cfg *config.Gateway) (crypto.Signer, error) {
	return identity.LoadKey(filepath.Join(cfg.StateDir, fileGatewayKey))
}

// keep takes the next certificate.
func (h *home) keep(cfg *config.Gateway, chain [][]byte, key crypto.Signer) error {
	if err := identity.SaveChain(filepath.Join(cfg.StateDir, fileGatewayChain), chain); err != nil {
		return fmt.Errorf("renew own certificate: %w", err)
	}
	return h.use(chain, key)
}

func (h *home) use(chain [][]byte, key crypto.Signer) error {
	certificate, err := identity.TLSCertificate(chain, key)
	if err != nil {
		return fmt.Errorf("own certificate: %w", err)
	}
	h.certificate.Store(&certificate)
	return nil
}
