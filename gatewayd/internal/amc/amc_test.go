package amc

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"agentgw/directory/aic"
	"agentgw/directory/arp"
	"agentgw/directory/store"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
	"agentgw/internal/pki"
	"agentgw/internal/policy"
)

// center is an AMC over a store in memory, with a clock of its own.
type center struct {
	*AMC
	t      *testing.T
	domain *identitytest.Domain
	memory *store.Memory
	now    time.Time
	lists  [][]byte
	audit  []string
	cfg    Config
}

func newCenter(t *testing.T, deciders ...Decider) *center {
	t.Helper()
	d := identitytest.New(t, "home.example", "A")
	c := &center{t: t, domain: d, memory: &store.Memory{}, now: time.Now().Truncate(time.Second)}
	ca, err := pki.New(pki.Options{Domain: d.Name, Now: func() time.Time { return c.now }})
	if err != nil {
		t.Fatal(err)
	}
	c.cfg = Config{
		Domain: d.Name, Issuer: d.Issuer, Prefixes: d.Bundle.Prefixes, Signer: ca, Grant: d.Sign[identity.UseGrant].Always(),
		Status: d.Sign[identity.UseStatus].Always(), Bundle: d.Trust(t).Own, Deciders: deciders,
		Publish: func(lists [][]byte) { c.lists = lists }, Now: func() time.Time { return c.now },
		Audit: func(_ context.Context, kind string, _ any) error { c.audit = append(c.audit, kind); return nil },
	}
	c.open()
	return c
}

// open starts the AMC, as a restart would.
func (c *center) open() {
	c.t.Helper()
	s := store.OpenMemory(c.memory)
	c.t.Cleanup(func() { s.Close() })
	c.cfg.Store = s
	var err error
	if c.AMC, err = New(c.cfg); err != nil {
		c.t.Fatal(err)
	}
}

// applicant is an agent that wants to be registered.
type applicant struct {
	key  *ecdsa.PrivateKey
	csr  []byte
	spki [32]byte
}

