package amc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// Kind of a verdict.
type Kind uint8

// The verdicts.
const (
	NoOpinion Kind = iota // the next decider is asked
	Allow
	Deny
	Wait // for a person
)

// Question is one request with what a decider may know of it.
type Question struct {
	*arp.AuthzRequest
	Class    uint8    // ClassAgent or ClassGateway
	DNSNames []string // that a gateway wants
	Renewal  bool     // the agent is registered: its attributes have changed, or its certificate has expired
	Now      time.Time
	NewJTI   []byte // of the grant that an Allow will bring
}

// Verdict is a decider's.
type Verdict struct {
	Kind             Kind
	Scope            []string // at most this; what was asked for is cut to it
	Life             time.Duration
	Vendor, Ontology string // codes that the AIC must have; empty: what the gateway proposed
	JTI              []byte // of a grant that an earlier try of the same request brought
	Reason           string // for the agent's people
	PendingID        []byte // of Wait
	RetryAfter       time.Duration
	Known            bool // of Wait: the request waits already, and is on record
}

// Decider decides about registrations. It runs inside the transaction that keeps its decision: it must be quick and must not
// wait for anything. An error is a denial with its code.
type Decider interface {
	Name() string
	Decide(tx Tx, q *Question) (Verdict, error)
}

// grant is what is kept of one that was given.
type grant struct {
	SPKI       []byte         `cbor:"1,keyasint"`
	GW         string         `cbor:"2,keyasint"`
	Vendor     string         `cbor:"3,keyasint"`
	Ontology   string         `cbor:"4,keyasint"`
	Scope      []string       `cbor:"5,keyasint"`
	Skills     []string       `cbor:"6,keyasint,omitempty"`
	Nbf        uint64         `cbor:"7,keyasint"`
	Exp        uint64         `cbor:"8,keyasint"`
	Attributes arp.Attributes `cbor:"9,keyasint"`
	Decider    string         `cbor:"10,keyasint"`
	AIC        string         `cbor:"11,keyasint,omitempty"` // used, for this one
	Class      uint8          `cbor:"12,keyasint,omitempty"`
	DNSNames   []string       `cbor:"13,keyasint,omitempty"` // of a gateway
}

func grantName(jti []byte) string { return prefixGrant + hex.EncodeToString(jti) }

// wire is the grant as it travels.
func (g *grant) wire(jti []byte) *arp.Grant {
	return &arp.Grant{
		JTI: jti, GW: g.GW, SPKI: g.SPKI, Vendor: g.Vendor, Ontology: g.Ontology, Scope: g.Scope, Nbf: g.Nbf, Exp: g.Exp, AIC: g.AIC, Skills: g.Skills,
	}
}

// Bounds of an AUTHZ_REQUEST.
const (
	maxAttribute = 256
	maxSkills    = 128
	maxSkillID   = 128
)

func checkRequest(q *arp.AuthzRequest) error {
	bad := func(what string) error {
		return frame.Errorf(frame.ReqInvalid, "authorisation request: %s", what)
	}
	switch {
	case len(q.ReqID) != 16:
		return bad("its id is not 16 bytes")
	case len(q.SPKI) != sha256.Size:
		return bad("the hash of its key is not 32 bytes")
	case len(q.TokenHash) != 0 && len(q.TokenHash) != sha256.Size:
		return bad("the hash of its token is not 32 bytes")
	case len(q.PendingID) != 0 && len(q.PendingID) != 16:
		return bad("its pending id is not 16 bytes")
	case len(q.Skills) > maxSkills:
		return bad("too many skills")
	case len(q.Vendor) > 6 || len(q.Ontology) > 9:
		return bad("vendor or ontology code is too long")
	}
	for _, s := range []string{q.Attributes.Organization, q.Attributes.Country, q.Attributes.Address, q.Attributes.Name} {
		if len(s) > maxAttribute {
			return bad("an attribute is too long")
		}
	}
	for _, s := range q.Skills {
		if len(s) > maxSkillID {
			return bad("a skill id is too long")
		}
	}
	return checkScope(q.Scope)
}

// Authorise implements Center: the deciders are asked in order, and the first with an opinion decides.
func (a *AMC) Authorise(ctx context.Context, q *arp.AuthzRequest) (*arp.AuthzResponse, error) {
	return a.authorise(ctx, q, ClassAgent, nil)
}

