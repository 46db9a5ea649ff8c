package amc

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/store"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/policy"
)

// admitted tries an admission under the AIC of an entity code; it fails the test unless it is done or not as wanted.
func (c *center) admitted(a *applicant, token []byte, entity string) (*arp.Grant, bool, error) {
	c.t.Helper()
	var g *arp.Grant
	cred, ok, err := c.Admit(c.t.Context(), c.request(a, token), a.parsed(c.t), func(string, string) (aic.AIC, error) { return c.id(entity), nil },
		func(given *arp.Grant, leaf []byte, with func(Tx) error) error {
			g = given
			return c.cfg.Store.(*store.Store).PutWith(c.t.Context(), directory.Entry{AIC: g.AIC, Version: 1, State: directory.Active, ACS: []byte("{}")}, 0, with)
		})
	if ok && err == nil && (len(cred.Chain) == 0 || g.AIC != string(c.id(entity))) {
		c.t.Errorf("admitted with %+v, %+v", g, cred)
	}
	return g, ok, err
}

func (a *applicant) parsed(t *testing.T) *x509.CertificateRequest {
	t.Helper()
	csr, err := identity.ParseCSR(a.csr)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func (c *center) taken(entity string) bool {
	c.t.Helper()
	err := c.cfg.Store.(*store.Store).Reserve(c.t.Context(), string(c.id(entity)), time.Now())
	if err != nil && !errors.Is(err, directory.ErrExists) {
		c.t.Fatal(err)
	}
	return err != nil
}

func (c *center) entered(entity string) bool {
	c.t.Helper()
	_, err := c.cfg.Store.(*store.Store).Get(string(c.id(entity)))
	if err != nil && !errors.Is(err, directory.ErrNotFound) {
		c.t.Fatal(err)
	}
	return err == nil
}

// fickle is a decider that has another opinion each time.
type fickle struct{ times int }

func (*fickle) Name() string { return "fickle" }

func (f *fickle) Decide(Tx, *Question) (Verdict, error) {
	f.times++
	return Verdict{Kind: Allow, Scope: []string{policy.ScopeSkillInvoke + "sell", fmt.Sprint(policy.ScopeSkillInvoke, f.times)}}, nil
}

// What the entry says was decided before the commit: a decision that is another one by then keeps nothing.
func TestAdmissionIsOfOneDecision(t *testing.T) {
	c := newCenter(t, &fickle{})
	if _, ok, err := c.admitted(newApplicant(t), nil, "E1"); ok || err != nil {
		t.Errorf("done %v, %v", ok, err)
	}
	if _, err := c.Agent(string(c.id("E1"))); frame.CodeOf(err) != frame.NotFound || c.entered("E1") || c.taken("E1") {
		t.Errorf("it has left something: %v", err)
	}
}

// Decision, use of the token, reservation, record and entry are one commit: one that is lost leaves nothing, one that is kept but not
// reported leaves what the same request completes.
func TestAdmissionIsOneCommit(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, token := newApplicant(t), c.token(TokenOptions{})
	c.memory.Fail(store.FaultLost)
	if _, _, err := c.admitted(a, token, "E1"); err == nil {
		t.Fatal("a lost commit is no error")
	}
	c.open()
	if _, err := c.Agent(string(c.id("E1"))); frame.CodeOf(err) != frame.NotFound || c.entered("E1") || c.taken("E1") {
		t.Errorf("a lost commit has left a record, or took the AIC: %v", err)
	}
	c.memory.Fail(store.FaultReported)
	if _, _, err := c.admitted(a, token, "E2"); err == nil {
		t.Fatal("a commit that is reported as failed is no error")
	}
	c.open()
	if _, ok, err := c.admitted(a, token, "E3"); ok || err != nil {
		t.Errorf("an earlier try is not gone on with: %v", err)
	}
	r, err := c.Authorise(t.Context(), c.request(a, token))
	if err != nil {
		t.Fatal(err)
	}
	if g := c.grant(r); g.AIC != string(c.id("E2")) || !c.taken("E2") || !c.entered("E2") {
		t.Errorf("the same token goes on with %q", g.AIC)
	}
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(c.id("E2")), CSR: a.csr, JTI: c.grant(r).JTI}); err != nil {
		t.Error(err)
	}
}

func TestAdmission(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, token := newApplicant(t), c.token(TokenOptions{})
	c.audit = nil
	g, ok, err := c.admitted(a, token, "E1")
	if err != nil || !ok || !slices.Equal(g.Skills, []string{"sell", "advise"}) {
		t.Fatalf("%+v, %v, %v", g, ok, err)
	}
	if !slices.Equal(c.audit, []string{"authorisation.granted", "credential.issued"}) {
		t.Errorf("recorded %v", c.audit)
	}
	if s, err := c.Agent(g.AIC); err != nil || s.CertEnd.IsZero() || !c.taken("E1") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, ok, _ := c.admitted(newApplicant(t), token, "E2"); ok {
		t.Error("the token admits a second key")
	}
	if _, ok, err := c.admitted(newApplicant(t), c.token(TokenOptions{}), "E1"); ok || err == nil {
		t.Error("an AIC is given twice")
	}
	for what, q := range map[string]*arp.AuthzRequest{"without a token": c.request(a, nil), "of a registered agent": c.request(a, token)} {
		if what == "of a registered agent" {
			q.AIC = g.AIC
		}
		if _, ok, err := c.Admit(t.Context(), q, a.parsed(t), nil, nil); ok || err != nil {
			t.Errorf("%s: done %v, %v", what, ok, err)
		}
	}
}
