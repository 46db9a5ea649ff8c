package config

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// Agent is agentd.yaml: one daemon beside one or more agents of its machine.
type Agent struct {
	StateDir  string   `yaml:"state_dir"`  // credentials of the agents, and the database
	Listen    string   `yaml:"listen"`     // UDP address for sessions, host:port
	Advertise []string `yaml:"advertise"`  // addresses that peers shall use; default: what listen is bound to
	Control   string   `yaml:"control"`    // Unix socket for this daemon's verbs
	AgentsDir string   `yaml:"agents_dir"` // one agent a file, written by `enrol`
	// EncryptionKey is the file of an AES key (16, 24 or 32 octets, or as hexadecimal digits) that the database is encrypted with; a systemd
	// credential of the file's base name comes first. A database keeps for life what it was made with.
	EncryptionKey string `yaml:"encryption_key"`
	// DNS is how gateways are found, for agents whose gateway is not an address.
	DNS Discovery `yaml:"dns"`
	Log Log       `yaml:"log"`
}

// LocalAgent is one agent that this daemon serves.
type LocalAgent struct {
	Name      string `yaml:"name"`       // local name, also its folder under state_dir/agents
	Gateway   string `yaml:"gateway"`    // host:port of its gateway; dns:DOMAIN, or nothing for its own domain, finds it by DNS
	Stdio     *Stdio `yaml:"stdio"`      // the local agent; without one it only initiates
	MaxInRun  int    `yaml:"max_in_run"` // contexts that it works on at once, 16
	Durable   *bool  `yaml:"durable"`    // keep outcomes over a crash; default true
	BudgetMS  int    `yaml:"budget_ms"`  // of a request, 5000
	ParallelN int    `yaml:"parallel"`   // subtasks of its own tasks at once, 4
}

// Stdio runs the local agent as a child process that speaks newline-delimited JSON-RPC.
type Stdio struct {
	Command []string          `yaml:"command"`
	Dir     string            `yaml:"dir"` // default: the folder of this file
	Env     map[string]string `yaml:"env"` // added to PATH, HOME, LANG and TMPDIR of the daemon
}

// LoadAgent reads and validates agentd.yaml.
func LoadAgent(path string) (*Agent, error) {
	a := &Agent{}
	if err := load(path, a); err != nil {
		return nil, err
	}
	a.Defaults(path)
	p := &problems{file: path}
	p.hostPort("listen", a.Listen)
	for _, h := range a.Advertise {
		p.hostPort("advertise", h)
	}
	a.DNS.finish(p)
	return a, p.err()
}

// Defaults fills in what is left open, relative to the folder of file.
func (a *Agent) Defaults(file string) {
	set := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	set(&a.StateDir, "state")
	set(&a.Control, filepath.Join(a.StateDir, "control.sock"))
	set(&a.AgentsDir, "agents.d")
	set(&a.Listen, "[::]:4434")
	a.Log.defaults()
	for _, p := range []*string{&a.StateDir, &a.Control, &a.AgentsDir, &a.EncryptionKey} {
		*p = under(file, *p)
	}
}

var localName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ValidName says whether s may be the local name of an agent: it is also a folder's and a file's name.
func ValidName(s string) bool { return localName.MatchString(s) }

// LoadLocalAgents reads every agent of a folder.
func LoadLocalAgents(dir string) ([]*LocalAgent, error) {
	files, err := each(dir)
	if err != nil {
		return nil, err
	}
	var out []*LocalAgent
	for _, f := range files {
		a, err := loadLocalAgent(f)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func loadLocalAgent(file string) (*LocalAgent, error) {
	a := &LocalAgent{}
	if err := load(file, a); err != nil {
		return nil, err
	}
	p := &problems{file: file}
	if !ValidName(a.Name) {
		p.add("name", "%q is not 1 to 64 of a-z 0-9 . _ - beginning with a letter or digit", a.Name)
	}
	if err := checkGateway(a.Gateway); err != nil {
		p.add("gateway", "%v", err)
	}
	if s := a.Stdio; s != nil {
		if len(s.Command) == 0 {
			p.add("stdio.command", "the program and its arguments are due")
		}
		if s.Dir == "" {
			s.Dir = "."
		}
		s.Dir = under(file, s.Dir)
	}
	if a.MaxInRun == 0 {
		a.MaxInRun = 16
	}
	if a.BudgetMS == 0 {
		a.BudgetMS = 5000
	}
	if a.ParallelN == 0 {
		a.ParallelN = 4
	}
	for key, v := range map[string]int{"max_in_run": a.MaxInRun, "budget_ms": a.BudgetMS, "parallel": a.ParallelN} {
		if v < 1 {
			p.add(key, "%d is not above 0", v)
		}
	}
	return a, p.err()
}

// EditLocalAgent is the text of an agent's file with another gateway, and, unless command is empty, another command; all else stays,
// comments too, and so does a gateway that is found by DNS. The result is one that loads.
func EditLocalAgent(path string, raw []byte, gateway string, command []string) ([]byte, error) {
	now := &LocalAgent{}
	if err := decode(path, raw, now); err != nil {
		return nil, err
	}
	sameCommand := len(command) == 0 || now.Stdio != nil && slices.Equal(now.Stdio.Command, command)
	if _, found := GatewayDomain(now.Gateway); found {
		gateway = now.Gateway
	}
	if now.Gateway != gateway { // in its line, whose comment stays
		raw = gatewayLine.ReplaceAll(raw, []byte("gateway: "+strings.ReplaceAll(strconv.Quote(gateway), "$", "$$")))
	}
	out := raw
	if !sameCommand {
		var err error
		if out, err = editCommand(raw, now.Stdio, command); err != nil {
			return nil, fmt.Errorf("config %s: %w", path, err)
		}
	}
	want, got := *now, &LocalAgent{}
	want.Gateway = gateway
	if len(command) > 0 {
		if want.Stdio == nil {
			want.Stdio = &Stdio{}
		}
		want.Stdio.Command = command
	}
	if err := decode(path, out, got); err != nil || !reflect.DeepEqual(got, &want) { // written in a way that the edit does not know
		return nil, fmt.Errorf("config %s: cannot be edited: set gateway to %q and stdio.command to %q in it by hand, or move it away", path, gateway, want.command())
	}
	return out, nil
}

var gatewayLine = regexp.MustCompile(`(?m)^gateway:[ \t]*("[^"\n]*"|'[^'\n]*'|[^\s#]+)`)

func (a *LocalAgent) command() []string {
	if a.Stdio == nil {
		return nil
	}
	return a.Stdio.Command
}

// editCommand sets stdio.command in a file that decodes as one with now.
func editCommand(raw []byte, now *Stdio, command []string) ([]byte, error) {
	quoted := make([]string, len(command))
	for i, c := range command {
		quoted[i] = strconv.Quote(c)
	}
	list := "[" + strings.Join(quoted, ", ") + "]"
	doc, err := parser.ParseBytes(raw, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	path := func(p string) *yaml.Path {
		out, err := yaml.PathString(p)
		if err != nil { // they are constants
			panic(err)
		}
		return out
	}
	switch {
	case now == nil:
		err = path("$").MergeFromReader(doc, strings.NewReader("stdio:\n  command: "+list+"\n"))
	case len(now.Command) == 0:
		err = path("$.stdio").MergeFromReader(doc, strings.NewReader("command: "+list+"\n"))
	default:
		err = path("$.stdio.command").ReplaceWithReader(doc, strings.NewReader(list))
	}
	return append(bytes.TrimRight([]byte(doc.String()), "\n"), '\n'), err
}
