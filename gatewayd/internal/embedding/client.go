package embedding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"agentgw/internal/safehttp"
)

// Config of a client.
type Config struct {
	URL, Model   string
	Key          string // bearer token; "" sends none. White space around it is no part of it
	Dim          int    // components of a vector
	Batch        int    // texts of a call
	AllowPrivate bool   // endpoints in private networks and on this machine, the latter with http too
}

// Bytes of an answer: a component is written with at most about 25 characters.
const (
	bytesOfComponent = 32
	bytesOfAnswer    = 64 << 10 // beside its vectors
	maxAnswer        = 64 << 20
	// callTimeout is for a whole batch, by a model on a small machine. A request waits less, by its context.
	callTimeout = 30 * time.Second
)

// Client is an endpoint of the OpenAI embeddings API. It implements match.Embedder.
type Client struct {
	cfg    Config
	secret string // of the URL: what stands behind its question mark, where some endpoints have their key
	http   *safehttp.Client
}

// NewClient makes a client. The key must be one line of printable ASCII.
func NewClient(cfg Config) (*Client, error) {
	cfg.Key = strings.TrimSpace(cfg.Key)
	if strings.ContainsFunc(cfg.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the API key is not one word of printable ASCII")
	}
	if cfg.URL == "" || cfg.Model == "" || cfg.Dim < 1 || cfg.Batch < 1 {
		return nil, errors.New("an endpoint needs a URL, a model, a dimension and a batch size")
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("the URL is malformed") // its error quotes it
	}
	most := min(bytesOfAnswer+int64(cfg.Batch)*int64(cfg.Dim)*bytesOfComponent, maxAnswer)
	return &Client{cfg, u.RawQuery, safehttp.New(safehttp.Config{AllowPrivate: cfg.AllowPrivate, AllowPlain: cfg.AllowPrivate, MaxBytes: most, Timeout: callTimeout})}, nil
}

// ID implements match.Embedder: endpoint, model and dimension.
func (c *Client) ID() string { return fmt.Sprintf("%s %s/%d", c.Endpoint(), c.cfg.Model, c.cfg.Dim) }

// Endpoint is the URL without what may be a credential in it.
func (c *Client) Endpoint() string {
	u, err := url.Parse(c.mask(c.cfg.URL))
	if err != nil { // it was one without the mask
		return ""
	}
	return u.Redacted()
}

func (c *Client) mask(text string) string {
	if c.secret == "" {
		return text
	}
	return strings.ReplaceAll(text, c.secret, "xxxxx")
}

// masked is an error that quotes no credential of the URL.
func (c *Client) masked(err error) error {
	if text := err.Error(); c.mask(text) != text {
		return errors.New(c.mask(text))
	}
	return err
}

// Dim implements match.Embedder.
func (c *Client) Dim() int { return c.cfg.Dim }

// Batch is how many texts a call takes.
func (c *Client) Batch() int { return c.cfg.Batch }

type request struct {
	Model  string   `json:"model"`
	Input  []string `json:"input"`
	Format string   `json:"encoding_format"`
}

type answer struct {
	Data []struct {
		Index     *int      `json:"index"`
		Embedding []float32 `json:"embedding"`
	} `json:"data"`
}

// Embed implements match.Embedder, with a call for every Batch texts. An answer is taken whole or not at all.
func (c *Client) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		n := min(len(texts), c.cfg.Batch)
		vectors, err := c.call(ctx, texts[:n])
		if err != nil {
			return nil, fmt.Errorf("embeddings endpoint: %w", c.masked(err))
		}
		out, texts = append(out, vectors...), texts[n:]
	}
	return out, nil
}

func (c *Client) call(ctx context.Context, texts []string) ([][]float32, error) {
	body, err := json.Marshal(request{Model: c.cfg.Model, Input: texts, Format: "float"})
	if err != nil {
		return nil, err
	}
	raw, err := c.http.PostJSON(ctx, c.cfg.URL, c.cfg.Key, body)
	if err != nil {
		return nil, err
	}
	var a answer
	if json.Unmarshal(raw, &a) != nil { // its error quotes the answer
		return nil, errors.New("the answer is not JSON as the embeddings API has it")
	}
	if len(a.Data) != len(texts) {
		return nil, fmt.Errorf("%d vectors for %d texts", len(a.Data), len(texts))
	}
	out := make([][]float32, len(texts))
	for i, d := range a.Data {
		if d.Index != nil {
			i = *d.Index
		}
		if i < 0 || i >= len(out) || out[i] != nil {
			return nil, errors.New("the vectors are not numbered as the texts are")
		}
		if err := c.check(d.Embedding); err != nil {
			return nil, err
		}
		out[i] = d.Embedding
	}
	return out, nil
}

// check says whether a vector can be compared.
func (c *Client) check(v []float32) error {
	if len(v) != c.cfg.Dim {
		return fmt.Errorf("a vector has %d components, embedder.dimension says %d", len(v), c.cfg.Dim)
	}
	length := 0.
	for _, x := range v {
		length += float64(x) * float64(x)
	}
	if length == 0 || math.IsNaN(length) || math.IsInf(length, 0) {
		return errors.New("a vector has no length")
	}
	return nil
}
