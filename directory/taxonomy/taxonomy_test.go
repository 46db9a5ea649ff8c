package taxonomy

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryClassIsFound(t *testing.T) {
	skills, domains := 0, 0
	for _, c := range All() {
		if got, ok := Find(c.Path); !ok || got != c {
			t.Errorf("%s: %+v", c.Path, got)
		}
		if up := Ancestors(c.Path); len(up) > 3 || up[0] != c.Path {
			t.Errorf("%s: ancestors %v", c.Path, up)
		} else if _, ok := Find(up[len(up)-1]); !ok {
			t.Errorf("%s: its top %s is no class", c.Path, up[len(up)-1])
		}
		if c.Domain {
			domains++
		} else {
			skills++
		}
	}
	if skills != 513 || domains != 201 {
		t.Errorf("%d skills, %d domains", skills, domains)
	}
}

func TestFind(t *testing.T) {
	for in, want := range map[string]string{
		"10302": "language_processing/language_generation/summarization", "7": "ai_ml_engineering",
		"oasf:10302": "language_processing/language_generation/summarization", "OASF:ai_ml_engineering": "ai_ml_engineering",
		" AI_ML_engineering/Agent_Development/ ": "ai_ml_engineering/agent_development",
	} {
		if c, ok := Find(in); !ok || c.Path != want {
			t.Errorf("%q: %+v %v", in, c, ok)
		}
	}
	for _, in := range []string{"", "99999999", "-1", "oasf:", "no/such/class", "summarization"} {
		if c, ok := Find(in); ok {
			t.Errorf("%q is %+v", in, c)
		}
	}
	if p := Path("Newer/Class"); p != "newer/class" {
		t.Errorf("a class that is not known here: %q", p)
	}
}

func TestClassesOfTags(t *testing.T) {
	got := OfTags([]string{"finance", "oasf:10302", "OASF:newer/class", "ai_ml_engineering", "ai_ml_engineering", "oasf:", "7"})
	want := []string{"ai_ml_engineering", "language_processing/language_generation/summarization", "newer/class"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPathsAreNotEndless(t *testing.T) {
	deep := strings.TrimSuffix(strings.Repeat("a/", 60), "/")
	if got := OfTags([]string{"oasf:" + deep, "oasf:b/c"}); !slices.Equal(got, []string{"b/c"}) {
		t.Errorf("%q", got)
	}
	if got := Ancestors(deep); len(got) != MaxDepth || got[0] != deep {
		t.Errorf("%d above %q", len(got), got[0])
	}
}

func TestNearest(t *testing.T) {
	for in, want := range map[string]string{
		"language_procesing": "language_processing",
		"oasf:Language_Processing/language_genertion/sumarization": "language_processing/language_generation/summarization",
		"summarization":                    "language_processing/language_generation/summarization",
		"language_generation/summarizaton": "language_processing/language_generation/summarization",
		"language_processing/language_generation/summarization/invoices": "",
		"10303": "", "": "", "ai": "", "fishing": "", "no/such/class": "", strings.Repeat("a", MaxPath+1): "",
	} {
		if got, ok := Nearest(in); got != want || ok != (want != "") {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func BenchmarkNearest(b *testing.B) {
	long := strings.Repeat("language_processing/", 4)[:64]
	for b.Loop() {
		Nearest(long)
	}
}
