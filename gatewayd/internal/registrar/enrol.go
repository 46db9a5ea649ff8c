package registrar

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"agentgw/directory"
	"agentgw/directory/acs"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/semreq"
	"agentgw/directory/taxonomy"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
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
		c.Close(frame.RateLimited, "too many enrolments of this address: try again in a few seconds")
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
			var done *arp.Credential
			if r.cfg.Gateways != nil && r.cfg.Trust.Own().IsGateway(m.AIC) {
				done, err = r.cfg.Gateways.RenewLate(ctx, c.PeerSPKI(), &m)
			} else {
				done, err = r.renew(ctx, &m, c.PeerSPKI(), true)
			}
			r.answer(s, t, done, err)
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
	done, err := r.enrol(ctx, c.PeerSPKI(), c.RemoteAddr().Addr(), &req)
	switch {
	case err != nil:
		r.log.Info("enrolment refused", "remote", c.RemoteAddr().String(), "err", err)
		a := refusal(err)
		if errors.Is(err, errLame) {
			a.RetryAfterMS = uint64(lameRetry.Milliseconds())
		}
		answer = a
	case done.Code == frame.Pending:
		r.log.Info("enrolment waits for approval", "request", hex.EncodeToString(done.PendingID), "remote", c.RemoteAddr().String())
		answer = done
	default:
		r.cfg.Observe(Enrolled, done.AIC, c.RemoteAddr().String())
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
		a.Msg = fmt.Sprintf("the draft, read as an ACS, is not valid in %d places", len(list))
		if len(list) == 1 {
			a.Msg = "the draft, read as an ACS, is not valid in one place"
		}
		for _, p := range list {
			a.AddDetail(p.String(), frame.ReqInvalid)
		}
	}
	return a
}

// enrol runs the steps of a registration in the order of seed 002, section 5.1: validation, authorisation, AIC, credential,
// authoritative ACS, commit. A crash between two of them leaves nothing, or what the same request completes. What costs the
// sender least is checked first: the hash of its token, then the certificate request, then the ACS.
func (r *Registrar) enrol(ctx context.Context, peer [32]byte, from netip.Addr, req *arp.Enrol) (*arp.Enrolled, error) {
	switch {
	case req.DraftKind == arp.DraftGateway && r.cfg.Gateways != nil:
		return r.cfg.Gateways.EnrolGateway(ctx, peer, from, req)
	case r.cfg.NoAgents:
		return nil, frame.Errorf(frame.PolicyDenied, "this is the domain's AMC, which takes gateways only: enrol the agent at a gateway")
	case r.lame.Load():
		return nil, errLame
	}
	var token []byte
	if len(req.Secret) > 0 {
		hash := sum(req.Secret)
		token = hash[:]
		if err := r.cfg.AMC.Check(ctx, token, peer); err != nil {
			return nil, err
		}
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
	q, err := r.question(spki, token, from, req, draft)
	if err != nil {
		return nil, err
	}
	if a, here := r.cfg.AMC.(Admitter); here {
		var n entered
		issued, ok, err := a.Admit(ctx, q, csr, r.propose, func(g *arp.Grant, leaf []byte, with func(directory.Tx) error) (err error) {
			n, err = r.commit(ctx, req, draft, g, leaf, with)
			return err
		})
		if err != nil {
			return nil, err
		}
		if ok {
			return r.enrolled(ctx, n, issued)
		}
	}
	decided, err := r.cfg.AMC.Authorise(ctx, q)
	if err != nil {
		return nil, err
	}
	if decided.Code == frame.Pending {
		return &arp.Enrolled{Code: frame.Pending, PendingID: decided.PendingID, RetryAfterMS: decided.RetryAfterMS}, nil
	}
	grant, err := arp.OpenGrant(decided.Grant, r.cfg.Trust.Keys(identity.UseGrant), r.issuer(), time.Now())
	if err != nil {
		return nil, err
	}
	if string(grant.SPKI) != string(spki[:]) || grant.GW != string(r.cfg.Gateway) {
		return nil, frame.Errorf(frame.Binding, "the AMC has granted something else than what was asked for")
	}
	id, err := r.reserve(ctx, grant)
	if err != nil {
		return nil, err
	}
	issued, err := r.cfg.AMC.Issue(ctx, string(r.cfg.Gateway), &arp.Renew{AIC: string(id), CSR: req.CSR, JTI: grant.JTI})
	if err != nil {
		return nil, err
	}
	return r.publish(ctx, req, draft, id, grant, issued)
}

// question is what the central authentication service is asked.
func (r *Registrar) question(spki [32]byte, token []byte, from netip.Addr, req *arp.Enrol, draft *acs.ACS) (*arp.AuthzRequest, error) {
	onto, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return nil, err
	}
	hash := sum(req.Draft)
	id := make([]byte, 16)
	rand.Read(id) // it never fails
	return &arp.AuthzRequest{
		ReqID: id, GW: string(r.cfg.Gateway), SPKI: spki[:], Vendor: r.vendor(draft.Provider.Organization), Ontology: onto,
		Attributes: attributes(draft, from), Scope: req.Scope, TokenHash: token, ACSHash: hash[:], Skills: skillIDs(draft), PendingID: req.PendingID,
	}, nil
}

