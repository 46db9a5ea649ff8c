package match

import "strings"

// Stem is the Porter stemmer in its author's reference version: the algorithm of 1980 (An algorithm for suffix stripping) with
// the three departures that he published (words of up to two letters stay, bli→ble in place of abli→able, logi→log). Snowball's
// porter lacks these three, and Snowball English is another algorithm; digests and background ranks need exactly this one.
// Every character but a, e, i, o, u and a y after a consonant is a consonant.
func Stem(s string) string {
	if len(s) <= 2 {
		return s
	}
	if !ascii(s) {
		return stemRunes(s)
	}
	var letters [32]byte // most words fit, and most stems are the beginning of their word
	w := word(append(letters[:0], s...)).stem()
	if len(w) <= len(s) && s[:len(w)] == string(w) {
		return s[:len(w)]
	}
	return string(w)
}

// stemRunes stems a word of other letters: each becomes one consonant, which is all that the algorithm knows of it.
func stemRunes(s string) string {
	runes := []rune(s)
	if len(runes) <= 2 {
		return s
	}
	w := make(word, len(runes))
	for i, r := range runes {
		w[i] = 'b'
		if r < 0x80 {
			w[i] = byte(r)
		}
	}
	out := w.stem()
	// A step changes at most the last letters, all of them ASCII: what is longer than the common part is its new ending.
	n := 0
	for n < len(out) && (runes[n] >= 0x80 || byte(runes[n]) == out[n]) {
		n++
	}
	return string(runes[:n]) + string(out[n:])
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

type word []byte

func (w word) stem() word {
	w = w.plural()
	w = w.past()
	if n := len(w) - 1; w.ends("y") && w[:n].hasVowel() {
		w[n] = 'i'
	}
	w = w.replace(doubleSuffixes, 0)
	w = w.replace(shortSuffixes, 0)
	w = w.strip()
	return w.tidy()
}

func (w word) consonant(i int) bool {
	switch w[i] {
	case 'a', 'e', 'i', 'o', 'u':
		return false
	case 'y':
		return i == 0 || !w.consonant(i-1)
	}
	return true
}

// measure is the number of vowel-consonant sequences: m in [C](VC)^m[V].
func (w word) measure() int {
	m, vowel := 0, false
	for i := range w {
		if !w.consonant(i) {
			vowel = true
		} else if vowel {
			m, vowel = m+1, false
		}
	}
	return m
}

func (w word) hasVowel() bool {
	for i := range w {
		if !w.consonant(i) {
			return true
		}
	}
	return false
}

func (w word) doubled() bool {
	n := len(w)
	return n >= 2 && w[n-1] == w[n-2] && w.consonant(n-1)
}

// short says that the word ends consonant, vowel, consonant other than w, x, y, as in hop.
func (w word) short() bool {
	n := len(w)
	return n >= 3 && w.consonant(n-3) && !w.consonant(n-2) && w.consonant(n-1) && strings.IndexByte("wxy", w[n-1]) < 0
}

func (w word) ends(suffix string) bool {
	return len(w) >= len(suffix) && string(w[len(w)-len(suffix):]) == suffix
}

func (w word) cut(n int) word { return w[:len(w)-n] }

// plural is step 1a.
func (w word) plural() word {
	switch {
	case w.ends("sses"), w.ends("ies"):
		return w.cut(2)
	case w.ends("ss"):
		return w
	case w.ends("s"):
		return w.cut(1)
	}
	return w
}

// past is step 1b.
func (w word) past() word {
	if w.ends("eed") {
		if w.cut(3).measure() > 0 {
			return w.cut(1)
		}
		return w
	}
	switch {
	case w.ends("ed") && w.cut(2).hasVowel():
		w = w.cut(2)
	case w.ends("ing") && w.cut(3).hasVowel():
		w = w.cut(3)
	default:
		return w
	}
	switch {
	case w.ends("at"), w.ends("bl"), w.ends("iz"):
		return append(w, 'e')
	case w.doubled() && strings.IndexByte("lsz", w[len(w)-1]) < 0:
		return w.cut(1)
	case w.measure() == 1 && w.short():
		return append(w, 'e')
	}
	return w
}

type suffix struct{ old, replacement string }

// suffixes has them by their last letter, in their order: a word is held against the few that it might end with.
type suffixes [256][]suffix

func byLast(list ...suffix) *suffixes {
	var s suffixes
	for _, x := range list {
		last := x.old[len(x.old)-1]
		s[last] = append(s[last], x)
	}
	return &s
}

// of are those that a word might end with.
func (s *suffixes) of(w word) []suffix { return s[w[len(w)-1]] }

// doubleSuffixes are step 2, shortSuffixes step 3; the first that fits decides.
var (
	doubleSuffixes = byLast([]suffix{
		{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"}, {"anci", "ance"}, {"izer", "ize"}, {"bli", "ble"}, {"alli", "al"},
		{"entli", "ent"}, {"eli", "e"}, {"ousli", "ous"}, {"ization", "ize"}, {"ation", "ate"}, {"ator", "ate"}, {"alism", "al"},
		{"iveness", "ive"}, {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"}, {"iviti", "ive"}, {"biliti", "ble"}, {"logi", "log"},
	}...)
	shortSuffixes = byLast([]suffix{
		{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"}, {"ful", ""}, {"ness", ""},
	}...)
	// lastSuffixes are step 4; ion has a rule of its own.
	lastSuffixes = byLast([]suffix{
		{"al", ""}, {"ance", ""}, {"ence", ""}, {"er", ""}, {"ic", ""}, {"able", ""}, {"ible", ""}, {"ant", ""}, {"ement", ""}, {"ment", ""},
		{"ent", ""}, {"ion", ""}, {"ou", ""}, {"ism", ""}, {"ate", ""}, {"iti", ""}, {"ous", ""}, {"ive", ""}, {"ize", ""},
	}...)
)

func (w word) replace(table *suffixes, above int) word {
	for _, s := range table.of(w) {
		if w.ends(s.old) {
			if base := w.cut(len(s.old)); base.measure() > above {
				return append(base, s.replacement...)
			}
			return w
		}
	}
	return w
}

// strip is step 4.
func (w word) strip() word {
	for _, s := range lastSuffixes.of(w) {
		if !w.ends(s.old) {
			continue
		}
		base := w.cut(len(s.old))
		if s.old == "ion" && !base.ends("s") && !base.ends("t") {
			continue
		}
		if base.measure() > 1 {
			return base
		}
		return w
	}
	return w
}

// tidy is step 5.
func (w word) tidy() word {
	m := w.measure()
	if base := w.cut(1); w.ends("e") && (m > 1 || m == 1 && !base.short()) {
		w = base
	}
	if w.ends("l") && w.doubled() && m > 1 {
		w = w.cut(1)
	}
	return w
}
