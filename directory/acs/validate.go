package acs

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"agentgw/directory/aic"
)

// Options are what a document is validated for.
type Options struct {
	Draft        bool // an agent's submission: aic, active and lastModifiedTime may be missing and are ignored
	LoopbackHTTP bool // test mode: http addresses of the loopback interface are allowed
}

var (
	messageQueue = regexp.MustCompile(`^(mqtt|amqp|kafka|redis|rabbitmq):(>=)?\d+\.(\*|\d+(\.\d+)?)( <\d+\.\d+(\.\d+)?)?$`)
	mediaType    = regexp.MustCompile(`^[A-Za-z0-9!#$&^_.+*-]{1,127}/[A-Za-z0-9!#$&^_.+*-]{1,127}(;[\x20-\x7e]{1,127})?$`)
	domainName   = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	countryCode  = regexp.MustCompile(`^[A-Z]{2}$`)
)

// Validate is every violation of the specification and of this package's limits, nil if there is none.
func (a *ACS) Validate(o Options) Problems {
	p := slices.Clone(a.shape)
	if !o.Draft {
		a.checkIdentity(&p)
	}
	if s := a.ProtocolVersion; s != "" && s != ProtocolVersion {
		p.add("protocolVersion", "is %q; this directory speaks %q", s, ProtocolVersion)
	}
	p.text("name", a.Name, MaxName, true)
	p.prose("description", a.Description)
	p.text("version", a.Version, MaxWord, true)
	c := checker{&p, a, o}
	c.provider()
	c.links()
	c.schemes()
	c.endPoints()
	c.capabilities()
	p.modes("defaultInputModes", a.DefaultInputModes)
	p.modes("defaultOutputModes", a.DefaultOutputModes)
	c.skills()
	c.certificate()
	return p
}

func (a *ACS) checkIdentity(p *Problems) {
	view{"", a.doc, p}.need("aic", "active", "lastModifiedTime")
	if a.AIC != "" {
		id, err := aic.Parse(a.AIC)
		switch {
		case err != nil:
			p.add("aic", "%v", err)
		case id.IsOntology() && len(a.EndPoints) > 0:
			p.add("endPoints", "must be [] because %s names an ontology, which has no address", id)
		}
	}
	if a.LastModifiedTime != "" {
		if _, err := time.Parse(time.RFC3339, a.LastModifiedTime); err != nil {
			p.add("lastModifiedTime", "must be a time with offset such as 2026-11-30T10:00:00+00:00")
		}
	}
}

// text checks a one-line text in characters.
func (p *Problems) text(path, s string, limit int, required bool) {
	n := utf8.RuneCountInString(s)
	switch {
	case n > limit:
		p.add(path, "has %d characters; shorten it to %d", n, limit)
	case required && strings.TrimSpace(s) == "" && !p.has(path):
		p.add(path, "is empty; fill it in")
	case strings.ContainsFunc(s, unicode.IsControl):
		p.add(path, "has control characters; remove them")
	}
	p.plain(path, s)
}

// prose checks a text that may have lines.
func (p *Problems) prose(path, s string) {
	if len(s) > MaxDescription {
		p.add(path, "has %d octets; shorten it to %d", len(s), MaxDescription)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }) {
		p.add(path, "has control characters; remove them")
	}
	p.plain(path, s)
}

// plain refuses characters that nobody sees and that change what people read: two names that look alike, or a line that a terminal turns
// round.
func (p *Problems) plain(path, s string) {
	if i := strings.IndexFunc(s, hidden); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		p.add(path, "has the hidden character %U after %d octets; remove it", r, i)
	}
}

