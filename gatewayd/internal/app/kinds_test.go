package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentgw/internal/daemon"
)

func TestShowRefusesAnUnknownKind(t *testing.T) {
	t.Parallel()
	show := func(kind string) error {
		return ShowAudit(t.TempDir(), 0, kind, func(AuditRow) error { return nil })
	}
	err := show("nonsense")
	if daemon.ExitCode(err) != daemon.ExitUsage || !strings.Contains(err.Error(), "credential.revoked") {
		t.Errorf("an unknown kind: %v", err)
	}
	for _, kind := range append(auditKinds, "") {
		if err := show(kind); daemon.ExitCode(err) == daemon.ExitUsage {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The list has every kind that the source writes, and no other: a kind that is missing in it cannot be shown.
func TestAuditKindsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	first := map[string]bool{}
	for _, k := range auditKinds {
		word, _, _ := strings.Cut(k, ".")
		first[word] = true
	}
	found := map[string]bool{"checkpoint": true}
	for _, s := range literals(t, "..", "../../../internal/audit") {
		word, _, dotted := strings.Cut(s, ".")
		if file := slices.Contains([]string{".key", ".pem", ".cbor", ".yaml", ".lock", ".jsonl"}, filepath.Ext(s)); !dotted || file || !first[word] {
			continue
		}
		found[s] = true
		if !slices.Contains(auditKinds, s) {
			t.Errorf("%q is a kind of record: add it to auditKinds", s)
		}
	}
	for _, k := range auditKinds {
		if !found[k] {
			t.Errorf("nothing writes %q", k)
		}
	}
	if !slices.IsSorted(auditKinds) {
		t.Error("the kinds are not in order")
	}
}

// literals are the strings in the source of some folders that look like a kind with a dot.
func literals(t *testing.T, folders ...string) (out []string) {
	t.Helper()
	kind := regexp.MustCompile(`^[a-z]+\.[a-z_-]+$`)
	for _, folder := range folders {
		if err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Base(path) == "monitor" { // what operators watch is no record
				return filepath.SkipDir
			}
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "kinds.go" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil && kind.MatchString(s) {
						out = append(out, s)
					}
				}
				return true
			})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
