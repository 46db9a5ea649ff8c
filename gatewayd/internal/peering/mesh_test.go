package peering

import (
	"slices"
	"testing"

	"agentgw/internal/identity/identitytest"
)

// What a gateway of the own domain passes on counts as of a peer only where no other can have introduced it.
func TestASiblingSpeaksForNoIntroducer(t *testing.T) {
	wide, narrow := identitytest.New(t, "a.example", "B1"), identitytest.New(t, "b.example", "C1")
	far := identitytest.New(t, "far.example", "F1")
	d := identitytest.New(t, "home.example", "A1")
	home := newSide(t, d, nil, func(c *Config) { c.Mesh = true })
	rw, rn := row(wide), row(narrow)
	rn.MayQuery = []string{"discover:none"}
	if err := home.SetRows(t.Context(), []Row{rw, rn}); err != nil {
		t.Fatal(err)
	}
	// b.example has introduced far.example at the sibling; a.example has said nothing to anybody.
	if err := home.onBundle(t.Context(), "sibling", d.Name, far.Raw); err != nil {
		t.Fatal(err)
	}
	if home.cfg.Trust.Domain("far.example") != nil {
		t.Fatal("two peers could have introduced it, and it is believed without either")
	}
	if err := home.onBundle(t.Context(), string(narrow.Gateway), narrow.Name, far.Raw); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(home.cfg.Trust.Domain("far.example").By, "a.example") {
		t.Error("a.example never introduced it")
	}
	// The only introducer loses the right.
	rn.Introduces = nil
	if err := home.SetRows(t.Context(), []Row{rw, rn}); err != nil {
		t.Fatal(err)
	}
	if home.cfg.Trust.Domain("far.example") != nil {
		t.Error("far.example is trusted although nobody who introduced it may do so any more")
	}
}

// The first address of b is a gateway of c: b must be reached by the second.
func TestADiallerTakesOnlyWhomItLooksFor(t *testing.T) {
	a, b, c := identitytest.New(t, "a.example", "A1"), identitytest.New(t, "b.example", "B1"), identitytest.New(t, "c.example", "C1")
	home, pb, pc := newSide(t, a, nil), newSide(t, b, nil), newSide(t, c, nil)
	pb.peer(t, a)
	pc.peer(t, a)
	if err := home.SetRows(t.Context(), []Row{row(b, pc.addr, pb.addr), row(c)}); err != nil {
		t.Fatal(err)
	}
	until(t, "b is connected", func() bool { return home.linkOf("b.example") != nil })
}

// Where one peer alone may introduce a domain, what another gateway of the own domain passes on counts as of that one.
func TestASiblingPassesOnWhatOnePeerIntroduced(t *testing.T) {
	peer, far := identitytest.New(t, "b.example", "C1"), identitytest.New(t, "far.example", "F1")
	d := identitytest.New(t, "home.example", "A1")
	home := newSide(t, d, nil, func(c *Config) { c.Mesh = true })
	if err := home.SetRows(t.Context(), []Row{row(peer)}); err != nil {
		t.Fatal(err)
	}
	if err := home.onBundle(t.Context(), "sibling", d.Name, far.Raw); err != nil {
		t.Fatal(err)
	}
	if a := home.cfg.Trust.Domain("far.example"); a == nil || !slices.Equal(a.By, []string{"b.example"}) {
		t.Errorf("%+v", a)
	}
}
