package acs

import (
	"strings"
	"testing"
)

func TestValidSkillID(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "9": true, "a.b:c/d-e_f": true, strings.Repeat("a", 128): true,
		"": false, ".a": false, "a b": false, "é": false, "a\n": false, strings.Repeat("a", 129): false,
	} {
		if ValidSkillID(s) != want {
			t.Errorf("ValidSkillID(%q) = %v", s, !want)
		}
	}
}
