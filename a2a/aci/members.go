package aci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Members are members of an object that this version does not know, kept to be written again.
type Members map[string]json.RawMessage

// member is one field of a schema struct: its exact JSON name, and whether it may be absent.
type member struct {
	name     string
	optional bool // may be absent; left out when empty
	lenient  bool // may be absent; always written
}

func memberOf(f reflect.StructField) (member, bool) {
	name, option := f.Tag.Get("json"), f.Tag.Get("aci")
	return member{name: name, optional: option == "optional", lenient: option == "lenient"}, name != "" && name != "-"
}

// decode reads an object into the struct dst points at, by exact member names: package encoding/json would take `todoitems` for
// `todoItems` and the last of two members of one name. Unknown members go to extra. Errors are plain: [parse] gives them their code.
func decode(b []byte, dst any, extra *Members) error {
	found, err := object(b)
	if err != nil {
		return err
	}
	v := reflect.ValueOf(dst).Elem()
	for i := range v.NumField() {
		m, ok := memberOf(v.Type().Field(i))
		if !ok {
			continue
		}
		raw, there := found[m.name]
		delete(found, m.name)
		if !there || string(raw) == "null" {
			if m.optional || m.lenient {
				continue
			}
			return fmt.Errorf("member %s is missing", m.name)
		}
		if err := json.Unmarshal(raw, v.Field(i).Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	*extra = nil
	if len(found) > 0 {
		*extra = found
	}
	return nil
}

// object splits an object into its members. Repeated members are refused.
func object(b []byte) (Members, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("an object is due")
	}
	found := make(Members)
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w", err)
		}
		name, _ := tok.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, again := found[name]; again {
			return nil, fmt.Errorf("member %s is there twice", name)
		}
		if len(name) > MaxID || len(found) >= MaxEntries {
			return nil, fmt.Errorf("too many members, or a name of more than %d bytes", MaxID)
		}
		found[name] = raw
	}
	return found, nil
}

// encode writes the struct src in the order of its fields, then the unknown members by name. Absent arrays are written as [].
func encode(src any, extra Members) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	v := reflect.ValueOf(src)
	for i := range v.NumField() {
		m, ok := memberOf(v.Type().Field(i))
		f := v.Field(i)
		if !ok || m.optional && (f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0) {
			continue
		}
		raw, err := []byte("[]"), error(nil)
		if f.Kind() != reflect.Slice || !f.IsNil() {
			raw, err = json.Marshal(f.Interface())
		}
		if err != nil {
			return nil, err
		}
		write(&b, m.name, raw)
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		write(&b, name, extra[name])
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func write(b *bytes.Buffer, name string, raw []byte) {
	if b.Len() > 1 {
		b.WriteByte(',')
	}
	quoted, _ := json.Marshal(name) // a string always encodes
	b.Write(quoted)
	b.WriteByte(':')
	b.Write(raw)
}
