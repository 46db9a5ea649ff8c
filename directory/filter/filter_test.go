package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentgw/internal/frame"
)

const doc = `{"active":true,"name":"Invoice Reader","version":"10.2.0","lastModifiedTime":"2026-11-30T12:00:00+02:00","x-cost":7.5,
 "provider":{"organization":"Example GmbH","countryCode":"DE"},"capabilities":{"streaming":true,"messageQueue":["mqtt:>=3.1"]},
 "defaultInputModes":["application/pdf","image/png"],"iconUrl":null,
 "skills":[{"id":"a","tags":["Invoice","ocr"],"version":"1.0.0"},{"id":"b","tags":["tax"],"version":"2.0.0-rc.1"}]}`

func members(t testing.TB, text string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return m
}

func matches(f *Filter, m map[string]any) bool {
	work := 1 << 20
	return f.Match(m, &work)
}

func TestNothingPassesWhenTheWorkIsUsedUp(t *testing.T) {
	m := members(t, doc)
	for _, text := range []string{
		`{"conditions":[{"field":"skills.tags","op":"noneOf","value":["a","b"]},{"field":"skills.tags","op":"noneOf","value":["c"]}]}`,
		`{"logic":"not","conditions":[{"field":"skills.tags","op":"eq","value":"a"}]}`,
		`{"logic":"or","conditions":[{"field":"active","op":"eq","value":true},{"field":"skills.tags","op":"eq","value":"a"}]}`,
	} {
		f, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		const much = 1 << 20
		left := much
		if !f.Match(m, &left) || left == much {
			t.Fatalf("%s: does not pass, or has cost nothing", text)
		}
		enough := much - left
		for work := range enough + 1 {
			left := work
			if got := f.Match(m, &left); got != (work == enough) {
				t.Errorf("%s: %v with work of %d, %d is enough", text, got, work, enough)
			}
		}
	}
}

func TestConditions(t *testing.T) {
	m := members(t, doc)
	for condition, want := range map[string]bool{
		`"active","op":"eq","value":true`:                              true,
		`"active","op":"eq","value":"true"`:                            false,
		`"active","op":"ne","value":true`:                              false,
		`"name","op":"eq","value":"invoice reader"`:                    true,
		`"name","op":"contains","value":"VOICE"`:                       true,
		`"name","op":"startsWith","value":"inv"`:                       true,
		`"name","op":"startsWith","value":"reader"`:                    false,
		`"skills.tags","op":"anyOf","value":["invoice","none"]`:        true,
		`"skills.tags","op":"allOf","value":["invoice","TAX"]`:         true,
		`"skills.tags","op":"allOf","value":["invoice","none"]`:        false,
		`"skills.tags","op":"noneOf","value":["none"]`:                 true,
		`"skills.tags","op":"noneOf","value":["ocr"]`:                  false,
		`"skills.tags","op":"eq","value":"ocr"`:                        true,
		`"skills.tags","op":"ne","value":"ocr"`:                        false,
		`"provider.countryCode","op":"in","value":["FR","de"]`:         true,
		`"provider.countryCode","op":"nin","value":["FR"]`:             true,
		`"provider.url","op":"exists","value":false`:                   true,
		`"provider.url","op":"exists","value":true`:                    false,
		`"provider.url","op":"ne","value":"x"`:                         true,
		`"provider","op":"exists","value":true`:                        true,
		`"iconUrl","op":"eq","value":null`:                             true,
		`"version","op":"gt","value":"9.0.0"`:                          true, // as a text it would come before
		`"version","op":"lt","value":"9.0.0"`:                          false,
		`"version","op":"gte","value":"v10.2.0"`:                       true,
		`"skills.version","op":"lt","value":"2.0.0"`:                   true,
		`"skills.version","op":"gt","value":"2.0.0-rc.0"`:              true,
		`"lastModifiedTime","op":"eq","value":"2026-11-30T10:00:00Z"`:  true,
		`"lastModifiedTime","op":"lt","value":"2026-11-30T10:00:01Z"`:  true,
		`"x-cost","op":"lte","value":7.5`:                              true,
		`"x-cost","op":"gt","value":10`:                                false,
		`"x-cost","op":"gt","value":"1"`:                               false,
		`"capabilities.messageQueue","op":"startsWith","value":"mqtt"`: true,
		`"name.deeper","op":"exists","value":true`:                     false,
	} {
		f, err := Parse([]byte(`{"conditions":[{"field":` + condition + `}]}`))
		if err != nil {
			t.Errorf("%s: %v", condition, err)
		} else if got := matches(f, m); got != want {
			t.Errorf("%s: %v", condition, got)
		}
	}
}

