package registrar

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// put replaces the ACS of an attached agent by the whole one that it sends, if the entry is still the one that the agent knows.
// Skills outside its grant are removed and listed; it is shown to nobody to whom the operator does not show it. A provider that has changed is authorised anew; the AIC stays.
func (r *Registrar) put(ctx context.Context, s *endpoint.Stream, m *arp.ACSPut, agent Agent) (*arp.ACSState, error) {
	attached := r.findOn(agent.AIC, s.Conn())
	if attached == nil {
		return nil, frame.Errorf(frame.State, "%s has not attached on this connection", agent.AIC)
	}
	if m.AIC != agent.AIC {
		return nil, frame.Errorf(frame.IdentityMismatch, "%s cannot speak for %s", agent.AIC, m.AIC)
	}
	if !attached.puts.Allow() {
		return nil, frame.Errorf(frame.RateLimited, "%s changes its specification more often than %g times a second: try again later", agent.AIC, r.cfg.UpdateRate)
	}
	if s := attached.adopting.Load(); s != nil {
		return r.adopt(ctx, attached, s, m)
	}
	draft, err := r.validate(&arp.Enrol{Draft: m.ACS, DraftKind: m.Kind, Visibility: m.Visibility, Allow: m.Allow})
	if err != nil {
		return nil, err
	}
	e, ok := r.cfg.Directory.Get(m.AIC)
	switch {
	case !ok || !e.State.Offered():
		return nil, frame.Errorf(frame.State, "%s has no active entry", m.AIC)
	case e.Version != m.Expected:
		return nil, frame.Errorf(frame.State, "the entry of %s is at version %d, not %d: somebody else has changed it; agentd hears of it with its next keepalive, then try again", m.AIC, e.Version, m.Expected)
	}
	scope, err := r.authoriseAnew(ctx, e, draft, attached, s.Conn().RemoteAddr().Addr())
	if err != nil {
		return nil, err
	}
	var granted []string
	for _, id := range skillIDs(draft) {
		if policy.Covers(scope, []string{policy.ScopeSkillInvoke + id}) {
			granted = append(granted, id)
		}
	}
	doc, removed, err := acs.Authoritative(draft, aic.AIC(m.AIC), granted, time.Now())
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "ACS: %w", err)
	}
	was := e
	asked := directory.Reach{Visibility: directory.Visibility(m.Visibility), Allow: m.Allow}
	reach := asked.Within(e.Bound)
	e.Skills, e.Visibility, e.Allow, e.Card = granted, reach.Visibility, reach.Allow, cardOf(m.Kind, m.ACS)
	same, err := says(was, e, doc)
	if err != nil {
		return nil, err
	}
	if same { // the entry stays as it is, and nobody hears of it
		return r.stateOf(was, granted, removed), nil
	}
	if e, err = r.cfg.Directory.Update(ctx, e, doc); errors.Is(err, directory.ErrConflict) {
		return nil, frame.Errorf(frame.State, "the entry of %s changed at this moment: read it and try again", m.AIC)
	} else if err != nil {
		return nil, fmt.Errorf("commit the ACS of %s: %w", m.AIC, err)
	}
	if reach.Visibility != asked.Visibility || len(reach.Allow) != len(asked.Allow) {
		r.log.Info("agent asks to be seen by more than the operator has set", "aic", m.AIC, "asked", asked.Visibility.String(), "is", reach.Visibility.String())
	}
	r.tellUnknown(m.AIC, newlyUnknown(was, doc))
	attached.declared.Store(&declared{e.Version, doc.Provider})
	r.cfg.AuditSoon(KindUpdated, map[string]any{"aic": m.AIC, "version": e.Version, "acs": hex.EncodeToString(e.ACSHash[:])})
	return r.stateOf(e, granted, removed), nil
}

// newlyUnknown are the classes of an ACS that the taxonomy has not, without those of the entry before it, which were told then.
func newlyUnknown(was directory.Entry, doc *acs.ACS) []string {
	unknown := doc.UnknownClasses()
	if len(unknown) == 0 {
		return nil
	}
	held, err := acs.Parse(was.ACS)
	if err != nil { // the directory wrote it
		return unknown
	}
	told := held.UnknownClasses()
	return slices.DeleteFunc(unknown, func(c string) bool { return slices.Contains(told, c) })
}

// says says whether an entry with another ACS would tell its readers what it tells them now.
func says(was, e directory.Entry, doc *acs.ACS) (bool, error) {
	raw, err := doc.Encode()
	if err != nil {
		return false, err
	}
	e.ACSHash = was.ACSHash
	return e.SameContent(was) && acs.SameButStamp(was.ACS, raw), nil
}

