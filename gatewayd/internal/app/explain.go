package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentgw/cdsp/wire"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/peering"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// explainer gathers what is known of one domain, and judges what would pass.
type explainer struct {
	a      *app
	domain string
	row    *peering.Row
	bundle *identity.Accepted
	could  []peering.Row // rows that may introduce it
	scope  []string      // of requests that begin there
	out    *admin.Explanation
}

// ExplainPeer implements admin.Trust: what would pass between this domain and another, and why.
func (a *app) ExplainPeer(_ context.Context, r admin.ExplainRequest) (*admin.Explanation, error) {
	if !identity.ValidDomain(r.Domain) {
		return nil, frame.Errorf(frame.ReqInvalid, "%q is no lower-case DNS name of a domain", r.Domain)
	}
	e := &explainer{a: a, domain: r.Domain, bundle: a.trust.Domain(r.Domain), scope: a.peers.MayQuery(r.Domain), out: &admin.Explanation{Domain: r.Domain}}
	for _, row := range a.peers.Rows() {
		if row.Domain == r.Domain {
			e.row = &row
		}
		if identity.MayIntroduce(row.Introduces, r.Domain) {
			e.could = append(e.could, row)
		}
	}
	e.out.Kind = e.kind()
	e.describe()
	if e.out.Kind != "own" {
		e.out.Missing = e.missing()
		e.judge()
	}
	return e.out, nil
}

func (e *explainer) kind() string {
	switch {
	case e.domain == e.a.cfg.Domain:
		return "own"
	case e.row != nil:
		return "neighbour"
	case e.bundle != nil:
		return "introduced"
	case e.a.trust.Waits(e.domain):
		return "pending"
	case len(e.a.trust.Disputed(e.domain)) > 0:
		return "disputed"
	}
	return "unknown"
}

// describe states facts.
func (e *explainer) describe() {
	a, out := e.a, e.out
	if r := e.row; r != nil {
		out.Row = &admin.RowView{
			Role: r.Role, Export: map[bool]string{true: "transit", false: "own"}[r.Transit], Disclose: r.Disclose.String(), MayQuery: r.MayQuery, Addresses: r.Addresses, Discover: r.Discover,
			Gateways: r.Gateways, Introduces: r.Introduces, FirstUse: map[bool]string{true: "ask", false: "auto"}[r.AskFirst], Upstream: r.Upstream,
		}
	}
	if b := e.bundle; b != nil {
		out.Bundle = &admin.BundleState{
			TrustRow: admin.TrustRow{
				Domain: b.Domain, Issuer: b.Issuer, Source: b.Source.String(), By: b.By, Fingerprint: identity.FingerprintText(b.Fingerprint), Seq: b.Seq,
			},
			Issued: unix(b.Issued),
		}
		if f, ok := a.bundles.of(e.domain); ok {
			out.Bundle.URL, out.Bundle.FetchedAt = f.URL, &f.At
			if f.Err != nil {
				out.Bundle.FetchError = f.Err.Error()
			}
		}
		out.Status = e.status(b)
		for _, s := range b.Siblings {
			f := admin.Further{Issuer: s.Issuer}
			if held := a.trust.Issuer(s.Issuer); held != nil {
				f.Prefixes, f.Seq, f.Status = held.Prefixes, held.Seq, e.status(held)
			}
			out.Further = append(out.Further, f)
		}
	}
	for _, p := range a.trust.Pending() {
		if p.Domain == e.domain || slices.Contains(p.By, e.domain) {
			out.Pending = append(out.Pending, admin.TrustRow{
				Domain: p.Domain, Source: "pending", By: p.By, Fingerprint: identity.FingerprintText(p.Fingerprint), Seq: p.Seq,
			})
		}
	}
	out.DisputedBy = a.trust.Disputed(e.domain)
	for _, p := range a.Peers() {
		if p.Domain == e.domain {
			out.Links = append(out.Links, p)
		}
	}
	if v, ok := a.peers.HoldsOfOurs(e.domain); ok {
		own := a.trust.Own()
		seq := uint64(0)
		if a.statuses != nil {
			seq, _ = a.statuses.Held(own.Issuer)
		}
		out.HoldsOfOurs = &admin.HeldState{BundleSeq: v.BundleSeq, StatusSeq: v.StatusSeq, BundleBehind: v.BundleSeq < own.Seq, StatusBehind: v.StatusSeq < seq}
	}
}

