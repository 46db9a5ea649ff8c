package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write makes a file of a temporary folder.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodGateway = `domain: hospital.example
aic: {prefix: 2.999.1.1, arsp: A1, salt: "1234"}
`

func TestGatewayDefaults(t *testing.T) {
	path := write(t, "gatewayd.yaml", goodGateway)
	g, err := LoadGateway(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if g.StateDir != filepath.Join(dir, "state") || g.Control != filepath.Join(dir, "state", "control.sock") || g.PeersDir != filepath.Join(dir, "peers.d") {
		t.Errorf("paths are not under the file's folder: %+v", g)
	}
	if g.Listen != "[::]:4433" || g.Advertise[0] != g.Listen || g.Log.Level != "info" || g.Limits.MaxSessionS != 3600 {
		t.Errorf("defaults: %+v", g)
	}
}

func TestGatewayErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"unknown key, with its place and the nearest": {"domain: a.example\nlistn: x\n", `:2:1: unknown key "listn"; did you mean "listen"?`},
		"unknown key inside":                          {"domain: a.example\nlog:\n  levle: info\n", `:3:3: unknown key "levle"; did you mean "level"?`},
		"every unknown key is named":                  {"foo: 1\nbar: 2\n", `unknown key "bar"`},
		"key that resembles none":                     {"zzzzzzzz: 1\n", "known here: "},
		"key twice":                                   {goodGateway + "domain: b.example\n", "domain"},
		"second document":                             {goodGateway + "---\n" + goodGateway, ":4: a second document"},
		"wrong type":                                  {goodGateway + "lab: maybe\n", "3"},
		"syntax":                                      {"domain: [\n", "1"},
		"no domain":                                   {"aic: {prefix: 2.999.1.1, arsp: A1, salt: \"1234\"}\n", "domain: "},
		"domain in upper case":                        {strings.Replace(goodGateway, "hospital", "Hospital", 1), "lower-case"},
		"no salt":                                     {"domain: a.example\naic: {prefix: 2.999.1.1, arsp: A1}\n", "aic.salt"},
		"listen without a port":                       {goodGateway + "listen: 127.0.0.1\n", "host:port"},
		"negative rate":                               {goodGateway + "limits: {update_rate: -1}\n", "update_rate"},
		"session too long":                            {goodGateway + "limits: {max_session_seconds: 90000}\n", "max_session_seconds"},
	} {
		path := write(t, "gatewayd.yaml", c.text)
		_, err := LoadGateway(path)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q and the file's name", name, err, c.says)
		}
	}
	if _, err := LoadGateway(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "init") {
		t.Errorf("no file: %v", err)
	}
}

