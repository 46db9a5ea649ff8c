package app

import (
	"fmt"
	"time"

	"agentgw/gatewayd/internal/admin"
	"agentgw/gatewayd/internal/embedding"
	"agentgw/internal/secret"
)

// openEmbedder has the directory rank by the vectors of an embeddings endpoint, where the configuration names one.
func (a *app) openEmbedder() error {
	c := a.cfg.Embedder
	if c.URL == "" {
		return nil
	}
	var key []byte
	if c.APIKey != "" {
		var err error
		if key, err = secret.Read(c.APIKey); err != nil {
			return fmt.Errorf("embedder.api_key: %w", err)
		}
	}
	client, err := embedding.NewClient(embedding.Config{
		URL: c.URL, Model: c.Model, Key: string(key), Dim: c.Dimension, Batch: c.Batch, AllowPrivate: c.AllowPrivate,
	})
	if err != nil {
		return fmt.Errorf("embedder: %w", err)
	}
	a.registry.UseEmbedder(client.ID(), client.Dim())
	a.meanings = embedding.NewKeeper(client, a.registry, client.Batch(), time.Duration(c.Timeout), a.log)
	a.endpoint = client.Endpoint()
	return nil
}

// embedderStatus is nil where no endpoint is configured.
func (a *app) embedderStatus() *admin.EmbedderStatus {
	if a.meanings == nil {
		return nil
	}
	s := a.meanings.Standing()
	out := &admin.EmbedderStatus{Endpoint: a.endpoint, Model: a.cfg.Embedder.Model, State: "ready", Vectors: s.Filled, Of: s.Wanted}
	switch {
	case !s.Failing.IsZero():
		since, tried := s.Failing.UTC(), s.Tried.UTC()
		out.State, out.Since, out.Tried = "failing", &since, &tried
	case s.Filled < s.Wanted:
		out.State = "filling"
	}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	return out
}
