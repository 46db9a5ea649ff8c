package peering

import (
	"context"
	"slices"
	"testing"

	"agentgw/internal/frame"
	"agentgw/internal/identity/identitytest"
)

func TestChangesOfTrustAreRecorded(t *testing.T) {
	hub, other := identitytest.New(t, "hub.example", "B1"), identitytest.New(t, "other.example", "C1")
	far, impostor := identitytest.New(t, "far.example", "F1"), identitytest.New(t, "far.example", "F2")
	home := newSide(t, identitytest.New(t, "home.example", "A1"), nil)
	var got []string
	home.cfg.Audit = func(_ context.Context, kind string, data any) error {
		got = append(got, kind+" "+data.(map[string]any)["domain"].(string))
		return nil
	}
	rows := func(list ...Row) {
		t.Helper()
		if err := home.SetRows(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	narrow := row(hub)
	narrow.MayQuery = []string{"agw.discover"}
	rows(row(hub), row(other))
	rows(row(hub), row(other)) // nothing changed
	rows(narrow, row(other))
	if err := home.onBundle(t.Context(), string(hub.Gateway), hub.Name, far.Raw); err != nil {
		t.Fatal(err)
	}
	if err := home.onBundle(t.Context(), string(hub.Gateway), hub.Name, far.Raw); err != nil { // known
		t.Fatal(err)
	}
	if err := home.onBundle(t.Context(), string(other.Gateway), other.Name, impostor.Raw); frame.CodeOf(err) != frame.TrustDenied {
		t.Fatal(err)
	}
	rows(row(other))
	want := []string{
		"peer.added hub.example", "peer.added other.example", "peer.changed hub.example", "trust.introduced far.example", "trust.refused far.example",
		"peer.removed hub.example",
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	for range 100 { // a neighbour cannot fill the log with what is refused
		home.onBundle(t.Context(), string(other.Gateway), other.Name, impostor.Raw)
	}
	if n := len(got) - len(want); n > 30 {
		t.Errorf("100 refusals brought %d records", n)
	}
}
