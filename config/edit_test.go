package config

import (
	"strings"
	"testing"
)

// An agent's file is its user's: an edit changes the gateway and the command, and leaves the rest, comments too.
func TestEditLocalAgentKeepsTheRest(t *testing.T) {
	const mine = `# ours
name: pharmacy
gateway: "old.example:4433"   # the one upstairs
stdio:
  # slow to start
  command:
    - "/usr/bin/agent"
    - --fast
  dir: /var/lib/agent
  env: {KEY: "a: b", OTHER: x}
max_in_run: 3
durable: false
budget_ms: 900
`
	same, err := EditLocalAgent("f", []byte(mine), "old.example:4433", nil)
	if err != nil || string(same) != mine {
		t.Errorf("an edit that changes nothing: %v\n%s", err, same)
	}
	for name, c := range map[string]struct {
		text    string
		command []string
		want    []string
	}{
		"gateway": {mine, nil, []string{"# ours", "the one upstairs", "slow to start", "- --fast", "max_in_run: 3", "dir: /var/lib/agent", "KEY: \"a: b\""}},
		"command": {mine, []string{"/bin/other", "a\"b: #c"}, []string{"# ours", "/bin/other", "max_in_run: 3", "dir: /var/lib/agent"}},
		"no program before": {"name: a\ngateway: \"old.example:1\"\nmax_in_run: 2\n", []string{"/bin/x"},
			[]string{"/bin/x", "max_in_run: 2"}},
		"stdio without a command": {"name: a\ngateway: old.example:1\nstdio:\n  dir: /x\n", []string{"/bin/x"}, []string{"/bin/x", "dir: /x"}},
	} {
		out, err := EditLocalAgent("f", []byte(c.text), "new.example:4433", c.command)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range append(c.want, "new.example:4433") {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s: %q is gone from\n%s", name, w, out)
			}
		}
		if strings.Contains(string(out), "old.example") {
			t.Errorf("%s: the old gateway stays in\n%s", name, out)
		}
	}
	if _, err := EditLocalAgent("f", []byte("name: a\nno_such_key: 1\n"), "g:1", nil); err == nil {
		t.Error("a file that does not load was edited")
	}
}
