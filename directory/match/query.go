package match

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"agentgw/directory"
	"agentgw/directory/match/table"
	"agentgw/directory/taxonomy"
)

// Limits on one list of candidates (MATCHING, section 2).
const (
	DefaultLimit = 20
	PerAIC       = 3  // capabilities of one AIC
	PerProvider  = 10 // capabilities of one provider
)

// Query is a semantic request as the matcher takes it. Filters are all applied before anything is scored.
type Query struct {
	Text string
	Caps []string // only these Capability Identifiers
	// Classes of the taxonomy, by id or path: what fits them ranks before what does not, and without a text it must fit one.
	Classes []string
	Tags    []string // each must be among the capability's tags, compared without case
	In      []string // media types that the asker can send: one must be taken, unless the capability names none
	Out     []string // media types that the asker accepts: one must be given, unless the capability names none

	MinScore uint16   // least confidence, per ten thousand
	Exclude  []string // AICs
	Limit    int      // candidates wanted; 0 is DefaultLimit
	PerAIC   int      // capabilities of one AIC in the list; 0 is PerAIC
	// After continues a list behind the place where it ended; nil begins it. Where the directory has changed meanwhile the places have
	// moved a little, and nothing comes twice that has not.
	After *Place
	// All asks for everything that passes the filters where the request names neither a text nor capabilities, tags or classes.
	All bool
	// Embedded are the request's vectors ([Passages]) by the embedder that the index uses: it is ranked by them then. Where they are of
	// another one, or not as many, it is ranked by its words alone. The zero value ranks by the built-in table.
	Embedded Embedded
	// Without leaves parts of the pipeline out, to measure what each is worth.
	Without Parts
	// Refuse is the owner's own filter (state, visibility, liveness): why a capability is held back, "" where it is not; nil holds
	// nothing back. It must be fast and must not call the index.
	Refuse func(*directory.Capability) string
	// Load is how busy a capability's agent is now, 0 idle; of two that score alike the less busy one comes first. nil: all are alike. It must
	// be fast and must not call the index.
	Load func(*directory.Capability) uint16
	// Offered is what of Refuse costs next to nothing; nil holds nothing back. Of a large directory only what it lets through is among the best
	// that are compared in full.
	Offered func(*directory.Capability) bool
	// Refused hears of the best capabilities that a filter or a limit held back, and why; nil ignores it.
	Refused func(c *directory.Capability, score float64, why string)
}

// Place is where a list of candidates ended.
type Place struct {
	Score float64
	Load  uint16 // of the last one, as it was then
	CapID string
}

// Parts of the pipeline, as bits.
type Parts uint8

// The parts that a request may be ranked without.
const (
	Pairs Parts = 1 << iota // neighbouring pairs of terms
	Words                   // all of the text part
	Dense                   // embeddings
	Steps                   // cutting a request that asks for several things
)

// Prepared is a query with what is computed of it once. It does not change, and any number of goroutines may use it.
type Prepared struct {
	Query
	tags       []string
	classes    []string // paths
	asked      []askedClass
	in, out    []mediaType
	total      float64 // background idf of the terms
	pairFactor float64
	idents     []string
	unknown    []queryTerm // words that may be typing errors
	step                   // the whole request
	steps      []step      // of a request that asks for several things
	outside    []vector    // of Embedded: of the whole request, then of its steps
}

// step is a request's text, or the part of it that asks for one thing, as it is compared.
type step struct {
	terms, pairs []queryTerm
	embedding    vector
}

func readStep(tokens *table.Table, list []string) step {
	if len(list) == 0 {
		return step{}
	}
	s := step{terms: readTerms(list, Background), embedding: embedQuery(tokens, list)}
	s.pairs = readPairs(list, s.terms)
	return s
}

// Prepare reads a query, whose lists must not change while the result is in use. It is for indexes with the built-in table.
func Prepare(q Query) *Prepared { return prepare(q, table.Builtin) }

