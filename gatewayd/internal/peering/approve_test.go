package peering

import (
	"testing"

	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

// A domain that is introduced where the row says ask waits; approved it is known, with its digests, its status, and after a restart.
func TestIntroducedDomainWaitsForApproval(t *testing.T) {
	c := &clock{}
	dh, dt, df := identitytest.New(t, "home.example", "A1"), identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "far.example", "C1")
	home, hub, far := newStatusSide(t, dh, c), newStatusSide(t, dt, c), newStatusSide(t, df, c)
	customer := func(d *identitytest.Domain) Row {
		r := row(d)
		r.Role, r.Transit, r.Introduces = "customer", true, nil
		return r
	}
	asking := row(dt, hub.addr)
	asking.Role, asking.AskFirst = "provider", true
	set(t, hub.side, customer(dh), customer(df))
	set(t, far.side, asking)
	far.offer(t, "hotel")
	far.issue(t, df.Status(t, 1, c.now()))
	set(t, home.side, asking)
	until(t, "far.example waits", func() bool { return len(home.cfg.Trust.Pending()) == 1 })
	until(t, "its digests are refused for their key", func() bool {
		n := home.node.Snapshot().Neighbours
		return len(n) == 1 && n[0].Nacked > 0
	})
	if home.knows(df.Name) || home.DomainOf(string(df.Gateway)) != "" || home.pins[df.Name] {
		t.Fatal("it is believed unasked")
	}
	if err := home.Approve(df.Name, [32]byte{1}); frame.CodeOf(err) != frame.TrustDenied {
		t.Errorf("under another fingerprint: %v", err)
	}
	if err := home.Approve(df.Name, home.cfg.Trust.Pending()[0].Fingerprint); err != nil {
		t.Fatal(err)
	}
	until(t, "its digests", func() bool { return home.knows(df.Name) })
	if !home.pins[df.Name] {
		t.Error("the approval is not kept")
	}
	until(t, "its status list", func() bool { return home.cfg.Statuses.Fresh(string(df.Gateway)) == nil })
}

// A row that no longer asks lets in what waits; one that may introduce no more takes it away.
func TestRowDecidesWhatWaits(t *testing.T) {
	hub, far := identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "far.example", "F1")
	home := newSide(t, identitytest.New(t, "home.example", "A1"), nil)
	asking := row(hub)
	asking.AskFirst = true
	wait := func() {
		t.Helper()
		set(t, home, asking)
		if err := home.onBundle(t.Context(), string(hub.Gateway), hub.Name, far.Raw); err != nil || len(home.cfg.Trust.Pending()) != 1 {
			t.Fatal(err, home.cfg.Trust.Pending())
		}
	}
	wait()
	none := asking
	none.Introduces = nil
	set(t, home, none)
	if n := len(home.cfg.Trust.Pending()); n != 0 {
		t.Errorf("%d wait without the right to introduce", n)
	}
	wait()
	set(t, home, row(hub))
	if a := home.cfg.Trust.Domain(far.Name); a == nil || a.Source != identity.Introduced || !home.pins[far.Name] {
		t.Errorf("not believed by a row that does not ask: %+v", a)
	}
}
