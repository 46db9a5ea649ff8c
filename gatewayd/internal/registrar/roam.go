package registrar

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/arp"
	"agentgw/directory/registry"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// Roam is what agents need that move between the gateways of a domain (cdsp/PROTOCOL.md, "Agents that move").
type Roam struct {
	Signer func() frame.Signer // key of use 1, as of now
	// Gateways are the others of the domain that are alive, the nearest to be tried first.
	Gateways func() []arp.GatewayAt
	// Connected says whether there is a session with a gateway of the domain.
	Connected func(gateway string) bool
	// Tell tells a gateway of the domain, or with "" all that are connected, that an agent is at home here. It must not block.
	Tell func(to, id string, version, base uint64)
}

func (r *Roam) gateways() []arp.GatewayAt {
	if r == nil {
		return nil
	}
	list := r.Gateways()
	return list[:min(len(list), arp.MaxGateways)]
}

// maxStated keeps a statement within the frames that carry it beside other things. Longer than that are only those of absurd allow lists; their
// agents stay where they are.
const maxStated = 40 << 10

// stated is the signed statement of an entry, where it is wanted and agents may move.
func (r *Registrar) stated(e directory.Entry, wanted bool) []byte {
	jti, err := hex.DecodeString(e.Provenance.Grant)
	if r.cfg.Roam == nil || !wanted || err != nil || len(jti) != 16 {
		return nil
	}
	s := arp.Statement{
		AIC: e.AIC, GW: string(r.cfg.Gateway), Version: e.Version, ACSHash: e.ACSHash[:], SPKI: e.Provenance.SPKI[:], JTI: jti, State: uint8(e.State),
		Visibility: uint8(e.Visibility), Allow: e.Allow, Skills: e.Skills, Registered: uint64(e.RegisteredAt.UnixMilli()), Exp: uint64(max(e.ExpiresAt.Unix(), 0)),
		IAT: uint64(time.Now().Unix()),
	}
	if e.Bound != nil {
		s.Bound = &arp.ReachedBound{Visibility: uint8(e.Bound.Visibility), Allow: e.Bound.Allow}
	}
	signed, err := s.Sign(r.cfg.Roam.Signer())
	if err != nil || len(signed) > maxStated {
		r.log.Warn("no statement of an entry: its agent cannot attach at another gateway", "aic", e.AIC, "octets", len(signed), "err", err)
		return nil
	}
	return signed
}

// statement is the one that comes with an ATTACH, nil for none.
func (r *Registrar) statement(m *arp.Attach, agent Agent, now time.Time) (*arp.Statement, error) {
	if r.cfg.Roam == nil || len(m.Entry) == 0 {
		return nil, nil
	}
	s, err := arp.OpenStatement(m.Entry, r.cfg.Trust.Keys(identity.UseDigest), r.cfg.Domain, now)
	switch {
	case err != nil:
		return nil, err
	case s.AIC != agent.AIC:
		return nil, frame.Errorf(frame.IdentityMismatch, "presents the statement of %s's entry", s.AIC)
	case !directory.State(s.State).Offered():
		return nil, frame.Errorf(frame.IdentityMismatch, "its entry was %v", directory.State(s.State))
	}
	return s, nil
}

// comeBack makes this gateway the home again of an agent whose entry here is the newest.
func (r *Registrar) comeBack(ctx context.Context, e directory.Entry) (directory.Entry, error) {
	was := r.cfg.Directory.MovedTo(e.AIC)
	e.Provenance.From, e.Version = was.Gateway, max(e.Version, was.Version)
	return r.settle(ctx, e, nil)
}

// newerElsewhere is the error of an agent that shows less than what is known of its entry at a gateway which is there.
func (r *Registrar) newerElsewhere(id string, stated *arp.Statement) error {
	if r.cfg.Roam == nil {
		return nil
	}
	home := r.cfg.Directory.MovedTo(id)
	if home.Gateway == "" || stated != nil && stated.Version >= home.Version || !r.cfg.Roam.Connected(home.Gateway) {
		return nil
	}
	return frame.Errorf(frame.State, "the agent is at home at the gateway %s: it attaches there, or shows that one's statement of its entry", home.Gateway)
}

// adopt makes the entry of an agent anew, of what its former gateway has stated and the ACS that the agent brings, which is the one stated.
func (r *Registrar) adopt(ctx context.Context, a *attachment, s *arp.Statement, m *arp.ACSPut) (*arp.ACSState, error) {
	if err := r.adoptable(a, s); err != nil {
		return nil, err
	}
	doc, err := acs.Parse(m.ACS)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "ACS: %w", err)
	}
	hash, err := doc.Hash()
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "ACS: %w", err)
	}
	if string(hash[:]) != string(s.ACSHash) || m.Expected != s.Version {
		return nil, frame.Errorf(frame.State, "the ACS of %s is not the one that its entry had at version %d: it can attach at %s alone until it has updated there", s.AIC, s.Version, s.GW)
	}
	e := directory.Entry{
		AIC: s.AIC, State: directory.State(s.State), Version: s.Version, RegisteredAt: time.UnixMilli(int64(s.Registered)), ExpiresAt: time.Unix(int64(s.Exp), 0),
		Visibility: directory.Visibility(s.Visibility), Allow: s.Allow, Skills: s.Skills,
		Provenance: directory.Provenance{
			SubmittedBy: s.AIC, CertSHA256: sum(a.conn.PeerLeaf().Raw), SPKI: [32]byte(s.SPKI), Grant: hex.EncodeToString(s.JTI),
			Provider: directory.ProviderUnverified, From: s.GW,
		},
	}
	if s.Bound != nil {
		e.Bound = &directory.Reach{Visibility: directory.Visibility(s.Bound.Visibility), Allow: s.Bound.Allow}
	}
	if e, err = r.settle(ctx, e, doc); err != nil {
		return nil, err
	}
	if err := r.inGoodStanding(a); err != nil { // a list that came meanwhile has not found the entry; the next one does
		e.State = directory.Suspended
		_, update := r.cfg.Directory.Update(context.WithoutCancel(ctx), e, nil)
		return nil, errors.Join(err, update)
	}
	r.mu.Lock()
	a.adopting.Store(nil)
	if r.attached[e.AIC] == a {
		r.cfg.Directory.SetCapacity(e.AIC, a.capacity)
		r.cfg.Directory.SetAlive(e.AIC, true)
	}
	r.mu.Unlock()
	return r.stateOf(e, e.Skills, nil), nil
}

