// Package config is the configuration files of both daemons: strict YAML. An unknown key, a repeated key, a wrong type or a
// second document is an error with file, line and column; every value has a documented default.
//
// Paths in a file are relative to the folder of that file. The structs here go no further than each daemon's
// internal/app, which translates them into its packages' own settings.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"agentgw/internal/spelling"
)

// maxFile bounds a configuration file.
const maxFile = 1 << 20

// load decodes the one YAML document of a file into out. Every unknown key is reported, in order, with the nearest known.
func load(path string, out any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("config %s: no such file; `gatewayd init` or `join` writes a gateway's, `agentd enrol` an agent's", path)
		}
		return fmt.Errorf("config: %w", err)
	}
	if len(raw) > maxFile {
		return fmt.Errorf("config %s: larger than %d bytes", path, maxFile)
	}
	return decode(path, raw, out)
}

func decode(path string, raw []byte, out any) error {
	file, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return fmt.Errorf("config %s:\n%s", path, yaml.FormatError(err, false, true))
	}
	docs := 0
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if docs++; docs > 1 {
			return fmt.Errorf("config %s:%d: a second document; only one is read, so join them", path, d.Body.GetToken().Position.Line)
		}
		if problems := unknownKeys(d.Body, reflect.TypeOf(out)); len(problems) > 0 {
			for i, p := range problems {
				problems[i] = "config " + path + ":" + p
			}
			return errors.New(strings.Join(problems, "\n"))
		}
	}
	if err := yaml.UnmarshalWithOptions(raw, out, yaml.Strict()); err != nil {
		return fmt.Errorf("config %s:\n%s", path, yaml.FormatError(err, false, true))
	}
	return nil
}

// unknownKeys walks a document beside the type that it is for. The library reports one unknown key of several, a random one.
func unknownKeys(node ast.Node, t reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		var out []string
		for _, v := range n.Values {
			out = append(out, unknownKey(v, t)...)
		}
		return out
	case *ast.MappingValueNode:
		return unknownKey(n, t)
	case *ast.SequenceNode:
		if t.Kind() != reflect.Slice {
			return nil
		}
		var out []string
		for _, v := range n.Values {
			out = append(out, unknownKeys(v, t.Elem())...)
		}
		return out
	}
	return nil
}

func unknownKey(v *ast.MappingValueNode, t reflect.Type) []string {
	if t.Kind() == reflect.Map {
		return unknownKeys(v.Value, t.Elem())
	}
	if t.Kind() != reflect.Struct {
		return nil // a wrong type is the decoder's to report
	}
	name := v.Key.String()
	var known []string
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if tag == name {
			return unknownKeys(v.Value, t.Field(i).Type)
		}
		if tag != "" && tag != "-" {
			known = append(known, tag)
		}
	}
	at := v.Key.GetToken().Position
	return []string{fmt.Sprintf("%d:%d: unknown key %q%s", at.Line, at.Column, name, hint(name, known))}
}

func hint(name string, known []string) string {
	best, dist := "", 3
	for _, k := range known {
		if d := spelling.Distance(name, k, dist); d < dist {
			best, dist = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	slices.Sort(known)
	return "; known here: " + strings.Join(known, ", ")
}

// under makes a path of a file absolute, relative to the folder of that file. An empty path stays empty.
func under(file, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// problems collects what is wrong with one file.
type problems struct {
	file string
	list []string
}

func (p *problems) add(key, format string, args ...any) {
	p.list = append(p.list, fmt.Sprintf("config %s: %s: %s", p.file, key, fmt.Sprintf(format, args...)))
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return errors.New(strings.Join(p.list, "\n"))
}

// each lists the *.yaml files of a folder, sorted; a folder that is not there is empty.
func each(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	slices.Sort(files)
	return files, err
}
