package app

import (
	"fmt"
	"time"

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
	return nil
}