func attributes(a *acs.ACS, from netip.Addr) arp.Attributes {
	out := arp.Attributes{Organization: clip(a.Provider.Organization), Country: clip(a.Provider.CountryCode), Name: clip(a.Name)}
	if from.IsValid() {
		out.Address = network(from).String()
	}
	return out
}

const maxAttribute = 256

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxAttribute)], "") }

// vendor is the vendor index of a provider: the same at every gateway of the domain, and for ever. Who names no organisation
// has the default one.
func (r *Registrar) vendor(organization string) string {
	name := strings.ToLower(strings.TrimSpace(organization))
	if name == "" {
		return r.cfg.Codes.Vendor
	}
	return aic.Index(name)
}

func (r *Registrar) validate(req *arp.Enrol) (*acs.ACS, error) {
	read, what := acs.Parse, "ACS"
	switch req.DraftKind {
	case arp.DraftACS:
	case arp.DraftCard:
		read, what = acs.FromCard, "Agent Card"
	default:
		return nil, frame.Errorf(frame.ReqInvalid, "draft kind %d is not known here: send an ACS or an Agent Card", req.DraftKind)
	}
	if err := checkVisibility(directory.Visibility(req.Visibility), req.Allow); err != nil {
		return nil, err
	}
	if len(req.Scope) > semreq.MaxScope {
		return nil, frame.Errorf(frame.ReqInvalid, "scope of %d entries, at most %d are accepted", len(req.Scope), semreq.MaxScope)
	}
	draft, err := read(req.Draft)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "%s: %w", what, err)
	}
	if problems := draft.Validate(acs.Options{Draft: true, LoopbackHTTP: r.cfg.Lab}); len(problems) > 0 {
		return nil, frame.Errorf(frame.ReqInvalid, "%s: %w", what, problems)
	}
	return draft, nil
}

