// Package policy is the one decision for every place where a scope or a trust policy counts. It is pure.
//
// A scope is a list of strings such as `acps.skill.invoke:<skill id>`, `agw.discover` or `agw.publish:<topic>`; a trailing `*`
// matches the rest of one string; an empty list means nothing at all (PROTOCOL documents, "Scopes").
package policy

import "strings"

// Scopes of the system.
const (
	ScopeDiscover    = "agw.discover"
	ScopeSkillInvoke = "acps.skill.invoke:" // followed by a skill id, or by `*`
)

// Everyday is what a domain grants where nobody says otherwise: to find, and to invoke what was found.
func Everyday() []string { return []string{ScopeDiscover, ScopeSkillInvoke + "*"} }

// known are the forms that a scope string may have.
var known = []string{ScopeDiscover, ScopeSkillInvoke + "*", "agw.publish:*", "agw.context.read"}

// Known says whether s is a scope string of this system, and not a slip of the pen.
func Known(s string) bool { return coveredBy(s, known) }

// Matches says whether the scope string pattern covers s.
func Matches(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(s, prefix)
	}
	return pattern == s
}

// Covers says whether each string of want is matched by one of have: want ⊆ have.
func Covers(have, want []string) bool {
	for _, w := range want {
		if !coveredBy(w, have) {
			return false
		}
	}
	return true
}

// Intersect is the largest scope that both lists cover, in the order of a, without repeats.
func Intersect(a, b []string) []string {
	var out []string
	add := func(s string) {
		if !coveredBy(s, out) {
			out = append(out, s)
		}
	}
	for _, s := range a {
		if coveredBy(s, b) {
			add(s)
			continue
		}
		for _, t := range b {
			if Matches(s, t) {
				add(t)
			}
		}
	}
	return out
}

func coveredBy(s string, list []string) bool {
	for _, p := range list {
		if Matches(p, s) {
			return true
		}
	}
	return false
}
