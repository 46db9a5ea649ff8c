// Package filter is the filter expressions of the Agent Discovery Protocol (ADP) over the members of an ACS.
//
//	{ "logic": "and" | "or" | "not", "conditions": [{ "field", "op", "value" }…], "groups": [ …the same… ] }
//
// The contract: a filter has at most three levels, 64 conditions and 8 KiB. A field is a dotted path of an ACS; a path through a list
// means any of its elements. `skills` is the one skill that is judged, not all of the agent. Texts are compared without case; a member
// named version compares as SemVer 2.0.0, and a member whose name ends in Time as a time with offset; what is of another type than the
// value does not match. `not` holds where none of its parts does. Operators: eq ne in nin exists gt gte lt lte contains startsWith
// anyOf allOf noneOf; any other is an error that names its path, as is a field that no ACS has.
//
// The package is pure. Source: ADP as FORMATS, section 5 has it.
package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentgw/internal/frame"
)

// Bounds of a filter.
const (
	MaxSize       = 8 << 10
	maxLevels     = 3
	maxConditions = 64
	maxValues     = 64
	maxText       = 512 // octets of a value
	maxPath       = 8   // names of a field
)

// Filter is a parsed expression. It does not change, and any number of goroutines may use it.
type Filter struct{ root group }

// Nothing passes no document.
var Nothing = &Filter{group{logic: "or"}}

type group struct {
	logic      string
	conditions []condition
	groups     []group
}

type condition struct {
	path  []string
	op    operator
	value any   // string, json.Number, bool or nil
	list  []any // of the operators that take one
}

type rawGroup struct {
	Logic      string         `json:"logic"`
	Conditions []rawCondition `json:"conditions"`
	Groups     []rawGroup     `json:"groups"`
}

type rawCondition struct {
	Field string          `json:"field"`
	Op    string          `json:"op"`
	Value json.RawMessage `json:"value"`
}

// form is what a filter looks like, for those who have guessed.
const form = `a filter is like {"logic":"and","conditions":[{"field":"provider.countryCode","op":"eq","value":"DE"}],"groups":[]}`

// Parse reads a filter. Errors carry [frame.ReqInvalid]; their text begins with ADP's own code and the path in the filter.
func Parse(b []byte) (*Filter, error) {
	if len(b) > MaxSize {
		return nil, invalid("", "%d octets, at most %d are accepted", len(b), MaxSize)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	var raw rawGroup
	if err := dec.Decode(&raw); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) { // without the names of Go's types
			err = fmt.Errorf("a JSON %s does not belong at %q", wrong.Value, wrong.Field)
			if wrong.Field == "" {
				err = fmt.Errorf("it is a JSON %s", wrong.Value)
			}
		}
		return nil, invalid("", "%w; "+form, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("", "something follows the expression")
	}
	left := maxConditions
	root, err := raw.compile("", 1, &left)
	if err != nil {
		return nil, err
	}
	return &Filter{root}, nil
}

func invalid(path, format string, args ...any) error {
	if path != "" {
		path += ": "
	}
	return frame.Errorf(frame.ReqInvalid, "40004 FilterInvalid: "+path+format, args...)
}

func (g rawGroup) compile(path string, level int, left *int) (group, error) {
	out := group{logic: strings.ToLower(g.Logic)}
	if out.logic == "" {
		out.logic = "and"
	}
	switch {
	case level > maxLevels:
		return out, invalid(path, "more than %d levels", maxLevels)
	case !slices.Contains([]string{"and", "or", "not"}, out.logic):
		return out, invalid(path+"logic", "%.40q is none of and, or, not", g.Logic)
	case len(g.Conditions)+len(g.Groups) == 0:
		return out, invalid(path, "a group without conditions and groups")
	}
	for i, c := range g.Conditions {
		at := fmt.Sprintf("%sconditions[%d].", path, i)
		if *left--; *left < 0 {
			return out, invalid(at, "more than %d conditions", maxConditions)
		}
		compiled, err := c.compile(at)
		if err != nil {
			return out, err
		}
		out.conditions = append(out.conditions, compiled)
	}
	for i, sub := range g.Groups {
		compiled, err := sub.compile(fmt.Sprintf("%sgroups[%d].", path, i), level+1, left)
		if err != nil {
			return out, err
		}
		out.groups = append(out.groups, compiled)
	}
	return out, nil
}