func TestLogic(t *testing.T) {
	m := members(t, doc)
	yes, no := `{"field":"active","op":"eq","value":true}`, `{"field":"active","op":"eq","value":false}`
	for text, want := range map[string]bool{
		`{"conditions":[` + yes + `,` + no + `]}`:                                                                    false,
		`{"logic":"AND","conditions":[` + yes + `]}`:                                                                 true,
		`{"logic":"or","conditions":[` + no + `,` + yes + `]}`:                                                       true,
		`{"logic":"or","conditions":[` + no + `]}`:                                                                   false,
		`{"logic":"not","conditions":[` + no + `]}`:                                                                  true,
		`{"logic":"not","conditions":[` + no + `,` + yes + `]}`:                                                      false,
		`{"logic":"or","conditions":[` + no + `],"groups":[{"logic":"not","groups":[{"conditions":[` + no + `]}]}]}`: true,
	} {
		f, err := Parse([]byte(text))
		if err != nil || matches(f, m) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestBadFiltersNameTheirPlace(t *testing.T) {
	c := func(inner string) string { return `{"conditions":[` + inner + `]}` }
	deep := c(`{"field":"name","op":"eq","value":"a"}`)
	for range 3 {
		deep = `{"groups":[` + deep + `]}`
	}
	for text, says := range map[string]string{
		"":                     "EOF",
		"[]":                   "it is a JSON array; a filter is like",
		`{}`:                   "without conditions",
		`{"conditions":[]} {}`: "follows",
		`{"logic":"xor","conditions":[{"field":"name","op":"eq","value":"a"}]}`: "logic",
		`{"logick":"and"}`: "logick",
		c(`{"field":"name","op":"between","value":[1,2]}`):                         "conditions[0].op",
		c(`{"field":"nme","op":"eq","value":"a"}`):                                 "conditions[0].field",
		c(`{"field":"name..x","op":"eq","value":"a"}`):                             "conditions[0].field",
		c(`{"field":"name","op":"eq"}`):                                            "conditions[0].value",
		c(`{"field":"name","op":"eq","value":["a"]}`):                              "conditions[0].value",
		c(`{"field":"name","op":"in","value":"a"}`):                                "conditions[0].value",
		c(`{"field":"name","op":"in","value":[]}`):                                 "conditions[0].value",
		c(`{"field":"name","op":"in","value":[{}]}`):                               "conditions[0].value",
		c(`{"field":"name","op":"contains","value":1}`):                            "takes a text",
		c(`{"field":"name","op":"gt","value":true}`):                               "takes a number",
		c(`{"field":"name","op":"exists","value":"yes"}`):                          "true or false",
		c(`{"field":"name","op":"eq","value":"` + strings.Repeat("a", 513) + `"}`): "513 octets",
		`{"groups":[` + c(`{"field":"name","op":"like","value":"a"}`) + `]}`:       "groups[0].conditions[0].op",
		deep: "levels",
		c(strings.TrimSuffix(strings.Repeat(`{"field":"name","op":"eq","value":"a"},`, 65), ",")): "conditions",
		c(`{"field":"name","op":"eq","value":"` + strings.Repeat("a", 9000) + `"}`):               "octets",
	} {
		_, err := Parse([]byte(text))
		if frame.CodeOf(err) != frame.ReqInvalid || !strings.Contains(fmt.Sprint(err), says) || !strings.Contains(fmt.Sprint(err), "40004") {
			t.Errorf("%.60s: %v, which does not say %q", text, err, says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"logic":"or","conditions":[{"field":"version","op":"gt","value":"1.0.0"}],"groups":[{"conditions":[{"field":"skills.tags","op":"anyOf","value":["a"]}]}]}`))
	m := members(f, doc)
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := Parse(b); err == nil {
			matches(x, m)
		} else if frame.CodeOf(err) != frame.ReqInvalid {
			t.Errorf("%v", err)
		}
	})
}