func prepare(q Query, tokens *table.Table) *Prepared {
	q.Text = strings.TrimSpace(firstChars(q.Text, MaxQueryChars))
	list := queryTerms(q.Text)
	p := &Prepared{Query: q, tags: normaliseTags(q.Tags), step: readStep(tokens, list), in: readMedias(q.In), out: readMedias(q.Out)}
	if q.Without&Steps == 0 {
		for _, s := range steps(q.Text) {
			p.steps = append(p.steps, readStep(tokens, s.terms))
		}
	}
	for _, v := range q.Embedded.Vectors {
		p.outside = append(p.outside, newVector(unitLength(v)))
	}
	p.total, p.pairFactor = totalBackground(p.terms), pairFactor(p.terms, p.pairs)
	for _, c := range q.Classes {
		p.classes = append(p.classes, taxonomy.Path(c))
	}
	p.classes = distinct(p.classes)
	for _, c := range p.classes {
		p.asked = append(p.asked, taxonomy.Ancestors(c))
	}
	p.idents = identifiers(q.Text)
	for _, t := range p.terms {
		if len(p.unknown) < maxTypos && unknownWord(tokens, t.text) {
			p.unknown = append(p.unknown, t)
		}
	}
	return p
}

// refusal is which hard filter holds a document back, "" where none does.
func (p *Prepared) refusal(d *document) string {
	c := &d.cap
	switch {
	case len(p.Caps) > 0 && !slices.Contains(p.Caps, c.CapID):
		return "is not among the capabilities that were named"
	case slices.Contains(p.Exclude, c.AIC):
		return "its agent was excluded"
	}
	for _, t := range p.tags {
		if !slices.Contains(d.tags, t) {
			return p.say("has no tag %s", t)
		}
	}
	switch {
	case !meets(p.in, c.In):
		return p.say("takes %v, and not what the asker sends", c.In)
	case !meets(p.out, c.Out):
		return p.say("gives %v, and not what the asker takes", c.Out)
	case p.Refuse != nil:
		return p.Refuse(c)
	}
	return ""
}

// say puts a reason into words where somebody hears it.
func (p *Prepared) say(format string, args ...any) string {
	if p.Refused == nil {
		return format
	}
	return fmt.Sprintf(format, args...)
}

// suits says whether a capability takes and gives what the asker can.
func (p *Prepared) suits(c *directory.Capability) bool {
	return meets(p.in, c.In) && meets(p.out, c.Out)
}

func normaliseTags(tags []string) []string {
	out := make([]string, 0, len(tags))
	for _, t := range tags {
		out = append(out, strings.ToLower(strings.TrimSpace(norm.NFKC.String(t))))
	}
	return out
}

func hasTags(have, want []string) bool {
	for _, t := range want {
		if !slices.Contains(have, t) {
			return false
		}
	}
	return true
}

// mediaType is a media type without parameters and case.
type mediaType struct{ kind, sub string }

func readMedia(s string) mediaType {
	s, _, _ = strings.Cut(s, ";")
	kind, sub, _ := strings.Cut(strings.ToLower(strings.TrimSpace(s)), "/")
	return mediaType{kind, sub}
}

func readMedias(list []string) []mediaType {
	out := make([]mediaType, len(list))
	for i, s := range list {
		out[i] = readMedia(s)
	}
	return out
}

var anyMedia = mediaType{"*", "*"}

// fits compares two media types; `*/*` and `text/*` fit what they say, on either side.
func (a mediaType) fits(b mediaType) bool {
	return a == b || a == anyMedia || b == anyMedia || a.kind == b.kind && (a.sub == "*" || b.sub == "*")
}

// meets says whether two lists of media types share one; a list that is empty says nothing and fits all.
func meets(asked []mediaType, offered []string) bool {
	if len(asked) == 0 || len(offered) == 0 {
		return true
	}
	for _, s := range offered {
		o := readMedia(s)
		for _, a := range asked {
			if a.fits(o) {
				return true
			}
		}
	}
	return false
}
