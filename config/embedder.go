package config

import (
	"net/netip"
	"net/url"
	"time"
)

// Embedder is an endpoint of the OpenAI embeddings API that requests are ranked by, in the place of the built-in token table.
type Embedder struct {
	URL       string   `yaml:"url"`       // of POST, such as https://api.example/v1/embeddings; empty: the built-in table
	Model     string   `yaml:"model"`     // as the endpoint calls it
	APIKey    string   `yaml:"api_key"`   // file of the bearer token; a systemd credential of its base name comes first; empty: none is sent
	Dimension int      `yaml:"dimension"` // components of its vectors, 1 to 4096
	Timeout   Duration `yaml:"timeout"`   // what a request may wait for it; 2s, at most 30s. Entries are embedded beside the requests, in up to 30s a batch
	Batch     int      `yaml:"batch"`     // texts of a call, 64, at most 2048
	// AllowPrivate admits an endpoint in a private network or on this machine, the latter with http too
	AllowPrivate bool `yaml:"allow_private"`
}

// Bounds of an embedder.
const (
	MaxDimension      = 4096
	MaxEmbedTimeout   = 30 * time.Second
	MaxEmbedBatch     = 2048
	defaultEmbedBatch = 64
)

const defaultEmbedTimeout = 2 * time.Second

func (e *Embedder) defaults(file string) {
	e.Timeout = Duration(e.Timeout.Or(defaultEmbedTimeout))
	if e.Batch == 0 {
		e.Batch = defaultEmbedBatch
	}
	e.APIKey = under(file, e.APIKey)
}

func (e *Embedder) validate(p *problems) {
	if e.URL == "" {
		if e.Model != "" || e.Dimension != 0 || e.APIKey != "" {
			p.add("embedder.url", "it is missing, and the other keys of embedder say nothing without it")
		}
		return
	}
	if u, err := url.Parse(e.URL); err != nil || !e.speaks(u) {
		p.add("embedder.url", "https://HOST/PATH is due, or with allow_private http to a loopback address")
	}
	if e.Model == "" {
		p.add("embedder.model", "the name of the endpoint's model is due")
	}
	if e.Dimension < 1 || e.Dimension > MaxDimension {
		p.add("embedder.dimension", "%d is not 1 to %d: how many components the model's vectors have", e.Dimension, MaxDimension)
	}
	if d := time.Duration(e.Timeout); d < time.Millisecond || d > MaxEmbedTimeout {
		p.add("embedder.timeout", "%v is not 1ms to %v", d, MaxEmbedTimeout)
	}
	if e.Batch < 1 || e.Batch > MaxEmbedBatch {
		p.add("embedder.batch", "%d is not 1 to %d", e.Batch, MaxEmbedBatch)
	}
}

func (e *Embedder) speaks(u *url.URL) bool {
	if u.Host == "" || u.User != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && e.AllowPrivate && err == nil && ip.IsLoopback()
}
