package main

import (
	"strings"
	"testing"
	"time"

	"agentgw/gatewayd/internal/admin"
)

func TestStatusTellsOfTheEmbedder(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	later := at.Add(time.Minute)
	for want, e := range map[string]*admin.EmbedderStatus{
		"": nil,
		"embedder  https://x.example/v1, model m: ready, 7 vectors\n":                                                                          {State: "ready", Vectors: 7, Of: 7},
		"filling 3 of 7 vectors; entries without theirs are ranked by their words meanwhile\n":                                                 {State: "filling", Vectors: 3, Of: 7},
		"(the last round left some out: no)\n":                                                                                                 {State: "filling", Vectors: 3, Of: 7, Error: "no"},
		"failing since 2026-11-30T10:00:00Z, last tried 2026-11-30T10:01:00Z, 3 of 7 vectors filled; requests are ranked by their words alone": {State: "failing", Vectors: 3, Of: 7, Since: &at, Tried: &later, Error: "no"},
	} {
		if e != nil {
			e.Endpoint, e.Model = "https://x.example/v1", "m"
		}
		var b strings.Builder
		printStatus(&b, admin.Status{Embedder: e})
		if got := b.String(); !strings.Contains(got, want) || strings.Contains(got, "embedder") != (e != nil) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
}
