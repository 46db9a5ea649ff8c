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
)

// Roam is what agents need that move between the gateways of a domain (cdsp/PROTOCOL.md, "Agents that move").
type Roam struct {
	Signer func() frame.Signer // key of use 1, as of now
	// Gateways are the others of the domain that are alive, the nearest to be tried first.
	Gateways func() []arp.GatewayAt
	// Tell tells a gateway of the domain, or with "" all that are connected, that an agent is at home here. It must not block.
	Tell func(to string, e directory.Entry)
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
	e.Provenance.From = r.cfg.Directory.MovedTo(e.AIC)
	return r.settle(ctx, e, nil)
}

// adopt makes the entry of an agent anew, of what its former gateway has stated and the ACS that the agent brings, which is the one stated.
func (r *Registrar) adopt(ctx context.Context, a *attachment, m *arp.ACSPut) (*arp.ACSState, error) {
	s := a.adopting.Load()
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
	r.mu.Lock()
	a.adopting.Store(nil)
	if r.attached[e.AIC] == a {
		r.cfg.Directory.SetCapacity(e.AIC, a.capacity)
		r.cfg.Directory.SetAlive(e.AIC, true)
	}
	r.mu.Unlock()
	return r.stateOf(e, e.Skills, nil), nil
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
	r.cfg.Roam.Tell("", e)
	return e, nil
}

// Moved hears from another gateway of the domain that an agent is at home there, at a version of its entry. Where the entry here comes after that
// one, and this is the home, that gateway is told so.
func (r *Registrar) Moved(gateway, id string, version uint64) {
	e, ok := r.cfg.Directory.Get(id)
	if !ok || r.cfg.Roam == nil {
		return
	}
	there := registry.Home{Gateway: gateway, Version: version}
	if there.Before(registry.Home{Gateway: string(r.cfg.Gateway), Version: e.Version}) {
		if r.cfg.Directory.MovedTo(id) == "" && e.State.Offered() {
			r.cfg.Roam.Tell(gateway, e)
		}
		return
	}
	before := r.cfg.Directory.MovedTo(id)
	r.cfg.Directory.Moved(id, there)
	if now := r.cfg.Directory.MovedTo(id); now != before {
		r.log.Info("agent is at home at another gateway now", "aic", id, "gateway", now, "version", version)
	}
	r.Drop(id, frame.State)
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