// adoptable holds what was judged at the handshake and by ATTACH once more: an ACS may come later.
func (r *Registrar) adoptable(a *attachment, s *arp.Statement) error {
	if err := r.inGoodStanding(a); err != nil {
		return err
	}
	for _, id := range s.Skills {
		if !policy.Covers(a.agent.Scope, []string{policy.ScopeSkillInvoke + id}) {
			return frame.Errorf(frame.ScopeDenied, "the grant of %s does not cover the skill %s of its entry: it has to renew its credential where it was at home", s.AIC, id)
		}
	}
	return r.newerElsewhere(s.AIC, s)
}

func (r *Registrar) inGoodStanding(a *attachment) error {
	return r.cfg.Statuses.Check(a.agent.AIC, a.conn.PeerLeaf().SerialNumber.FillBytes(make([]byte, 16)))
}

// settle commits the entry of an agent that is at home here from now on, and tells the other gateways of the domain.
func (r *Registrar) settle(ctx context.Context, e directory.Entry, doc *acs.ACS) (directory.Entry, error) {
	e, err := r.cfg.Directory.Adopt(ctx, e, doc)
	switch {
	case errors.Is(err, directory.ErrExists):
		return e, frame.Errorf(frame.Revoked, "the agent has been withdrawn here: it needs a new enrolment")
	case errors.Is(err, directory.ErrConflict):
		return e, frame.Errorf(frame.State, "the entry of the agent changed at this moment: attach again")
	case err != nil:
		return e, fmt.Errorf("adopt: %w", err)
	}
	if err := r.cfg.Audit(ctx, KindAdopted, map[string]any{"aic": e.AIC, "from": e.Provenance.From, "version": e.Version, "grant": e.Provenance.Grant}); err != nil {
		return e, err
	}
	r.log.Info("agent is at home here now", "aic", e.AIC, "before", e.Provenance.From, "version", e.Version)
	r.cfg.Roam.Tell("", e.AIC, e.Version, e.Provenance.Base)
	return e, nil
}

// Moved hears from another gateway of the domain that an agent is at home there. One that knew of the entry here, when the agent came, is right.
// Where this is the home, and that gateway did not know what is here, this one has the last word: of two such the one with the lower version
// speaks again, so that they do not both.
func (r *Registrar) Moved(ctx context.Context, there registry.Home, id string) {
	e, ok := r.cfg.Directory.Get(id)
	if !ok || r.cfg.Roam == nil {
		return
	}
	here := registry.Home{Gateway: string(r.cfg.Gateway), Version: e.Version, Base: e.Provenance.Base}
	before := r.cfg.Directory.MovedTo(id)
	switch {
	case before.Gateway == "" && e.State.Offered() && !here.GivesWayTo(there):
		if there.Version < here.Version || there.Version == here.Version && there.Gateway < here.Gateway {
			r.cfg.Roam.Tell(there.Gateway, id, here.Version, max(here.Base, there.Version))
			return
		}
		e.Version, e.Provenance.From = there.Version, there.Gateway
		if _, err := r.settle(ctx, e, nil); err != nil {
			r.log.Error("an agent that has gone elsewhere with an old statement is not called back", "aic", id, "gateway", there.Gateway, "err", err)
		}
		return
	}
	if err := r.cfg.Directory.Moved(ctx, id, there); err != nil {
		r.log.Error("that an agent has moved is forgotten with this process", "aic", id, "gateway", there.Gateway, "err", err)
	}
	if now := r.cfg.Directory.MovedTo(id); now.Gateway != before.Gateway {
		r.log.Info("agent is at home at another gateway now", "aic", id, "gateway", now.Gateway, "version", now.Version)
	}
	r.Drop(id, frame.State)
}

// Adopting says whether an agent is attached whose ACS is waited for.
func (r *Registrar) Adopting(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.attached[id]
	return a != nil && a.adopting.Load() != nil
}

// Adopted is the entries of the agents that were at home at other gateways of the domain before they were here: with each of these that connects
// is settled anew where they are.
func (r *Registrar) Adopted() (list []directory.Entry) {
	for _, id := range r.cfg.Directory.Adopted() {
		if e, ok := r.cfg.Directory.Get(id); ok && e.State.Offered() {
			list = append(list, e)
		}
	}
	return list
}
