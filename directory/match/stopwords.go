package match

import "strings"

// stopWords are words that say nothing about what is asked for: function words, pronouns, and the verbs of asking.
var stopWords = func() map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(stopText) {
		set[w] = true
	}
	return set
}()

const stopText = `a about all also am an and any are as at be been but by can could d did do does doing done down each etc every find
for from get give had has have he help here how i i'm if im in into is it its know let like ll m me more most my need
needs no not of on only or our out over please re s she should show so some such t tell than that the their them then
there these they this those to under up us use used using ve want wanted wants was we were what when where which who
whom why will with would you your`
