package filter

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// operator is what a condition does with the values that its field leads to.
type operator struct {
	name  string
	list  bool // its value is a list
	order bool // its value has an order
	text  bool // its value is a text
	flag  bool // its value is true or false
	holds func(c condition, have []any) bool
}

var operators = func() map[string]operator {
	out := map[string]operator{}
	for _, o := range []operator{
		{name: "eq", holds: func(c condition, have []any) bool { return c.some(have, c.equals(c.value)) }},
		{name: "ne", holds: func(c condition, have []any) bool { return !c.some(have, c.equals(c.value)) }},
		{name: "in", list: true, holds: func(c condition, have []any) bool { return c.some(have, c.among) }},
		{name: "nin", list: true, holds: func(c condition, have []any) bool { return !c.some(have, c.among) }},
		{name: "anyOf", list: true, holds: func(c condition, have []any) bool { return c.some(have, c.among) }},
		{name: "noneOf", list: true, holds: func(c condition, have []any) bool { return !c.some(have, c.among) }},
		{name: "allOf", list: true, holds: condition.hasAll},
		{name: "exists", flag: true, holds: func(c condition, have []any) bool { return (len(have) > 0) == (c.value == true) }},
		{name: "gt", order: true, holds: ordered(func(n int) bool { return n > 0 })},
		{name: "gte", order: true, holds: ordered(func(n int) bool { return n >= 0 })},
		{name: "lt", order: true, holds: ordered(func(n int) bool { return n < 0 })},
		{name: "lte", order: true, holds: ordered(func(n int) bool { return n <= 0 })},
		{name: "contains", text: true, holds: texts(strings.Contains)},
		{name: "startsWith", text: true, holds: texts(strings.HasPrefix)},
	} {
		out[o.name] = o
	}
	return out
}()

func operatorNames() []string { return slices.Sorted(maps.Keys(operators)) }

func (o operator) checkValue(v any, at string) error {
	_, isText := v.(string)
	_, isNumber := v.(json.Number)
	_, isFlag := v.(bool)
	switch {
	case o.text && !isText:
		return invalid(at, "%s takes a text", o.name)
	case o.order && !isText && !isNumber:
		return invalid(at, "%s takes a number or a text", o.name)
	case o.flag && !isFlag:
		return invalid(at, "%s takes true or false", o.name)
	}
	return nil
}

func (c condition) some(have []any, holds func(any) bool) bool {
	return slices.ContainsFunc(have, holds)
}

func (c condition) equals(want any) func(any) bool {
	return func(have any) bool {
		n, ok := c.compare(have, want)
		return ok && n == 0
	}
}

func (c condition) among(have any) bool {
	return slices.ContainsFunc(c.list, func(want any) bool { return c.equals(want)(have) })
}

func (c condition) hasAll(have []any) bool {
	for _, want := range c.list {
		if !c.some(have, c.equals(want)) {
			return false
		}
	}
	return true
}

func ordered(is func(int) bool) func(condition, []any) bool {
	return func(c condition, have []any) bool {
		return c.some(have, func(v any) bool {
			n, ok := c.compare(v, c.value)
			return ok && is(n)
		})
	}
}

func texts(is func(s, part string) bool) func(condition, []any) bool {
	return func(c condition, have []any) bool {
		return c.some(have, func(v any) bool {
			s, ok := v.(string)
			return ok && is(strings.ToLower(s), strings.ToLower(c.value.(string)))
		})
	}
}

// compare is the order of two values of one kind; false where they have none.
func (c condition) compare(have, want any) (int, bool) {
	switch w := want.(type) {
	case string:
		h, ok := have.(string)
		if !ok {
			return 0, false
		}
		return c.compareTexts(h, w)
	case json.Number:
		h, ok := number(have)
		n, err := strconv.ParseFloat(string(w), 64)
		return cmp.Compare(h, n), ok && err == nil
	case bool:
		h, ok := have.(bool)
		if h == w {
			return 0, ok
		}
		return 1, ok
	}
	return 0, want == nil && have == nil
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case json.Number:
		f, err := strconv.ParseFloat(string(v), 64)
		return f, err == nil
	case float64:
		return v, true
	}
	return 0, false
}

// compareTexts compares versions as versions and times as times: as texts 10.0.0 would come before 9.0.0.
func (c condition) compareTexts(have, want string) (int, bool) {
	name := c.path[len(c.path)-1]
	switch {
	case strings.EqualFold(name, "version"):
		h, w := "v"+strings.TrimPrefix(have, "v"), "v"+strings.TrimPrefix(want, "v")
		if semver.IsValid(h) && semver.IsValid(w) {
			return semver.Compare(h, w), true
		}
	case strings.HasSuffix(name, "Time"):
		h, err := time.Parse(time.RFC3339, have)
		w, werr := time.Parse(time.RFC3339, want)
		if err == nil && werr == nil {
			return h.Compare(w), true
		}
	}
	return strings.Compare(strings.ToLower(have), strings.ToLower(want)), true
}
