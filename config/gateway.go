package config

import (
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentgw/directory/aic"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// Gateway is gatewayd.yaml.
type Gateway struct {
	Domain    string   `yaml:"domain"`    // this Agent Autonomous Domain, a lower-case DNS name
	StateDir  string   `yaml:"state_dir"` // keys, certificates, databases
	Listen    string   `yaml:"listen"`    // UDP address for QUIC, host:port
	Advertise []string `yaml:"advertise"` // host:port that enrolment tokens name; default: listen
	Control   string   `yaml:"control"`   // Unix socket for this daemon's verbs
	PeersDir  string   `yaml:"peers_dir"` // one policy row a file, written by `peer add`
	// SiblingsDir has one file for each other AMC of the domain, written by `sibling add` (role amc only)
	SiblingsDir string `yaml:"siblings_dir"`
	Lab         bool   `yaml:"lab"` // admits loopback addresses as endpoints of agents, and lifetimes from a second on
	// AllowPrivate lets what peers name for fetching, such as bundle URLs, lead into private networks
	AllowPrivate bool     `yaml:"allow_private"`
	Roles        []string `yaml:"roles"` // gateway, amc; default both
	AIC          AIC      `yaml:"aic"`
	AMC          AMC      `yaml:"amc"`
	// EncryptionKey is the file of an AES key (16, 24 or 32 octets, or as hexadecimal digits) that the directory database is encrypted with;
	// a systemd credential of the file's base name comes first. A database keeps for life what it was made with.
	EncryptionKey string   `yaml:"encryption_key"`
	Embedder      Embedder `yaml:"embedder"`
	Cluster       Cluster  `yaml:"cluster"`
	DNS           DNS      `yaml:"dns"`
	Log           Log      `yaml:"log"`
	Limits        Limits   `yaml:"limits"`
}

// AIC says how identity codes are made (FORMATS: prefix.version.arsp.vendor.ontology.entity.check).
type AIC struct {
	Prefix string `yaml:"prefix"` // four decimal arcs
	ARSP   string `yaml:"arsp"`   // 1 to 6 base36 characters
	Vendor string `yaml:"default_vendor"`
	Salt   string `yaml:"salt"` // hex, at least 2 bytes; it catches typing errors and is no secret worth the name
	// KnownSalts are those of other issuers, by `prefix.version.arsp`: a mistyped AIC of theirs is found then.
	KnownSalts map[string]string `yaml:"known_salts"`
}

// Log of a daemon.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error; default info
	Format string `yaml:"format"` // text, json; default text
}

// Limits of gatewayd; zero means the default.
type Limits struct {
	MaxConnections   int     `yaml:"max_connections"`     // 4096
	HandshakeRate    float64 `yaml:"handshake_rate"`      // a second from an address not known yet, 20
	AgentRequestRate float64 `yaml:"agent_request_rate"`  // requests a second of one AIC, 20
	PeerRequestRate  float64 `yaml:"peer_request_rate"`   // requests a second of one neighbour, 100
	EnrolRate        float64 `yaml:"enrol_rate"`          // enrolments a second of one address, 5
	UpdateRate       float64 `yaml:"update_rate"`         // changes of its ACS a second of one agent, 1, after a burst of five times that
	MaxSessionS      int     `yaml:"max_session_seconds"` // 3600, at most 28800
}

// Salted is the decoded salt.
func (a AIC) Salted() []byte {
	b, _ := hex.DecodeString(a.Salt) // checked by LoadGateway
	return b
}

// CheckAIC finds typing errors: what is no AIC, or one whose checksum does not fit where its issuer's salt is known. It decides
// nothing of security: anybody can compute a checksum.
func (a AIC) CheckAIC(text string) (aic.AIC, error) {
	id, err := aic.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%w; `gatewayd agents` lists those there are", err)
	}
	salt := a.KnownSalts[id.ARSPKey()]
	if id.ARSPKey() == a.Prefix+"."+aic.Version+"."+strings.ToUpper(a.ARSP) {
		salt = a.Salt
	}
	if raw, err := hex.DecodeString(salt); err == nil && len(raw) > 0 {
		if err := id.Verify(raw); err != nil {
			return "", fmt.Errorf("%w: is it mistyped?", err)
		}
	}
	return id, nil
}

// LoadGateway reads and validates gatewayd.yaml; paths come back absolute, defaults filled in.
func LoadGateway(path string) (*Gateway, error) {
	g := &Gateway{}
	if err := load(path, g); err != nil {
		return nil, err
	}
	g.defaults(path)
	return g, g.validate(path)
}

