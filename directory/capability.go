package directory

import (
	"fmt"
	"strings"

	"agentgw/directory/acs"
	"agentgw/directory/taxonomy"
)

// Capabilities is what an entry offers, one for each skill, in the order of its ACS. It does not ask whether the entry is
// offered now. An ACS that cannot be read is an error: the directory wrote it.
func Capabilities(e Entry) ([]Capability, error) {
	doc, err := acs.Parse(e.ACS)
	if err != nil {
		return nil, fmt.Errorf("capabilities of %s: %w", e.AIC, err)
	}
	return CapabilitiesOf(e, doc), nil
}

// CapabilitiesOf is the same where the entry's ACS has been read already.
func CapabilitiesOf(e Entry, doc *acs.ACS) []Capability {
	caps := make([]Capability, 0, len(doc.Skills))
	for _, s := range doc.Skills {
		caps = append(caps, Capability{
			AIC: e.AIC, CapID: CapID(e.AIC, s.ID), SkillID: s.ID,
			Name: s.Name, Description: s.Description, Tags: s.Tags, Classes: taxonomy.OfTags(s.Tags), Examples: s.Examples,
			In: modes(s.InputModes, doc.DefaultInputModes), Out: modes(s.OutputModes, doc.DefaultOutputModes),
			AgentName: doc.Name, AgentDescription: doc.Description, Provider: provider(doc, e.AIC),
			ACSVersion: doc.Version, EntryVersion: e.Version,
		})
	}
	return caps
}

func modes(own, defaults []string) []string {
	if len(own) > 0 {
		return own
	}
	return defaults
}

// provider is the declared organisation, else the AIC up to its vendor level. The declaration is unverified; it only bounds how
// many places of one list a provider takes.
func provider(doc *acs.ACS, id string) string {
	if doc.Provider.Organization != "" {
		return doc.Provider.Organization
	}
	if level := strings.Split(id, "."); len(level) > 7 {
		return strings.Join(level[:7], ".")
	}
	return id
}
