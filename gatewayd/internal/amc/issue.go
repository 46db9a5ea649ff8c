package amc

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/pki"
	"agentgw/internal/policy"
)

// renewLate is how long after the end of its certificate an agent may still renew it, with the same key.
const renewLate = 30 * 24 * time.Hour

// order is one certificate to be signed, with what allows it.
type order struct {
	id      aic.AIC
	spki    [32]byte
	csr     *x509.CertificateRequest
	gateway string
	jti     []byte // first issue
	late    bool   // nothing but the key of csr was proved
	named   bool   // of a first issue: the domain's bundle has a member of this AIC already
}

// Issue implements Center. A first issue names an unused grant, or one that was used for the same AIC; any other is a renewal.
// Codes: 63 the grant is for something else, 68 suspended or revoked, 26 too late, 4A.
func (a *AMC) Issue(ctx context.Context, gateway string, m *arp.Renew) (*arp.Credential, error) {
	return a.issue(ctx, gateway, m, false)
}

// IssueLate renews for a member that has proved nothing but the key of its certificate request: only the key that it is registered
// with will do.
func (a *AMC) IssueLate(ctx context.Context, m *arp.Renew) (*arp.Credential, error) {
	if len(m.JTI) > 0 {
		return nil, frame.Errorf(frame.ReqInvalid, "a renewal names no grant")
	}
	return a.issue(ctx, m.AIC, m, true)
}

func (a *AMC) issue(ctx context.Context, gateway string, m *arp.Renew, late bool) (*arp.Credential, error) {
	o, err := a.readOrder(gateway, m)
	if err != nil {
		return nil, err
	}
	o.late = late
	var kept *agent // as it will be
	check := func(tx Tx) (err error) {
		if len(o.jti) > 0 {
			kept, err = a.firstIssue(tx, o)
		} else {
			kept, err = a.nextIssue(tx, o)
		}
		if err == nil && kept.alive(a.cfg.Now()) >= maxCerts {
			err = frame.Errorf(frame.RateLimited, "%s has %d certificates that have not ended: renew at half of their life", o.id, maxCerts)
		}
		return err
	}
	if err := a.look(ctx, check); err != nil { // nothing is signed that would not be kept
		return nil, err
	}
	if err := a.grantAgain(ctx, o, kept); err != nil {
		return nil, err
	}
	chain, err := a.cfg.Signer.Sign(ctx, a.profile(o.id, kept), o.csr.PublicKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return nil, err
	}
	reKeyed := false
	if err := a.transact(ctx, func(tx Tx) error {
		if err := check(tx); err != nil {
			return err
		}
		reKeyed = kept.add(certificate{Serial: leaf.SerialNumber.FillBytes(make([]byte, 16)), NotAfter: uint64(leaf.NotAfter.Unix())}, o.spki, a.cfg.Now())
		return put(tx, prefixAgent+string(o.id), kept)
	}); err != nil {
		return nil, err
	}
	a.certs.keep(string(o.id), kept)
	return a.credential(ctx, o, kept, chain, leaf, reKeyed)
}

// profile is what the certificate of an agent or of a gateway says.
func (a *AMC) profile(id aic.AIC, g *agent) pki.Profile {
	if g.Class == ClassGateway {
		return pki.Profile{Kind: pki.Gateway, AIC: id, Life: a.cfg.GatewayLife, DNSNames: g.DNSNames}
	}
	return pki.Profile{Kind: pki.Agent, AIC: id, Life: a.cfg.AgentLife, Organization: g.Attributes.Organization, Country: g.Attributes.Country}
}

func (a *AMC) readOrder(gateway string, m *arp.Renew) (order, error) {
	id, err := a.issuesFor(m.AIC)
	if err != nil {
		return order{}, err
	}
	csr, err := identity.ParseCSR(m.CSR)
	if err != nil {
		return order{}, err
	}
	return a.orderOf(gateway, id, csr, m.JTI)
}