func TestPeers(t *testing.T) {
	good := "domain: peer.example\nbundle: peer.bundle\n"
	path := write(t, "peer.example.yaml", good)
	rows, err := LoadPeers(filepath.Dir(path))
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	r := rows[0]
	if r.Role != "peer" || r.Export != "own" || len(r.MayQuery) != 2 || r.Bundle != filepath.Join(filepath.Dir(path), "peer.bundle") {
		t.Errorf("%+v", r)
	}
	if r.FirstUse != "ask" { // may_query is more than a look around
		t.Errorf("first_use %q", r.FirstUse)
	}
	for text, want := range map[string]string{"may_query: [agw.discover]\n": "auto", "may_query: []\n": "auto", "first_use: auto\n": "auto",
		"may_query: [agw.discover]\nfirst_use: ask\n": "ask", "bundle_url: https://peer.example/bundle\n": "ask",
		"bundle_url: https://www.peer.example/b\n": "ask", "bundle_url: http://127.0.0.1:1/b\n": "ask"} {
		if r, err := LoadPeer(write(t, "peer.yaml", good+text)); err != nil || r.FirstUse != want {
			t.Errorf("%q: %+v %v, want %s", text, r, err, want)
		}
	}
	for name, c := range map[string]struct{ text, says string }{
		"plain URL":     {good + "bundle_url: http://peer.example/b\n", "https"},
		"foreign URL":   {good + "bundle_url: https://evilpeer.example/b\n", "peer.example"},
		"URL with user": {good + "bundle_url: \"https://a:b@peer.example/b\"\n", "https"},
		"first use":     {good + "first_use: never\n", "first_use"},
		"role":          {good + "role: friend\n", "role"},
		"export":        {good + "export: all\n", "export"},
		"no bundle":     {"domain: peer.example\n", "bundle"},
		"everything":    {good + "introduces: [\"*\"]\n", "introduces"},
		"fingerprint":   {good + "fingerprint: abc\n", "sha256:"},
		"address":       {good + "addresses: [nowhere]\n", "host:port"},
		"may ask none":  {good + "may_query: {}\n", "may_query"},
		"unknown key":   {good + "introduce: []\n", `did you mean "introduces"`},
	} {
		if _, err := LoadPeer(write(t, "peer.yaml", c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if rows, err := LoadPeers(filepath.Join(t.TempDir(), "none")); err != nil || len(rows) != 0 {
		t.Errorf("a folder that is not there: %v %v", rows, err)
	}
}

func TestAgents(t *testing.T) {
	path := write(t, "agents.d/pharmacy.yaml", "name: pharmacy\ngateway: 127.0.0.1:4433\nstdio: {command: [run, it], env: {A: b}}\n")
	rows, err := LoadLocalAgents(filepath.Dir(path))
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if a := rows[0]; a.MaxInRun != 16 || a.BudgetMS != 5000 || a.ParallelN != 4 || a.Stdio.Dir != filepath.Dir(path) {
		t.Errorf("%+v", a)
	}
	for name, c := range map[string]struct{ text, says string }{
		"name":       {"name: ../x\ngateway: 127.0.0.1:1\n", "name"},
		"no command": {"name: x\ngateway: 127.0.0.1:1\nstdio: {dir: x}\n", "stdio.command"},
		"negative":   {"name: x\ngateway: 127.0.0.1:1\nbudget_ms: -1\n", "budget_ms"},
		"in stdio":   {"name: x\ngateway: 127.0.0.1:1\nstdio: {comand: [x]}\n", `did you mean "command"`},
	} {
		if _, err := loadLocalAgent(write(t, "x.yaml", c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	a, err := LoadAgent(write(t, "agentd.yaml", "listen: 127.0.0.1:0\n"))
	if err != nil || a.AgentsDir == "" || filepath.Base(a.Control) != "control.sock" {
		t.Errorf("%+v %v", a, err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(goodGateway))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("log: {level: x}\n---\nb: 1\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		var g Gateway
		decode("f", in, &g)
		var r Peer
		decode("f", in, &r)
	})
}

func TestCluster(t *testing.T) {
	path := write(t, "gatewayd.yaml", goodGateway+"cluster: {listen: \"[::]:7946\", keys: gossip.keys, seeds: [\"10.0.0.2:7946\"], networks: [10.0.0.0/8]}\n")
	g, err := LoadGateway(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := g.Cluster; !c.On() || c.Keys != filepath.Join(filepath.Dir(path), "gossip.keys") {
		t.Errorf("%+v", c)
	}
	for name, c := range map[string]struct{ text, says string }{
		"no address":  {"{keys: k}", "cluster.listen"},
		"no port":     {"{listen: \"::\", keys: k}", "cluster.listen"},
		"no keys":     {"{listen: \":7946\"}", "gatewayd cluster key"},
		"a bad seed":  {"{listen: \":7946\", keys: k, seeds: [there]}", "cluster.seeds"},
		"no network":  {"{listen: \":7946\", keys: k, networks: [10.0.0.0]}", "cluster.networks"},
		"no such key": {"{listen: \":7946\", key: k}", "key"},
		"bad address": {"{listen: \":7946\", keys: k, advertise: here}", "cluster.advertise"},
	} {
		if _, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway+"cluster: "+c.text+"\n")); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
	if g, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway)); err != nil || g.Cluster.On() {
		t.Errorf("without a cluster: %v", err)
	}
}

func TestEmbedder(t *testing.T) {
	path := write(t, "gatewayd.yaml", goodGateway+"embedder: {url: https://api.example/v1/embeddings, model: m, dimension: 768, api_key: k}\n")
	g, err := LoadGateway(path)
	if err != nil {
		t.Fatal(err)
	}
	e := g.Embedder
	if time.Duration(e.Timeout) != 2*time.Second || e.Batch != 64 || e.APIKey != filepath.Join(filepath.Dir(path), "k") || e.AllowPrivate {
		t.Errorf("defaults: %+v", e)
	}
	for name, c := range map[string]struct{ text, says string }{
		"no URL":               {"{model: m, dimension: 8}", "embedder.url"},
		"plain http":           {"{url: http://api.example/x, model: m, dimension: 8, allow_private: true}", "embedder.url"},
		"http without consent": {"{url: http://127.0.0.1:1/x, model: m, dimension: 8}", "allow_private"},
		"a password in it":     {"{url: https://u:p@api.example/x, model: m, dimension: 8}", "embedder.url"},
		"no model":             {"{url: https://api.example/x, dimension: 8}", "embedder.model"},
		"no dimension":         {"{url: https://api.example/x, model: m}", "embedder.dimension"},
		"too many components":  {"{url: https://api.example/x, model: m, dimension: 4097}", "embedder.dimension"},
		"too patient":          {"{url: https://api.example/x, model: m, dimension: 8, timeout: 1m}", "embedder.timeout"},
		"time before now":      {"{url: https://api.example/x, model: m, dimension: 8, timeout: -1s}", "embedder.timeout"},
		"too large a batch":    {"{url: https://api.example/x, model: m, dimension: 8, batch: 4096}", "embedder.batch"},
	} {
		_, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway+"embedder: "+c.text+"\n"))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
	if _, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway+"embedder: {url: \"http://127.0.0.1:1/x\", model: m, dimension: 8, allow_private: true}\n")); err != nil {
		t.Errorf("an endpoint on this machine: %v", err)
	}
}

func TestDNS(t *testing.T) {
	g, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway))
	if err != nil || g.DNS.Zone != "hospital.example" || g.DNS.DNSSEC != "off" || len(g.DNS.Listen) != 0 {
		t.Fatalf("%+v, %v", g.DNS, err)
	}
	g, err = LoadGateway(write(t, "gatewayd.yaml", goodGateway+"listen: 192.0.2.1:4433\nadvertise: [\"192.0.2.7:5433\"]\ndns: {listen: [\"0.0.0.0:53\"], servers: [\"::1\", \"127.0.0.1:5353\"], dnssec: require}\n"))
	if err != nil || g.DNS.Host != "gateway.hospital.example" || g.DNS.Port != 5433 || strings.Join(g.DNS.Addresses, " ") != "192.0.2.7 192.0.2.1" ||
		g.DNS.Names[0] != g.DNS.Host || strings.Join(g.DNS.Servers, " ") != "[::1]:53 127.0.0.1:5353" {
		t.Errorf("%+v, %v", g.DNS, err)
	}
	g, err = LoadGateway(write(t, "gatewayd.yaml", goodGateway+"advertise: [\"agw.elsewhere.example:4433\"]\ndns: {listen: [\"[::]:53\"], zone: _dmsc-agw.hospital.example}\n"))
	if err != nil || g.DNS.Host != "agw.elsewhere.example" || len(g.DNS.Addresses) != 0 {
		t.Errorf("a host elsewhere: %+v, %v", g.DNS, err)
	}
	for text, says := range map[string]string{
		"{servers: [ns.example]}":                            "would need a name server itself",
		"{servers: [\"1.1.1.1\", \"1.0.0.1\", \"9.9.9.9\"]}": "at most 2",
		"{servers: [\"9.9.9.9\"], dnssec: require}":          "loopback",
		"{dnssec: maybe}":                                    "none of",
		"{zone: example}":                                    "dns.zone",
		"{zone: otherhospital.example}":                      "dns.zone",
		"{host: Upper.example}":                              "dns.host",
		"{ttl: 5s}":                                          "30s to 1h",
		"{addresses: [\"0.0.0.0\"]}":                         "dns.addresses",
		"{names: [\"*.example\"]}":                           "dns.names",
		"{listen: [\"53\"], addresses: [\"192.0.2.1\"]}":     "dns.listen",
		"{listen: [\"0.0.0.0:53\"]}":                         "neither advertise nor listen",
		"{listen: [\"0.0.0.0:53\"], addresses: [\"192.0.2.1\"], names: [ns.hospital.example]}": "not known",
		"{lisen: []}": "did you mean",
	} {
		if _, err := LoadGateway(write(t, "gatewayd.yaml", goodGateway+"dns: "+text+"\n")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	for gateway, want := range map[string]string{"": "", "dns:hospital.example": "hospital.example"} {
		file := write(t, "agents.d/a.yaml", "name: a\ngateway: \""+gateway+"\"\n")
		rows, err := LoadLocalAgents(filepath.Dir(file))
		if err != nil {
			t.Errorf("%q: %v", gateway, err)
			continue
		}
		if domain, ok := GatewayDomain(rows[0].Gateway); !ok || domain != want {
			t.Errorf("%q: %q %v", gateway, domain, ok)
		}
		raw, _ := os.ReadFile(file)
		if out, err := EditLocalAgent(file, raw, "192.0.2.1:4433", nil); err != nil || string(out) != string(raw) {
			t.Errorf("an enrolment anew edits it: %q %v", out, err)
		}
	}
	if _, err := LoadLocalAgents(filepath.Dir(write(t, "agents.d/a.yaml", "name: a\ngateway: \"dns:Nowhere\"\n"))); err == nil || !strings.Contains(err.Error(), "dns:hospital.example") {
		t.Errorf("%v", err)
	}
	if a, err := LoadAgent(write(t, "agentd.yaml", "dns: {servers: [\"127.0.0.53\"]}\n")); err != nil || a.DNS.Servers[0] != "127.0.0.53:53" || a.DNS.DNSSEC != "off" {
		t.Errorf("%+v %v", a, err)
	}
	if r, err := LoadPeer(write(t, "peer.yaml", "domain: peer.example\nbundle: b\ndiscover: true\n")); err != nil || !r.Discover {
		t.Errorf("%+v %v", r, err)
	}
}
