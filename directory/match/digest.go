package match

import (
	"slices"
	"strings"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// DigestTerm is a term under which a capability can be found, with its frequency weighted by fields as BM25F weighs them.
type DigestTerm struct {
	Text  string
	Count float64
}

// DigestTerms are the distinct terms of a capability, sorted: what a digest is built from.
func DigestTerms(c directory.Capability) []DigestTerm {
	counts, _ := bag(&c)
	out := make([]DigestTerm, 0, len(counts))
	for t, n := range counts {
		out = append(out, DigestTerm{t, float64(n) / 10})
	}
	slices.SortFunc(out, func(a, b DigestTerm) int { return strings.Compare(a.Text, b.Text) })
	return out
}

// DigestEmbedder names the built-in table by its content. Digests compare embeddings of that one, whatever an operator ranks its own
// directory with: all have it.
func DigestEmbedder() [8]byte {
	id := table.Builtin.ID()
	return [8]byte(id[:8])
}

// DigestVector is a capability's embedding, of length 1; zero where the table knows none of its words.
func DigestVector(c directory.Capability) []float32 { return table.Builtin.Embed(Bag(&c)) }

// RequestVector is the embedding of a request's text, likewise.
func RequestVector(text string) []float32 {
	return table.Builtin.Embed(Bag(&directory.Capability{Description: text}))
}
