package registrar

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/amc"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
	"agentgw/internal/policy"
)

const (
	enrolTime    = 10 * time.Second // for the whole exchange
	readTime     = 5 * time.Second
	writeTime    = 10 * time.Second
	reserveTries = 4 // 46 random bits: a second try has never been needed yet
)

// serveStranger gives a peer without credential its one exchange.
func (r *Registrar) serveStranger(ctx context.Context, c *endpoint.Conn) {
	if !r.allowEnrol(c.RemoteAddr().Addr()) {
		c.Close(frame.RateLimited, "")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, enrolTime)
	defer cancel()
	var used atomic.Bool
	c.Serve(ctx, endpoint.Handlers{frame.StreamRegistration: func(ctx context.Context, s *endpoint.Stream) {
		if used.Swap(true) {
			s.Reset(frame.UnexpectedFrame)
			return
		}
		r.enrolStream(ctx, c, s)
		select { // the agent closes when it has the answer
		case <-c.Context().Done():
		case <-ctx.Done():
		}
		cancel()
	}})
}

func (r *Registrar) enrolStream(ctx context.Context, c *endpoint.Conn, s *endpoint.Stream) {
	t, payload, err := s.ReadFrame(readTime)
	if err != nil {
		r.log.Info("enrolment not read", "remote", c.RemoteAddr().String(), "err", err)
		s.Reset(frame.CodeOf(err))
		return
	}
	var req arp.Enrol
	switch t {
	case frame.Enrol:
		err = frame.Unmarshal(payload, &req)
	case frame.Renew: // its certificate has expired; the connection proves the key
		var m arp.Renew
		if err = frame.Unmarshal(payload, &m); err == nil {
			done, err := r.renew(ctx, &m, c.PeerSPKI())
			r.answerRenewal(s, done, err)
			return
		}
	default:
		err = frame.Errorf(frame.UnexpectedFrame, "got %v where ENROL was due", t)
	}
	if err != nil {
		s.Reset(frame.CodeOf(err))
		return
	}
	var answer frame.Message
	done, err := r.enrol(ctx, c.PeerSPKI(), &req)
	if err != nil {
		r.log.Info("enrolment refused", "remote", c.RemoteAddr().String(), "err", err)
		answer = refusal(err)
	} else {
		r.log.Info("agent enrolled", "aic", done.AIC, "caps", len(done.Caps), "remote", c.RemoteAddr().String())
		answer = done
	}
	if err := s.WriteMessage(writeTime, answer); err != nil {
		r.log.Info("enrolment not answered", "remote", c.RemoteAddr().String(), "err", err)
		s.Reset(frame.CodeOf(err))
		return
	}
	s.CloseWrite()
}

// refusal carries every problem of a draft with its path.
func refusal(err error) *arp.Answer {
	a := arp.Refusal(err)
	var list acs.Problems
	if errors.As(err, &list) {
		a.Msg = fmt.Sprintf("the ACS is not valid in %d places", len(list))
		for _, p := range list {
			a.AddDetail(p.String(), frame.ReqInvalid)
		}
	}
	return a
}

// enrol runs the steps of a registration in the order of seed 002, section 5.1: validation, authorisation, AIC, credential,
// authoritative ACS, commit. A crash between two of them leaves nothing, or what the same token completes.
func (r *Registrar) enrol(ctx context.Context, peer [32]byte, req *arp.Enrol) (*arp.Enrolled, error) {
	if err := r.cfg.AMC.Check(ctx, req.Secret, peer); err != nil {
		return nil, err
	}
	csr, err := identity.ParseCSR(req.CSR)
	if err != nil {
		return nil, err
	}
	spki, err := identity.SPKIHash(csr.PublicKey)
	if err != nil {
		return nil, err
	}
	if spki != peer {
		return nil, frame.Errorf(frame.Binding, "the certificate request is for another key than the connection's")
	}
	draft, err := r.validate(req)
	if err != nil {
		return nil, err
	}
	grant, err := r.cfg.AMC.Authorise(ctx, amc.Request{
		Secret: req.Secret, Gateway: r.cfg.Gateway, SPKI: spki, Scope: req.Scope, Skills: skillIDs(draft),
	})
	if err != nil {
		return nil, err
	}
	id, err := r.reserve(ctx, req.Secret, grant.AIC)
	if err != nil {
		return nil, err
	}
	chain, signed, err := r.cfg.AMC.Issue(ctx, grant, id, req.CSR, pki.Profile{
		Organization: draft.Provider.Organization, Country: draft.Provider.CountryCode,
	})
	if err != nil {
		return nil, err
	}
	return r.publish(ctx, req, draft, id, grant, chain, signed)
}

