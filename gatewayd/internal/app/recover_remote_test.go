package app

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"

	"agentgw/directory"
	"agentgw/directory/arp"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/daemon"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// memberAgent is an agent of a gateway whose AMC is on another host.
type memberAgent struct {
	*arp.Enrolled
	cert tls.Certificate
}

func (m memberAgent) attach(g *gateway) error {
	_, err := g.attach(m.cert, &arp.Attach{AIC: m.AIC, BootID: make([]byte, 16), Grant: m.Grant})
	return err
}

func mustEnrolBy(t *testing.T, center, g *gateway) memberAgent {
	t.Helper()
	done, err := enrolBy(t, center, g)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := identity.TLSCertificate(done.Chain, g.key)
	if err != nil {
		t.Fatal(err)
	}
	return memberAgent{done, cert}
}

// reKey gives an agent a new key, when the pause after its last change is over.
func (m memberAgent) reKey(t *testing.T, g *gateway) memberAgent {
	t.Helper()
	key, csr := newKey(t)
	var next *arp.Credential
	eventually(t, "the re-key", func() (done bool) {
		var err error
		if next, err = g.renew(m.cert, m.AIC, csr); err != nil && frame.CodeOf(err) != frame.RateLimited {
			t.Fatal(err)
		}
		return err == nil
	})
	cert, err := identity.TLSCertificate(next.Chain, key)
	if err != nil {
		t.Fatal(err)
	}
	out := memberAgent{&arp.Enrolled{AIC: m.AIC, Grant: next.Grant}, cert}
	if next.Grant == nil {
		t.Fatal("a new key without a grant")
	}
	return out
}

// A gateway that has joined an AMC on another host takes all that its own log tells of the time after the backup, while the AMC is away too: no
// revocation is undone, no old key counts again, and the AMC hears of the registrations that are lost when it is back.
func TestRestoreOfAGatewayThatHasJoined(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	suspended, revoked, withdrawn, kept, reKeyed, resumed := mustEnrolBy(t, center, g), mustEnrolBy(t, center, g), mustEnrolBy(t, center, g),
		mustEnrolBy(t, center, g), mustEnrolBy(t, center, g), mustEnrolBy(t, center, g)
	follows := func(m memberAgent, state string, want directory.State) {
		t.Helper()
		center.setStanding(m.AIC, state)
		eventually(t, "the gateway follows", func() bool { return g.stateOf(t, m.AIC) == want })
	}
	follows(resumed, "suspended", directory.Suspended)
	backup := g.backup(t)
	follows(resumed, "good", directory.Active)
	follows(suspended, "suspended", directory.Suspended)
	follows(revoked, "revoked", directory.Revoked)
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: withdrawn.AIC, Reason: "left"}); err != nil {
		t.Fatal(err)
	}
	old := reKeyed
	reKeyed = reKeyed.reKey(t, g)
	lost := mustEnrolBy(t, center, g)
	center.stop()
	g.stop()
	if done := g.restore(t, RestoreOptions{File: backup}); !done.Restored || done.Missing != "" {
		t.Fatalf("%+v", done)
	}
	g.start()
	for name, c := range map[string]struct {
		of    memberAgent
		state directory.State
		in    bool
	}{
		"suspended": {suspended, directory.Suspended, false}, "revoked": {revoked, directory.Revoked, false},
		"withdrawn": {withdrawn, directory.Withdrawn, false}, "lost": {lost, directory.Revoked, false}, "kept": {kept, directory.Active, true},
		"resumed": {resumed, directory.Active, true}, "with a new key": {reKeyed, directory.Active, true}, "with its old key": {old, directory.Active, false},
	} {
		if state := g.stateOf(t, c.of.AIC); state != c.state {
			t.Errorf("the agent that was %s is %v", name, state)
		}
		if err := c.of.attach(g); (err == nil) != c.in {
			t.Errorf("the agent %s attaches: %v", name, err)
		}
	}
	if r := strings.Join(g.records(), "\n"); !strings.Contains(r, kindLost+" "+lost.AIC) || !strings.Contains(r, kindRestored) {
		t.Errorf("the log:\n%s", r)
	}
	center.start()
	eventually(t, "the AMC back", func() bool { ok, _ := g.app.remote.Attached(); return ok })
	g.app.payOwed(t.Context())
	for _, m := range []memberAgent{lost, withdrawn, revoked} {
		if s, err := center.app.amc.Agent(m.AIC); err != nil || s.State != identity.Revoked {
			t.Errorf("the AMC's record of %s: %+v, %v", m.AIC, s, err)
		}
	}
	follows(suspended, "good", directory.Active)
	if again := mustEnrolBy(t, center, g); again.AIC == lost.AIC {
		t.Error("an AIC twice")
	}
	g.stop()
	if r := g.verify(); !r.OK {
		t.Errorf("its log: %+v", r.Damage)
	}
}

// A backup goes back to whom it is of: an AMC alone is no gateway, and of two gateways of a domain each has its own.
func TestRestoreKnowsWhoseTheBackupIs(t *testing.T) {
	t.Parallel()
	center, g := newRemoteDomain(t)
	agent := mustEnrolBy(t, center, g)
	center.setStanding(agent.AIC, "suspended")
	ofAMC, ofGateway := center.backup(t), g.backup(t)
	center.setStanding(agent.AIC, "revoked")
	center.stop()
	g.stop()
	for _, c := range []struct {
		into *gateway
		file string
	}{{g, ofAMC}, {center, ofGateway}} {
		if _, err := Restore(c.into.cfg, RestoreOptions{File: c.file}, slog.New(slog.DiscardHandler)); daemon.ExitCode(err) != daemon.ExitUsage {
			t.Errorf("a backup of another process of the domain: %v", err)
		}
	}
	if done := center.restore(t, RestoreOptions{File: ofAMC}); !done.Restored || done.Missing != "" {
		t.Fatalf("%+v", done)
	}
	center.start()
	if s, err := center.app.amc.Agent(agent.AIC); err != nil || s.State != identity.Revoked {
		t.Errorf("revoked after the backup, it is %+v, %v", s, err)
	}
	g.start()
	eventually(t, "the gateway attached", func() bool { ok, _ := g.app.remote.Attached(); return ok })
	mustEnrolBy(t, center, g)
}
