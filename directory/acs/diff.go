package acs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Difference is one place where two JSON documents differ.
type Difference struct {
	Path string          `json:"path"` // members by name, elements by `[id]` where all of a list have an id, else by `[index]`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"` // absent: it is gone
}

// Diff is where two JSON documents differ, in the order of paths' members. A list of objects that have ids, as skills do, is compared by
// them, whatever their order; any other list is one value. A document that is not JSON is an error.
func Diff(before, after []byte) ([]Difference, error) {
	var docs [2]any
	for i, b := range [][]byte{before, after} {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&docs[i]); err != nil {
			return nil, fmt.Errorf("compare documents: %w", err)
		}
	}
	var list []Difference
	walk("", docs[0], docs[1], func(path string, x, y any) {
		list = append(list, Difference{path, raw(x), raw(y)})
	})
	return list, nil
}

// absent stands for a member that one side does not have: null is a value.
type absent struct{}

func raw(v any) json.RawMessage {
	if v == (absent{}) {
		return nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // it was decoded from JSON
		return nil
	}
	return bytes.TrimSpace(buf.Bytes())
}

func walk(path string, x, y any, differs func(path string, x, y any)) {
	if mx, ok := x.(map[string]any); ok {
		if my, ok := y.(map[string]any); ok {
			for _, name := range names(mx, my) {
				walk(strings.TrimPrefix(path+"."+name, "."), member(mx, name), member(my, name), differs)
			}
			return
		}
	}
	if lx, ok := byID(x); ok {
		if ly, ok := byID(y); ok {
			for _, id := range names(lx, ly) {
				walk(path+"["+id+"]", member(lx, id), member(ly, id), differs)
			}
			return
		}
	}
	if !reflect.DeepEqual(x, y) {
		differs(path, x, y)
	}
}

func member(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return absent{}
}

func names(x, y map[string]any) []string {
	var all []string
	for _, m := range []map[string]any{x, y} {
		for name := range m {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// byID is a list's elements by their ids, if each is an object that has one of its own; without ids, objects go by their place.
func byID(v any) (map[string]any, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make(map[string]any, len(list))
	named := 0
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, false
		}
		key := strconv.Itoa(i)
		if id, ok := m["id"].(string); ok {
			key, named = id, named+1
		}
		out[key] = m
	}
	return out, len(out) == len(list) && (named == 0 || named == len(list))
}

// SameButStamp says whether two authoritative ACS are the same but for the gateway's lastModifiedTime. Those of another length differ, for
// the stamp has always the same.
func SameButStamp(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	first, last := 0, len(a)-1
	for ; first <= last && a[first] == b[first]; first++ {
	}
	for ; last > first && a[last] == b[last]; last-- {
	}
	const stamp = `"lastModifiedTime":"`
	if first > last {
		return true
	}
	if at := bytes.LastIndex(a[:first], []byte(stamp)); at < 0 || last >= at+len(stamp)+len(stampLayout) {
		return false // nearly always: only what may be the same is read
	}
	var docs [2]map[string]any
	for i, raw := range [][]byte{a, b} {
		doc, err := decodeStrict(raw)
		if err != nil {
			return false
		}
		delete(doc, "lastModifiedTime")
		docs[i] = doc
	}
	return reflect.DeepEqual(docs[0], docs[1])
}