// roots are the members of an ACS; others begin with `x-`.
var roots = []string{
	"aic", "active", "lastModifiedTime", "protocolVersion", "name", "description", "version", "iconUrl", "documentationUrl", "webAppUrl", "provider",
	"securitySchemes", "endPoints", "capabilities", "defaultInputModes", "defaultOutputModes", "skills", "entityUserId", "entityMeta", "certificate",
}

func (c rawCondition) compile(at string) (condition, error) {
	out := condition{path: strings.Split(c.Field, ".")}
	switch {
	case len(out.path) > maxPath || slices.Contains(out.path, ""):
		return out, invalid(at+"field", "%.80q is no dotted path of 1 to %d names", c.Field, maxPath)
	case !slices.Contains(roots, out.path[0]) && !strings.HasPrefix(out.path[0], "x-"):
		return out, invalid(at+"field", "an ACS has no member %.40q; it has %s", out.path[0], strings.Join(roots, " "))
	}
	var ok bool
	if out.op, ok = operators[c.Op]; !ok {
		return out, invalid(at+"op", "%.40q is none of %s", c.Op, strings.Join(operatorNames(), " "))
	}
	return out, out.read(c.Value, at+"value")
}

// read checks that the value is what the operator takes.
func (c *condition) read(raw json.RawMessage, at string) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&c.value); err != nil {
		return invalid(at, "is missing, or no JSON")
	}
	list, isList := c.value.([]any)
	if isList != c.op.list {
		return invalid(at, "%s takes %s", c.op.name, map[bool]string{true: "a list", false: "one value, not a list"}[c.op.list])
	}
	if isList {
		if len(list) == 0 || len(list) > maxValues {
			return invalid(at, "a list of %d values, 1 to %d are accepted", len(list), maxValues)
		}
		c.list, c.value = list, nil
	} else {
		list = []any{c.value}
	}
	for _, v := range list {
		switch v := v.(type) {
		case string:
			if len(v) > maxText {
				return invalid(at, "a text of %d octets, at most %d are accepted", len(v), maxText)
			}
		case map[string]any, []any:
			return invalid(at, "values are texts, numbers, true, false and null")
		}
	}
	return c.op.checkValue(c.value, at)
}

// Match says whether a document passes: the members of an ACS as JSON decodes them, numbers as json.Number or float64. work is what
// judging may cost, about one for an octet that is compared: it is used up, and once it is, nothing passes.
func (f *Filter) Match(doc map[string]any, work *int) bool {
	return f.root.match(doc, work) && *work >= 0
}

func (g group) match(doc map[string]any, work *int) bool {
	any, all := false, true
	note := func(holds bool) { any, all = any || holds, all && holds }
	for _, c := range g.conditions {
		note(c.match(doc, work))
	}
	for _, sub := range g.groups {
		note(sub.match(doc, work))
	}
	switch g.logic {
	case "or":
		return any
	case "not":
		return !any
	}
	return all
}

const workOfValue = 8 // of one value that is looked at, whatever it is

func (c condition) match(doc map[string]any, work *int) bool {
	have := values(nil, doc, c.path, work)
	cost := 0
	for _, v := range have {
		cost += workOfValue
		switch v := v.(type) {
		case string:
			cost += len(v)
		case json.Number:
			cost += len(v)
		}
	}
	*work -= cost * max(1, len(c.list))
	return *work >= 0 && c.op.holds(c, have)
}

// values are what a path leads to, through lists to each of their elements.
func values(out []any, at any, path []string, work *int) []any {
	if *work -= workOfValue; *work < 0 {
		return out
	}
	switch v := at.(type) {
	case []any:
		for _, e := range v {
			out = values(out, e, path, work)
		}
		return out
	case map[string]any:
		if len(path) > 0 {
			if next, ok := v[path[0]]; ok {
				return values(out, next, path[1:], work)
			}
			return out
		}
	}
	if len(path) > 0 {
		return out
	}
	return append(out, at)
}