func (g *Gateway) defaults(file string) {
	set := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	set(&g.StateDir, "state")
	set(&g.Control, filepath.Join(g.StateDir, "control.sock"))
	set(&g.PeersDir, "peers.d")
	set(&g.SiblingsDir, "siblings.d")
	set(&g.Listen, "[::]:4433")
	set(&g.AIC.Vendor, "1")
	if g.Roles == nil {
		g.Roles = []string{RoleGateway, RoleAMC}
	}
	g.AMC.defaults()
	g.Log.defaults()
	g.Embedder.defaults(file)
	g.Cluster.defaults(file)
	for _, p := range []*string{&g.StateDir, &g.Control, &g.PeersDir, &g.SiblingsDir, &g.EncryptionKey} {
		*p = under(file, *p)
	}
	if len(g.Advertise) == 0 {
		g.Advertise = []string{g.Listen}
	}
	if g.Limits.MaxSessionS == 0 {
		g.Limits.MaxSessionS = 3600
	}
}

func (l *Log) defaults() {
	if l.Level == "" {
		l.Level = "info"
	}
	if l.Format == "" {
		l.Format = "text"
	}
}

func (g *Gateway) validate(file string) error {
	p := &problems{file: file}
	if !identity.ValidDomain(g.Domain) {
		p.add("domain", "%q is no lower-case DNS name such as hospital.example", g.Domain)
	}
	p.hostPort("listen", g.Listen)
	for _, a := range g.Advertise {
		p.hostPort("advertise", a)
	}
	if salt, err := hex.DecodeString(g.AIC.Salt); err != nil || len(salt) < 2 {
		p.add("aic.salt", "at least 2 bytes in hexadecimal are due")
	}
	for issuer, s := range g.AIC.KnownSalts {
		if salt, err := hex.DecodeString(s); err != nil || len(salt) < 2 {
			p.add("aic.known_salts", "%s: at least 2 bytes in hexadecimal are due", issuer)
		}
	}
	if g.AIC.Prefix == "" || g.AIC.ARSP == "" {
		p.add("aic", "prefix and arsp are due; `gatewayd init` fills them in")
	}
	if g.Limits.MaxSessionS < 0 || g.Limits.MaxSessionS > 28800 {
		p.add("limits.max_session_seconds", "%d is not 1 to 28800", g.Limits.MaxSessionS)
	}
	for key, v := range map[string]float64{
		"max_connections": float64(g.Limits.MaxConnections), "handshake_rate": g.Limits.HandshakeRate, "agent_request_rate": g.Limits.AgentRequestRate,
		"peer_request_rate": g.Limits.PeerRequestRate, "enrol_rate": g.Limits.EnrolRate, "update_rate": g.Limits.UpdateRate,
	} {
		if v < 0 || math.IsNaN(v) {
			p.add("limits."+key, "%g is below zero: leave it out for the default", v)
		}
	}
	g.Embedder.validate(p)
	g.Cluster.validate(p)
	g.AMC.validate(p, g)
	g.finishDNS(p)
	return p.err()
}

func (p *problems) hostPort(key, v string) {
	if err := CheckHostPort(v); err != nil {
		p.add(key, "%v", err)
	}
}

// CheckHostPort says whether v is an address of the form host:port.
func CheckHostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	if n, e := strconv.Atoi(port); err != nil || e != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q is not host:port", v)
	}
	return nil
}

// Peer is one policy row: what this domain grants one peer domain. Everything that is not granted is denied.
type Peer struct {
	Domain      string   `yaml:"domain"`
	Role        string   `yaml:"role"`        // what the peer is to us: peer, customer, provider
	Addresses   []string `yaml:"addresses"`   // host:port to dial; empty, and no discover, waits for the peer to dial
	Discover    bool     `yaml:"discover"`    // dial what the DNS records of the domain name, then Addresses
	Bundle      string   `yaml:"bundle"`      // the peer's trust bundle
	BundleURL   string   `yaml:"bundle_url"`  // where it publishes newer ones; https, on a host of its domain
	Fingerprint string   `yaml:"fingerprint"` // sha256:… of the key that signed it
	Gateways    []string `yaml:"gateways"`    // AICs that may speak for the peer; default: all of its bundle
	MayQuery    []string `yaml:"may_query"`   // scopes that its requests may carry; default agw.discover and acps.skill.invoke:*
	Export      string   `yaml:"export"`      // own: our digests; transit: also what we learned from others
	Disclose    string   `yaml:"disclose"`    // how much our digests tell it: full, coarse, classes; default full
	Introduces  []string `yaml:"introduces"`  // domains (`*.example` or whole names) whose bundles we take from this peer
	FirstUse    string   `yaml:"first_use"`   // of a domain that it introduces. auto: believed at first sight; ask: once approved
	Upstream    bool     `yaml:"upstream"`    // the last resort for requests that no digest matches
	Explain     bool     `yaml:"explain"`     // tell our agents that the peer refused by its policy, instead of that nothing was found
}

