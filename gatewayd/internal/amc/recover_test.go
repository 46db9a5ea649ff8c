package amc

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/directory/arp"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

func (c *center) issued(a *applicant, id string) Issued {
	return Issued{
		AIC: id, Gateway: string(c.domain.Gateway), Serial: hex.EncodeToString(a.spki[:16]), SPKI: hex.EncodeToString(a.spki[:]),
		NotAfter: c.now.Add(time.Hour), Grant: strings.Repeat("0b", 16),
	}
}

// A change of standing that cannot be recorded does not happen: a restored backup would undo it.
func TestStandingIsRecordedBeforeItIsChanged(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a := newApplicant(t)
	id := string(c.domain.AIC(t))
	if err := c.Adopt(t.Context(), string(c.domain.Gateway), Legacy{AIC: id, SPKI: a.spki, CertEnd: c.now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	c.AMC.cfg.Audit = func(context.Context, string, any) error { return full }
	if err := c.Revoke(t.Context(), id, 0, "why"); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if s, err := c.Agent(id); err != nil || s.State != identity.Good {
		t.Errorf("it is %v (%v)", s.State, err)
	}
	var before identity.State
	c.AMC.cfg.Audit = func(context.Context, string, any) error {
		s, err := c.Agent(id)
		before = s.State
		return err
	}
	if err := c.Suspend(t.Context(), id, "why"); err != nil || before != identity.Good {
		t.Errorf("recorded in state %v (%v)", before, err)
	}
	c.AMC.cfg.Audit = func(_ context.Context, kind string, _ any) error {
		t.Errorf("%s is recorded, and nothing changes", kind)
		return nil
	}
	wantCode(t, "suspended already", c.Suspend(t.Context(), id, "why"), frame.State)
	wantCode(t, "an unknown AIC", c.Revoke(t.Context(), "2.999.1.1.1.NOBODY.1.1.1.0000", 0, "why"), frame.NotFound)
}

func TestRestoredRecordsCatchUp(t *testing.T) {
	c := newCenter(t, TokenRules{})
	a, next := newApplicant(t), newApplicant(t)
	known, lost := string(c.domain.AIC(t)), string(c.domain.AIC(t))
	if err := c.Adopt(t.Context(), string(c.domain.Gateway), Legacy{AIC: known, SPKI: a.spki, CertEnd: c.now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	token := c.token(TokenOptions{})
	for range 2 { // all of it may be done again
		if err := errors.Join(
			c.Bury(t.Context(), c.issued(a, lost), "lost"), c.Reissued(t.Context(), c.issued(next, known)),
			c.Reapply(t.Context(), identity.Suspended, Changed{AIC: known}), c.Reapply(t.Context(), identity.Revoked, Changed{AIC: "2.999.1.1.1.NOBODY.1.1.1.0000"}),
		); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := c.Agent(lost); err != nil || s.State != identity.Revoked {
		t.Errorf("the lost agent: %+v, %v", s, err)
	}
	if err := c.Reapply(t.Context(), identity.Good, Changed{AIC: lost}); err != nil {
		t.Error(err)
	}
	if s, _ := c.Agent(lost); s.State != identity.Revoked {
		t.Error("a revocation is not for good")
	}
	if s, err := c.Agent(known); err != nil || s.State != identity.Suspended || !s.CertEnd.Equal(c.now.Add(time.Hour)) {
		t.Errorf("the agent that is known: %+v, %v", s, err)
	}
	if n := len(c.certs.by); n != 2 {
		t.Errorf("OCSP knows %d certificates; the lost one, and the newest of the re-keyed agent are due", n)
	}
	if n, err := c.VoidTokens(t.Context()); n != 1 || err != nil {
		t.Errorf("%d tokens, %v", n, err)
	}
	if err := c.Check(t.Context(), token, a.spki); frame.CodeOf(err) != frame.TokenInvalid {
		t.Errorf("a void token: %v", err)
	}
	bad := c.issued(a, lost)
	bad.Serial = "0a"
	if err := c.Bury(t.Context(), bad, "lost"); err == nil {
		t.Error("a malformed record is taken")
	}
}

// With AuditSoon only what ends well may be late: a denial is on the disk at once.
func TestOnlyWhatIsCoveredIsRecordedLate(t *testing.T) {
	c := newCenter(t, TokenRules{})
	var soon []string
	c.AMC.cfg.Gateway = c.domain.Gateway // whose own records cover what is late
	c.AMC.cfg.AuditSoon = func(kind string, _ any) error { soon = append(soon, kind); return nil }
	a, id := c.enrolled("E1")
	if want := []string{"authorisation.granted", KindIssued}; !slices.Equal(soon, want) {
		t.Errorf("late are %q, want %q", soon, want)
	}
	soon, c.audit = nil, nil
	if _, err := c.Authorise(t.Context(), c.request(a, make([]byte, 32))); err == nil {
		t.Fatal("an unknown token is granted")
	}
	if _, err := c.Issue(t.Context(), string(c.domain.Gateway), &arp.Renew{AIC: string(id), CSR: a.csr}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"authorisation.denied", KindRenewed}; len(soon) != 0 || !slices.Equal(c.audit, want) {
		t.Errorf("late %q, at once %q, want %q at once", soon, c.audit, want)
	}
}
