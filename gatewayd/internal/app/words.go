package app

import (
	"fmt"
	"strings"

	"agentgw/config"
	"agentgw/internal/policy"
)

// grants is what a policy row allows, in words: what an operator is about to agree to.
func grants(r *config.Peer) []string {
	out := []string{
		map[string]string{
			"peer":     "it is our peer: each of us pays its own way",
			"customer": "it is our customer: what it announces goes to everybody we pass digests to",
			"provider": "it is our provider: what it announces goes to our customers only",
		}[r.Role],
		mayAsk("it", r.MayQuery),
	}
	learns := map[string]string{
		"full":    "it learns what our agents can do",
		"coarse":  "it learns roughly what our agents can do: their classes, and words that several of their skills have",
		"classes": "it learns the classes of what our agents can do and no more: requests in free text find none of them",
	}[r.Disclose]
	if r.Export == "transit" {
		out = append(out, learns+"; and what we learn from others")
	} else {
		out = append(out, learns+"; and nothing that we learn from others")
	}
	if len(r.Introduces) > 0 {
		trusted := "each waits until you approve it"
		if r.FirstUse == "auto" {
			trusted = "we believe it at first sight"
		}
		out = append(out, fmt.Sprintf("it may introduce the domains %s, which then have the same scope; %s", strings.Join(r.Introduces, ", "), trusted))
	}
	if r.Upstream {
		out = append(out, "we ask it what no digest matches: it sees such requests")
	}
	if r.Discover {
		out = append(out, "we dial what DNS names for it, and believe whoever is there by its certificate only")
	}
	if len(r.Addresses) > 0 {
		out = append(out, "we dial "+strings.Join(r.Addresses, ", "))
	} else if !r.Discover {
		out = append(out, "we wait for it to dial us")
	}
	if r.BundleURL != "" {
		out = append(out, "newer bundles are fetched from "+r.BundleURL)
	}
	return out
}

func mayAsk(who string, scopes []string) string {
	switch {
	case len(scopes) == 0:
		return who + " may ask for nothing here"
	case !policy.Covers(scopes, []string{policy.ScopeDiscover}):
		return fmt.Sprintf("%s may ask for nothing here: %s does not cover %s", who, strings.Join(scopes, ", "), policy.ScopeDiscover)
	case invokes(scopes):
		return fmt.Sprintf("%s may look for our agents and have sessions with them (%s)", who, strings.Join(scopes, ", "))
	}
	return fmt.Sprintf("%s may look for our agents, and have no sessions with them (%s)", who, strings.Join(scopes, ", "))
}

// invokes says whether some skill may be invoked with a scope.
func invokes(scopes []string) bool {
	return len(policy.Intersect(scopes, []string{policy.ScopeSkillInvoke + "*"})) > 0
}