// CheckBundleURL says whether a domain's bundle may be fetched from a URL: https from a host of the domain, or, in a lab, http from
// a loopback address. An empty one fetches nothing.
func CheckBundleURL(domain, raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("%q is no URL", raw)
	}
	host := u.Hostname()
	if ip, err := netip.ParseAddr(host); u.Scheme == "http" && err == nil && ip.IsLoopback() {
		return nil
	}
	if u.Scheme != "https" || u.User != nil || host != domain && !strings.HasSuffix(host, "."+domain) {
		return fmt.Errorf("%q is not https on %s or a host under it", u.Redacted(), domain)
	}
	return nil
}

// firstUse is the default: who is introduced may look around at once; for more than that the operator is asked.
func firstUse(mayQuery []string) string {
	for _, s := range mayQuery {
		if s != policy.ScopeDiscover {
			return "ask"
		}
	}
	return "auto"
}

// Disclosures are how much of our capabilities a peer's digests may tell it, the most first.
var Disclosures = []string{"full", "coarse", "classes"}

// PeerRoles are what a peer may be to us.
var PeerRoles = []string{"peer", "customer", "provider"}

// LoadPeers reads every policy row of a folder.
func LoadPeers(dir string) ([]*Peer, error) {
	files, err := each(dir)
	if err != nil {
		return nil, err
	}
	var out []*Peer
	for _, f := range files {
		r, err := LoadPeer(f)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// LoadPeer reads and validates one policy row.
func LoadPeer(file string) (*Peer, error) {
	r := &Peer{}
	if err := load(file, r); err != nil {
		return nil, err
	}
	return r.finish(file)
}

// ParsePeer validates the text of a policy row that is to become file.
func ParsePeer(file string, text []byte) (*Peer, error) {
	r := &Peer{}
	if err := decode(file, text, r); err != nil {
		return nil, err
	}
	return r.finish(file)
}

// finish fills the defaults in and validates.
func (r *Peer) finish(file string) (*Peer, error) {
	r.Bundle = under(file, r.Bundle)
	if r.Role == "" {
		r.Role = "peer"
	}
	if r.Export == "" {
		r.Export = "own"
	}
	if r.Disclose == "" {
		r.Disclose = "full"
	}
	if r.MayQuery == nil {
		r.MayQuery = policy.Everyday()
	}
	if r.FirstUse == "" {
		r.FirstUse = firstUse(r.MayQuery)
	}
	p := &problems{file: file}
	if r.FirstUse != "ask" && r.FirstUse != "auto" {
		p.add("first_use", "%q is neither ask nor auto", r.FirstUse)
	}
	if !identity.ValidDomain(r.Domain) {
		p.add("domain", "%q is no lower-case DNS name", r.Domain)
	}
	if !slices.Contains(PeerRoles, r.Role) {
		p.add("role", "%q is none of %v", r.Role, PeerRoles)
	}
	if r.Export != "own" && r.Export != "transit" {
		p.add("export", "%q is neither own nor transit", r.Export)
	}
	if !slices.Contains(Disclosures, r.Disclose) {
		p.add("disclose", "%q is none of %v", r.Disclose, Disclosures)
	}
	if r.Bundle == "" {
		p.add("bundle", "the file of the peer's trust bundle is due; `gatewayd peer add` writes the whole row")
	}
	if r.Fingerprint != "" {
		if _, err := identity.ParseFingerprint(r.Fingerprint); err != nil {
			p.add("fingerprint", "%v", err)
		}
	}
	if err := CheckBundleURL(r.Domain, r.BundleURL); err != nil {
		p.add("bundle_url", "%v", err)
	}
	for _, a := range r.Addresses {
		p.hostPort("addresses", a)
	}
	for _, d := range r.Introduces {
		if d == "*" {
			p.add("introduces", "`*` alone is no pattern: name the domains, or a suffix such as *.example")
		}
	}
	return r, p.err()
}
