package app

import (
	"encoding/base64"
	"strings"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/registry"
	"agentgw/directory/taxonomy"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

// Agents implements admin.Gateway.
func (a *app) Agents(r admin.AgentsRequest) (*admin.AgentsPage, error) {
	list, next, err := a.page(r)
	if err != nil {
		return nil, err
	}
	out := &admin.AgentsPage{Agents: []admin.AgentRow{}, Next: next}
	if !a.cfg.HasRole(config.RoleGateway) { // an AMC alone has no directory: whom it has issued credentials to
		out.Agents = append(out.Agents, a.issuedTo()...)
		return out, nil
	}
	for _, l := range list {
		out.Agents = append(out.Agents, agentRow(l))
	}
	return out, nil
}

// page is one page of the directory, with where the next one begins.
func (a *app) page(r admin.AgentsRequest) (list []registry.Listing, next string, err error) {
	keep := func(m registry.Mark) bool {
		vendor, _ := aic.AIC(m.AIC).Codes()
		return (r.State == "" || m.State.String() == strings.ToUpper(r.State)) && (r.Vendor == "" || vendor == strings.ToUpper(r.Vendor))
	}
	if r.State != "" && new(directory.State).UnmarshalText([]byte(strings.ToUpper(r.State))) != nil {
		return nil, "", frame.Errorf(frame.ReqInvalid, "state %q is none of PENDING, ACTIVE, SUSPENDED, DEPRECATED", r.State)
	}
	if r.Limit < 0 || r.Limit > admin.MaxPage {
		return nil, "", frame.Errorf(frame.ReqInvalid, "a page of %d rows: at most %d", r.Limit, admin.MaxPage)
	}
	list, more := a.registry.Page(r.After, or(r.Limit, admin.MaxPage), keep)
	if more {
		next = list[len(list)-1].AIC
	}
	return list, next, nil
}

func agentRow(l registry.Listing) admin.AgentRow {
	row := admin.AgentRow{
		AIC: l.AIC, State: l.State.String(), Attached: l.Alive, MovedTo: l.MovedTo, Imported: l.Provenance.Imported(), Visibility: l.Visibility.String(), Version: l.Version,
		LastModified: l.LastModified, Skills: []string{},
	}
	if l.Bound != nil {
		row.Bound = l.Bound.Visibility.String()
	}
	for _, c := range l.Capabilities {
		row.Name = c.AgentName
		row.Skills = append(row.Skills, c.SkillID)
	}
	if len(l.Capabilities) == 0 { // it may use others' skills all the same
		if doc, err := acs.Parse(l.ACS); err == nil {
			row.Name = doc.Name
		}
	}
	return row
}

// A page of an export is smaller than one of a list: an entry has up to 64 KiB of specification and as much of an Agent Card, and what of it
// JSON escapes is six times that on the socket.
const (
	exportPage   = 100
	exportOctets = 4 << 20
)

// ExportAgents implements admin.Gateway.
func (a *app) ExportAgents(r admin.AgentsRequest) (*admin.ExportPage, error) {
	r.Limit = min(or(r.Limit, exportPage), exportPage)
	list, next, err := a.page(r)
	if err != nil {
		return nil, err
	}
	out := &admin.ExportPage{Entries: []admin.ExportedEntry{}, Next: next}
	octets := 0
	for i, l := range list {
		if octets += len(l.ACS) + len(l.Card); i > 0 && octets > exportOctets {
			out.Next = list[i-1].AIC
			break
		}
		out.Entries = append(out.Entries, a.exported(l))
	}
	return out, nil
}

func (a *app) exported(l registry.Listing) admin.ExportedEntry {
	v := admin.EntryView{
		CapabilityIDs: []string{}, Domain: a.cfg.Domain, Gateway: string(a.home.gateway), State: l.State.String(), Version: l.Version,
		RegisteredAt: l.RegisteredAt, LastModified: l.LastModified, ExpiresAt: l.ExpiresAt, Visibility: l.Visibility.String(), Allow: l.Allow,
		AuthorizedSkills: admin.List(l.Skills), Provider: or(l.Provenance.Provider, directory.ProviderUnverified),
		ACSSHA256: base64.RawURLEncoding.EncodeToString(l.ACSHash[:]), Taxonomy: or(l.Taxonomy, taxonomy.Version), Alive: l.Alive, MovedTo: l.MovedTo, LastSeen: l.LastSeen,
	}
	for _, c := range l.Capabilities {
		v.CapabilityIDs = append(v.CapabilityIDs, c.CapID)
	}
	return admin.ExportedEntry{ACS: l.ACS, Entry: v, Card: string(l.Card)}
}
