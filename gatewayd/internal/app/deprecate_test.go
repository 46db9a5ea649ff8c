package app

import (
	"testing"

	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/frame"
)

func TestDeprecatedAgentIsOfferedOn(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "clinic.example")
	done, _ := g.mustEnrol()
	deprecate := func(undo bool) error {
		return g.app.Deprecate(t.Context(), admin.DeprecateRequest{AIC: done.AIC, Undo: undo})
	}
	if err := deprecate(false); err != nil || g.stateOf(t, done.AIC) != directory.Deprecated {
		t.Fatal(err, g.stateOf(t, done.AIC))
	}
	m, err := g.app.Match(t.Context(), admin.MatchRequest{Offline: true, Ask: semreq.Ask{Query: semreq.Query{Text: "medicine for a sore throat"}}})
	if err != nil || len(m.Candidates) == 0 {
		t.Errorf("it is offered no more: %+v %v", m, err)
	}
	if p, err := g.app.Agents(admin.AgentsRequest{State: "deprecated"}); err != nil || len(p.Agents) != 1 {
		t.Errorf("listed by its state: %+v %v", p, err)
	}
	g.setStanding(done.AIC, "suspended")
	eventually(t, "suspended", func() bool { return g.stateOf(t, done.AIC) == directory.Suspended })
	if err := deprecate(false); frame.CodeOf(err) != frame.State {
		t.Errorf("a suspended agent: %v", err)
	}
	g.setStanding(done.AIC, "good")
	eventually(t, "active", func() bool { return g.stateOf(t, done.AIC) == directory.Active })
	if err := deprecate(false); err != nil {
		t.Fatal(err)
	}
	if err := deprecate(true); err != nil || g.stateOf(t, done.AIC) != directory.Active {
		t.Errorf("taken back: %v %v", err, g.stateOf(t, done.AIC))
	}
	if _, err := g.app.Agents(admin.AgentsRequest{State: "gone"}); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("a state that is none: %v", err)
	}
}