func (e *explainer) status(b *identity.Accepted) *admin.StatusState {
	s := e.a.statuses
	if s == nil {
		return &admin.StatusState{State: "unchecked", Why: "this domain keeps no status lists"}
	}
	seq, next := s.Held(b.Issuer)
	out := &admin.StatusState{State: "fresh", Seq: seq}
	if seq != 0 {
		out.Next = &next
	}
	if err := s.Fresh(b.Issuer); err != nil {
		out.State, out.Why = "stale", err.Error()
		if seq == 0 {
			out.State = "none"
		}
	}
	return out
}

// missing says which bundle is missing, and what would bring it; "" when none is.
func (e *explainer) missing() string {
	switch {
	case e.bundle != nil:
		return ""
	case e.out.Kind == "pending":
		p := e.out.Pending[0]
		return fmt.Sprintf("the bundle of %s waits for approval: compare %s with its operator, then `gatewayd peer approve %s %s`",
			e.domain, p.Fingerprint, e.domain, p.Fingerprint)
	case e.out.Kind == "disputed":
		return fmt.Sprintf("%s describe %s differently, none is believed: get its bundle from its operator and `gatewayd peer add` it",
			strings.Join(e.out.DisputedBy, " and "), e.domain)
	case len(e.could) == 0:
		return fmt.Sprintf("no bundle of %s is here: `gatewayd peer add` makes it a neighbour, or let a peer introduce it (introduces in that peer's row)", e.domain)
	}
	var who []string
	for _, r := range e.could {
		who = append(who, fmt.Sprintf("%s (%s)", r.Domain, e.linkOf(r.Domain)))
	}
	return fmt.Sprintf("no bundle of %s is here: %s may introduce it, and has not: it must be its neighbour, and its row for us say export: transit",
		e.domain, strings.Join(who, ", "))
}

// linkOf is how the connection to a neighbouring domain stands.
func (e *explainer) linkOf(domain string) string {
	state := "no row"
	for _, p := range e.a.Peers() {
		if p.Domain == domain {
			if state = p.State; state == "up" {
				return state
			}
		}
	}
	return state
}

// judge says what would pass.
func (e *explainer) judge() {
	say := func(what string, passes bool, why string) {
		e.out.Verdicts = append(e.out.Verdicts, admin.Verdict{What: what, Passes: passes, Why: why})
	}
	linked, why := e.connection()
	say("connection", linked, why)
	if e.bundle == nil {
		say("identity", false, e.out.Missing)
	} else {
		say("identity", true, fmt.Sprintf("bundle %d, %s", e.bundle.Seq, e.source()))
	}
	known := e.bundle != nil
	fresh, freshWhy := known && (e.out.Status.State == "fresh" || e.out.Status.State == "unchecked"), ""
	if known && !fresh {
		freshWhy = e.out.Status.Why
	}
	first := func(texts ...string) string {
		for _, t := range texts {
			if t != "" {
				return t
			}
		}
		return ""
	}
	asks := policy.Covers(e.scope, []string{policy.ScopeDiscover})
	from := mayAsk("it", e.scope) + e.whoseScope()
	say("requests from "+e.domain, known && asks && fresh, first(missingFor(known, e), freshWhy, from))
	say("sessions from there with our agents", known && asks && invokes(e.scope) && fresh, first(missingFor(known, e), freshWhy, from))
	reachable, how := e.route()
	say("requests to "+e.domain, known && reachable, first(missingFor(known, e), how))
	say("sessions of our agents there", known && reachable && fresh, first(missingFor(known, e), freshWhy, how))
	told, how := e.export()
	say("our digests to "+e.domain, told, how)
}

func missingFor(known bool, e *explainer) string {
	if known {
		return ""
	}
	return "no bundle of " + e.domain + " is believed"
}

func (e *explainer) source() string {
	if len(e.bundle.By) > 0 {
		return "introduced by " + strings.Join(e.bundle.By, ", ")
	}
	return e.bundle.Source.String()
}