// AuthoriseGateway decides about a gateway that wants to join the domain under these host names.
func (a *AMC) AuthoriseGateway(ctx context.Context, q *arp.AuthzRequest, dnsNames []string) (*arp.AuthzResponse, error) {
	return a.authorise(ctx, q, ClassGateway, dnsNames)
}

func (a *AMC) authorise(ctx context.Context, q *arp.AuthzRequest, class uint8, dnsNames []string) (*arp.AuthzResponse, error) {
	out, by, known, err := a.decide(ctx, q, class, dnsNames)
	if err == nil && known { // who waits asks again and again
		return out, nil
	}
	record := decisionRecord(q, by)
	kind := "authorisation.granted"
	switch {
	case err != nil:
		kind = "authorisation.denied"
		record["code"], record["reason"] = frame.CodeOf(err).Hex(), frame.Text(err)
	case out.Code == frame.Pending:
		kind = "authorisation.pending"
		record["pending"] = hex.EncodeToString(out.PendingID)
	}
	keep := a.cfg.Audit
	if kind == "authorisation.granted" && q.AIC == "" { // its first credential and the registration follow
		keep = a.auditSoon(q.GW)
	}
	if kept := keep(ctx, kind, record); kept != nil { // a grant that nobody could find again is none
		return nil, errors.Join(err, frame.Errorf(frame.Internal, "the decision cannot be recorded: %w", kept))
	}
	return out, err
}

// decisionRecord is what the audit log keeps of a decision, whichever it is.
func decisionRecord(q *arp.AuthzRequest, by string) map[string]any {
	return map[string]any{
		"req": hex.EncodeToString(q.ReqID), "gateway": q.GW, "spki": hex.EncodeToString(q.SPKI), "organization": q.Attributes.Organization,
		"name": q.Attributes.Name, "address": q.Attributes.Address, "scope": q.Scope, "aic": q.AIC, "decider": by,
	}
}

func (a *AMC) decide(ctx context.Context, q *arp.AuthzRequest, class uint8, dnsNames []string) (out *arp.AuthzResponse, by string, known bool, err error) {
	if err := checkRequest(q); err != nil {
		return nil, "", false, err
	}
	question := &Question{AuthzRequest: q, Class: class, DNSNames: dnsNames, Now: a.cfg.Now(), NewJTI: make([]byte, 16), Renewal: q.AIC != ""}
	rand.Read(question.NewJTI)
	var given *grant
	var verdict Verdict
	err = a.transact(ctx, func(tx Tx) error {
		if question.Renewal {
			if err := a.mayAskAnew(tx, q); err != nil {
				return err
			}
		}
		if verdict, by, err = a.ask(tx, question); err != nil || verdict.Kind != Allow {
			return err
		}
		given, err = a.give(tx, question, &verdict, by)
		return err
	})
	if err != nil {
		return nil, by, false, err
	}
	if verdict.Kind == Wait {
		return &arp.AuthzResponse{
			ReqID: q.ReqID, Code: frame.Pending, Reason: verdict.Reason, PendingID: verdict.PendingID, RetryAfterMS: uint64(verdict.RetryAfter.Milliseconds()),
		}, by, verdict.Known, nil
	}
	signed, err := given.wire(verdict.JTI).Sign(a.cfg.Grant())
	return &arp.AuthzResponse{ReqID: q.ReqID, Grant: signed}, by, false, err
}

// mayAskAnew holds that a registered agent is in good standing and still has its key.
func (a *AMC) mayAskAnew(tx Tx, q *arp.AuthzRequest) error {
	g, err := getAgent(tx, q.AIC)
	switch {
	case err != nil:
		return err
	case g.State != identity.Good:
		return frame.Errorf(frame.CertStatus, "%s is %v", q.AIC, g.State)
	case string(g.SPKI) != string(q.SPKI):
		return frame.Errorf(frame.Binding, "%s is registered with another key", q.AIC)
	case !g.isOf(q.GW, q.AIC):
		return frame.Errorf(frame.Binding, "%s is registered at another gateway", q.AIC)
	}
	return nil
}

