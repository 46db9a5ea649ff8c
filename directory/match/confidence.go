package match

import (
	"math"
	"slices"
	"strings"

	"agentgw/directory"
	"agentgw/directory/match/table"
	"agentgw/directory/taxonomy"
)

// Confidence is relevance from the request's side, and the same number in every directory: the chance that the capability answers
// the request, told from the two texts alone,
//
//	conf = 1 / (1 + exp(7.5 − 8·(words + cosine)))
//
// where cosine is that of the embeddings (at least 0) and
//
//	words = min(1, Σ bg(t)·sat(t) / Σ bg(t)  +  ½ · Σ bg(p)·[p found] / Σ bg(p))
//
// over the distinct terms t of the request and its distinct neighbouring pairs p. bg(t) is [Background]: how rare the term is
// in the language, so that no directory's own numbers enter; bg(p) is the mean of its two terms. w is the term's frequency in
// the capability weighted by field (name 3, description and tags 1, examples .5, the agent's name 1 and description .3), L the
// capability's length in the same unit, and
//
//	sat = w / (w + ½ + ½·L/25)
//
// so that one mention in a capability of usual length is worth one half, in its name three quarters, and a long text cannot
// match everything. A request that names capabilities, or has tags and no text, is met exactly or not at all: 10,000.
//
// The two count alike, because the token table is much the better judge of what it was made on and hardly one of what it was not.
// One half is where every second best answer was right on the learning splits of three public sets; the slope is less steep than
// there, for the table has seen those requests.

// AnswerBar is the confidence, per ten thousand, from which a gateway answers a request itself instead of asking further: it is more
// likely than not that the capability answers it.
const AnswerBar uint16 = 5000

const (
	usualLength   = 250 // tenths: a name of four words, a description of about a dozen
	halfWeight    = 10  // tenths: the weight at which sat is one half, at usual length
	pairsWorth    = .5
	fullMyriad    = 10_000
	lengthPortion = .5
	calibratedAt  = 7.5 // where words and cosine together leave it open
	calibratedBy  = 8
)

// calibrated is the confidence of a capability that shares something with the request, per ten thousand.
func calibrated(words, cosine float64) uint16 {
	if words == 0 && cosine < leastLike {
		return 0
	}
	return uint16(math.Round(fullMyriad / (1 + math.Exp(calibratedAt-calibratedBy*(words+max(cosine, 0))))))
}

// saturate is sat for a weight and a length in tenths.
func saturate(weight, length int) float64 {
	w := float64(weight)
	return w / (w + halfWeight*(1-lengthPortion+lengthPortion*float64(length)/usualLength))
}

func totalBackground(terms []queryTerm) float64 {
	sum := 0.
	for _, t := range terms {
		sum += t.bg
	}
	return sum
}

// readPairs is the distinct neighbouring pairs of a request, each with the mean background idf of its terms.
func readPairs(list []string, terms []queryTerm) []queryTerm {
	return readTerms(pairs(list), func(p string) float64 {
		x, y, _ := strings.Cut(p, " ")
		return (terms[indexTerm(terms, x)].bg + terms[indexTerm(terms, y)].bg) / 2
	})
}

// pairFactor makes a sum over pairs commensurable with the sum over terms: ½·Σbg(t)/Σbg(p).
func pairFactor(terms, pairs []queryTerm) float64 {
	if whole := totalBackground(pairs); whole > 0 {
		return pairsWorth * totalBackground(terms) / whole
	}
	return 0
}

// share is part of whole, at most 1.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return min(part/whole, 1)
}

func myriad(part, whole float64) uint16 { return uint16(math.Round(fullMyriad * share(part, whole))) }

func (r *ranking) confidence(d doc) uint16 {
	if r.Text == "" || len(r.Caps) > 0 {
		return r.judged(&d.document().cap, fullMyriad)
	}
	sum := 0.
	for _, t := range r.terms {
		if p, ok := postingOf(d.part.terms[t.text], d.id); ok {
			sum += t.bg * saturate(int(p.weight), d.document().length)
		}
	}
	for _, t := range r.pairs {
		if _, ok := postingOf(d.part.pairs[t.text], d.id); ok {
			sum += r.pairFactor * t.bg
		}
	}
	if r.nearby == nil && len(r.unknown) > 0 {
		r.nearby = r.nearlyAll()
	}
	sum += r.nearby[d.at]
	cos := 0.
	if v := r.embedding; v.scale > 0 { // the cosine in hand may be a step's
		cos = float64(float32(dot(v.v, d.part.vec(d.id))) * v.scale * d.part.scales[d.id])
	}
	return r.judged(&d.document().cap, calibrated(share(sum, r.total), cos))
}

// judged takes the classes of a request into account: they count as much as its text, and alone where it has none.
func (p *Prepared) judged(c *directory.Capability, text uint16) uint16 {
	if len(p.classes) == 0 || len(p.Caps) > 0 {
		return text
	}
	filed := p.fitOfClasses(c) * fullMyriad
	if p.Text == "" {
		return uint16(math.Round(filed))
	}
	return uint16(math.Round((filed + float64(text)) / 2))
}

// SkillText is the public text of one capability, as a result of another gateway carries it.
type SkillText struct {
	CapID       string // "" if not known: then Query.Caps is not asked
	Name        string
	Description string
	Tags        []string
	In, Out     []string
}

// ScoreText is the confidence of a capability that is in no index, from its text alone: how the origin of a request scores what
// another gateway found. It is 0 if a hard filter of the request (capabilities, tags, media types) refuses it.
func ScoreText(q Query, s SkillText) uint16 { return Prepare(q).ScoreText(s) }

// ScoreText is [ScoreText] of one prepared query and many capabilities.
func (p *Prepared) ScoreText(s SkillText) uint16 {
	named := len(p.Caps) > 0 && s.CapID != ""
	c := directory.Capability{Name: s.Name, Description: s.Description, Tags: s.Tags, In: s.In, Out: s.Out}
	if named && !slices.Contains(p.Caps, s.CapID) || !p.suits(&c) || len(p.tags) > 0 && !hasTags(normaliseTags(s.Tags), p.tags) {
		return 0
	}
	c.Classes = taxonomy.OfTags(s.Tags)
	if named || p.Text == "" {
		return p.judged(&c, fullMyriad)
	}
	return p.judged(&c, p.textConfidence(&c))
}

func (p *Prepared) textConfidence(c *directory.Capability) uint16 {
	weights, paired, length := make([]int, len(p.terms)), make([]bool, len(p.pairs)), 0
	eachField(c, func(list []string, weight int, field uint8) {
		length += weight * len(list)
		for i, t := range list {
			at := indexTerm(p.terms, t)
			if at < 0 {
				continue
			}
			weights[at] += weight
			if i > 0 && field&pairFields != 0 && indexTerm(p.terms, list[i-1]) >= 0 {
				if pair := indexTerm(p.pairs, list[i-1]+" "+t); pair >= 0 {
					paired[pair] = true
				}
			}
		}
	})
	sum := 0.
	for i, t := range p.terms {
		if weights[i] > 0 {
			sum += t.bg * saturate(weights[i], length)
		}
	}
	for i, t := range p.pairs {
		if paired[i] {
			sum += p.pairFactor * t.bg
		}
	}
	sum += p.nearly(c)
	v, scale := quantise(nil, table.Builtin.Embed(Bag(c)))
	return calibrated(share(sum, p.total), float64(float32(dot(p.embedding.v, v))*p.embedding.scale*scale))
}
