package aci

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"unicode/utf8"
)

// marshal writes a schema struct. The bytes are those of package encoding/json, but that one would read again, at each level,
// what the levels below have written.
func marshal(src any) ([]byte, error) {
	const usualSize = 4 << 10
	return appendValue(make([]byte, 0, usualSize), reflect.ValueOf(src))
}

func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	switch v.Kind() {
	case reflect.Struct:
		return appendObject(b, v)
	case reflect.Slice:
		return appendArray(b, v)
	case reflect.Pointer:
		return appendValue(b, v.Elem())
	case reflect.String:
		return appendString(b, v.String())
	}
	return appendStandard(b, v.Interface())
}

// appendObject writes a struct in the order of its fields, then the unknown members by name.
func appendObject(b []byte, v reflect.Value) (_ []byte, err error) {
	s, open := schemas[v.Type()], byte('{')
	for i, m := range s {
		if m.optional && v.Field(i).IsZero() {
			continue
		}
		b, open = append(append(b, open), m.begin...), ','
		if b, err = appendValue(b, v.Field(i)); err != nil {
			return nil, err
		}
	}
	extra := s.extra(v).Interface().(Members)
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		b, _ = appendString(append(b, open), name) // a string always encodes
		b, open = append(b, ':'), ','
		if b, err = appendStandard(b, extra[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendArray writes an absent array as [].
func appendArray(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendString(b []byte, s string) ([]byte, error) {
	if !plain(s) {
		return appendStandard(b, s)
	}
	return append(append(append(b, '"'), s...), '"'), nil
}

// plain says whether encoding/json writes a string as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || escaped[c] {
			return false
		}
	}
	return utf8.ValidString(s)
}

// escaped are the bytes from ' ' that encoding/json escapes, and the first one of U+2028 and U+2029.
var escaped = [256]bool{'"': true, '\\': true, '<': true, '>': true, '&': true, 0xe2: true}

// appendStandard leaves numbers, escapes and unknown members to encoding/json.
func appendStandard(b []byte, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	return append(b, raw...), err
}
