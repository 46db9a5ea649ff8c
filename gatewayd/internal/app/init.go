package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/google/renameio/v2"

	"agentgw/config"
	"agentgw/directory/aic"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
)

// InitOptions is what `gatewayd init` is told.
type InitOptions struct {
	Dir       string // gets gatewayd.yaml and peers.d
	StateDir  string // default: the folder state beside gatewayd.yaml
	Domain    string
	Listen    string
	Advertise []string
	Lab       bool
	Roles     []string // default gateway and amc
	ARSP      string   // of its AICs; default: from the domain's name, which a second AMC of the domain cannot have too
}

// InitResult is what `gatewayd init` made.
type InitResult struct {
	Config      string `json:"config"`
	Domain      string `json:"domain"`
	Gateway     string `json:"gateway"`
	AMC         string `json:"amc"`
	Bundle      string `json:"bundle"`
	Fingerprint string `json:"fingerprint"`
}

// Init makes a domain: AIC prefix, root and issuing CA, the gateway's credential, signing keys, trust bundle and
// configuration. A folder that holds a domain already is left as it is.
func Init(o InitOptions) (*InitResult, error) {
	if !identity.ValidDomain(o.Domain) {
		return nil, daemon.Usagef("domain %q is no lower-case DNS name such as hospital.example", o.Domain)
	}
	file := filepath.Join(o.Dir, "gatewayd.yaml")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return nil, daemon.Usagef("%s is there already: choose another --dir, or remove it", file)
	}
	if err := config.CheckHostPort(o.Listen); err != nil {
		return nil, daemon.Usagef("--listen: %w", err)
	}
	for _, a := range o.Advertise {
		if err := config.CheckHostPort(a); err != nil {
			return nil, daemon.Usagef("--advertise: %w", err)
		}
	}
	if len(o.Roles) == 0 {
		o.Roles = []string{config.RoleGateway, config.RoleAMC}
	}
	if !slices.Contains(o.Roles, config.RoleAMC) {
		return nil, daemon.Usagef("init makes a domain, and a domain needs its AMC; a gateway of a domain that is there joins it: `gatewayd join`")
	}
	state := o.StateDir
	if state == "" {
		state = filepath.Join(o.Dir, "state")
	}
	for _, name := range []string{fileBundle, pki.FileRootKey, pki.FileIssuingKey, fileGatewayKey} {
		if _, err := os.Stat(filepath.Join(state, name)); !errors.Is(err, fs.ErrNotExist) {
			return nil, daemon.Usagef("%s holds the keys of a domain already: keep them, and write %s for it by hand; or choose another folder", state, file)
		}
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	if slices.Contains(o.Roles, config.RoleGateway) {
		if err := os.MkdirAll(filepath.Join(o.Dir, "peers.d"), 0o755); err != nil {
			return nil, err
		}
	}
	if o.ARSP == "" {
		o.ARSP = aic.Index(o.Domain)
	}
	salt := make([]byte, 4)
	if _, err := rand.Read(salt); err != nil {
		return nil, err
	}
	cfg := config.Gateway{
		Domain: o.Domain, StateDir: or(o.StateDir, "state"), Listen: o.Listen, Advertise: o.Advertise, Lab: o.Lab, Roles: o.Roles,
		AIC: config.AIC{Prefix: "2.999.1.1", ARSP: strings.ToUpper(o.ARSP), Vendor: "1", Salt: hex.EncodeToString(salt)},
	}
	out, err := makeDomain(state, cfg, time.Now())
	if err != nil {
		return nil, fmt.Errorf("make domain: %w", err)
	}
	out.Config = file
	return out, writeConfig(file, cfg)
}

func makeDomain(state string, cfg config.Gateway, now time.Time) (*InitResult, error) {
	issuer, err := newCode(cfg.AIC)
	if err != nil {
		return nil, err
	}
	gateway := issuer // an AMC alone speaks in its own name
	if cfg.HasRole(config.RoleGateway) {
		if gateway, err = newCode(cfg.AIC); err != nil {
			return nil, err
		}
	}
	authority, err := pki.Create(state, pki.Options{Domain: cfg.Domain})
	if err != nil {
		return nil, err
	}
	leaf, err := identity.NewLeafKey()
	if err != nil {
		return nil, err
	}
	profile := pki.Profile{Kind: pki.Gateway, AIC: gateway, DNSNames: dnsNames(cfg.Advertise)}
	chain, err := authority.Issue(profile, leaf.Public(), now)
	if err != nil {
		return nil, err
	}
	at := func(name string) string { return filepath.Join(state, name) }
	if err := identity.SaveKey(at(fileGatewayKey), leaf); err != nil {
		return nil, err
	}
	if err := identity.SaveChain(at(fileGatewayChain), chain); err != nil {
		return nil, err
	}
	bundle, raw, err := makeBundle(state, cfg, gateway, issuer, authority.Root().Raw, now)
	if err != nil {
		return nil, err
	}
	return &InitResult{
		Domain: cfg.Domain, Gateway: string(gateway), AMC: string(issuer), Bundle: at(fileBundle),
		Fingerprint: identity.FingerprintText(bundle.Fingerprint),
	}, renameio.WriteFile(at(fileBundle), raw, 0o644)
}