func (r *Registrar) validate(req *arp.Enrol) (*acs.ACS, error) {
	if req.DraftKind != arp.DraftACS {
		return nil, frame.Errorf(frame.ReqInvalid, "draft kind %d is not known here: send an ACS", req.DraftKind)
	}
	if err := checkVisibility(directory.Visibility(req.Visibility), req.Allow); err != nil {
		return nil, err
	}
	if len(req.Scope) > semreq.MaxScope {
		return nil, frame.Errorf(frame.ReqInvalid, "scope of %d entries, at most %d are accepted", len(req.Scope), semreq.MaxScope)
	}
	draft, err := acs.Parse(req.Draft)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "ACS: %w", err)
	}
	if problems := draft.Validate(acs.Options{Draft: true, LoopbackHTTP: r.cfg.Lab}); len(problems) > 0 {
		return nil, frame.Errorf(frame.ReqInvalid, "ACS: %w", problems)
	}
	return draft, nil
}

// checkVisibility holds that a list of domains is there exactly when the agent is visible to listed domains.
func checkVisibility(v directory.Visibility, allow []string) error {
	switch {
	case v > directory.VisiblePrivate:
		return frame.Errorf(frame.ReqInvalid, "visibility %d is none of domain, listed, public, private", v)
	case (v == directory.VisibleListed) != (len(allow) > 0):
		return frame.Errorf(frame.ReqInvalid, "visibility listed needs the domains that may see the agent (--allow), the others take none")
	case len(allow) > directory.MaxAllow:
		return frame.Errorf(frame.ReqInvalid, "%d domains are listed, at most %d are accepted", len(allow), directory.MaxAllow)
	}
	for _, d := range allow {
		if !identity.ValidDomain(d) {
			return frame.Errorf(frame.ReqInvalid, "listed domain %q is no lower-case DNS name", d)
		}
	}
	return nil
}

func skillIDs(a *acs.ACS) []string {
	out := make([]string, len(a.Skills))
	for i, s := range a.Skills {
		out[i] = s.ID
	}
	return out
}

// reserve takes a new AIC, or goes on with the one that this token got before a crash.
func (r *Registrar) reserve(ctx context.Context, secret []byte, before string) (aic.AIC, error) {
	if before != "" {
		return aic.Parse(before)
	}
	for range reserveTries {
		id, err := r.newAIC()
		if err != nil {
			return "", err
		}
		err = r.cfg.Directory.Reserve(ctx, string(id))
		if errors.Is(err, directory.ErrExists) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reserve AIC: %w", err)
		}
		return r.cfg.AMC.Reserve(ctx, secret, id)
	}
	return "", frame.Errorf(frame.Internal, "no free AIC in %d tries: check the machine's random numbers", reserveTries)
}

func (r *Registrar) newAIC() (aic.AIC, error) {
	onto, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return "", err
	}
	entity, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return "", err
	}
	c := r.cfg.Codes
	return aic.New(c.Prefix, c.ARSP, c.Vendor, onto, entity, c.Salt)
}

// publish makes the authoritative ACS and commits the entry.
func (r *Registrar) publish(ctx context.Context, req *arp.Enrol, draft *acs.ACS, id aic.AIC, grant *arp.Grant, chain [][]byte, signed []byte) (*arp.Enrolled, error) {
	now := time.Now()
	doc, removed, err := acs.Authoritative(draft, id, grant.Skills, now)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "ACS: %w", err)
	}
	hash, err := acs.Hash(doc)
	if err != nil {
		return nil, err
	}
	entry := directory.Entry{
		AIC: string(id), ACS: doc, ACSHash: hash, State: directory.Active, Version: 1,
		RegisteredAt: now, LastModified: now, ExpiresAt: time.Unix(int64(grant.Exp), 0),
		Visibility: directory.Visibility(req.Visibility), Allow: req.Allow, Skills: grant.Skills,
		Provenance: directory.Provenance{
			SubmittedBy: string(id), CertSHA256: sum(chain[0]), SPKI: [32]byte(grant.SPKI),
			Grant: hex.EncodeToString(grant.JTI), Provider: directory.ProviderUnverified,
		},
	}
	if held, ok := r.cfg.Directory.Get(string(id)); ok { // the answer to an earlier try was lost: that registration stands
		entry, removed = held, nil
	} else if err := r.cfg.Directory.Register(ctx, entry); errors.Is(err, directory.ErrExists) {
		return nil, frame.Errorf(frame.TokenReplayed, "the agent of this enrolment token has been withdrawn: ask the operator for a new one")
	} else if err != nil {
		return nil, fmt.Errorf("commit registration of %s: %w", id, err)
	}
	out := &arp.Enrolled{
		AIC: string(id), Chain: chain, Bundle: r.cfg.Trust.Own().Raw, ACS: entry.ACS, EntryVersion: entry.Version, Grant: signed,
	}
	for _, s := range entry.Skills {
		out.Caps = append(out.Caps, directory.CapID(string(id), s))
	}
	for _, s := range removed {
		out.Removed = append(out.Removed, arp.Removed{Path: policy.ScopeSkillInvoke + s, Code: frame.ScopeDenied})
	}
	return out, nil
}
