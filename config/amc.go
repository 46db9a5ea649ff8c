package config

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"agentgw/directory/aic"
)

// Duration is a length of time as people write it: 90s, 15m, 24h.
type Duration time.Duration

// UnmarshalYAML reads one; the error has its place in the file.
func (d *Duration) UnmarshalYAML(node ast.Node) error {
	v, err := time.ParseDuration(node.GetToken().Value)
	if err != nil {
		return &yaml.SyntaxError{Message: fmt.Sprintf("%q is no length of time such as 90s, 15m or 24h", node.GetToken().Value), Token: node.GetToken()}
	}
	*d = Duration(v)
	return nil
}

// Or is the duration, or def where none is set.
func (d Duration) Or(def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return time.Duration(d)
}

// AMC is the Agent Management Center: this process's, or where the domain's is.
type AMC struct {
	Address     string   `yaml:"address"`      // host:port of a remote one, for a gateway without the role
	AIC         string   `yaml:"aic"`          // of the process at address, as `gatewayd join` found it; empty: any gateway of the domain may be it
	Deciders    []string `yaml:"deciders"`     // who decides about registrations, in order: token, cel, manual; default token
	Rules       []Rule   `yaml:"rules"`        // of the decider cel
	AgentLife   Duration `yaml:"agent_life"`   // of an agent's certificate; 24h, at most that
	GatewayLife Duration `yaml:"gateway_life"` // of a gateway's own; 72h, at most that
	StatusLife  Duration `yaml:"status_life"`  // how long a status list counts; 15m, at most that
	IssuingLife Duration `yaml:"issuing_life"` // of the issuing CA's certificate; 8760h
	PKIURL      string   `yaml:"pki_url"`      // http://host[:port] that certificates name for CRL and OCSP; empty: they name none
	PKIListen   string   `yaml:"pki_listen"`   // TCP address that serves it
	SigningAge  Duration `yaml:"signing_age"`  // after which a signing key is replaced; 720h
	Refresh     Duration `yaml:"refresh"`      // how long a copy of the trust bundle may be used; 5m
}

// Rule is one rule of the decider cel: the first whose expression is true decides.
type Rule struct {
	Name   string   `yaml:"name"`
	When   string   `yaml:"when"`  // CEL of type bool over `request`
	Allow  []string `yaml:"allow"` // scope
	Deny   bool     `yaml:"deny"`
	Reason string   `yaml:"reason"`
	Life   Duration `yaml:"life"` // of the grant; 8760h
}

// Roles of a gatewayd.
const (
	RoleGateway = "gateway"
	RoleAMC     = "amc"
)

// Deciders that a configuration may name.
var deciders = []string{"token", "cel", "manual"}

// HasRole says whether this process plays a role: both, where none is named.
func (g *Gateway) HasRole(role string) bool {
	return len(g.Roles) == 0 || slices.Contains(g.Roles, role)
}

func (a *AMC) defaults() {
	if a.Deciders == nil {
		a.Deciders = []string{"token"}
	}
	for _, d := range []struct {
		v   *Duration
		def time.Duration
	}{
		{&a.AgentLife, 24 * time.Hour}, {&a.GatewayLife, 72 * time.Hour}, {&a.IssuingLife, 365 * 24 * time.Hour},
		{&a.StatusLife, 15 * time.Minute}, {&a.SigningAge, 30 * 24 * time.Hour}, {&a.Refresh, 5 * time.Minute},
	} {
		*d.v = Duration(d.v.Or(d.def))
	}
}

func (a *AMC) validate(p *problems, g *Gateway) {
	for i, r := range g.Roles {
		if r != RoleGateway && r != RoleAMC || slices.Contains(g.Roles[:i], r) {
			p.add("roles", "%q is none of gateway, amc, or comes twice", r)
		}
	}
	switch {
	case !g.HasRole(RoleAMC) && a.Address == "":
		p.add("amc.address", "a gateway without the role amc needs the host:port of its AMC")
	case g.HasRole(RoleAMC) && a.Address != "":
		p.add("amc.address", "this process has the role amc itself: remove the address, or the role")
	case a.Address != "":
		p.hostPort("amc.address", a.Address)
	}
	if a.AIC != "" && a.Address == "" {
		p.add("amc.aic", "it is of the AMC at amc.address, and there is none")
	} else if id, err := aic.Parse(a.AIC); a.AIC != "" && (err != nil || string(id) != a.AIC) {
		p.add("amc.aic", "%q is no identity code in upper case", a.AIC)
	}
	for i, d := range a.Deciders {
		if !slices.Contains(deciders, d) || slices.Contains(a.Deciders[:i], d) {
			p.add("amc.deciders", "%q is none of token, cel, manual, or comes twice", d)
		}
	}
	if u, err := url.Parse(a.PKIURL); a.PKIURL != "" && (err != nil || u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		p.add("amc.pki_url", "%q is not http://host[:port]: what it serves is signed, and https would need a certificate that it checks", a.PKIURL)
	}
	if a.PKIListen != "" {
		p.hostPort("amc.pki_listen", a.PKIListen)
	}
	if (a.PKIURL == "") != (a.PKIListen == "") && g.HasRole(RoleAMC) {
		p.add("amc.pki_listen", "pki_url and pki_listen go together: the one is what certificates name, the other what this process serves there")
	}
	if len(a.Rules) > 0 && !slices.Contains(a.Deciders, "cel") {
		p.add("amc.rules", "nobody reads them: add cel to amc.deciders")
	}
	for _, l := range []struct {
		key       string
		v         Duration
		low, high time.Duration
	}{
		{"amc.agent_life", a.AgentLife, 10 * time.Minute, 24 * time.Hour},
		{"amc.gateway_life", a.GatewayLife, 10 * time.Minute, 72 * time.Hour},
		{"amc.issuing_life", a.IssuingLife, 7 * 24 * time.Hour, 5 * 365 * 24 * time.Hour},
		{"amc.status_life", a.StatusLife, 30 * time.Second, 15 * time.Minute},
		{"amc.signing_age", a.SigningAge, 24 * time.Hour, 300 * 24 * time.Hour},
		{"amc.refresh", a.Refresh, 30 * time.Second, 24 * time.Hour},
	} {
		low := l.low
		if g.Lab {
			low = time.Second
		}
		if v := time.Duration(l.v); v != 0 && (v < low || v > l.high) {
			p.add(l.key, "%s is not between %s and %s%s", v, low, l.high, labHint(g.Lab))
		}
	}
}

func labHint(lab bool) string {
	if lab {
		return ""
	}
	return " (lab: true lowers the floor to 1s)"
}