// issuesFor reads an AIC that this AMC may issue for.
func (a *AMC) issuesFor(text string) (aic.AIC, error) {
	id, err := aic.Parse(text)
	if err != nil {
		return "", frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	if !slices.Contains(a.cfg.Prefixes, id.ARSPKey()) || id.IsOntology() {
		return "", frame.Errorf(frame.PolicyDenied, "%s is not of the prefixes that this AMC issues for", id)
	}
	return id, nil
}

// orderOf is the order of a certificate request whose signature has been verified.
func (a *AMC) orderOf(gateway string, id aic.AIC, csr *x509.CertificateRequest, jti []byte) (order, error) {
	spki, err := identity.SPKIHash(csr.PublicKey)
	b := a.cfg.Bundle()
	named := len(jti) > 0 && (b.Issuer == string(id) || slices.ContainsFunc(b.Keys, func(k identity.BundleKey) bool { return k.Owner == string(id) }))
	return order{id: id, spki: spki, csr: csr, gateway: gateway, jti: jti, named: named}, err
}

// firstIssue uses a grant up.
func (a *AMC) firstIssue(tx Tx, o order) (*agent, error) {
	g, err := getGrant(tx, o.jti)
	if errors.Is(err, directory.ErrNotFound) {
		return nil, frame.Errorf(frame.Binding, "no grant %s was given here", hex.EncodeToString(o.jti))
	}
	if err != nil {
		return nil, err
	}
	vendor, ontology := o.id.Codes()
	name := hex.EncodeToString(o.jti)
	switch {
	case string(g.SPKI) != string(o.spki[:]):
		return nil, frame.Errorf(frame.Binding, "grant %s is for another key", name)
	case g.GW != o.gateway:
		return nil, frame.Errorf(frame.Binding, "grant %s is for the gateway %s", name, g.GW)
	case g.Vendor != vendor || g.Ontology != ontology:
		return nil, frame.Errorf(frame.Binding, "grant %s is for vendor %s and ontology %s, not for %s", name, g.Vendor, g.Ontology, o.id)
	case g.AIC != "" && g.AIC != string(o.id):
		return nil, frame.Errorf(frame.Binding, "grant %s was used for %s", name, g.AIC)
	}
	held, err := getAgent(tx, string(o.id))
	switch {
	case frame.CodeOf(err) == frame.NotFound && o.named: // this AMC itself, or the gateway beside it: they have no record
		return nil, frame.Errorf(frame.Binding, "%s is a member of the domain already: an AIC is never issued twice", o.id)
	case frame.CodeOf(err) == frame.NotFound:
	case err != nil:
		return nil, err
	case string(held.Grant) != string(o.jti) || string(held.SPKI) != string(o.spki[:]):
		return nil, frame.Errorf(frame.Binding, "%s is another agent's: an AIC is never issued twice", o.id)
	case held.State != identity.Good:
		return nil, frame.Errorf(frame.Revoked, "%s is %v", o.id, held.State)
	default:
		return held, nil
	}
	g.AIC = string(o.id)
	if err := put(tx, grantName(o.jti), g); err != nil {
		return nil, err
	}
	return &agent{
		SPKI: g.SPKI, Gateway: g.GW, Attributes: g.Attributes, Scope: g.Scope, Skills: g.Skills, Grant: o.jti, GrantExp: g.Exp, Decider: g.Decider,
		Class: g.Class, DNSNames: g.DNSNames,
	}, nil
}

// nextIssue checks a renewal: over the same key for 30 days after the last certificate has ended, over a new one only before.
func (a *AMC) nextIssue(tx Tx, o order) (*agent, error) {
	g, err := getAgent(tx, string(o.id))
	if err != nil {
		return nil, err
	}
	if !g.isOf(o.gateway, string(o.id)) {
		// An agent that has moved to another gateway of its domain renews over the key that it has, which is of no use to anybody else. A new key is
		// for the gateway alone at which it is registered: a request is not bound to a gateway, and one that has seen it could send it again.
		if g.Class == ClassGateway || string(g.SPKI) != string(o.spki[:]) {
			return nil, frame.Errorf(frame.Binding, "%s is registered at another gateway, where alone its key can change", o.id)
		}
	}
	now, last := a.cfg.Now(), g.newest()
	if last == nil {
		return nil, frame.Errorf(frame.Binding, "%s has never had a certificate: its first one names a grant", o.id)
	}
	end := time.Unix(int64(last.NotAfter), 0)
	switch {
	case g.State == identity.Suspended:
		return nil, frame.Errorf(frame.CertStatus, "%s is suspended: ask the operator of its domain", o.id)
	case g.State != identity.Good:
		return nil, frame.Errorf(frame.Revoked, "%s is revoked for good: it needs a new enrolment", o.id)
	case now.After(end.Add(renewLate)):
		return nil, frame.Errorf(frame.Expired, "the certificate of %s ended at %s, more than 30 days ago: it needs a new enrolment with a new token", o.id, end.UTC().Format(time.RFC3339))
	case o.late && string(g.SPKI) != string(o.spki[:]):
		return nil, frame.Errorf(frame.Binding, "%s is registered with another key", o.id)
	case now.After(end) && string(g.SPKI) != string(o.spki[:]):
		return nil, frame.Errorf(frame.Binding, "the certificate of %s ended at %s: only the key that it had can renew it", o.id, end.UTC().Format(time.RFC3339))
	}
	return g, nil
}

// grantAgain asks the deciders once more where a certificate has ended, and where more than half of the grant's life is over.
func (a *AMC) grantAgain(ctx context.Context, o order, g *agent) error {
	last := g.newest()
	if last == nil || len(o.jti) > 0 {
		return nil
	}
	now := a.cfg.Now()
	late := now.After(time.Unix(int64(last.NotAfter), 0))
	if !late && time.Unix(int64(g.GrantExp), 0).Sub(now) > grantLife/2 {
		return nil
	}
	req := make([]byte, 16)
	copy(req, o.spki[:])
	_, err := a.Authorise(ctx, &arp.AuthzRequest{
		ReqID: req, GW: g.Gateway, SPKI: g.SPKI, Attributes: g.Attributes, Scope: g.Scope, Skills: g.Skills, AIC: string(o.id),
	})
	if err != nil && !late && uint64(now.Unix()) < g.GrantExp {
		a.cfg.Log.Warn("grant not renewed, it counts on until its end", "aic", string(o.id), "err", err)
		return nil
	}
	return err
}

// alive counts the certificates that have not ended.
func (g *agent) alive(now time.Time) (n int) {
	for _, c := range g.Certs {
		if c.NotAfter >= uint64(now.Unix()) {
			n++
		}
	}
	return n
}

// add remembers a certificate. A new key makes the certificates of the old one void.
func (g *agent) add(c certificate, spki [32]byte, now time.Time) (reKeyed bool) {
	if reKeyed = string(g.SPKI) != string(spki[:]); reKeyed {
		for i := range g.Certs {
			g.Certs[i].Superseded = or(g.Certs[i].Superseded, uint64(now.Unix()))
		}
		g.SPKI = spki[:]
	}
	g.Certs = slices.DeleteFunc(g.Certs, func(c certificate) bool { return c.NotAfter < uint64(now.Unix()) })
	g.Certs = append(g.Certs, c)
	return reKeyed
}

// credential is the answer; it is given when the audit log holds it.
func (a *AMC) credential(ctx context.Context, o order, g *agent, chain [][]byte, leaf *x509.Certificate, reKeyed bool) (*arp.Credential, error) {
	wire := &arp.Grant{
		JTI: g.Grant, GW: g.Gateway, SPKI: o.spki[:], Scope: g.Scope, Skills: g.Skills, Nbf: uint64(a.cfg.Now().Unix()), Exp: g.GrantExp, AIC: string(o.id),
	}
	wire.Vendor, wire.Ontology = o.id.Codes()
	signed, err := wire.Sign(a.cfg.Grant())
	if err != nil {
		return nil, fmt.Errorf("sign grant: %w", err)
	}
	kind := KindIssued
	if len(o.jti) == 0 {
		kind = KindRenewed
	}
	if reKeyed {
		a.mu.Lock()
		a.noteCerts(g)
		a.mu.Unlock()
		kind = KindRekeyed
		if err := a.renewList(ctx); err != nil {
			a.cfg.Log.Error("status list", "err", err)
		}
	}
	fingerprint := sha256.Sum256(chain[0])
	record := Issued{
		AIC: string(o.id), Gateway: o.gateway, Serial: hex.EncodeToString(leaf.SerialNumber.FillBytes(make([]byte, 16))),
		Certificate: hex.EncodeToString(fingerprint[:]), SPKI: hex.EncodeToString(o.spki[:]), NotAfter: leaf.NotAfter.UTC(), Grant: hex.EncodeToString(g.Grant),
	}
	keep := a.cfg.Audit
	if kind == KindIssued { // the registration follows
		keep = a.auditSoon(o.gateway)
	}
	return &arp.Credential{Chain: chain, Bundle: a.cfg.Bundle().Raw, Grant: signed}, keep(ctx, kind, record)
}

// Legacy is an agent that was registered before this AMC kept records of agents.
type Legacy struct {
	AIC        string
	SPKI       [32]byte
	Attributes arp.Attributes
	Skills     []string
	Grant      string // hexadecimal jti
	GrantEnd   time.Time
	CertEnd    time.Time
}

// Adopt makes the record of an agent that has none.
func (a *AMC) Adopt(ctx context.Context, gateway string, l Legacy) error {
	jti, err := hex.DecodeString(l.Grant)
	if err != nil {
		return fmt.Errorf("grant of %s: %w", l.AIC, err)
	}
	g := &agent{
		SPKI: l.SPKI[:], Gateway: gateway, Attributes: l.Attributes, Scope: []string{policy.ScopeDiscover}, Skills: l.Skills, Grant: jti,
		GrantExp: uint64(l.GrantEnd.Unix()), Decider: "token", Certs: []certificate{{Serial: make([]byte, 16), NotAfter: uint64(l.CertEnd.Unix())}},
	}
	for _, s := range l.Skills {
		g.Scope = append(g.Scope, policy.ScopeSkillInvoke+s)
	}
	return a.transact(ctx, func(tx Tx) error {
		if _, err := getAgent(tx, l.AIC); frame.CodeOf(err) != frame.NotFound {
			return err
		}
		return put(tx, prefixAgent+l.AIC, g)
	})
}
