package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/config"
	"agentgw/gatewayd/internal/app"
)

// What `init` prints next is what the roles of the new process have to do with.
func TestWhatInitPrints(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		roles    []string
		has, not string
	}{
		{nil, "peers need the bundle file", "gatewayd join"},
		{[]string{config.RoleAMC}, "gatewayd token create --for gateway", "peers need"},
	} {
		o := app.InitOptions{Dir: t.TempDir(), Domain: "home.example", Listen: "127.0.0.1:4433", Roles: c.roles}
		done, err := app.Init(o)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		printInit(&out, done)
		if text := out.String(); !strings.Contains(text, c.has) || strings.Contains(text, c.not) || !strings.Contains(text, done.AMC) {
			t.Errorf("%v: %s", c.roles, text)
		}
		raw, err := os.ReadFile(done.Config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.LoadGateway(done.Config); err != nil {
			t.Errorf("%v: %v in\n%s", c.roles, err, raw)
		}
		peers := c.roles == nil
		if _, err := os.Stat(filepath.Join(o.Dir, "peers.d")); (err == nil) != peers || strings.Contains(string(raw), "peers_dir") != peers {
			t.Errorf("%v: a folder for peers: %v, in\n%s", c.roles, err == nil, raw)
		}
	}
}