// cardOf is what an entry keeps of a draft beside its ACS.
func cardOf(kind uint8, draft []byte) []byte {
	if kind == arp.DraftCard {
		return draft
	}
	return nil
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

// propose makes an AIC that nobody has yet, but for a chance of one in 2^46.
func (r *Registrar) propose(vendor, ontology string) (aic.AIC, error) {
	entity, err := aic.RandomSerial(rand.Reader)
	if err != nil {
		return "", err
	}
	c := r.cfg.Codes
	return aic.New(c.Prefix, c.ARSP, vendor, ontology, entity, c.Salt)
}

// reserve takes a new AIC, or goes on with the one that the grant was used for before a crash.
func (r *Registrar) reserve(ctx context.Context, g *arp.Grant) (aic.AIC, error) {
	if g.AIC != "" {
		return aic.Parse(g.AIC)
	}
	for range reserveTries {
		id, err := r.propose(g.Vendor, g.Ontology)
		if err != nil {
			return "", err
		}
		switch err = r.cfg.Directory.Reserve(ctx, string(id)); {
		case errors.Is(err, directory.ErrExists):
			continue
		case err != nil:
			return "", fmt.Errorf("reserve AIC: %w", err)
		}
		return id, nil
	}
	return "", frame.Errorf(frame.Internal, "no free AIC in %d tries: check the machine's random numbers", reserveTries)
}

// publish goes on with the entry that an earlier try has committed, or commits one.
func (r *Registrar) publish(ctx context.Context, req *arp.Enrol, draft *acs.ACS, id aic.AIC, grant *arp.Grant, issued *arp.Credential) (*arp.Enrolled, error) {
	if held, ok := r.cfg.Directory.Get(string(id)); ok { // the answer to an earlier try was lost: that registration stands
		return r.enrolled(ctx, entered{entry: held}, issued)
	}
	grant.AIC = string(id)
	n, err := r.commit(ctx, req, draft, grant, issued.Chain[0], nil)
	if errors.Is(err, directory.ErrExists) {
		return nil, frame.Errorf(frame.TokenReplayed, "the agent of this enrolment token has been withdrawn: ask the operator for a new one")
	}
	if err != nil {
		return nil, err
	}
	return r.enrolled(ctx, n, issued)
}

// entered is an entry of the directory, and the skills that its draft had beyond it.
type entered struct {
	entry   directory.Entry
	removed []string
	unknown []string // classes that the taxonomy has not
}

// commit makes the authoritative ACS and commits the entry, and with it what with changes.
func (r *Registrar) commit(ctx context.Context, req *arp.Enrol, draft *acs.ACS, grant *arp.Grant, leaf []byte, with func(directory.Tx) error) (n entered, err error) {
	doc, removed, err := acs.Authoritative(draft, aic.AIC(grant.AIC), grant.Skills, time.Now())
	if err != nil {
		return n, frame.Errorf(frame.ReqInvalid, "ACS: %w", err)
	}
	entry, err := r.cfg.Directory.Register(ctx, directory.Entry{
		AIC: grant.AIC, State: directory.Active, ExpiresAt: time.Unix(int64(grant.Exp), 0),
		Visibility: directory.Visibility(req.Visibility), Allow: req.Allow, Skills: grant.Skills, Card: cardOf(req.DraftKind, req.Draft),
		Provenance: directory.Provenance{
			SubmittedBy: grant.AIC, CertSHA256: sum(leaf), SPKI: [32]byte(grant.SPKI),
			Grant: hex.EncodeToString(grant.JTI), Provider: directory.ProviderUnverified,
		},
	}, doc, with)
	if err != nil {
		return n, fmt.Errorf("commit registration of %s: %w", grant.AIC, err)
	}
	return entered{entry, removed, doc.UnknownClasses()}, nil
}

// maxToldClasses bounds a line of the log.
const maxToldClasses = 8

// tellUnknown tells the log of classes that an agent files its skills under and the taxonomy has not. The answers have no place for it: the agent's
// side finds them by itself.
func (r *Registrar) tellUnknown(id string, classes []string) {
	if len(classes) > 0 && r.complaints.Allow() {
		r.log.Warn("skills are filed under classes that the taxonomy has not", "aic", id, "taxonomy", taxonomy.Version, "classes", classes[:min(len(classes), maxToldClasses)], "in_all", len(classes))
	}
}

// enrolled records a registration and is the answer to it.
func (r *Registrar) enrolled(ctx context.Context, n entered, issued *arp.Credential) (*arp.Enrolled, error) {
	e := n.entry
	if err := r.cfg.Audit(ctx, KindRegistered, map[string]any{
		"aic": e.AIC, "grant": e.Provenance.Grant, "acs": hex.EncodeToString(e.ACSHash[:]), "version": e.Version,
	}); err != nil {
		return nil, err
	}
	r.tellUnknown(e.AIC, n.unknown)
	out := &arp.Enrolled{AIC: e.AIC, Chain: issued.Chain, Bundle: issued.Bundle, ACS: e.ACS, EntryVersion: e.Version, Grant: issued.Grant}
	for _, s := range e.Skills {
		out.Caps = append(out.Caps, directory.CapID(e.AIC, s))
	}
	for _, s := range n.removed {
		out.Removed = append(out.Removed, arp.Removed{Path: policy.ScopeSkillInvoke + s, Code: frame.ScopeDenied})
	}
	return out, nil
}
