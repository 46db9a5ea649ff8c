package aci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// unmarshal reads the object b into the struct that dst points at, by exact member names: package encoding/json would take
// `todoitems` for `todoItems`, and the last of two members of one name. Errors are plain: [parse] gives them their code.
func unmarshal(b []byte, dst any) error {
	if !json.Valid(b) {
		return json.Unmarshal(b, new(json.RawMessage)) // says what is wrong, and where
	}
	r := &reader{text: b}
	return r.object(reflect.ValueOf(dst).Elem())
}

// reader walks once over text that is known to be JSON, and so need not look for what cannot be there. Nothing that it gives to
// a context shares memory with the text.
type reader struct {
	text []byte
	pos  int
}

// peek is the next byte that is not white space.
func (r *reader) peek() byte {
	for r.text[r.pos] <= ' ' {
		r.pos++
	}
	return r.text[r.pos]
}

// more stands before the next entry of an array or object, or leaves it.
func (r *reader) more(end byte) bool {
	c := r.peek()
	if c == ',' || c == end {
		r.pos++
	}
	return c != end
}

// raw is the text of a value or name inside an object: all up to what separates it from the next one.
func (r *reader) raw() []byte {
	r.peek()
	start, depth, quoted := r.pos, 0, false
	for ; ; r.pos++ {
		switch c := r.text[r.pos]; {
		case quoted && c == '\\':
			r.pos++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c <= ' ' || c == ',' || c == ':' || c == ']' || c == '}'):
			return r.text[start:r.pos]
		case c == ']' || c == '}':
			depth--
		}
	}
}

// object reads the members of a schema struct. Repeated members are refused, unknown ones kept, and a null counts as absent.
func (r *reader) object(v reflect.Value) error {
	if r.peek() != '{' {
		return errors.New("an object is due")
	}
	r.pos++
	s, extra := schemas[v.Type()], Members(nil)
	var seen, given uint64 // bits of fields
	for n := 0; r.more('}'); n++ {
		name := unquote(r.raw())
		r.peek()
		r.pos++ // the colon
		i := s.index(name)
		if _, again := extra[string(name)]; again || i >= 0 && seen&(1<<i) != 0 {
			return fmt.Errorf("member %s is there twice", name)
		}
		if len(name) > MaxID || n >= MaxEntries {
			return fmt.Errorf("too many members, or a name of more than %d bytes", MaxID)
		}
		if i < 0 {
			extra = extra.with(string(name), bytes.Clone(r.raw()))
			continue
		}
		seen |= 1 << i
		if r.peek() == 'n' {
			r.raw()
			continue
		}
		given |= 1 << i
		if err := r.value(v.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	s.extra(v).Set(reflect.ValueOf(extra))
	return s.complete(given)
}

func (r *reader) value(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Struct:
		return r.object(v)
	case reflect.Slice:
		return r.array(v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(v.Elem())
	}
	raw := r.raw()
	if v.Kind() == reflect.String && raw[0] == '"' {
		v.SetString(string(unquote(raw)))
		return nil
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}

func (r *reader) array(v reflect.Value) error {
	if r.peek() != '[' {
		return errors.New("an array is due")
	}
	r.pos++
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for n := 0; r.more(']'); n++ {
		if r.peek() == 'n' { // it would become an empty entry, which says something else
			return fmt.Errorf("entry %d is null", n)
		}
		v.Grow(1)
		v.SetLen(n + 1)
		if err := r.value(v.Index(n)); err != nil {
			return err
		}
	}
	return nil
}

// unquote is what a string says: most often its own bytes.
func unquote(raw []byte) []byte {
	if plain := raw[1 : len(raw)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return plain
	}
	var s string
	_ = json.Unmarshal(raw, &s) // it is known to be JSON
	return []byte(s)
}
