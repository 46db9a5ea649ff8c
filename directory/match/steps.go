package match

import (
	"regexp"
	"strings"
)

// A request that asks for several things is cut into its steps: at the ends of sentences, at semicolons and lines, before a number
// of a list, and at words that say that something comes after.
var stepEnd = regexp.MustCompile(`(?i)[.?!;](?:["')\]]*\s+)|\n+|\s+(?:\(?\d{1,2}[.)])\s+|,?\s+(?:and\s+)?(?:then|afterwards|after that|finally|next|lastly|additionally|furthermore)\b,?\s*`)

const (
	maxSteps     = 8
	leastOfAStep = 3 // terms; what has fewer belongs to the step before
)

// pieceOfText is one step of a request and its terms.
type pieceOfText struct {
	text  string
	terms []string
}

// steps are those of a request; nil for a request of one step.
func steps(text string) []pieceOfText {
	if !maySayMore(text) {
		return nil
	}
	var out []pieceOfText
	for _, s := range stepEnd.Split(text, -1) {
		terms := Terms(s)
		switch {
		case len(terms) == 0:
		case len(out) > 0 && (len(terms) < leastOfAStep || len(out) == maxSteps):
			last := &out[len(out)-1]
			last.text, last.terms = last.text+" "+strings.TrimSpace(s), append(last.terms, terms...)
		default:
			out = append(out, pieceOfText{strings.TrimSpace(s), terms})
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// maySayMore spares most requests the search for the ends of steps: one of these is in each of them.
func maySayMore(text string) bool {
	if strings.ContainsAny(text, ".?!;)\n") || !ascii(text) {
		return true
	}
	lower := strings.ToLower(text)
	for _, word := range [...]string{"then", "after", "finally", "next", "lastly", "additionally", "furthermore"} {
		if strings.Contains(lower, word) {
			return true
		}
	}
	return false
}