func newApplicant(t *testing.T) *applicant {
	t.Helper()
	a := &applicant{key: identitytest.NewKey(t)}
	var err error
	if a.csr, err = identity.NewCSR(a.key); err != nil {
		t.Fatal(err)
	}
	a.spki, err = identity.SPKIHash(a.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (c *center) request(a *applicant, token []byte) *arp.AuthzRequest {
	return &arp.AuthzRequest{
		ReqID: make([]byte, 16), GW: string(c.domain.Gateway), SPKI: a.spki[:], Vendor: "V", Ontology: "ONTO", TokenHash: token,
		Attributes: arp.Attributes{Organization: "Acme", Country: "DE", Address: "192.0.2.1/32"}, Skills: []string{"sell", "advise"},
	}
}

func (c *center) token(o TokenOptions) []byte {
	c.t.Helper()
	secret, _, err := c.CreateToken(c.t.Context(), o)
	if err != nil {
		c.t.Fatal(err)
	}
	hash := sha256.Sum256(secret[:])
	return hash[:]
}

func (c *center) grant(r *arp.AuthzResponse) *arp.Grant {
	c.t.Helper()
	g, err := arp.OpenGrant(r.Grant, c.domain.Trust(c.t).Keys(identity.UseGrant), string(c.domain.Issuer), c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}

func (c *center) id(entity string) aic.AIC {
	c.t.Helper()
	id, err := aic.New("2.999.1.1", "A", "V", "ONTO", entity, []byte{1, 2})
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// enrolled is an agent with its first credential.
func (c *center) enrolled(entity string) (*applicant, aic.AIC) {
	c.t.Helper()
	a := newApplicant(c.t)
	r, err := c.Authorise(c.t.Context(), c.request(a, c.token(TokenOptions{})))
	if err != nil {
		c.t.Fatal(err)
	}
	id := c.id(entity)
	if _, err := c.Issue(c.t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr, JTI: c.grant(r).JTI}); err != nil {
		c.t.Fatal(err)
	}
	return a, id
}

func wantCode(t *testing.T, what string, err error, code frame.Code) {
	t.Helper()
	if frame.CodeOf(err) != code {
		t.Errorf("%s: %v, want %v", what, err, code)
	}
}

func TestGrantIsUsedForOneAgentOnce(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, gw := newApplicant(t), string(c.domain.Gateway)
	hash := c.token(TokenOptions{Scope: []string{policy.ScopeDiscover, policy.ScopeSkillInvoke + "sell"}})
	r, err := c.Authorise(t.Context(), c.request(a, hash))
	if err != nil {
		t.Fatal(err)
	}
	g := c.grant(r)
	if len(g.Skills) != 1 || g.Skills[0] != "sell" || g.Vendor != "V" || g.Ontology != "ONTO" || g.GW != gw {
		t.Errorf("grant %+v", g)
	}
	again, err := c.Authorise(t.Context(), c.request(a, hash))
	if err != nil || !bytes.Equal(c.grant(again).JTI, g.JTI) {
		t.Errorf("the same request again: %v", err)
	}
	_, err = c.Authorise(t.Context(), c.request(newApplicant(t), hash))
	wantCode(t, "the token with another key", err, frame.TokenReplayed)

	other := newApplicant(t)
	foreign, err := aic.New("2.999.1.1", "B", "V", "ONTO", "E1", []byte{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	vendor, err := aic.New("2.999.1.1", "A", "W", "ONTO", "E1", []byte{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	id := c.id("E1")
	for what, bad := range map[string]struct {
		gw   string
		m    arp.Renew
		code frame.Code
	}{
		"for another key":            {gw, arp.Renew{AIC: string(id), CSR: other.csr, JTI: g.JTI}, frame.Binding},
		"through another gateway":    {string(c.domain.Issuer), arp.Renew{AIC: string(id), CSR: a.csr, JTI: g.JTI}, frame.Binding},
		"for another vendor":         {gw, arp.Renew{AIC: string(vendor), CSR: a.csr, JTI: g.JTI}, frame.Binding},
		"for another domain's AIC":   {gw, arp.Renew{AIC: string(foreign), CSR: a.csr, JTI: g.JTI}, frame.PolicyDenied},
		"with a grant nobody gave":   {gw, arp.Renew{AIC: string(id), CSR: a.csr, JTI: make([]byte, 16)}, frame.Binding},
		"without a grant":            {gw, arp.Renew{AIC: string(id), CSR: a.csr}, frame.NotFound},
		"for no certificate request": {gw, arp.Renew{AIC: string(id), CSR: []byte{1}, JTI: g.JTI}, frame.ReqInvalid},
	} {
		_, err := c.Issue(t.Context(), bad.gw, &bad.m)
		wantCode(t, what, err, bad.code)
	}
	first, err := c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: a.csr, JTI: g.JTI})
	if err != nil {
		t.Fatal(err)
	}
	if open := c.grant(&arp.AuthzResponse{Grant: first.Grant}); open.AIC != string(id) {
		t.Errorf("the grant beside the credential names %q", open.AIC)
	}
	if _, err := c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: a.csr, JTI: g.JTI}); err != nil {
		t.Errorf("the same issue after a crash: %v", err)
	}
	_, err = c.Issue(t.Context(), gw, &arp.Renew{AIC: string(c.id("E2")), CSR: a.csr, JTI: g.JTI})
	wantCode(t, "the grant for a second AIC", err, frame.Binding)

	r2, err := c.Authorise(t.Context(), c.request(other, c.token(TokenOptions{})))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: other.csr, JTI: c.grant(r2).JTI})
	wantCode(t, "a second agent for an AIC", err, frame.Binding)
	c.open() // what was decided outlives the process
	_, err = c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: other.csr, JTI: c.grant(r2).JTI})
	wantCode(t, "a second agent for an AIC after a restart", err, frame.Binding)
}

// A gateway proposes the codes of an AIC: it cannot have those of the AMC itself, or of the gateway beside it, certified for a key
// of its own.
func TestDomainsOwnCodesAreNotIssued(t *testing.T) {
	c := newCenter(t, TokenRules{})
	for _, id := range []aic.AIC{c.domain.Issuer, c.domain.Gateway} {
		a := newApplicant(t)
		q := c.request(a, c.token(TokenOptions{}))
		q.Vendor, q.Ontology = id.Codes()
		r, err := c.Authorise(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr, JTI: c.grant(r).JTI})
		wantCode(t, "an agent's certificate for "+string(id), err, frame.Binding)
	}
}

