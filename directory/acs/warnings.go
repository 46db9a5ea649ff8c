package acs

import (
	"fmt"
	"slices"

	"agentgw/directory/taxonomy"
)

// maxWarnings bounds what is told of a document, and what looking for the classes that were meant costs.
const maxWarnings = 8

// Warnings is what a document is accepted with and is probably a mistake: `oasf:` tags whose class the embedded taxonomy has not. A newer one may
// have it. At most [maxWarnings] are told, and how many there are beyond.
func (a *ACS) Warnings() Problems {
	var p Problems
	more := 0
	for i, s := range a.Skills {
		for j, tag := range s.Tags {
			class, unknown := taxonomy.Unknown(tag)
			switch {
			case !unknown:
			case len(p) == maxWarnings:
				more++
			default:
				meant := "name one by its path or the id of a skill's"
				if path, ok := taxonomy.Nearest(class); ok {
					meant = fmt.Sprintf("did you mean %q?", path)
				}
				p.add(fmt.Sprintf("skills[%d].tags[%d]", i, j), "%s has no class %.70q, and the tag is kept; %s", taxonomy.Version, class, meant)
			}
		}
	}
	if more > 0 {
		p.add("", "%d more tags name classes that %s has not", more, taxonomy.Version)
	}
	return p
}

// UnknownClasses are the classes of its tags that the embedded taxonomy has not, each once and in order.
func (a *ACS) UnknownClasses() []string {
	var out []string
	for _, s := range a.Skills {
		for _, tag := range s.Tags {
			if class, unknown := taxonomy.Unknown(tag); unknown {
				out = append(out, class)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Lines are the problems as texts.
func (p Problems) Lines() []string {
	var out []string
	for i := range p {
		out = append(out, p[i].String())
	}
	return out
}
