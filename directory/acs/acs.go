package acs

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentgw/directory/aic"
	"agentgw/internal/policy"
)

// ProtocolVersion is the version of the specification that this project speaks.
const ProtocolVersion = "02.02"

// TransportA2A is this project's extension value of an endpoint's transport: an agent session reached at
// `dmsc-a2a://host:port`. Other readers ignore it (FORMATS, section 6).
const TransportA2A = "DMSC_A2A"

// ACS is a read-only view of one Agent Capability Specification. Changing a field changes no document.
type ACS struct {
	AIC                                   string
	Active                                bool
	LastModifiedTime                      string
	ProtocolVersion                       string
	Name, Description, Version            string
	IconURL, DocumentationURL, WebAppURL  string
	Provider                              Provider
	SecuritySchemes                       map[string]SecurityScheme
	EndPoints                             []EndPoint
	Capabilities                          Capabilities
	DefaultInputModes, DefaultOutputModes []string
	Skills                                []Skill
	Certificate                           Certificate

	doc     map[string]any
	shape   Problems // members of a wrong type, missing, or in another case
	encoded []byte   // of doc, where [Authoritative] has made it; nobody changes it
}

// Provider is who offers the agent, as declared by the agent itself.
type Provider struct {
	CountryCode, Organization, Department, URL, License, Name, Email string
	Domains                                                          []DomainRegistration
}

// DomainRegistration is one domain that the provider claims.
type DomainRegistration struct{ Domain, Number, Type string }

// SecurityScheme is one entry of `securitySchemes`, in the style of OpenAPI 3.0.
type SecurityScheme struct {
	Type    string
	members view
}

// EndPoint is one address of the agent.
type EndPoint struct {
	URL       string
	Transport string
	Security  []map[string][]string // any of these, all of each
}

// Capabilities are the optional abilities of the transport.
type Capabilities struct {
	Streaming, Notification bool
	MessageQueue            []string
}

// Skill is one thing that the agent does.
type Skill struct {
	ID, Name, Description, Version string
	Tags, Examples                 []string
	InputModes, OutputModes        []string // empty: the agent's defaults
}

// Certificate is what the agent asks for in its certificate.
type Certificate struct {
	DNS, IP           []string
	RequestedValidity int64 // days
}

// Parse reads a document: JSON syntax and the bounds of this package. Whether it is a valid ACS says [ACS.Validate].
func Parse(b []byte) (*ACS, error) {
	doc, err := decodeStrict(b)
	if err != nil {
		return nil, fmt.Errorf("read ACS: %w", err)
	}
	return viewOf(doc), nil
}

// Members are those of the document as JSON decodes them, numbers as json.Number. They must not be changed.
func (a *ACS) Members() map[string]any { return a.doc }

// Encode is the document with every member, known or not, in its canonical form (RFC 8785). The caller must not change it.
func (a *ACS) Encode() ([]byte, error) {
	if a.encoded != nil {
		return a.encoded, nil
	}
	b, err := appendCanonical(nil, a.doc)
	if err != nil {
		return nil, fmt.Errorf("encode ACS: %w", err)
	}
	return b, nil
}

// Hash is SHA-256 over the canonical form (RFC 8785) of a document: two spellings of one document have the same hash.
func Hash(b []byte) ([32]byte, error) {
	doc, err := decodeStrict(b)
	if err != nil {
		return [32]byte{}, fmt.Errorf("hash ACS: %w", err)
	}
	return (&ACS{doc: doc}).Hash()
}

// Hash is that of the document, as the function [Hash] has it.
func (a *ACS) Hash() ([32]byte, error) {
	b, err := a.Encode()
	return sha256.Sum256(b), err
}

// stampLayout is how lastModifiedTime is written; all have its length.
const stampLayout = "2006-01-02T15:04:05-07:00"

// Authoritative makes the gateway's ACS out of a draft: aic, active and lastModifiedTime are the gateway's, whatever the draft
// said; skills that no pattern of allowed matches are removed and named (a trailing `*` matches the rest of an id; an empty
// list allows none); `{AIC}` in an AMQP address is filled in. The draft itself is not changed. Seed 002, section 5.2.
//
// What the gateway leaves as it was is not read again: the result is the draft's view with those members replaced.
func Authoritative(draft *ACS, id aic.AIC, allowed []string, now time.Time) (a *ACS, removed []string, err error) {
	made := *draft
	made.doc = maps.Clone(draft.doc)
	made.AIC, made.Active = id.String(), true
	made.LastModifiedTime = now.UTC().Format(stampLayout)
	made.doc["aic"], made.doc["active"], made.doc["lastModifiedTime"] = made.AIC, made.Active, made.LastModifiedTime
	removed = made.allow(allowed)
	made.fillAIC()
	made.encoded = nil
	if made.encoded, err = made.Encode(); err != nil {
		return nil, nil, err
	}
	if n := len(made.encoded); n > MaxSize {
		return nil, nil, fmt.Errorf("authoritative ACS of %d octets, the limit is %d; shorten the draft", n, MaxSize)
	}
	return &made, removed, nil
}