// hidden are the controls of format but those that scripts are written with: joiners of emoji, Persian and Indic text, and marks of
// direction, which turn nothing round.
func hidden(r rune) bool {
	switch r {
	case '\u200c', '\u200d', '\u200e', '\u200f', '\u061c':
		return false
	}
	return unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

// has says that a problem of the same member is noted already: a missing name is not also an empty one.
func (p *Problems) has(path string) bool {
	return slices.ContainsFunc(*p, func(q Problem) bool { return q.Path == path })
}

func (p *Problems) count(path string, n, limit int) bool {
	if n > limit {
		p.add(path, "has %d elements; the limit is %d", n, limit)
	}
	return n <= limit
}

func (p *Problems) modes(path string, modes []string) {
	p.count(path, len(modes), MaxList)
	for i, m := range modes {
		if !mediaType.MatchString(m) {
			p.add(fmt.Sprintf("%s[%d]", path, i), "%.80q is no media type; write one such as text/plain", m)
		}
	}
}

// ValidSkillID says whether s may name a skill: a letter or digit, then letters, digits and `. _ : / -`, at most [MaxSkillID].
func ValidSkillID(s string) bool {
	if s == "" || len(s) > MaxSkillID || !alnum(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if !alnum(s[i]) && strings.IndexByte("._:/-", s[i]) < 0 {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

type checker struct {
	p *Problems
	a *ACS
	o Options
}

func (c checker) provider() {
	v := &c.a.Provider
	for _, f := range []struct{ name, value string }{{"organization", v.Organization}, {"department", v.Department},
		{"license", v.License}, {"name", v.Name}, {"email", v.Email}} {
		c.p.text("provider."+f.name, f.value, MaxWord, false)
	}
	if v.CountryCode != "" && !countryCode.MatchString(v.CountryCode) {
		c.p.add("provider.countryCode", "is %.20q; write an ISO 3166-1 code of two capital letters", v.CountryCode)
	}
	c.p.count("provider.domainRegistrations", len(v.Domains), MaxList)
	for i, d := range v.Domains {
		path := fmt.Sprintf("provider.domainRegistrations[%d].", i)
		if len(d.Domain) > 253 || !domainName.MatchString(d.Domain) {
			c.p.add(path+"domain", "%.80q is no domain name in small letters", d.Domain)
		}
		c.p.text(path+"registrationNumber", d.Number, MaxWord, false)
		if d.Type != "" && d.Type != "ICP" && d.Type != "WHOIS" {
			c.p.add(path+"registrationType", "is %.20q; write ICP or WHOIS", d.Type)
		}
	}
}

func (c checker) links() {
	for _, f := range []struct{ path, value string }{{"iconUrl", c.a.IconURL}, {"documentationUrl", c.a.DocumentationURL},
		{"webAppUrl", c.a.WebAppURL}, {"provider.url", c.a.Provider.URL}} {
		if f.value != "" {
			c.url(f.path, f.value, "https")
		}
	}
}

// url checks one address: its scheme, a host, no credentials, and the host under a domain that the provider registered.
func (c checker) url(path, s, scheme string) {
	u, err := url.Parse(s)
	switch {
	case len(s) > MaxURL:
		c.p.add(path, "has %d octets; the limit is %d", len(s), MaxURL)
		return
	case err != nil || u.Hostname() == "":
		c.p.add(path, "%.200q is no address; write %s://host…", s, scheme)
		return
	case !host(u):
		c.p.add(path, "host %.80q is no name of a host, no address and port; write one, without wildcards", u.Host)
		return
	case u.User != nil:
		c.p.add(path, "has a user name or password in it; remove it")
		return
	case scheme == "https" && u.Scheme == "http":
		if !c.o.LoopbackHTTP || !loopback(u.Hostname()) {
			c.p.add(path, "uses http; use https (http is for the loopback interface in test mode)")
		}
		return
	case u.Scheme != scheme:
		c.p.add(path, "uses %q; use %s", u.Scheme, scheme)
		return
	}
	if scheme == "dmsc-a2a" {
		if u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			c.p.add(path, "must be dmsc-a2a://host:port and nothing more")
		}
		return // reached by an agent session, whose peer is verified by AIC and not by its host
	}
	if !c.registered(u.Hostname()) {
		c.p.add(path, "host %s is under none of provider.domainRegistrations; register its domain there", u.Hostname())
	}
}

// host says whether an address leads to one host: a name of letters, digits and hyphens, or an IP address, and a port if it has one.
func host(u *url.URL) bool {
	_, port := strconv.ParseUint(u.Port(), 10, 16)
	_, ip := netip.ParseAddr(u.Hostname())
	name := strings.ToLower(u.Hostname())
	return (u.Port() == "" || port == nil) && (ip == nil || len(name) <= 253 && domainName.MatchString(name))
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// registered says whether the host is inside a declared domain; a provider that declares none is not held to it.
func (c checker) registered(host string) bool {
	host = strings.TrimPrefix(strings.ToLower(host), "*.")
	domains := c.a.Provider.Domains
	return len(domains) == 0 || slices.ContainsFunc(domains, func(d DomainRegistration) bool {
		return host == d.Domain || strings.HasSuffix(host, "."+d.Domain)
	})
}

func (c checker) schemes() {
	c.p.count("securitySchemes", len(c.a.SecuritySchemes), MaxList)
	for _, name := range slices.Sorted(maps.Keys(c.a.SecuritySchemes)) {
		s := c.a.SecuritySchemes[name]
		m := view{s.members.path, s.members.obj, c.p}
		switch s.Type {
		case "mutualTLS":
		case "openIdConnect":
			m.need("openIdConnectUrl")
		case "apiKey":
			m.need("name", "in")
		case "http":
			m.need("scheme")
		case "oauth2":
			m.need("flows")
		default:
			if !c.p.has(m.at("type")) {
				c.p.add(m.at("type"), "is %.40q; write mutualTLS, openIdConnect, apiKey, http or oauth2", s.Type)
			}
		}
	}
}

var schemeOf = map[string]string{"JSONRPC": "https", "HTTP_JSON": "https", "AMQP": "amqps", TransportA2A: "dmsc-a2a"}

func (c checker) endPoints() {
	if !c.p.count("endPoints", len(c.a.EndPoints), MaxList) {
		return
	}
	for i, e := range c.a.EndPoints {
		path := fmt.Sprintf("endPoints[%d].", i)
		if scheme, ok := schemeOf[e.Transport]; ok {
			c.url(path+"url", e.URL, scheme)
		} else if !c.p.has(path + "transport") {
			c.p.add(path+"transport", "is %.40q; write JSONRPC, HTTP_JSON, AMQP or %s", e.Transport, TransportA2A)
		}
		c.p.count(path+"security", len(e.Security), MaxList)
		for j, all := range e.Security {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if _, ok := c.a.SecuritySchemes[name]; !ok {
					c.p.add(fmt.Sprintf("%ssecurity[%d].%s", path, j, name), "is no key of securitySchemes; add it there or remove it here")
				}
			}
		}
	}
}

func (c checker) capabilities() {
	c.p.count("capabilities.messageQueue", len(c.a.Capabilities.MessageQueue), MaxList)
	for i, q := range c.a.Capabilities.MessageQueue {
		if len(q) > MaxWord || !messageQueue.MatchString(q) {
			c.p.add(fmt.Sprintf("capabilities.messageQueue[%d]", i), "is %.40q; write protocol:version such as mqtt:5.0 or kafka:>=3.0", q)
		}
	}
}

func (c checker) skills() {
	if !c.p.count("skills", len(c.a.Skills), MaxSkills) {
		return
	}
	first := map[string]int{}
	for i, s := range c.a.Skills {
		path := fmt.Sprintf("skills[%d].", i)
		if other, twice := first[s.ID]; twice && s.ID != "" {
			c.p.add(path+"id", "%.140q is the id of skills[%d] too; give each skill its own", s.ID, other)
		} else {
			first[s.ID] = i
		}
		c.skill(path, s)
	}
}

func (c checker) skill(path string, s Skill) {
	if !ValidSkillID(s.ID) && !c.p.has(path+"id") {
		c.p.add(path+"id", "%.140q is no skill id; begin with a letter or digit, then letters, digits and . _ : / -, at most 128", s.ID)
	}
	c.p.text(path+"name", s.Name, MaxName, true)
	c.p.prose(path+"description", s.Description)
	c.p.text(path+"version", s.Version, MaxWord, false)
	c.p.count(path+"tags", len(s.Tags), MaxTags)
	for i, t := range s.Tags {
		c.p.text(fmt.Sprintf("%stags[%d]", path, i), t, MaxTag, true)
	}
	c.p.count(path+"examples", len(s.Examples), MaxExamples)
	for i, e := range s.Examples {
		c.example(fmt.Sprintf("%sexamples[%d]", path, i), e)
	}
	c.p.modes(path+"inputModes", s.InputModes)
	c.p.modes(path+"outputModes", s.OutputModes)
}

func (c checker) example(path, s string) {
	if n := utf8.RuneCountInString(s); n > MaxExample {
		c.p.add(path, "has %d characters; shorten it to %d", n, MaxExample)
	}
	c.p.prose(path, s)
}

func (c checker) certificate() {
	cert := &c.a.Certificate
	c.p.count("certificate.altNames.dns", len(cert.DNS), MaxList)
	for i, name := range cert.DNS {
		path := fmt.Sprintf("certificate.altNames.dns[%d]", i)
		switch {
		case len(name) > 253 || !domainName.MatchString(strings.TrimPrefix(name, "*.")):
			c.p.add(path, "%.80q is no domain name in small letters", name)
		case !c.registered(name):
			c.p.add(path, "%s is under none of provider.domainRegistrations; register its domain there", name)
		}
	}
	c.p.count("certificate.altNames.ip", len(cert.IP), MaxList)
	for i, s := range cert.IP {
		if _, err := netip.ParseAddr(s); err != nil {
			c.p.add(fmt.Sprintf("certificate.altNames.ip[%d]", i), "%.80q is no single IP address", s)
		}
	}
	v := view{"certificate", c.a.certificateMembers(), c.p}
	if days := cert.RequestedValidity; v.has("requestedValidity") && (days < 1 || days > 3650) {
		c.p.add("certificate.requestedValidity", "is %d days; ask for 1 to 3650", cert.RequestedValidity)
	}
}

func (a *ACS) certificateMembers() map[string]any {
	m, _ := a.doc["certificate"].(map[string]any)
	return m
}
