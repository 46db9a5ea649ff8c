package registrar

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// renewPause bounds how often one agent can make the directory and the AMC write.
const renewPause = time.Second

// registration answers the one frame of a registration stream of an agent that is here under its certificate.
func (r *Registrar) registration(ctx context.Context, s *endpoint.Stream, agent Agent) {
	t, payload, err := s.ReadFrame(readTime)
	if err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	var answer frame.Message
	switch t {
	case frame.Renew:
		var m arp.Renew
		if err = frame.Unmarshal(payload, &m); err == nil {
			answer, err = r.renewOwn(ctx, &m, agent)
		}
	case frame.ACSPut:
		var m arp.ACSPut
		if err = frame.Unmarshal(payload, &m); err == nil {
			answer, err = r.put(ctx, s, &m, agent)
		}
	case frame.Deregister:
		var m arp.Deregister
		if err = frame.Unmarshal(payload, &m); err == nil {
			answer, err = r.deregister(ctx, &m, agent)
		}
	default:
		s.Reset(frame.UnexpectedFrame)
		return
	}
	if frame.CodeOf(err) == frame.Malformed {
		s.Reset(frame.Malformed)
		return
	}
	r.answer(s, t, answer, err)
}

// answer writes what a verb has brought, or why not.
func (r *Registrar) answer(s *endpoint.Stream, verb frame.Type, m frame.Message, err error) {
	if err != nil {
		if r.complaints.Allow() { // a flood of refusals shall not be a flood of lines
			r.log.Info("refused", "verb", verb.String(), "err", err)
		}
		m = refusal(err)
	}
	if err := s.WriteMessage(writeTime, m); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	s.CloseWrite()
}

// renewOwn answers the RENEW of an agent under its current certificate: over the key that it has, or over a new one.
func (r *Registrar) renewOwn(ctx context.Context, m *arp.Renew, agent Agent) (*arp.Credential, error) {
	if m.AIC != agent.AIC {
		return nil, frame.Errorf(frame.IdentityMismatch, "%s cannot renew for %s", agent.AIC, m.AIC)
	}
	return r.renew(ctx, m, agent.SPKI, false)
}

// renew has the AMC issue the next certificate of a registered agent that has proved its key. late says that it has proved
// nothing else, its certificate being over: then the key stays. The directory entry notes certificate and key.
func (r *Registrar) renew(ctx context.Context, m *arp.Renew, proved [32]byte, late bool) (*arp.Credential, error) {
	e, ok := r.cfg.Directory.Get(m.AIC)
	switch {
	case r.cfg.Roam != nil && (!ok || r.cfg.Directory.MovedTo(m.AIC).Gateway != ""): // not for good
		return nil, frame.Errorf(frame.State, "%s is not at home at this gateway of the domain: it renews where it is, or attaches here first", m.AIC)
	case !ok || e.State.Terminal():
		return nil, frame.Errorf(frame.Revoked, "%s is not registered here, or no more: it needs a new enrolment", m.AIC)
	case e.Provenance.SPKI != proved: // before anything that a stranger could learn
		return nil, frame.Errorf(frame.Binding, "%s is registered with another key", m.AIC)
	case e.State == directory.Suspended:
		return nil, frame.Errorf(frame.CertStatus, "%s is suspended: ask the operator of its domain", m.AIC)
	case len(m.JTI) > 0:
		return nil, frame.Errorf(frame.ReqInvalid, "a renewal names no grant")
	case time.Since(e.LastModified) < renewPause:
		return nil, frame.Errorf(frame.RateLimited, "%s has changed a moment ago: try again in a second", m.AIC)
	}
	csr, err := identity.ParseCSR(m.CSR)
	if err != nil {
		return nil, err
	}
	spki, err := identity.SPKIHash(csr.PublicKey)
	if err != nil {
		return nil, err
	}
	if late && spki != proved {
		return nil, frame.Errorf(frame.Binding, "the certificate of %s is over: only the key that it had can renew it", m.AIC)
	}
	issued, err := r.cfg.AMC.Issue(ctx, string(r.cfg.Gateway), m)
	if err != nil {
		return nil, err
	}
	if err := r.noteRenewal(ctx, e, proved, spki, issued); err != nil {
		return nil, err
	}
	r.log.Info("credential renewed", "aic", m.AIC, "new_key", spki != proved)
	return issued, nil
}

// noteTries is more than an ACS_PUT and a change of state at one moment could cause.
const noteTries = 4

// noteRenewal writes what the AMC has issued into the entry. One that changes meanwhile is read again: the AMC has made the
// certificate of the old key void already.
func (r *Registrar) noteRenewal(ctx context.Context, e directory.Entry, proved, spki [32]byte, issued *arp.Credential) error {
	id := e.AIC
	grant, grantErr := arp.OpenGrant(issued.Grant, r.cfg.Trust.Keys(identity.UseGrant), r.issuer(), time.Now())
	for range noteTries {
		e.Provenance.CertSHA256, e.Provenance.SPKI = sum(issued.Chain[0]), spki
		if grantErr == nil {
			e.Provenance.Grant, e.ExpiresAt = hex.EncodeToString(grant.JTI), time.Unix(int64(grant.Exp), 0)
		}
		_, err := r.cfg.Directory.Update(context.WithoutCancel(ctx), e, nil)
		if !errors.Is(err, directory.ErrConflict) {
			return err
		}
		var ok bool
		if e, ok = r.cfg.Directory.Get(id); !ok || e.State.Terminal() || e.Provenance.SPKI != proved {
			break
		}
	}
	return frame.Errorf(frame.Overloaded, "the entry of %s changed at this moment: try again", id)
}
