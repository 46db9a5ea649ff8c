package spelling

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b       string
		most, want int
	}{
		{"", "", 3, 0}, {"listen", "listen", 3, 0}, {"lisen", "listen", 3, 1}, {"kitten", "sitting", 3, 3}, {"kitten", "sitting", 2, 3}, {"a", "abcdef", 3, 4},
		{"", "ab", 3, 2}, {"abc", "xyz", 1, 2},
	} {
		if got := Distance(c.a, c.b, c.most); got != c.want {
			t.Errorf("%q and %q within %d: %d, want %d", c.a, c.b, c.most, got, c.want)
		}
		if got := Distance(c.b, c.a, c.most); got != c.want {
			t.Errorf("%q and %q within %d: %d, want %d", c.b, c.a, c.most, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"", "hub.example", "hubb.example", "far.example", "ab"}
	for s, want := range map[string]string{
		"hub.exampel": "hub.example", "hubb.exampl": "hubb.example", "fra.example": "far.example", "ab": "ab", "ax": "", "": "", "nowhere.example": "", "peer": "",
	} {
		if got := Nearest(s, names); got != want {
			t.Errorf("%q is near %q, want %q", s, got, want)
		}
	}
}
