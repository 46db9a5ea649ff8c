package app

import (
	"context"
	"strings"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/amc"
	"agentgw/gatewayd/internal/peering"
	"agentgw/gatewayd/internal/relay"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// Status implements admin.Gateway.
func (a *app) Status() admin.Status {
	s := admin.Status{
		Gateway: string(a.home.gateway), Domain: a.cfg.Domain, Version: daemon.Version(), Listen: a.ep.Addr().String(),
		UptimeS: int64(time.Since(a.started).Seconds()), Agents: a.registry.Len(), Attached: a.agents.Attached(), Peers: a.Peers(),
		Audit: a.auditor.standing(), AMC: "here", Gateways: []string{}, Requests: admin.Requests{Answered: a.relay.Answered.Load(), Forwarded: a.relay.Forwarded.Load()},
	}
	s.Embedder, s.Restored, s.Drained = a.embedderStatus(), a.peers.Restored(), a.drain.since.Load()
	if spki, err := identity.SPKIHash(a.home.current().Leaf.PublicKey); err == nil {
		s.Pin = identity.FingerprintText(spki)
	}
	if a.remote != nil {
		s.AMC = attachedText(a.remote)
	}
	if a.members != nil {
		for _, m := range a.members.Members() {
			s.Gateways = append(s.Gateways, m.AIC)
		}
		s.Siblings = a.siblingRows()
	}
	if a.amc != nil {
		waiting, err := a.amc.OpenRequests()
		if err != nil {
			a.log.Error("registrations that wait", "err", err)
		}
		s.Waiting = len(waiting)
	}
	for _, b := range a.trust.All() {
		s.Domains = append(s.Domains, admin.TrustRow{
			Domain: b.Domain, Issuer: b.Issuer, Source: b.Source.String(), By: b.By, Fingerprint: identity.FingerprintText(b.Fingerprint), Seq: b.Seq,
		})
	}
	for _, b := range a.trust.Pending() {
		s.Pending = append(s.Pending, admin.TrustRow{
			Domain: b.Domain, Source: "pending", By: b.By, Fingerprint: identity.FingerprintText(b.Fingerprint), Seq: b.Seq,
		})
	}
	return s
}

// issuedTo is what an AMC alone, which has no directory, knows: whom it has issued credentials to, and how they stand.
func (a *app) issuedTo() (rows []admin.AgentRow) {
	all, err := a.amc.Agents()
	if err != nil {
		a.log.Error("agents of the AMC", "err", err)
	}
	attached := map[string]bool{}
	for _, m := range a.members.Members() {
		attached[m.AIC] = true
	}
	for _, s := range all {
		row := admin.AgentRow{AIC: s.AIC, Name: s.Name, State: s.State.String(), Attached: attached[s.AIC], Skills: s.Skills}
		if s.Class == amc.ClassGateway {
			row.Name = strings.TrimSpace("gateway " + s.Name)
		}
		if row.Skills == nil {
			row.Skills = []string{}
		}
		rows = append(rows, row)
	}
	return rows
}

// Peers implements admin.Gateway.
func (a *app) Peers() []admin.PeerRow {
	return peerRowsOf(a.peers.Status())
}

func peerRowsOf(list []peering.PeerStatus) []admin.PeerRow {
	rows := []admin.PeerRow{}
	for _, p := range list {
		row := admin.PeerRow{
			Domain: p.Domain, Gateway: p.Gateway, Role: p.Role, State: p.State, Acked: p.Acked, Entries: p.Entries,
			Stale: p.Stale, Sent: p.Sent, Accepted: p.Accepted, Rejected: byName(p.Rejected), Refused: byName(p.Refused), Ended: p.Ended, Lame: p.Lame, Drained: p.Drained,
			RTTMS: p.RTT.Milliseconds(), ClockS: int64(p.Skew.Seconds()), Error: p.Err,
		}
		for _, at := range []struct {
			is  time.Time
			row **time.Time
		}{{p.Until, &row.Until}, {p.Since, &row.Since}, {p.LastAck, &row.LastAck}, {p.EndedAt, &row.EndedAt}} {
			if !at.is.IsZero() {
				*at.row = &at.is
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// Digests implements admin.Gateway.
func (a *app) Digests() []admin.DigestRow {
	var rows []admin.DigestRow
	for _, d := range a.peers.Digests() {
		rows = append(rows, admin.DigestRow{
			Origin: d.Origin, Domain: d.Domain, NS: d.Item.NS, Label: d.Item.Label, Level: d.Level.String(), Path: d.Path, Via: d.Via, Stale: d.Stale,
		})
	}
	return rows
}

// CreateToken implements admin.Gateway.
func (a *app) CreateToken(ctx context.Context, r admin.TokenRequest) (admin.TokenAnswer, error) {
	var class uint8 = amc.ClassAgent
	if r.For == "gateway" {
		class = amc.ClassGateway
	}
	spki, addresses, only, err := a.whereTo(r)
	if err != nil {
		return admin.TokenAnswer{}, err
	}
	if a.amc == nil {
		return admin.TokenAnswer{}, frame.Errorf(frame.State, "this gateway has no AMC role: the AMC's own host makes its tokens (`gatewayd token create --gateway %s` there)", a.home.gateway)
	}
	secret, expires, err := a.amc.CreateToken(ctx, amc.TokenOptions{
		Life: time.Duration(r.LifeS) * time.Second, Scope: r.Scope, Note: r.Note, Vendor: r.Vendor, Ontology: r.Ontology, Class: class, Gateway: only,
	})
	if err != nil {
		return admin.TokenAnswer{}, err
	}
	t := arp.Token{Secret: secret[:], GatewayPK: spki[:], Addresses: addresses, Domain: a.cfg.Domain, Exp: uint64(expires.Unix())}
	return admin.TokenAnswer{Token: t.String(), Expires: expires}, nil
}

// whereTo is whom a token sends its holder to: this process, or one of the gateways that are attached to its AMC.
func (a *app) whereTo(r admin.TokenRequest) (spki [32]byte, addresses []arp.HostPort, only string, err error) {
	if r.For != "" && r.For != "agent" && r.For != "gateway" {
		return spki, nil, "", frame.Errorf(frame.ReqInvalid, "a token is for an agent or for a gateway, not for %q", r.For)
	}
	here := r.For == "gateway" || r.Gateway == "" && a.cfg.HasRole(config.RoleGateway) || r.Gateway == string(a.home.gateway)
	if here {
		spki, err = identity.SPKIHash(a.home.current().Leaf.PublicKey)
		return spki, hostPorts(a.cfg.Advertise), "", err
	}
	var known []string
	if a.members != nil {
		members := a.members.Members()
		for _, m := range members {
			if m.AIC == r.Gateway || r.Gateway == "" && len(members) == 1 {
				return m.SPKI, m.Addresses, m.AIC, nil
			}
			known = append(known, m.AIC)
		}
	}
	return spki, nil, "", frame.Errorf(frame.ReqInvalid, "say with --gateway which gateway the agent shall enrol at; attached now: %s", strings.Join(known, ", "))
}

// Resolve implements admin.Gateway: the gateway is an agent too, and asks in its own name.
func (a *app) Resolve(ctx context.Context, ask semreq.Ask) (*semreq.Outcome, error) {
	req, err := ask.Request()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	self := relay.Agent{AIC: string(a.home.gateway), Scope: []string{policy.ScopeDiscover}}
	return a.relay.FromAgent(ctx, self, req).Outcome(time.Since(began), a.trust.DomainOf)
}

// ReloadPeers implements admin.Gateway: it reads the policy rows, and the other AMCs of the domain, again.
func (a *app) ReloadPeers(ctx context.Context) error {
	a.reloading.Lock() // the files may change between two readings
	defer a.reloading.Unlock()
	rows, err := a.peerRows()
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	if err := a.reloadSiblings(ctx); err != nil {
		return err
	}
	if !a.cfg.HasRole(config.RoleGateway) { // its peering never starts
		return nil
	}
	defer func() { // a row may disclose at a level that no other does
		select {
		case a.rowsChanged <- struct{}{}:
		default:
		}
	}()
	return a.peers.SetRows(ctx, rows)
}

var errNoAMC = frame.Errorf(frame.State, "this gateway has no AMC role: ask on the AMC's own host (amc.address of the configuration)")

// Agent implements admin.Gateway: one agent as the directory and the AMC know it.
func (a *app) Agent(r admin.AgentRequest) (admin.AgentDetail, error) {
	id, err := a.cfg.AIC.CheckAIC(r.AIC)
	if err != nil {
		return admin.AgentDetail{}, frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	out := admin.AgentDetail{AIC: string(id)}
	if l, ok := a.registry.Listing(out.AIC); ok {
		row := agentRow(l)
		out.Entry = &row
	}
	if out.Entry == nil {
		if t, err := a.store.Ended(out.AIC); err == nil {
			out.Ended = &admin.Ended{State: t.State.String(), At: t.At, Reason: t.Reason}
		}
	}
	if a.amc != nil {
		if s, err := a.amc.Agent(out.AIC); err == nil {
			out.Standing = &admin.Standing{
				State: s.State.String(), Since: s.Since.UTC(), Reason: s.Reason, Why: s.Why, Gateway: s.Gateway, Decider: s.Decider, Scope: s.Scope,
				GrantUntil: s.GrantEnd.UTC(), CertificateUntil: s.CertEnd.UTC(),
			}
		}
	}
	if out.Entry == nil && out.Ended == nil && out.Standing == nil {
		return out, frame.Errorf(frame.NotFound, "%s has never been registered here", id)
	}
	return out, nil
}

// Withdraw implements admin.Gateway.
func (a *app) Withdraw(ctx context.Context, r admin.WithdrawRequest) error {
	id, err := a.cfg.AIC.CheckAIC(r.AIC)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	r.AIC = string(id)
	if err := a.agents.Withdraw(ctx, r.AIC, r.Reason); err != nil {
		return err
	}
	a.agents.Drop(r.AIC, frame.Revoked)
	a.log.Info("agent withdrawn", "aic", r.AIC, "reason", r.Reason)
	return nil
}

// Deprecate implements admin.Gateway: an agent that is on its way out is offered on, and says so; undo takes it back.
func (a *app) Deprecate(ctx context.Context, r admin.DeprecateRequest) error {
	id, err := a.cfg.AIC.CheckAIC(r.AIC)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	from, to := directory.Active, directory.Deprecated
	if r.Undo {
		from, to = to, from
	}
	e, err := a.registry.Get(string(id))
	switch {
	case err != nil:
		return frame.Errorf(frame.NotFound, "%w", err)
	case e.State != from && e.State != to:
		return frame.Errorf(frame.State, "%s is %v, and only an agent that is %v can become %v", id, e.State, from, to)
	}
	if err := a.registry.SetState(ctx, string(id), to, now()); err != nil {
		return err
	}
	return a.audit(ctx, kindDeprecated, map[string]any{"aic": string(id), "state": to.String()})
}

// SetStanding implements admin.Gateway.
func (a *app) SetStanding(ctx context.Context, r admin.StandingRequest) error {
	if a.amc == nil {
		return errNoAMC
	}
	id, err := a.cfg.AIC.CheckAIC(r.AIC)
	if err != nil {
		return frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	r.AIC = string(id)
	switch r.State {
	case "suspended":
		return a.amc.Suspend(ctx, r.AIC, r.Reason)
	case "good":
		return a.amc.Resume(ctx, r.AIC, r.Reason)
	case "revoked":
		reason := uint8(identity.ReasonUnspecified)
		if r.KeyCompromised {
			reason = identity.ReasonKeyCompromise
		}
		return a.amc.Revoke(ctx, r.AIC, reason, r.Reason)
	}
	return frame.Errorf(frame.ReqInvalid, "state %q is none of good, suspended, revoked", r.State)
}

// Pending implements admin.Gateway.
func (a *app) Pending() ([]amc.PendingRequest, error) {
	if a.amc == nil {
		return nil, errNoAMC
	}
	return a.amc.OpenRequests()
}

// Decide implements admin.Gateway.
func (a *app) Decide(ctx context.Context, r admin.DecideRequest) error {
	if a.amc == nil {
		return errNoAMC
	}
	if r.Approve {
		return a.amc.Approve(ctx, r.Request, r.Scope)
	}
	return a.amc.Refuse(ctx, r.Request, r.Reason)
}
