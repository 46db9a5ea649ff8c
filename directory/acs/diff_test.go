package acs

import (
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"the same", `{"a":1,"skills":[{"id":"x"}]}`, `{"skills":[{"id":"x"}],"a":1}`, ""},
		{"a member", `{"a":{"b":1,"c":2}}`, `{"a":{"b":3,"d":null}}`, "a.b 1→3|a.c 2→|a.d →null"},
		{"skills by id", `{"skills":[{"id":"x","n":1},{"id":"y"}]}`, `{"skills":[{"id":"z"},{"id":"x","n":2}]}`,
			`skills[x].n 1→2|skills[y] {"id":"y"}→|skills[z] →{"id":"z"}`},
		{"endpoints by place", `{"e":[{"url":"a"}]}`, `{"e":[{"url":"b"},{"url":"c"}]}`, `e[0].url "a"→"b"|e[1] →{"url":"c"}`},
		{"a list of words is one value", `{"tags":["a","b"]}`, `{"tags":["b","a"]}`, `tags ["a","b"]→["b","a"]`},
		{"one id twice: by value", `{"s":[{"id":"x"},{"id":"x","n":1}]}`, `{"s":[{"id":"x"}]}`, `s [{"id":"x"},{"id":"x","n":1}]→[{"id":"x"}]`},
		{"another type", `{"a":[]}`, `{"a":{}}`, "a []→{}"},
		{"a number keeps its digits", `{"a":1.0}`, `{"a":1.00}`, "a 1.0→1.00"},
		{"text as it is", `{"a":"<&>"}`, `{"a":"é"}`, `a "<&>"→"é"`},
	} {
		list, err := Diff([]byte(c.before), []byte(c.after))
		if err != nil {
			t.Fatal(c.name, err)
		}
		var out []string
		for _, d := range list {
			out = append(out, d.Path+" "+string(d.Old)+"→"+string(d.New))
		}
		if got := strings.Join(out, "|"); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
	if _, err := Diff([]byte(`{}`), []byte(`{`)); err == nil {
		t.Error("half a document is compared")
	}
}

func TestSameButStamp(t *testing.T) {
	const doc = `{"a":{"lastModifiedTime":"1"},"lastModifiedTime":"2026-11-30T10:00:00+00:00","name":"x"}`
	for change, want := range map[string]bool{
		doc: true, strings.Replace(doc, "2026-11-30", "2026-12-01", 1): true, strings.Replace(doc, `"1"`, `"2"`, 1): false,
		strings.Replace(doc, `"x"`, `"y"`, 1): false, doc + " ": false, "{": false,
	} {
		if SameButStamp([]byte(doc), []byte(change)) != want {
			t.Errorf("%s: want %v", change, want)
		}
	}
}