func makeBundle(state string, cfg config.Gateway, gateway, issuer aic.AIC, root []byte, now time.Time) (*identity.Accepted, []byte, error) {
	sketch := make([]byte, 32)
	if _, err := rand.Read(sketch); err != nil {
		return nil, nil, err
	}
	b := identity.Bundle{
		Domain: cfg.Domain, Seq: uint64(now.UnixMilli()), Issued: uint64(now.Unix()), RefreshS: 300, Roots: [][]byte{root},
		Prefixes: []string{gateway.ARSPKey()}, SketchKeys: [][]byte{sketch}, Issuer: string(issuer),
	}
	keys := &keyring{dir: state, gateway: gateway, issuer: issuer, refresh: bundleRefresh, age: signingAge}
	made := map[identity.Use]frame.Signer{}
	for _, use := range usesOf(&cfg) {
		s, err := newSigner(keys.file(use, ""))
		if err != nil {
			return nil, nil, err
		}
		made[use] = s
		b.Keys = append(b.Keys, identity.NewBundleKey(s, keys.owner(use), wireUse(use), now, signerLife))
	}
	raw, err := b.Sign(made[identity.UseBundle])
	if err != nil {
		return nil, nil, err
	}
	accepted, err := identity.ParseBundle(raw)
	return accepted, raw, err
}

func newCode(c config.AIC) (aic.AIC, error) {
	onto, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return "", err
	}
	entity, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return "", err
	}
	return aic.New(c.Prefix, c.ARSP, c.Vendor, onto, entity, c.Salted())
}

// dnsNames are the host names among addresses: the ones that a gateway's certificate may carry.
func dnsNames(addrs []string) []string {
	var out []string
	for _, a := range addrs {
		host, _, err := net.SplitHostPort(a)
		if err == nil && pki.IsHostName(host) && net.ParseIP(host) == nil {
			out = append(out, host)
		}
	}
	return out
}

var configTemplate = template.Must(template.New("gatewayd.yaml").Parse(`# gatewayd: the {{if .HasRole "gateway"}}Agent Gateway{{else}}Agent Management Center{{end}} of {{.Domain}}. Unknown keys are errors; paths are relative to this file.
domain: {{.Domain}}
state_dir: {{.StateDir}}            # keys, certificates and the directory; back it up
listen: "{{.Listen}}"       # UDP
advertise: [{{range $i, $a := .Advertise}}{{if $i}}, {{end}}"{{$a}}"{{end}}]   # what enrolment tokens tell {{if .HasRole "gateway"}}agents{{else}}gateways{{end}} to dial
{{- if .HasRole "gateway"}}
peers_dir: peers.d          # one policy row a peer domain, written by "gatewayd peer add"
{{- end}}
{{- if ne (len .Roles) 2}}
roles: [{{range $i, $r := .Roles}}{{if $i}}, {{end}}{{$r}}{{end}}]
{{- end}}
{{- if .AMC.Address}}
amc: {address: "{{.AMC.Address}}", aic: "{{.AMC.AIC}}"}   # of the domain's Agent Management Center
{{- end}}
lab: {{.Lab}}                  # true admits loopback and private addresses between agents
aic:
  prefix: "{{.AIC.Prefix}}"
  arsp: "{{.AIC.ARSP}}"
  default_vendor: "{{.AIC.Vendor}}"
  salt: "{{.AIC.Salt}}"
log: {level: info, format: text}
`))

func writeConfig(file string, cfg config.Gateway) error {
	if len(cfg.Advertise) == 0 {
		cfg.Advertise = []string{cfg.Listen}
	}
	var b strings.Builder
	if err := configTemplate.Execute(&b, &cfg); err != nil {
		return err
	}
	return renameio.WriteFile(file, []byte(b.String()), 0o644)
}
