// Package systemd_test checks what an operator installs: the example configurations load strictly, with their commented
// defaults as well as without, and show every key that there is; the units are accepted by systemd.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentgw/config"
)

// example is one example file, how it is loaded, and the struct that it is for.
type example struct {
	file string
	load func(file string) (any, error)
	keys any
	// implied are defaults that the daemon fills in, not the loader: zero means them, and only here they may differ.
	implied []string
}

var examples = []example{
	{
		"gatewayd.yaml", func(f string) (any, error) { return config.LoadGateway(f) }, config.Gateway{},
		[]string{"MaxConnections", "HandshakeRate", "AgentRequestRate", "PeerRequestRate", "EnrolRate", "UpdateRate"},
	},
	{"agentd.yaml", func(f string) (any, error) { return config.LoadAgent(f) }, config.Agent{}, nil},
	{"peers.d/transit.example.yaml", func(f string) (any, error) { return config.LoadPeer(f) }, config.Peer{}, nil},
	{
		"agents.d/pharmacy.yaml", func(f string) (any, error) {
			all, err := config.LoadLocalAgents(filepath.Dir(f))
			if err != nil || len(all) != 1 {
				return all, err
			}
			return all[0], nil
		}, config.LocalAgent{}, []string{"Durable"},
	},
}

func TestExamplesLoad(t *testing.T) {
	for _, e := range examples {
		text, err := os.ReadFile(filepath.Join("examples", e.file))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), filepath.Base(e.file)) // alone, and at the same place for both loads
		as := load(t, e, file, string(text))
		full := load(t, e, file, uncommented(string(text)))
		implied := cmp.FilterPath(func(p cmp.Path) bool {
			name := strings.TrimPrefix(p.Last().String(), ".")
			return slices.Contains(e.implied, name)
		}, cmp.Ignore())
		empty := cmpopts.EquateEmpty()
		if diff := cmp.Diff(as, full, implied, empty); diff != "" {
			t.Errorf("%s: its commented defaults are not the defaults (-default +commented):\n%s", e.file, diff)
		}
	}
}

func load(t *testing.T, e example, file, text string) any {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	v, err := e.load(file)
	if err != nil {
		t.Errorf("%s: %v", e.file, err)
	}
	return v
}

var commentedKey = regexp.MustCompile(`(?m)^( *)#([a-z_]+:)`)

// uncommented has every commented default as a setting.
func uncommented(text string) string { return commentedKey.ReplaceAllString(text, "$1$2") }

// TestExamplesShowEveryKey: a key that the examples do not have is one that no operator knows of.
func TestExamplesShowEveryKey(t *testing.T) {
	for _, e := range examples {
		text, err := os.ReadFile(filepath.Join("examples", e.file))
		if err != nil {
			t.Fatal(err)
		}
		keys := keysOf(reflect.TypeOf(e.keys))
		if len(keys) < 5 {
			t.Errorf("%s: only the keys %v were found", e.file, keys)
		}
		for _, k := range keys {
			if !regexp.MustCompile(`(?m)^ *#?` + k + `:`).Match(text) {
				t.Errorf("%s does not show the key %s", e.file, k)
			}
		}
	}
}

// keysOf are the YAML keys of a struct and of those inside it.
func keysOf(t reflect.Type) (out []string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		out = append(out, f.Tag.Get("yaml"))
		out = append(out, keysOf(f.Type)...)
	}
	return out
}

// TestUnitsAreAccepted: systemd-analyze verify has nothing to say.
func TestUnitsAreAccepted(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI_ROOT") == "1" {
			t.Fatal("systemd-analyze is needed to check the units:", err)
		}
		t.Skip("systemd-analyze is needed to check the units:", err)
	}
	units, err := filepath.Glob("*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("units %v: %v", units, err)
	}
	for _, u := range units {
		if _, err := os.ReadFile(u); err != nil { // so that `go test` knows what its result depends on
			t.Fatal(err)
		}
	}
	out, err := exec.Command(analyze, append([]string{"verify"}, units...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify %s: %v\n%s", strings.Join(units, " "), err, out)
	}
}