// allow takes out the skills that are not allowed, and names them.
func (a *ACS) allow(allowed []string) (removed []string) {
	list, _ := a.doc["skills"].([]any)
	kept, skills := []any{}, []Skill(nil)
	for i, s := range a.Skills { // the elements of list, one each
		if slices.ContainsFunc(allowed, func(p string) bool { return policy.Matches(p, s.ID) }) {
			kept, skills = append(kept, list[i]), append(skills, s)
		} else {
			removed = append(removed, s.ID)
		}
	}
	a.doc["skills"], a.Skills = kept, skills
	return removed
}

// fillAIC fills an agent's own AIC into the AMQP addresses that leave it open.
func (a *ACS) fillAIC() {
	list, _ := a.doc["endPoints"].([]any)
	list, points := append([]any{}, list...), slices.Clone(a.EndPoints)
	for i, e := range points { // the elements of list, one each
		obj, _ := list[i].(map[string]any)
		if e.Transport != "AMQP" || !strings.Contains(e.URL, "{AIC}") {
			continue
		}
		points[i].URL = strings.ReplaceAll(e.URL, "{AIC}", a.AIC)
		obj = maps.Clone(obj)
		obj["url"] = points[i].URL
		list[i] = obj
	}
	a.doc["endPoints"], a.EndPoints = list, points
}

// viewOf reads the known members of a document and remembers what is wrong with their shape.
func viewOf(doc map[string]any) *ACS {
	a := &ACS{doc: doc}
	v := view{"", doc, &a.shape}
	v.known("aic", "active", "lastModifiedTime", "protocolVersion", "name", "description", "version", "iconUrl", "documentationUrl",
		"webAppUrl", "provider", "securitySchemes", "endPoints", "capabilities", "defaultInputModes", "defaultOutputModes", "skills",
		"certificate")
	v.need("protocolVersion", "name", "description", "version", "provider", "securitySchemes", "endPoints", "capabilities",
		"defaultInputModes", "defaultOutputModes", "skills")
	a.AIC, a.Active, a.LastModifiedTime = v.str("aic"), v.boolean("active"), v.str("lastModifiedTime")
	a.ProtocolVersion = v.str("protocolVersion")
	a.Name, a.Description, a.Version = v.str("name"), v.str("description"), v.str("version")
	a.IconURL, a.DocumentationURL, a.WebAppURL = v.str("iconUrl"), v.str("documentationUrl"), v.str("webAppUrl")
	a.Provider = readProvider(v.object("provider"))
	a.SecuritySchemes = readSchemes(v.object("securitySchemes"))
	for _, e := range v.objects("endPoints") {
		a.EndPoints = append(a.EndPoints, readEndPoint(e))
	}
	a.Capabilities = readCapabilities(v.object("capabilities"))
	a.DefaultInputModes, a.DefaultOutputModes = v.strs("defaultInputModes"), v.strs("defaultOutputModes")
	for _, s := range v.objects("skills") {
		a.Skills = append(a.Skills, readSkill(s))
	}
	a.Certificate = readCertificate(v.object("certificate"))
	return a
}

func readProvider(v view) Provider {
	v.known("countryCode", "organization", "department", "url", "license", "name", "email", "domainRegistrations")
	p := Provider{v.str("countryCode"), v.str("organization"), v.str("department"), v.str("url"), v.str("license"), v.str("name"),
		v.str("email"), nil}
	for _, d := range v.objects("domainRegistrations") {
		d.need("domain")
		p.Domains = append(p.Domains, DomainRegistration{d.str("domain"), d.str("registrationNumber"), d.str("registrationType")})
	}
	return p
}

func readSchemes(v view) map[string]SecurityScheme {
	out := map[string]SecurityScheme{}
	for _, name := range slices.Sorted(maps.Keys(v.obj)) {
		s := v.object(name)
		s.need("type")
		out[name] = SecurityScheme{s.str("type"), s}
	}
	return out
}

func readEndPoint(v view) EndPoint {
	v.known("url", "transport", "security")
	v.need("url", "transport")
	e := EndPoint{URL: v.str("url"), Transport: v.str("transport")}
	for _, alternative := range v.objects("security") {
		all := map[string][]string{}
		for name := range alternative.obj {
			all[name] = alternative.strs(name)
		}
		e.Security = append(e.Security, all)
	}
	return e
}

func readCapabilities(v view) Capabilities {
	v.known("streaming", "notification", "messageQueue")
	return Capabilities{v.boolean("streaming"), v.boolean("notification"), v.strs("messageQueue")}
}

func readSkill(v view) Skill {
	v.known("id", "name", "description", "version", "tags", "examples", "inputModes", "outputModes")
	v.need("id", "name", "description", "tags")
	return Skill{
		ID: v.str("id"), Name: v.str("name"), Description: v.str("description"), Version: v.str("version"),
		Tags: v.strs("tags"), Examples: v.strs("examples"), InputModes: v.strs("inputModes"), OutputModes: v.strs("outputModes"),
	}
}

func readCertificate(v view) Certificate {
	v.known("altNames", "requestedValidity")
	names := v.object("altNames")
	return Certificate{names.strs("dns"), names.strs("ip"), v.integer("requestedValidity")}
}
