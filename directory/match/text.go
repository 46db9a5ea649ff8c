package match

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Bounds on what is read of a request (MATCHING, section 2).
const (
	MaxQueryChars = 1024
	MaxQueryTerms = 96
)

// Terms are the terms of a text in order, with repeats. Requests, capabilities and digests must all use this one.
func Terms(text string) []string {
	list := WordsOf(text)
	return appendTerms(make([]string, 0, len(list)), list, stemOf, func(pair string) string { return pair })
}

// appendTerms adds the terms of words: stem gives a word's, and pair that of a pair of characters.
func appendTerms[T any](out []T, words []string, stem func(string) (T, bool), pair func(string) T) []T {
	for _, w := range words {
		t, ok := stem(w)
		if !ok {
			continue
		}
		out = append(out, t)
		if !ascii(w) {
			for _, p := range pairsOfCharacters(w) {
				out = append(out, pair(p))
			}
		}
	}
	return out
}

// stemOf is the stem of a word, false for a stop word.
func stemOf(word string) (string, bool) {
	if stopWords[word] {
		return "", false
	}
	return Stem(word), true
}

// WordsOf are the words of a text in lower case, stop words too: NFKC without hidden and bidirectional controls, cut by [Cut].
func WordsOf(text string) []string { return Cut(plain(text)) }

// plain is a text in NFKC without hidden and bidirectional controls.
func plain(text string) string {
	if ascii(text) {
		return text
	}
	return strings.Map(visible, norm.NFKC.String(text))
}

// Cut cuts a text as it is into lower-case words: between a small letter or digit and a capital, between a capital and a capital with
// a small letter (ASCII), and at everything that is neither letter nor number.
func Cut(text string) []string { return appendCut(make([]string, 0, len(text)/6+1), text) }

func appendCut(out []string, text string) []string {
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, strings.ToLower(text[start:end]))
		}
	}
	for i, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsNumber(r):
			flush(i)
			start = i + utf8.RuneLen(r)
		case i > start && camelCut(text, i):
			flush(i)
			start = i
		}
	}
	flush(len(text))
	return out
}

// visible drops the controls of format.
func visible(r rune) rune {
	if unicode.Is(unicode.Cf, r) {
		return -1
	}
	return r
}

// camelCut says whether a word begins at byte i inside a run of letters: parse|HTTP|Response2|XML.
func camelCut(s string, i int) bool {
	before, at := s[i-1], s[i]
	if !capital(at) {
		return false
	}
	return small(before) || before >= '0' && before <= '9' || capital(before) && i+1 < len(s) && small(s[i+1])
}

func capital(c byte) bool { return c >= 'A' && c <= 'Z' }
func small(c byte) bool   { return c >= 'a' && c <= 'z' }

// pairsOfCharacters are the character pairs of each run of a script that writes no spaces between words.
func pairsOfCharacters(w string) (out []string) {
	runes := []rune(w)
	if len(runes) == 2 {
		return nil // the word is its own pair
	}
	for i := 1; i < len(runes); i++ {
		if unspaced(runes[i-1]) && unspaced(runes[i]) {
			out = append(out, string(runes[i-1:i+1]))
		}
	}
	return out
}

func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul)
}

// identifiers are the raw tokens of a text that look like the name of a skill: finance.invoice.extract, get_weather, bookFlight.
func identifiers(text string) []string {
	var out []string
	for _, t := range strings.Fields(text) {
		t = strings.Trim(t, ".,;:!?()[]{}<>\"'`")
		if len(t) >= 3 && len(t) <= 128 && looksLikeIdentifier(t) {
			out = append(out, strings.ToLower(t))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func looksLikeIdentifier(t string) bool {
	if strings.ContainsAny(t, "._:/-") {
		return true
	}
	for i := 1; i < len(t); i++ {
		if camelCut(t, i) {
			return true
		}
	}
	return false
}

// queryTerms reads a request: at most MaxQueryChars characters and MaxQueryTerms terms of it.
func queryTerms(text string) []string {
	terms := Terms(firstChars(text, MaxQueryChars))
	return terms[:min(len(terms), MaxQueryTerms)]
}

// pairs are the neighbouring pairs of terms, in order.
func pairs(terms []string) []string {
	var out []string
	for i := 1; i < len(terms); i++ {
		out = append(out, terms[i-1]+" "+terms[i])
	}
	return out
}
