package directory

import (
	"strings"
	"testing"
)

const testAIC = "1.2.156.3088.1.1.1.1.1.0H91"

func TestCapID(t *testing.T) {
	for _, c := range []struct{ skill, want string }{
		{"finance.invoice.extract", "acps://" + testAIC + "/finance.invoice.extract"},
		{"a:b/c-d_e", "acps://" + testAIC + "/a%3Ab%2Fc-d_e"},
		{strings.Repeat("/", 0) + "x" + strings.Repeat("/", 127), "acps://" + testAIC + "/x" + strings.Repeat("%2F", 127)},
	} {
		got := CapID(testAIC, c.skill)
		if got != c.want || len(got) > MaxCapID {
			t.Errorf("CapID(%q) = %q (%d octets), want %q", c.skill, got, len(got), c.want)
		}
		a, skill, err := ParseCapID(strings.Replace(got, "0H91", "0h91", 1))
		if err != nil || a != testAIC || skill != c.skill {
			t.Errorf("ParseCapID = %q, %q, %v", a, skill, err)
		}
	}
}

func TestParseCapIDRefuses(t *testing.T) {
	for _, s := range []string{
		"", "acps://", "acps://" + testAIC, "acps://" + testAIC + "/", "https://" + testAIC + "/x", "acps://1.2.3/x",
		"acps://" + testAIC + "/a:b",   // reserved character not escaped
		"acps://" + testAIC + "/a%3ab", // lower-case digits: a second spelling
		"acps://" + testAIC + "/%61b",  // escaped without need: a second spelling
		"acps://" + testAIC + "/a%",    // cut short
		"acps://" + testAIC + "/a%0Ab", // no skill id
		"acps://" + testAIC + "/a/b",   // slash not escaped
		"acps://" + testAIC + "/" + strings.Repeat("a", 500),
	} {
		if a, skill, err := ParseCapID(s); err == nil {
			t.Errorf("ParseCapID(%q) = %q, %q", s, a, skill)
		}
	}
}
