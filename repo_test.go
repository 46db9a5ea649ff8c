// Package agentgw_test holds the rules of the whole tree: every package says what it is, imports point down, files are
// formatted. Each rule carries its reason; a rule that names a package which has vanished fails.
package agentgw_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "agentgw"

// pkg is one folder of Go files, tests apart.
type pkg struct {
	path    string                         // relative to the root
	files   map[string]*ast.File           // name -> parsed, without _test.go
	imports map[string]map[string]struct{} // import path -> files
}

func tree(t *testing.T) (packages map[string]*pkg, sources map[string][]byte) {
	t.Helper()
	out := map[string]*pkg{}
	sources = map[string][]byte{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata" || path == "tools" || path == "bin" || path == "out"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sources[path] = src
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if out[dir] == nil {
			out[dir] = &pkg{path: dir, files: map[string]*ast.File{}, imports: map[string]map[string]struct{}{}}
		}
		out[dir].add(filepath.Base(path), file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d packages found: the rules would hold of nothing", len(out))
	}
	return out, sources
}

func (p *pkg) add(name string, file *ast.File) {
	p.files[name] = file
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if p.imports[path] == nil {
			p.imports[path] = map[string]struct{}{}
		}
		p.imports[path][name] = struct{}{}
	}
}

func TestFormatted(t *testing.T) {
	_, sources := tree(t)
	for path, src := range sources {
		if clean, err := format.Source(src); err != nil || !bytes.Equal(clean, src) {
			t.Errorf("%s is not gofmt-formatted (%v)", path, err)
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	all, _ := tree(t)
	for _, p := range all {
		said := false
		for _, f := range p.files {
			said = said || f.Doc != nil && len(f.Doc.Text()) > 40
		}
		if !said {
			t.Errorf("%s has no package comment: what it is, its contract, its source", p.path)
		}
	}
}

// within says whether a package path is at or below a folder.
func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// fences keep a third party's library, or a package of ours, in few places.
var fences = []struct {
	imported string // import path or its prefix
	allowed  func(dir, file string) bool
	reason   string
}{
	{"github.com/dgraph-io/badger", in("directory/store", "agentd/internal/state", "integration/bench"), "the store is behind an interface; its traps are known in one place; the bench measures beside it"},
	{"github.com/quic-go/quic-go", func(dir, file string) bool { return within(dir, "internal/endpoint") || file == "quic.go" }, "transport details stay in the endpoint and in files named for it"},
	{"github.com/miekg/dns", in("internal/discovery", "gatewayd/internal/nameserver"), "who asks DNS has one place, and who answers another"},
	{"golang.org/x/crypto", func(dir, file string) bool { return dir == "internal/pki" && file == "ocsp.go" }, "the standard library has what this project needs, but for OCSP"},
	{"net/http", func(dir, file string) bool {
		return in("internal/safehttp", "internal/control", "gatewayd/internal/admin", "agentd/internal/local")(dir, file) ||
			(dir == "internal/pki" || dir == "gatewayd/internal/revocation") && file == "http.go"
	}, "addresses that others named are dialled by no plain HTTP client; internal/pki and revocation serve and never dial"},
	{module + "/internal/discovery/discoverytest", in("internal/discovery/discoverytest"), "its name servers are for tests"},
	{"github.com/anishathalye/porcupine", in(), "a checker of histories is for tests, not for the daemons"},
	{module + "/config", in("config", "gatewayd", "gatewayd/internal/app", "agentd", "agentd/internal/app"), "config structs stop at internal/app"},
	{module + "/gatewayd", in("gatewayd"), "nothing imports a daemon"},
	{module + "/agentd", in("agentd"), "nothing imports a daemon"},
	{module + "/directory/match/train", in("directory/match/train", "directory/match/eval"), "the product needs nothing of what its token table is made with"},
	{module + "/directory/match/toolset", in("directory/match/train", "directory/match/eval", "cdsp/digest/eval"), "public sets are for measuring and training"},
	{module + "/integration", in("integration"), "tests stand on the product, never under it"},
}

func in(folders ...string) func(dir, file string) bool {
	return func(dir, _ string) bool {
		for _, f := range folders {
			if within(dir, f) {
				return true
			}
		}
		return false
	}
}

func TestFencesHold(t *testing.T) {
	all, _ := tree(t)
	for _, p := range all {
		for path, files := range p.imports {
			for _, f := range fences {
				for file := range files {
					if within(path, f.imported) && !f.allowed(p.path, file) {
						t.Errorf("%s/%s imports %s: %s", p.path, file, path, f.reason)
					}
				}
			}
		}
	}
}

// forbidden are arrows that would point up or across.
var forbidden = []struct{ from, to, reason string }{
	{"cdsp", "a2a", "the protocols do not know each other; internal/app joins them"},
	{"a2a", "cdsp", "the protocols do not know each other; internal/app joins them"},
	{"gatewayd", "agentd", "the daemons meet on the wire only"},
	{"agentd", "gatewayd", "the daemons meet on the wire only"},
	{"integration/demo", "gatewayd", "the demo runs the binaries"},
	{"integration/demo", "agentd", "the demo runs the binaries"},
	{"directory/match", "directory/store", "matching is pure"},
	{"directory/store", "directory/match", "the store knows no protocol and no matcher"},
	{"cdsp", "directory/store", "a protocol does not know the store"},
	{"a2a", "directory/store", "a protocol does not know the store"},
	{"internal/frame", module, "the encoding stands on nothing of ours"},
	{"directory/aic", module, "identity codes stand on nothing of ours"},
	{"internal/identity", "directory/store", "identity is below the directory"},
	{"internal/secret", module, "everybody may read secrets, so this is below all"},
	{"internal/audit", "directory", "the log knows no store: who opens both hands it a function to keep checkpoints with"},
	{"internal/endpoint", "internal/identity", "the transport asks its callers who may speak"},
	{"config", "gatewayd", "configuration is read by daemons, not the other way"},
}

func TestArrowsPointDown(t *testing.T) {
	all, _ := tree(t)
	for _, rule := range forbidden {
		if _, ok := all[rule.from]; !ok && !hasBelow(all, rule.from) {
			t.Errorf("rule about %s names a package that has vanished", rule.from)
		}
		for _, p := range all {
			for path := range p.imports {
				ours, isOurs := strings.CutPrefix(path, module+"/")
				if isOurs && within(p.path, rule.from) && (rule.to == module || within(ours, rule.to)) && !within(ours, rule.from) {
					t.Errorf("%s imports %s: %s", p.path, path, rule.reason)
				}
			}
		}
	}
}

func hasBelow(all map[string]*pkg, folder string) bool {
	for path := range all {
		if within(path, folder) {
			return true
		}
	}
	return false
}

// pure packages neither wait, log, lock nor read clocks of their own: their callers hand in what they need.
var pure = []string{
	"internal/frame", "internal/policy", "directory", "directory/aic", "directory/acs", "directory/arp", "directory/semreq",
	"directory/match", "directory/snapshot", "cdsp/wire", "cdsp/replica", "cdsp/digest", "a2a/wire", "a2a/session", "a2a/token", "a2a/aci",
}

func TestPurePackages(t *testing.T) {
	all, _ := tree(t)
	for _, path := range pure {
		p, ok := all[path]
		if !ok {
			t.Errorf("pure package %s has vanished", path)
			continue
		}
		for _, bad := range []string{"net", "os", "sync", "log", "log/slog", "math/rand", "math/rand/v2"} {
			if files, ok := p.imports[bad]; ok {
				t.Errorf("%s imports %s in %v: pure packages must not", path, bad, files)
			}
		}
	}
}

// TestScopesAreDecidedInOnePlace: who spells a scope, or matches one by hand, decides beside the policy package, and differently
// some day.
func TestScopesAreDecidedInOnePlace(t *testing.T) {
	_, sources := tree(t)
	looked := 0
	for path, src := range sources {
		if strings.HasSuffix(path, "_test.go") || within(filepath.ToSlash(path), "internal/policy") || within(filepath.ToSlash(path), "integration") {
			continue
		}
		looked++
		for _, literal := range []string{"\"agw.discover", "\"acps.skill.invoke:", "\"agw.publish:", "\"agw.context.read"} {
			if bytes.Contains(src, []byte(literal)) {
				t.Errorf("%s spells the scope %s: use the constants and functions of internal/policy", path, literal)
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d files were looked at", looked)
	}
}