func TestRenewalKeepsItsTimes(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, id := c.enrolled("E1")
	gw := string(c.domain.Gateway)
	renew := func(csr []byte) error {
		_, err := c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: csr})
		return err
	}
	_, err := c.Issue(t.Context(), string(c.domain.Issuer), &arp.Renew{AIC: string(id), CSR: newApplicant(t).csr})
	wantCode(t, "through a gateway that the agent is not registered at", err, frame.Binding)
	_, moved := c.enrolled("E2")
	wantCode(t, "withdrawal of another agent by that gateway, to which it may have moved", c.Withdraw(t.Context(), string(c.domain.Issuer), &arp.Deregister{AIC: string(moved)}), frame.OK)
	c.now = c.now.Add(12 * time.Hour)
	wantCode(t, "at half life", renew(a.csr), frame.OK)
	next := newApplicant(t)
	wantCode(t, "with a new key", renew(next.csr), frame.OK)
	c.now = c.now.Add(24*time.Hour + time.Minute)
	wantCode(t, "late, with the key that was replaced", renew(a.csr), frame.Binding)
	wantCode(t, "late, with the key it had", renew(next.csr), frame.OK)
	c.now = c.now.Add(24*time.Hour + 30*24*time.Hour - time.Minute)
	wantCode(t, "30 days late", renew(next.csr), frame.OK)
	c.now = c.now.Add(24*time.Hour + 30*24*time.Hour + time.Minute)
	wantCode(t, "later than that", renew(next.csr), frame.Expired)
}

// A re-key makes the certificates of the old key void, by their serial numbers: the AIC stays good.
func TestReKeyRevokesTheOldCertificate(t *testing.T) {
	c := newCenter(t, TokenRules{})
	_, id := c.enrolled("E1")
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: newApplicant(t).csr}); err != nil {
		t.Fatal(err)
	}
	l := c.list()
	if len(l.Entries) != 1 || l.Entries[0].Reason != identity.ReasonSuperseded {
		t.Fatalf("list %+v", l)
	}
	if _, bySerial := l.Entries[0].Subject.([]byte); !bySerial {
		t.Errorf("entry %+v", l.Entries[0])
	}
	if bad := c.BadCerts(); len(bad) != 1 || bad[0].Reason != identity.ReasonSuperseded || bad[0].Serial.Cmp(new(big.Int).SetBytes(l.Entries[0].Subject.([]byte))) != 0 {
		t.Errorf("for CRLs: %+v", bad)
	}
}

func (c *center) list() *identity.StatusList {
	c.t.Helper()
	if len(c.lists) != 1 {
		c.t.Fatalf("%d lists", len(c.lists))
	}
	l, err := identity.OpenStatus(c.lists[0], c.domain.Trust(c.t), c.now)
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

// One agent cannot fill the status list with its superseded certificates, nor push one out of what is remembered.
func TestCertificatesOfOneAgentAreBounded(t *testing.T) {
	c := newCenter(t, TokenRules{})
	_, id := c.enrolled("E1")
	var err error
	n := 1
	for ; n < 2*maxCerts && err == nil; n++ {
		_, err = c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: newApplicant(t).csr})
	}
	wantCode(t, "certificates without end", err, frame.RateLimited)
	if n != maxCerts+1 {
		t.Errorf("refused at certificate %d", n)
	}
	if known := len(c.AMC.certs.by); known != maxCerts {
		t.Errorf("%d certificates are remembered", known)
	}
	c.now = c.now.Add(c.Life() + time.Hour)
	c.old["0123456789abcdef"] = supers{notAfter: 1 << 40}
	if err := c.renewList(t.Context()); err != nil || len(c.old) != 1 {
		t.Errorf("%d superseded certificates when all but one have ended, %v", len(c.old), err)
	}
}