// ask asks the deciders in order. Nobody's opinion is a denial.
func (a *AMC) ask(tx Tx, q *Question) (Verdict, string, error) {
	for _, d := range a.cfg.Deciders {
		v, err := d.Decide(tx, q)
		switch {
		case err != nil:
			return v, d.Name(), err
		case v.Kind == Deny:
			return v, d.Name(), frame.Errorf(frame.PolicyDenied, "the domain's rules refuse this registration: %s", v.Reason)
		case v.Kind == Allow && q.Class == ClassGateway && d.Name() != (TokenRules{}).Name():
			continue // rules may refuse a gateway; but a token for gateways alone admits one, and is used up by it
		case v.Kind != NoOpinion:
			return v, d.Name(), nil
		}
	}
	if q.Renewal { // what was decided once stands while its grant does, unless a rule has an opinion
		g, err := getAgent(tx, q.AIC)
		if err != nil {
			return Verdict{}, "", err
		}
		if uint64(q.Now.Unix()) > g.GrantExp {
			return Verdict{}, "", frame.Errorf(frame.Expired, "the grant of %s has ended: it needs a new enrolment", q.AIC)
		}
		if was := g.Attributes; g.Decider == manualName && (was.Organization != q.Attributes.Organization || was.Country != q.Attributes.Country) {
			return Verdict{}, "", frame.Errorf(frame.PolicyDenied, "an operator has approved %s of %q: an agent of another provider needs a new enrolment", q.AIC, was.Organization)
		}
		return Verdict{Kind: Allow, Scope: g.Scope, Life: time.Unix(int64(g.GrantExp), 0).Sub(q.Now)}, g.Decider, nil
	}
	if len(q.TokenHash) == 0 {
		return Verdict{}, "", frame.Errorf(frame.TokenInvalid, "this domain enrols with a token: ask the operator for one (`gatewayd token create`)")
	}
	return Verdict{}, "", frame.Errorf(frame.PolicyDenied, "none of the domain's deciders takes enrolment tokens: ask the operator how agents are enrolled here")
}

// give makes the grant of an Allow, or finds the one that an earlier try has brought.
func (a *AMC) give(tx Tx, q *Question, v *Verdict, by string) (*grant, error) {
	if v.JTI != nil {
		g, err := getGrant(tx, v.JTI)
		if !errors.Is(err, directory.ErrNotFound) {
			return g, err
		}
	}
	if v.JTI == nil {
		v.JTI = q.NewJTI
	}
	g := &grant{
		SPKI: q.SPKI, GW: q.GW, Vendor: or(v.Vendor, q.Vendor), Ontology: or(v.Ontology, q.Ontology), Attributes: q.Attributes,
		Decider: by, Class: q.Class, DNSNames: q.DNSNames, Scope: v.Scope,
	}
	if len(q.Scope) > 0 {
		g.Scope = policy.Intersect(q.Scope, v.Scope)
	}
	if len(g.Scope) == 0 {
		return nil, frame.Errorf(frame.ScopeDenied, "nothing of the scope asked for is allowed here")
	}
	for _, id := range q.Skills {
		if policy.Covers(g.Scope, []string{policy.ScopeSkillInvoke + id}) {
			g.Skills = append(g.Skills, id)
		}
	}
	life := grantLife
	if v.Life > 0 {
		life = min(life, v.Life)
	}
	g.Nbf, g.Exp = uint64(q.Now.Unix()), uint64(q.Now.Add(life).Unix())
	if !q.Renewal {
		return g, put(tx, grantName(v.JTI), g)
	}
	g.AIC = q.AIC
	id, err := aic.Parse(q.AIC)
	if err != nil {
		return nil, frame.Errorf(frame.ReqInvalid, "%w", err)
	}
	g.Vendor, g.Ontology = id.Codes()
	rec, err := getAgent(tx, q.AIC)
	if err != nil {
		return nil, err
	}
	rec.Attributes, rec.Scope, rec.Skills, rec.Grant, rec.GrantExp, rec.Decider = g.Attributes, g.Scope, g.Skills, v.JTI, g.Exp, by
	return g, put(tx, prefixAgent+q.AIC, rec)
}

func getGrant(tx Tx, jti []byte) (*grant, error) {
	raw, err := tx.Get(grantName(jti))
	if err != nil {
		return nil, err
	}
	g := new(grant)
	if err := frame.Unmarshal(raw, g); err != nil {
		return nil, fmt.Errorf("stored grant: %w", err)
	}
	return g, nil
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
