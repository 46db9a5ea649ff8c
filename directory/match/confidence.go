package match

import (
	"math"

	"agentgw/directory"
)

// Confidence is relevance from the request's side, and the same number in every directory:
//
//	conf = Σ bg(t)·sat(w(t)) / Σ bg(t)      over the distinct terms t of the request
//
// bg is [Background]: how rare the term is in the language, so that no directory's own numbers enter. w is the term's frequency
// in the capability weighted by field (name 3, description and tags 1, examples .5, the agent's name 1 and description .3), and
// sat(w) = w/(w+½): a word of the description is worth two thirds, of the name six sevenths, more often never more than 1. A
// request that names capabilities, or has tags and no text, is met exactly or not at all: 10,000.

// AnswerBar is the confidence, per ten thousand, from which a gateway answers a request itself instead of asking further.
// Two thirds is the value of one mention in a description, so the bar asks that roughly half of what the request says, by
// rarity, is said by the capability too.
const AnswerBar uint16 = 3500

const halfWeight = 5 // tenths: the weight at which sat is one half

func saturate(weight int) float64 { return float64(weight) / float64(weight+halfWeight) }

func totalBackground(terms []queryTerm) float64 {
	sum := 0.
	for _, t := range terms {
		sum += t.bg
	}
	return sum
}

func myriad(part, whole float64) uint16 {
	if whole <= 0 {
		return 0
	}
	return uint16(math.Round(10_000 * min(part/whole, 1)))
}

func (r *ranking) confidence(h *hit, total float64) uint16 {
	if r.Text == "" || len(r.Caps) > 0 {
		return 10_000
	}
	return myriad(h.conf, total)
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
func ScoreText(q Query, s SkillText) uint16 {
	f := newFilter(q)
	if s.CapID == "" {
		f.Caps = nil
	}
	c := directory.Capability{CapID: s.CapID, Name: s.Name, Description: s.Description, Tags: s.Tags, In: s.In, Out: s.Out}
	f.Accept, f.Exclude = nil, nil
	if !f.fits(&document{cap: c, tags: normaliseTags(s.Tags)}) {
		return 0
	}
	if f.Text == "" || len(f.Caps) > 0 {
		return 10_000
	}
	has, _, _ := bag(&c)
	terms, sum := readTerms(queryTerms(f.Text)), 0.
	for _, t := range terms {
		if w, ok := has[t.text]; ok {
			sum += t.bg * saturate(w.weight)
		}
	}
	return myriad(sum, totalBackground(terms))
}