// More than a list takes does not keep it from being made: agents stay in it, the revoked before all.
func TestStatusListThatOverflows(t *testing.T) {
	c := newCenter(t, TokenRules{})
	_, id := c.enrolled("E1")
	if err := c.Revoke(t.Context(), string(id), 0, ""); err != nil {
		t.Fatal(err)
	}
	for n := range maxListed {
		c.old[fmt.Sprintf("%016d", n)] = supers{notAfter: 1 << 40}
		c.bad[string(c.id(fmt.Sprint("S", n)))] = &agent{State: identity.Suspended}
	}
	if err := c.renewList(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := identity.NewStatuses(c.domain.Trust(t), func() time.Time { return c.now })
	for _, raw := range c.lists {
		if _, err := s.Apply(raw); err != nil {
			t.Fatal(err)
		}
	}
	if s.Of(string(id)) != identity.Revoked {
		t.Errorf("%s is %v by the list", id, s.Of(string(id)))
	}
}

func TestStatusFollowsTheOperator(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, id := c.enrolled("E1")
	gw := string(c.domain.Gateway)
	if err := c.Suspend(t.Context(), string(id), "looks odd"); err != nil {
		t.Fatal(err)
	}
	before := c.list()
	if len(before.Entries) != 1 || before.Entries[0].State != identity.Suspended || before.Entries[0].Reason != identity.ReasonHold {
		t.Errorf("list %+v", before)
	}
	_, err := c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: a.csr})
	wantCode(t, "renewal of a suspended agent", err, frame.CertStatus)
	wantCode(t, "a second suspension", c.Suspend(t.Context(), string(id), ""), frame.State)
	c.open()
	if err := c.Resume(t.Context(), string(id), ""); err != nil {
		t.Fatal(err)
	}
	if l := c.list(); len(l.Entries) != 0 || l.Seq <= before.Seq {
		t.Errorf("list %+v after %d", l, before.Seq)
	}
	if _, err := c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: a.csr}); err != nil {
		t.Errorf("renewal after the suspension: %v", err)
	}
	if err := c.Revoke(t.Context(), string(id), identity.ReasonKeyCompromise, "stolen"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "resuming a revoked agent", c.Resume(t.Context(), string(id), ""), frame.State)
	_, err = c.Issue(t.Context(), gw, &arp.Renew{AIC: string(id), CSR: a.csr})
	wantCode(t, "renewal of a revoked agent", err, frame.Revoked)
	c.open()
	c.now = c.now.Add(time.Hour)
	if err := c.renewList(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := c.list(); len(l.Entries) != 1 || l.Entries[0].State != identity.Revoked {
		t.Errorf("after a restart the list is %+v", l)
	}
	c.now = c.now.Add(24*time.Hour + sessionMax)
	if err := c.renewList(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := c.list(); len(l.Entries) != 0 {
		t.Errorf("when no certificate and no session can live: %+v", l)
	}
	for _, kind := range []string{"authorisation.granted", "credential.issued", "credential.suspended", "credential.resumed", "credential.revoked"} {
		if !strings.Contains(strings.Join(c.audit, " "), kind) {
			t.Errorf("no audit record %s in %v", kind, c.audit)
		}
	}
	wantCode(t, "an AIC of nobody", c.Suspend(t.Context(), string(c.id("E9")), ""), frame.NotFound)
}

// A decision that the audit log does not hold is not given out.
// Words that are cut stay text: a record that cannot be read would keep the AMC from ever starting again.
func TestLongWordsAreCutToText(t *testing.T) {
	c := newCenter(t, TokenRules{}, NewManual())
	long := strings.Repeat("a", maxWhy-1) + "ü"
	_, id := c.enrolled("E1")
	if err := c.Withdraw(t.Context(), string(c.domain.Gateway), &arp.Deregister{AIC: string(id), Reason: long}); err != nil {
		t.Error(err)
	}
	r, err := c.Authorise(t.Context(), c.request(newApplicant(t), nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refuse(t.Context(), hex.EncodeToString(r.PendingID), long); err != nil {
		t.Error(err)
	}
	if _, err := c.OpenRequests(); err != nil {
		t.Error(err)
	}
	c.open()
}

func TestNoGrantWithoutAuditRecord(t *testing.T) {
	c := newCenter(t, TokenRules{})
	hash := c.token(TokenOptions{})
	c.AMC.cfg.Audit = func(context.Context, string, any) error { return context.DeadlineExceeded }
	if r, err := c.Authorise(t.Context(), c.request(newApplicant(t), hash)); err == nil || r != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRulesDecide(t *testing.T) {
	rules, err := NewCELRules([]Rule{
		{Name: "no foreigners", When: `request.country != "DE"`, Deny: true, Reason: "this domain is for Germany"},
		{Name: "our office", When: `request.address.startsWith("192.0.2.") && "sell" in request.skills`, Allow: []string{policy.ScopeDiscover}, Life: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newCenter(t, TokenRules{}, rules)
	q := c.request(newApplicant(t), nil)
	r, err := c.Authorise(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	g := c.grant(r)
	if len(g.Scope) != 1 || g.Scope[0] != policy.ScopeDiscover || len(g.Skills) != 0 || g.Exp-g.Nbf != 3600 {
		t.Errorf("grant %+v", g)
	}
	again, err := c.Authorise(t.Context(), q)
	if err != nil || !bytes.Equal(c.grant(again).JTI, g.JTI) {
		t.Errorf("a repeated request got another grant: %v", err)
	}
	abroad := c.request(newApplicant(t), nil)
	abroad.Attributes.Country = "FR"
	if _, err := c.Authorise(t.Context(), abroad); frame.CodeOf(err) != frame.PolicyDenied || !strings.Contains(err.Error(), "Germany") {
		t.Errorf("denied by rule: %v", err)
	}
	elsewhere := c.request(newApplicant(t), nil)
	elsewhere.Attributes.Address = "198.51.100.1/32"
	_, err = c.Authorise(t.Context(), elsewhere)
	wantCode(t, "nobody's opinion", err, frame.TokenInvalid)
	for what, r := range map[string]Rule{
		"no bool":         {Name: "x", When: `request.name`, Deny: true},
		"no expression":   {Name: "x", When: `request.`, Deny: true},
		"unknown name":    {Name: "x", When: `requests.name == ""`, Deny: true},
		"both":            {Name: "x", When: `true`, Deny: true, Allow: []string{policy.ScopeDiscover}},
		"neither":         {Name: "x", When: `true`},
		"scope of no-one": {Name: "x", When: `true`, Allow: []string{"root"}},
	} {
		if _, err := NewCELRules([]Rule{r}); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	endless, err := NewCELRules([]Rule{{Name: "endless", When: `[1,2,3,4,5,6,7,8,9].all(a,[1,2,3,4,5,6,7,8,9].all(b,[1,2,3,4,5,6,7,8,9].all(c,[1,2,3,4,5,6,7,8,9].all(d,[1,2,3,4,5,6,7,8,9].all(e,[1,2,3,4,5,6,7,8,9].all(f,a+b+c+d+e+f>0))))))`, Deny: true}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = newCenter(t, endless).Authorise(t.Context(), q)
	wantCode(t, "a rule that costs too much", err, frame.PolicyDenied)
}

// A grant that has ended and is not given again brings no certificate, which could not attach; one that counts still does.
func TestEndedGrantRenewsNothing(t *testing.T) {
	rules, err := NewCELRules([]Rule{{Name: "today", When: `true`, Allow: []string{policy.ScopeDiscover}, Life: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	c := newCenter(t, rules)
	a, id := newApplicant(t), c.id("E1")
	r, err := c.Authorise(t.Context(), c.request(a, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr, JTI: c.grant(r).JTI}); err != nil {
		t.Fatal(err)
	}
	c.cfg.Deciders = []Decider{TokenRules{}}
	c.open()
	renew := func() error {
		_, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr})
		return err
	}
	c.now = c.now.Add(30 * time.Minute)
	if err := renew(); err != nil {
		t.Errorf("while the grant counts: %v", err)
	}
	c.now = c.now.Add(time.Hour)
	wantCode(t, "after it has ended", renew(), frame.Expired)
}

// A rule that is true of everybody, meant for agents, makes nobody a gateway: only a token for gateways does, once.
func TestRulesMakeNoGateway(t *testing.T) {
	rules, err := NewCELRules([]Rule{
		{Name: "nobody from there", When: `request.address == "192.0.2.9/32"`, Deny: true},
		{Name: "office", When: `request.address.startsWith("192.0.2.")`, Allow: []string{policy.ScopeDiscover}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newCenter(t, rules, TokenRules{})
	ask := func(hash []byte, from string) error {
		q := c.request(newApplicant(t), hash)
		q.Attributes.Address = from
		_, err := c.AuthoriseGateway(t.Context(), q, nil)
		return err
	}
	wantCode(t, "with an agent's token", ask(c.token(TokenOptions{}), "192.0.2.1/32"), frame.TokenInvalid)
	hash := c.token(TokenOptions{Class: ClassGateway})
	wantCode(t, "from where a rule refuses it", ask(hash, "192.0.2.9/32"), frame.PolicyDenied)
	wantCode(t, "with a gateway's token", ask(hash, "192.0.2.1/32"), frame.OK)
	wantCode(t, "with the same once more", ask(hash, "192.0.2.1/32"), frame.TokenReplayed)
}

func TestPersonDecides(t *testing.T) {
	c := newCenter(t, TokenRules{}, NewManual())
	a := newApplicant(t)
	q := c.request(a, nil)
	r, err := c.Authorise(t.Context(), q)
	if err != nil || r.Code != frame.Pending || len(r.PendingID) != 16 {
		t.Fatalf("%+v, %v", r, err)
	}
	records := len(c.audit)
	if again, err := c.Authorise(t.Context(), q); err != nil || !bytes.Equal(again.PendingID, r.PendingID) {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	if len(c.audit) != records {
		t.Error("who waits fills the audit log by asking again")
	}
	open, err := c.OpenRequests()
	if err != nil || len(open) != 1 || open[0].Attributes.Organization != "Acme" {
		t.Fatalf("open requests %+v, %v", open, err)
	}
	stranger := c.request(newApplicant(t), nil)
	stranger.PendingID = r.PendingID
	_, err = c.Authorise(t.Context(), stranger)
	wantCode(t, "another key asks about it", err, frame.Binding)
	c.open()
	if err := c.Approve(t.Context(), open[0].ID, []string{policy.ScopeDiscover}); err != nil {
		t.Fatal(err)
	}
	q.PendingID = r.PendingID
	done, err := c.Authorise(t.Context(), q)
	if err != nil || done.Code != frame.OK {
		t.Fatalf("%+v, %v", done, err)
	}
	wantCode(t, "deciding twice", c.Refuse(t.Context(), open[0].ID, ""), frame.State)

	refused := c.request(newApplicant(t), nil)
	_, err = c.Authorise(t.Context(), refused)
	if err != nil {
		t.Fatal(err)
	}
	open, _ = c.OpenRequests()
	if err := c.Refuse(t.Context(), open[0].ID, "who are you"); err != nil {
		t.Fatal(err)
	}
	_, err = c.Authorise(t.Context(), refused)
	wantCode(t, "after a refusal", err, frame.PolicyDenied)
	if text := err.Error(); !strings.Contains(text, "an operator has denied") || !strings.Contains(text, "who are you") || strings.Contains(text, "rules") {
		t.Errorf("after a refusal: %v", err)
	}
	anew := c.request(newApplicant(t), nil) // the same agent with another key
	if r, err = c.Authorise(t.Context(), anew); err != nil || r.Code != frame.Pending {
		t.Errorf("asked anew: %+v, %v", r, err)
	}
	if last := c.audit[len(c.audit)-1]; last != "authorisation.pending" {
		t.Errorf("the record of it is %s", last)
	}
}

// Whoever is denied may ask anew, but not without end: each denied request counts against its address for its day, over restarts too.
func TestDeniedRequestsAreBounded(t *testing.T) {
	c := newCenter(t, NewManual())
	ask := func() error {
		q := c.request(newApplicant(t), nil)
		q.Attributes.Address = "192.0.2.1/32"
		r, err := c.Authorise(t.Context(), q)
		if err == nil {
			err = c.Refuse(t.Context(), hex.EncodeToString(r.PendingID), "no")
		}
		return err
	}
	for range maxPendingAddress {
		wantCode(t, "a request that is denied", ask(), frame.OK)
	}
	wantCode(t, "one more", ask(), frame.Overloaded)
	c.open()
	if open, err := c.OpenRequests(); err != nil || len(open) != 0 {
		t.Errorf("%d requests wait, %v", len(open), err)
	}
	wantCode(t, "one more after a restart", ask(), frame.Overloaded)
	c.now = c.now.Add(pendingLife + time.Second)
	wantCode(t, "a day later", ask(), frame.OK)
}

// An approval is of the provider and the skills that the operator saw.
func TestApprovalIsOfWhatWasAsked(t *testing.T) {
	c := newCenter(t, NewManual())
	a := newApplicant(t)
	r, err := c.Authorise(t.Context(), c.request(a, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Approve(t.Context(), hex.EncodeToString(r.PendingID), nil); err != nil {
		t.Fatal(err)
	}
	bank := c.request(a, nil)
	bank.Attributes.Organization = "Bank"
	_, err = c.Authorise(t.Context(), bank)
	wantCode(t, "as another provider", err, frame.Binding)
	more := c.request(a, nil)
	more.Skills = append(more.Skills, "pay")
	_, err = c.Authorise(t.Context(), more)
	wantCode(t, "with a skill more", err, frame.Binding)
	moved := c.request(a, nil)
	moved.Attributes.Address = "198.51.100.1/32"
	done, err := c.Authorise(t.Context(), moved)
	if err != nil {
		t.Fatal(err)
	}
	id := c.id("E1")
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr, JTI: c.grant(done).JTI}); err != nil {
		t.Fatal(err)
	}
	bank.AIC = string(id)
	_, err = c.Authorise(t.Context(), bank)
	wantCode(t, "as another provider when it is registered", err, frame.PolicyDenied)
}

func TestPendingRequestsAreBounded(t *testing.T) {
	c := newCenter(t, NewManual())
	ask := func(address string) error {
		q := c.request(newApplicant(t), nil)
		q.Attributes.Address = address
		_, err := c.Authorise(t.Context(), q)
		return err
	}
	for range maxPendingAddress {
		wantCode(t, "a request", ask("192.0.2.1/32"), frame.OK)
	}
	wantCode(t, "one more from there", ask("192.0.2.1/32"), frame.Overloaded)
	wantCode(t, "from elsewhere", ask("192.0.2.2/32"), frame.OK)
	open, err := c.OpenRequests()
	if err != nil || len(open) != maxPendingAddress+1 {
		t.Fatalf("%d open, %v", len(open), err)
	}
	if err := c.Refuse(t.Context(), open[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(pendingLife + time.Second)
	if err := c.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if open, err := c.OpenRequests(); err != nil || len(open) != 0 {
		t.Errorf("a day later %d are open, %v", len(open), err)
	}
	wantCode(t, "when the others have ended", ask("192.0.2.1/32"), frame.OK)
	for range maxPendingAddress - 1 {
		wantCode(t, "a request", ask("192.0.2.1/32"), frame.OK)
	}
	c.now = c.now.Add(pendingLife + time.Second)
	wantCode(t, "when they have ended and nobody has looked", ask("192.0.2.1/32"), frame.OK)
}

func TestPurgeTakesWhatHasEnded(t *testing.T) {
	c := newCenter(t, TokenRules{})
	_, id := c.enrolled("E1")
	c.now = c.now.Add(keepEnded + MaxTokenLife + time.Hour)
	if err := c.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, prefix := range []string{prefixToken, prefixGrant} {
		if err := c.cfg.Store.Records(prefix, func(string, []byte) error { left++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if left != 0 {
		t.Errorf("%d tokens and grants are left", left)
	}
	if s, err := c.Agent(string(id)); err != nil || s.AIC != string(id) {
		t.Errorf("the agent's own record: %+v, %v", s, err)
	}
}

// refuser is a signing side that signs nothing.
type refuser struct{}

func (refuser) Sign(context.Context, pki.Profile, crypto.PublicKey) ([][]byte, error) {
	return nil, frame.Errorf(frame.Internal, "no key today")
}

// Where the signing side fails nothing is kept that would look like an agent.
func TestFailedSigningLeavesNothing(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a := newApplicant(t)
	r, err := c.Authorise(t.Context(), c.request(a, c.token(TokenOptions{})))
	if err != nil {
		t.Fatal(err)
	}
	jti := c.grant(r).JTI
	c.AMC.cfg.Signer = refuser{}
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(c.id("E1")), CSR: a.csr, JTI: jti}); err == nil {
		t.Fatal("issued without a signature")
	}
	_, err = c.Agent(string(c.id("E1")))
	wantCode(t, "the record of an agent that was not issued", err, frame.NotFound)
	c.AMC.cfg.Signer = c.cfg.Signer
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(c.id("E1")), CSR: a.csr, JTI: jti}); err != nil {
		t.Errorf("when it signs again: %v", err)
	}
}
