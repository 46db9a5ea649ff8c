package acs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Problem is one violation: where, and what to do about it.
type Problem struct {
	Path string // JSON path from the root, as in `skills[2].tags[0]`; "" is the document itself
	Msg  string
}

// String is `path: message`.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Msg
	}
	return p.Path + ": " + p.Msg
}

// Problems is a list of violations as an error, in document order.
type Problems []Problem

// Error is one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return "the ACS is not valid:\n  " + strings.Join(lines, "\n  ")
}

func (p *Problems) add(path, format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, Problem{path, fmt.Sprintf(format, args...)})
	}
}

// view reads members of one object and notes those of a wrong type. A member that is missing reads as zero.
type view struct {
	path string
	obj  map[string]any
	out  *Problems
}

func (v view) at(key string) string {
	if v.path == "" {
		return key
	}
	return v.path + "." + key
}

// known says which members this package reads, so that one spelled in another case is not silently an unknown member.
func (v view) known(names ...string) {
	var odd []string
	for key := range v.obj {
		if !slices.Contains(names, key) {
			odd = append(odd, key)
		}
	}
	slices.Sort(odd)
	for _, key := range odd {
		for _, name := range names {
			if strings.EqualFold(key, name) {
				v.out.add(v.at(key), "is written %q in an ACS; rename it", name)
			}
		}
	}
}

func (v view) has(key string) bool { _, ok := v.obj[key]; return ok }

// need notes required members that are missing.
func (v view) need(keys ...string) {
	for _, key := range keys {
		if !v.has(key) {
			v.out.add(v.at(key), "is missing; add it")
		}
	}
}

func read[T any](v view, key, kind string) (T, bool) {
	var zero T
	raw, ok := v.obj[key]
	if !ok {
		return zero, false
	}
	got, ok := raw.(T)
	if !ok {
		v.out.add(v.at(key), "must be %s", kind)
	}
	return got, ok
}

func (v view) str(key string) string {
	s, _ := read[string](v, key, "a string")
	return s
}

func (v view) boolean(key string) bool {
	b, _ := read[bool](v, key, "true or false")
	return b
}

func (v view) integer(key string) int64 {
	n, ok := read[json.Number](v, key, "a number")
	if !ok {
		return 0
	}
	i, err := n.Int64()
	if err != nil {
		v.out.add(v.at(key), "must be a whole number")
	}
	return i
}

func (v view) strs(key string) []string {
	list, ok := read[[]any](v, key, "a list of strings")
	if !ok {
		return nil
	}
	out := make([]string, 0, len(list))
	for i, raw := range list {
		s, ok := raw.(string)
		if !ok {
			v.out.add(fmt.Sprintf("%s[%d]", v.at(key), i), "must be a string")
		}
		out = append(out, s)
	}
	return out
}

func (v view) object(key string) view {
	obj, _ := read[map[string]any](v, key, "an object")
	return view{v.at(key), obj, v.out}
}

func (v view) objects(key string) []view {
	list, ok := read[[]any](v, key, "a list of objects")
	if !ok {
		return nil
	}
	out := make([]view, 0, len(list))
	for i, raw := range list {
		path := fmt.Sprintf("%s[%d]", v.at(key), i)
		obj, ok := raw.(map[string]any)
		if !ok {
			v.out.add(path, "must be an object")
		}
		out = append(out, view{path, obj, v.out})
	}
	return out
}
