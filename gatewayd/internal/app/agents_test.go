package app

import (
	"bytes"
	"strings"
	"testing"

	"agentgw/directory/store/storetest"
	"agentgw/gatewayd/internal/admin"
)

// A page of an export is a few MiB however large its entries are: 100 of the largest, each with an Agent Card, were 13, and six times that where
// JSON escapes them.
func TestPagesOfAnExportAreBounded(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "pharmacy.example")
	const agents, size = 60, 60 << 10
	for i := range agents {
		e := storetest.Entry(i+1, "kite", "described")
		e.ACS = append(bytes.TrimSuffix(e.ACS, []byte("}")), `,"x-notes":"`+strings.Repeat("n", size)+`"}`...)
		e.Card = bytes.Repeat([]byte("c"), size)
		if _, err := g.app.registry.Register(t.Context(), e, nil, nil, now()); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for after, pages := "", 0; ; pages++ {
		p := must(g.app.ExportAgents(admin.AgentsRequest{After: after}))
		octets := 0
		for _, e := range p.Entries {
			seen[e.Entry.CapabilityIDs[0]] = true
			octets += len(e.ACS) + len(e.Card)
		}
		if octets > exportOctets || len(p.Entries) == 0 {
			t.Fatalf("a page of %d entries and %d octets", len(p.Entries), octets)
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if len(seen) != agents {
		t.Errorf("%d of %d agents were exported", len(seen), agents)
	}
}
