package aci

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Members are members of an object that this version does not know, kept to be written again.
type Members map[string]json.RawMessage

func (m Members) with(name string, raw json.RawMessage) Members {
	if m == nil {
		m = make(Members)
	}
	m[name] = raw
	return m
}

// schema is the members of a struct in the order of its fields. The last field, behind them, is Extra.
type schema []member

// member is one field of a schema struct: its exact JSON name, and whether it may be absent.
type member struct {
	name     string
	begin    string // what is written before its value
	optional bool   // may be absent; left out when empty; a pointer always is
	lenient  bool   // may be absent; always written
}

// schemas are those of all structs in a context, read from their tags once.
var schemas = make(map[reflect.Type]schema)

func init() {
	addSchema(reflect.TypeFor[AgentContext]())
	addSchema(reflect.TypeFor[TaskContext]())
}

func addSchema(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		addSchema(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() - 1 {
			f := t.Field(i)
			name, option := f.Tag.Get("json"), f.Tag.Get("aci")
			schemas[t] = append(schemas[t], member{name, `"` + name + `":`, option == "optional", option == "lenient"})
			addSchema(f.Type)
		}
	}
}

// index is the field of a member, -1 for a name that this version does not know.
func (s schema) index(name []byte) int {
	return slices.IndexFunc(s, func(m member) bool { return m.name == string(name) })
}

// extra is the field of the unknown members.
func (s schema) extra(v reflect.Value) reflect.Value { return v.Field(len(s)) }

// complete says which required member is missing, where the bits of given are the fields that are there.
func (s schema) complete(given uint64) error {
	for i, m := range s {
		if given&(1<<i) == 0 && !m.optional && !m.lenient {
			return fmt.Errorf("member %s is missing", m.name)
		}
	}
	return nil
}
