package acs

import (
	"fmt"
	"strings"
	"testing"
)

func TestWarningsTellOfUnknownClasses(t *testing.T) {
	tagged := func(tags ...string) *ACS {
		return &ACS{Skills: []Skill{{ID: "one", Tags: []string{"finance"}}, {ID: "two", Tags: tags}}}
	}
	if p := tagged("oasf:10302", "OASF:ai_ml_engineering", "summary", "10302").Warnings(); p != nil {
		t.Errorf("classes that are there: %v", p)
	}
	a := tagged("x", "oasf:language_procesing", "OASF:summarization", "oasf:99999999", "oasf:newer/class", "oasf:")
	want := []string{
		`skills[1].tags[1]: oasf/1.1.0 has no class "language_procesing", and the tag is kept; did you mean "language_processing"?`,
		`skills[1].tags[2]: oasf/1.1.0 has no class "summarization", and the tag is kept; did you mean "language_processing/language_generation/summarization"?`,
		`skills[1].tags[3]: oasf/1.1.0 has no class "99999999", and the tag is kept; name one by its path or the id of a skill's`,
		`skills[1].tags[4]: oasf/1.1.0 has no class "newer/class", and the tag is kept; name one by its path or the id of a skill's`,
		`skills[1].tags[5]: oasf/1.1.0 has no class "", and the tag is kept; name one by its path or the id of a skill's`,
	}
	if got := a.Warnings().Lines(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	if got := fmt.Sprint(a.UnknownClasses()); got != "[ 99999999 language_procesing newer/class summarization]" {
		t.Errorf("classes %s", got)
	}
	var many []string
	for i := range MaxTags {
		many = append(many, fmt.Sprint("oasf:no/such/class", i))
	}
	if got := tagged(many...).Warnings(); len(got) != maxWarnings+1 || got[maxWarnings].String() != "24 more tags name classes that oasf/1.1.0 has not" {
		t.Errorf("%d warnings, %v", len(got), got[len(got)-1])
	}
}
