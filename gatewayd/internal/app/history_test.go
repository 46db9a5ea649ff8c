package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"agentgw/directory"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

// An agent that changes its specification, renews, is suspended and ends: each change of what it says is one row, a renewal is none.
func TestAgentHistory(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "clinic.example")
	done, _ := g.mustEnrol()
	ask := admin.AgentRequest{AIC: strings.ToLower(done.AIC)}
	update := func(change func(*directory.Entry)) {
		t.Helper()
		e := must(g.app.registry.Get(done.AIC))
		change(&e)
		if _, err := g.app.registry.Update(t.Context(), e, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(e *directory.Entry) { e.Provenance.CertSHA256[0]++ }
	if h, err := g.app.AgentHistory(ask); err != nil || len(h.Editions) != 1 || h.Editions[0].First != 1 || h.Editions[0].Last != 1 {
		t.Fatalf("%+v %v", h, err)
	}
	if d, err := g.app.AgentDiff(admin.DiffRequest{AIC: done.AIC}); err != nil || len(d.Changes) != 0 || d.Changes == nil {
		t.Errorf("nothing has changed: %+v %v", d, err)
	}
	update(renew)
	update(func(e *directory.Entry) {
		e.ACS = []byte(strings.Replace(string(e.ACS), `"name":"`, `"name":"New `, 1))
		e.Visibility = directory.VisiblePrivate
	})
	update(renew)
	update(func(e *directory.Entry) { e.State = directory.Suspended })
	h, err := g.app.AgentHistory(ask)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][2]uint64
	for _, e := range h.Editions {
		rows = append(rows, [2]uint64{e.First, e.Last})
	}
	if !slices.Equal(rows, [][2]uint64{{1, 2}, {3, 4}, {5, 5}}) {
		t.Fatalf("editions %v", rows)
	}
	if c := h.Editions[1].Changed; len(c) != 2 || !strings.HasPrefix(c[0], "acs.") || c[1] != "visibility" || h.Editions[1].Since.Before(h.Editions[0].Since) {
		t.Errorf("%+v", h.Editions[1])
	}
	if e := h.Editions[2]; !slices.Equal(e.Changed, []string{"state"}) || e.State != "SUSPENDED" {
		t.Errorf("%+v", e)
	}
	d, err := g.app.AgentDiff(admin.DiffRequest{AIC: done.AIC})
	if err != nil || d.From != 4 || d.To != 5 || len(d.Changes) != 1 || string(d.Changes[0].Old) != `"ACTIVE"` || string(d.Changes[0].New) != `"SUSPENDED"` {
		t.Errorf("the last change: %+v %v", d, err)
	}
	if d, err = g.app.AgentDiff(admin.DiffRequest{AIC: done.AIC, From: 1, To: 3}); err != nil || d.From != 2 || d.To != 4 || len(d.Changes) != 2 {
		t.Errorf("by versions of the editions: %+v %v", d, err)
	}
	if _, err = g.app.AgentDiff(admin.DiffRequest{AIC: done.AIC, From: 6}); frame.CodeOf(err) != frame.NotFound || !strings.Contains(err.Error(), "the last is 5") {
		t.Errorf("a version to come: %v", err)
	}
	if err := g.app.Withdraw(t.Context(), admin.WithdrawRequest{AIC: done.AIC, Reason: "retired"}); err != nil {
		t.Fatal(err)
	}
	if h, err = g.app.AgentHistory(ask); err != nil || len(h.Editions) != 3 || h.Ended == nil || h.Ended.Reason != "retired" {
		t.Errorf("of one that has ended: %+v %v", h, err)
	}
	for name, code := range map[string]frame.Code{"1.2": frame.ReqInvalid, string(g.app.home.gateway): frame.NotFound} {
		if _, err := g.app.AgentHistory(admin.AgentRequest{AIC: name}); frame.CodeOf(err) != code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of an edition whose beginning is forgotten nobody is told that it began with version 1.
func TestOldestEditionsAreForgotten(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "clinic.example")
	done, _ := g.mustEnrol()
	for i := range 20 {
		e := must(g.app.registry.Get(done.AIC))
		e.State = []directory.State{directory.Deprecated, directory.Active}[i%2]
		if _, err := g.app.registry.Update(t.Context(), e, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	h := must(g.app.AgentHistory(admin.AgentRequest{AIC: done.AIC}))
	if n := len(h.Editions); n != 17 || h.Editions[0].First != 0 || h.Editions[0].Last != 5 || h.Editions[n-1].Last != 21 {
		t.Errorf("%d editions, %+v", n, h.Editions[0])
	}
	if _, err := g.app.AgentDiff(admin.DiffRequest{AIC: done.AIC, From: 2}); frame.CodeOf(err) != frame.NotFound || !strings.Contains(err.Error(), "the oldest is 5") {
		t.Errorf("a version that is forgotten: %v", err)
	}
}
