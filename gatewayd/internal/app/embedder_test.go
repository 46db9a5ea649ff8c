package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentgw/config"
	"agentgw/directory"
	"agentgw/directory/semreq"
	"agentgw/gatewayd/internal/admin"
)

// TestAnEmbeddingsEndpointRanks is the whole way: a gateway whose configuration names an endpoint, the entry that it embeds, a request
// that only meanings answer, and the endpoint's end.
func TestAnEmbeddingsEndpointRanks(t *testing.T) {
	var down atomic.Bool
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Input []string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || down.Load() || r.Header.Get("Authorization") != "Bearer k3y" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		type vector struct {
			Index     int        `json:"index"`
			Embedding [3]float64 `json:"embedding"`
		}
		var out struct {
			Data []vector `json:"data"`
		}
		for i, text := range in.Input {
			v := vector{Index: i, Embedding: [3]float64{0, 0, 1}}
			switch text = strings.ToLower(text); {
			case strings.Contains(text, "lozenges"), strings.Contains(text, "hoarse"):
				v.Embedding = [3]float64{1, 0, .2}
			case strings.Contains(text, "hotel"), strings.Contains(text, "lodging"):
				v.Embedding = [3]float64{0, 1, .2}
			}
			out.Data = append(out.Data, v)
		}
		json.NewEncoder(w).Encode(out)
	}))
	t.Cleanup(endpoint.Close)
	key := filepath.Join(t.TempDir(), "embeddings.key")
	if err := os.WriteFile(key, []byte("k3y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGatewayWith(t, "clinic.example", func(c *config.Gateway) {
		c.Embedder = config.Embedder{URL: endpoint.URL + "/v1/embeddings", Model: "m", Dimension: 3, APIKey: key, Batch: 8, Timeout: config.Duration(2 * time.Second), AllowPrivate: true}
	})
	for i, skill := range []struct{ name, description string }{
		{"Corner shop", "Sells lozenges and syrup."}, {"Night desk", "Finds a hotel room for some nights."}, {"Clerk", "Reads invoices."}, {"Gardener", "Waters the plants."}, {"Archive", "Keeps old papers."},
	} {
		id := fmt.Sprintf("2.999.1.1.1.EMBED.1.%d", i)
		doc := fmt.Sprintf(`{"aic":%q,"active":true,"lastModifiedTime":"2026-11-30T10:00:00+00:00","protocolVersion":"02.02","name":%q,"description":"","version":"1.0.0","provider":{"organization":"P%d"},
			"securitySchemes":{},"endPoints":[],"capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"skill","name":%q,"description":%q,"tags":["x"]}]}`,
			id, skill.name, i, skill.name, skill.description)
		entry := directory.Entry{AIC: id, ACS: []byte(doc), State: directory.Active, Visibility: directory.VisiblePublic, Skills: []string{"skill"}}
		if _, err := g.app.registry.Register(t.Context(), entry, nil, nil, now()); err != nil {
			t.Fatal(err)
		}
		g.app.registry.SetAlive(id, true, now())
	}
	ask := func(text string) *admin.Match {
		t.Helper()
		m, err := g.app.Match(t.Context(), admin.MatchRequest{Ask: semreq.Ask{Query: semreq.Query{Text: text}}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var m *admin.Match
	for range 500 { // until the entries have their vectors
		if m = ask("hoarse"); len(m.Candidates) > 0 && m.Candidates[0].Cosine > .9 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(m.Candidates) == 0 || m.Candidates[0].Name != "Corner shop" || m.Reduced != "" || !strings.Contains(m.Embedder, " m/3") {
		t.Fatalf("by meaning: %+v", m)
	}
	if s := g.app.Status().Embedder; s == nil || s.State != "ready" || s.Vectors != 5 || s.Of != 5 || s.Endpoint != endpoint.URL+"/v1/embeddings" || s.Model != "m" || s.Error != "" {
		t.Errorf("status: %+v", s)
	}
	if m = ask("lodging"); len(m.Candidates) == 0 || m.Candidates[0].Name != "Night desk" {
		t.Errorf("by meaning: %+v", m)
	}
	down.Store(true)
	m = ask("a hotel room")
	if len(m.Candidates) == 0 || m.Candidates[0].Name != "Night desk" || m.Candidates[0].Cosine != 0 || !strings.Contains(m.Reduced, "words alone") || strings.Contains(m.Reduced, "k3y") {
		t.Errorf("without the endpoint: %+v", m)
	}
	if s := g.app.Status().Embedder; s.State != "failing" || s.Since == nil || !strings.Contains(s.Error, "500") || strings.Contains(s.Error, "k3y") {
		t.Errorf("status: %+v", s)
	}
	if s := newGateway(t, "plain.example").app.Status(); s.Embedder != nil {
		t.Errorf("without an endpoint: %+v", s.Embedder)
	}
}
