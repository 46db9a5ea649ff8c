package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		have, want []string
		ok         bool
	}{
		{[]string{"agw.discover"}, []string{"agw.discover"}, true},
		{[]string{"acps.skill.invoke:*"}, []string{"acps.skill.invoke:a.b", "acps.skill.invoke:c"}, true},
		{[]string{"acps.skill.invoke:a.*"}, []string{"acps.skill.invoke:b"}, false},
		{[]string{"acps.skill.invoke:a"}, []string{"acps.skill.invoke:*"}, false},
		{nil, []string{"agw.discover"}, false},
		{[]string{"agw.discover"}, nil, true},
		{[]string{"*"}, []string{"anything:*"}, true},
	} {
		if got := Covers(c.have, c.want); got != c.ok {
			t.Errorf("Covers(%q, %q) = %v", c.have, c.want, got)
		}
	}
}

func TestIntersect(t *testing.T) {
	for _, c := range []struct{ a, b, want []string }{
		{[]string{"agw.discover", "acps.skill.invoke:*"}, []string{"acps.skill.invoke:x"}, []string{"acps.skill.invoke:x"}},
		{[]string{"acps.skill.invoke:x"}, []string{"agw.discover", "acps.skill.invoke:*"}, []string{"acps.skill.invoke:x"}},
		{[]string{"a*"}, []string{"ab*", "ac"}, []string{"ab*", "ac"}},
		{[]string{"a"}, []string{"b"}, nil},
		{nil, []string{"b"}, nil},
	} {
		got := Intersect(c.a, c.b)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("Intersect(%q, %q): %s", c.a, c.b, d)
		}
		if !Covers(c.a, got) || !Covers(c.b, got) {
			t.Errorf("Intersect(%q, %q) = %q is wider than one of them", c.a, c.b, got)
		}
	}
}