func (r *Registrar) stateOf(e directory.Entry, granted, removed []string) *arp.ACSState {
	out := &arp.ACSState{EntryVersion: e.Version, State: uint8(e.State), ACS: e.ACS, Entry: r.stated(e, true)}
	for _, id := range granted {
		out.Caps = append(out.Caps, directory.CapID(e.AIC, id))
	}
	for _, id := range removed {
		out.Removed = append(out.Removed, arp.Removed{Path: policy.ScopeSkillInvoke + id, Code: frame.ScopeDenied})
	}
	return out
}

// authoriseAnew asks the AMC where an agent's provider is another one than before, and says what the agent may do now.
func (r *Registrar) authoriseAnew(ctx context.Context, e directory.Entry, draft *acs.ACS, a *attachment, from netip.Addr) ([]string, error) {
	held, err := a.provider(e)
	if err != nil {
		return nil, err
	}
	if held.Organization == draft.Provider.Organization && held.CountryCode == draft.Provider.CountryCode {
		return a.agent.Scope, nil
	}
	id := e.ACSHash[:16]
	decided, err := r.cfg.AMC.Authorise(ctx, &arp.AuthzRequest{
		ReqID: id, GW: string(r.cfg.Gateway), SPKI: e.Provenance.SPKI[:], Attributes: attributes(draft, from), Skills: skillIDs(draft), AIC: e.AIC,
	})
	if err != nil {
		return nil, err
	}
	grant, err := arp.OpenGrant(decided.Grant, r.cfg.Trust.Keys(identity.UseGrant), r.issuer(), time.Now())
	if err != nil {
		return nil, err
	}
	return grant.Scope, nil
}

// declared is the provider that an agent has named in a version of its entry.
type declared struct {
	version  uint64
	provider acs.Provider
}

// provider is the one that an entry names. An agent that updates again and again is asked for the one of its last update each time,
// which need not be read back from a whole document.
func (a *attachment) provider(e directory.Entry) (acs.Provider, error) {
	if d := a.declared.Load(); d != nil && d.version == e.Version {
		return d.provider, nil
	}
	held, err := acs.Parse(e.ACS)
	if err != nil {
		return acs.Provider{}, err
	}
	return held.Provider, nil
}

// deregister ends an agent on its own word: its entry first, then its credentials.
func (r *Registrar) deregister(ctx context.Context, m *arp.Deregister, agent Agent) (*arp.Answer, error) {
	if m.AIC != agent.AIC {
		return nil, frame.Errorf(frame.IdentityMismatch, "%s cannot de-register %s", agent.AIC, m.AIC)
	}
	if e, ok := r.cfg.Directory.Get(m.AIC); !ok || e.Provenance.SPKI != agent.SPKI { // re-keyed since the handshake
		return nil, frame.Errorf(frame.IdentityMismatch, "%s has no entry under this key", m.AIC)
	}
	if err := r.Withdraw(ctx, m.AIC, m.Reason); err != nil {
		return nil, err
	}
	time.AfterFunc(answerTime, func() { r.Drop(m.AIC, frame.Revoked) }) // its answer goes out first
	return &arp.Answer{}, nil
}

// answerTime is for an answer to be read before the connection that it came on is closed.
const answerTime = time.Second

// Withdraw takes an agent out of the directory for good and has its credentials revoked. Its AIC is never used again. It is recorded
// before it is done: a crash between the two leaves nothing that a restored backup would undo.
func (r *Registrar) Withdraw(ctx context.Context, id, reason string) error {
	e, ok := r.cfg.Directory.Get(id)
	if !ok {
		return frame.Errorf(frame.NotFound, "withdraw %s: %w", id, directory.ErrNotFound)
	}
	if home := r.cfg.Directory.MovedTo(id); home.Gateway != "" {
		return frame.Errorf(frame.State, "%s is at home at the gateway %s of the domain now: withdraw it there", id, home.Gateway)
	}
	if err := r.cfg.Audit(ctx, KindWithdrawn, Withdrawn{id, clip(reason)}); err != nil {
		return err
	}
	if e.Provenance.Imported() { // the AMC has never heard of it
		return r.cfg.Directory.Withdraw(ctx, id, reason)
	}
	if err := r.cfg.Directory.Owe(ctx, id, reason); err != nil { // first: a crash in between must not leave a withdrawn agent its credentials
		return fmt.Errorf("withdraw %s: %w", id, err)
	}
	if err := r.cfg.Directory.Withdraw(ctx, id, reason); err != nil {
		return errors.Join(fmt.Errorf("withdraw %s: %w", id, err), r.cfg.Directory.Paid(ctx, id))
	}
	r.RevokePeer(id, frame.Revoked)
	if err := r.cfg.AMC.Withdraw(ctx, string(r.cfg.Gateway), &arp.Deregister{AIC: id, Reason: reason}); err != nil {
		r.log.Error("the AMC has not revoked a withdrawn agent; no gateway here admits it, it will be told again", "aic", id, "err", err)
		return nil
	}
	return r.cfg.Directory.Paid(ctx, id)
}
