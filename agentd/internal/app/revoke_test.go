package app

import "testing"

func TestUnder(t *testing.T) {
	for _, c := range []struct {
		id, prefix string
		want       bool
	}{
		{"2.999.1.1.1.B1.1.1.1.06V3", "2.999.1.1.1.B1", true},
		{"2.999.1.1.1.B1.1.1.1.06V3", "2.999.1.1.1.B", false},
		{"2.999.1.1.1.B1.1.1.1.06V3", "", false},
		{"no AIC", "no", false},
	} {
		if got := under(c.id, c.prefix); got != c.want {
			t.Errorf("%s under %s: %v", c.id, c.prefix, got)
		}
	}
}
