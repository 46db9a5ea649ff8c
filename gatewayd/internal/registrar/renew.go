package registrar

import (
	"context"
	"errors"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/pki"
)

// renewLate is how long after the end of its certificate an agent may still renew it with the same key.
const renewLate = 30 * 24 * time.Hour

// renewPause bounds how often one agent can make the directory write.
const renewPause = time.Second

// renewStream answers a RENEW of an agent that is here under its current certificate.
func (r *Registrar) renewStream(ctx context.Context, s *endpoint.Stream, agent Agent) {
	var m arp.Renew
	if err := s.ReadMessage(readTime, &m); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	if m.AIC != agent.AIC {
		r.answerRenewal(s, nil, frame.Errorf(frame.IdentityMismatch, "%s cannot renew for %s", agent.AIC, m.AIC))
		return
	}
	done, err := r.renew(ctx, &m, agent.SPKI)
	r.answerRenewal(s, done, err)
}

func (r *Registrar) answerRenewal(s *endpoint.Stream, done *arp.Credential, err error) {
	var answer frame.Message = done
	if err != nil {
		if r.complaints.Allow() { // a flood of refusals shall not be a flood of lines
			r.log.Info("renewal refused", "err", err)
		}
		answer = arp.Refusal(err)
	}
	if err := s.WriteMessage(writeTime, answer); err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	s.CloseWrite()
}

// renew issues the next certificate of a registered agent over the key that the connection has proved. The directory entry
// notes it: its last change is what a late renewal is measured from.
func (r *Registrar) renew(ctx context.Context, m *arp.Renew, proved [32]byte) (*arp.Credential, error) {
	e, ok := r.cfg.Directory.Get(m.AIC)
	switch {
	case !ok || !e.State.Offered():
		return nil, frame.Errorf(frame.Revoked, "%s is not registered here, or no more: it needs a new enrolment", m.AIC)
	case e.Provenance.SPKI != proved:
		return nil, frame.Errorf(frame.Binding, "%s is registered with another key", m.AIC)
	case time.Since(e.LastModified) > r.cfg.AMC.Life()+renewLate:
		return nil, frame.Errorf(frame.Expired, "the certificate of %s ended more than 30 days ago: it needs a new enrolment", m.AIC)
	}
	if time.Since(e.LastModified) < renewPause {
		return nil, frame.Errorf(frame.RateLimited, "%s has renewed a moment ago", m.AIC)
	}
	id, err := aic.Parse(m.AIC)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	doc, err := acs.Parse(e.ACS)
	if err != nil {
		return nil, err
	}
	chain, err := r.cfg.AMC.Renew(ctx, id, proved, m.CSR, pki.Profile{
		Organization: doc.Provider.Organization, Country: doc.Provider.CountryCode,
	})
	if err != nil {
		return nil, err
	}
	e.Provenance.CertSHA256 = sum(chain[0])
	if err := r.cfg.Directory.Update(ctx, e); errors.Is(err, directory.ErrConflict) {
		return nil, frame.Errorf(frame.Overloaded, "the entry of %s changed at this moment: try again", m.AIC)
	} else if err != nil {
		return nil, err
	}
	r.log.Info("credential renewed", "aic", m.AIC)
	return &arp.Credential{Chain: chain, Bundle: r.cfg.Trust.Own().Raw}, nil
}