func (e *explainer) connection() (bool, string) {
	if e.row == nil {
		var ways []string
		for _, by := range e.introducers() {
			ways = append(ways, fmt.Sprintf("%s (%s)", by, e.linkOf(by)))
		}
		if len(ways) == 0 {
			return false, "it has no policy row here, and no peer introduced it"
		}
		return slices.ContainsFunc(e.introducers(), func(by string) bool { return e.linkOf(by) == "up" }), "no neighbour; by way of " + strings.Join(ways, ", ")
	}
	for _, p := range e.a.peers.Status() {
		switch {
		case p.Domain != e.domain:
		case p.State == "up":
			return true, fmt.Sprintf("%s is up, its clock %+d s", p.Gateway, int64(p.Skew.Seconds()))
		case time.Now().Before(p.HeldUntil):
			return false, fmt.Sprintf("no connection of %s is accepted until %s: %s", p.Gateway, p.HeldUntil.UTC().Format(time.RFC3339), p.Held)
		case p.Err != "":
			return false, p.Err
		}
	}
	if e.row.Discover {
		return false, "not connected yet: its gateways are looked for by DNS (`gatewayd dns " + e.domain + "`)"
	}
	if len(e.row.Addresses) == 0 {
		return false, "its row names no address: we wait for it to dial us"
	}
	return false, "not connected yet: " + strings.Join(e.row.Addresses, ", ")
}

func (e *explainer) introducers() []string {
	if e.bundle != nil {
		return e.bundle.By
	}
	if len(e.out.Pending) > 0 && e.out.Kind == "pending" {
		return e.out.Pending[0].By
	}
	return nil
}

func (e *explainer) whoseScope() string {
	if e.row == nil && len(e.introducers()) > 0 && len(e.scope) > 0 {
		return ", as the row of " + e.introducers()[0] + " says, which introduced it"
	}
	return ""
}

// route says whether a request would find its way there.
func (e *explainer) route() (bool, string) {
	ways := map[string]int{}
	stale, level := 0, wire.LevelClasses
	for _, d := range e.a.peers.Digests() {
		if d.Own || d.Domain != e.domain {
			continue
		}
		if d.Stale {
			stale++
		}
		ways[d.ViaDomain]++
		level = max(level, d.Level)
	}
	var parts []string
	open := false
	for via, n := range ways {
		parts = append(parts, fmt.Sprintf("%d digests by way of %s (%s)", n, via, e.linkOf(via)))
		open = open || e.linkOf(via) == "up" && policy.Covers(e.a.peers.MayQuery(via), []string{policy.ScopeDiscover})
	}
	slices.Sort(parts)
	if len(parts) > 0 {
		text := strings.Join(parts, ", ")
		if stale > 0 {
			text += fmt.Sprintf("; %d of them are kept for a neighbour that is away", stale)
		}
		if level == wire.LevelClasses {
			text += "; they tell classes alone: only requests by class go there"
		}
		return open, text
	}
	for _, r := range e.a.peers.Rows() {
		if r.Upstream {
			return e.linkOf(r.Domain) == "up", "no digest of it is known; as the last resort " + r.Domain + " is asked"
		}
	}
	return false, "no digest of it is known: it offers nothing to us, or a row on the way does not pass it on"
}

// discloses says what the level of the row keeps from the neighbour.
func (e *explainer) discloses() string {
	switch e.row.Disclose {
	case wire.LevelClasses:
		return ", of them classes alone (disclose: classes): its requests by text or tag do not come here"
	case wire.LevelCoarse:
		return ", of them what several skills share, and no tags (disclose: coarse)"
	}
	return ""
}

// export says what of ours the domain learns.
func (e *explainer) export() (bool, string) {
	switch {
	case e.row != nil && e.row.Transit:
		return true, "public and listed agents of ours, and what we learn from others (export: transit)" + e.discloses()
	case e.row != nil:
		return true, "public and listed agents of ours (export: own)" + e.discloses()
	case len(e.introducers()) > 0:
		return true, "public agents of ours, as far as the rows of " + strings.Join(e.introducers(), ", ") + " pass them on"
	}
	return false, "it has no policy row here"
}
