package match

import (
	"context"
	"strings"

	"agentgw/directory"
	"agentgw/directory/match/table"
)

// Embedder turns texts into vectors that are the more alike the more the texts mean the same. It is safe for concurrent use.
//
// A directory ranks by the vectors of one embedder. What two gateways compare, the confidence, is always told by the built-in table, so
// that no operator's choice of an embedder moves it.
type Embedder interface {
	// ID names the model, so that vectors of two IDs are never compared.
	ID() string
	// Dim is how many components a vector has, 1 to MaxEmbedderDim.
	Dim() int
	// Embed gives one vector of Dim finite components a text, in the order of the texts, or an error and none.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

// MaxEmbedderDim bounds the vectors of an embedder.
const MaxEmbedderDim = 4096

// Builtin is the embedder that needs nothing: the token table. An index uses it unless [Index.Use] says otherwise, and weighs the fields
// of a capability then, which an embedder of plain texts cannot.
var Builtin Embedder = builtin{}

type builtin struct{}

// ID implements Embedder.
func (builtin) ID() string { return "built-in token table" }

// Dim implements Embedder.
func (builtin) Dim() int { return table.Builtin.Dim() }

// Embed implements Embedder.
func (builtin) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for _, t := range texts {
		var bag []table.Weighted
		for _, term := range readTerms(Terms(t), Background) {
			bag = append(bag, table.Weighted{Stem: term.text, TF: term.count})
		}
		out = append(out, table.Builtin.Embed(bag))
	}
	return out, nil
}

// Embedded are vectors of one embedder; none in the zero value.
type Embedded struct {
	ID      string // the embedder's
	Vectors [][]float32
}

// fits says whether there are so many vectors, and all are those of an embedder.
func (e *Embedded) fits(many int, id string, dim int) bool {
	if e.ID != id || len(e.Vectors) != many || many == 0 || dim == 0 {
		return false
	}
	for _, v := range e.Vectors {
		if len(v) != dim {
			return false
		}
		for _, c := range v {
			if c-c != 0 { // not a finite number
				return false
			}
		}
	}
	return true
}

// Passages are the texts of a request that [Query.Embedded] has the vectors of: the whole, then its steps.
func Passages(text string) []string {
	text = strings.TrimSpace(firstChars(text, MaxQueryChars))
	if text == "" {
		return nil
	}
	out := []string{text}
	for _, s := range steps(text) {
		out = append(out, s.text)
	}
	return out
}

// maxPassage is how many characters of a capability an embedder reads: about 1,000 tokens, which every model takes.
const maxPassage = 4000

// Passage is the text of a capability that [Change.Embedded] has the vector of.
func Passage(c *directory.Capability) string {
	var b strings.Builder
	b.WriteString(c.Name)
	for _, part := range []string{c.Description, strings.Join(c.Tags, ", "), strings.Join(c.Examples, "\n"), c.Parameters} {
		if part != "" {
			b.WriteString("\n")
			b.WriteString(part)
		}
	}
	return firstChars(b.String(), maxPassage)
}
