package replica_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentgw/cdsp/cdsptest"
	"agentgw/cdsp/replica"
	"agentgw/cdsp/wire"
)

var update = flag.Bool("update", false, "write the outputs of testdata/*.txt anew; review the diff")

// TestScenarios runs the scripts in testdata. A line that starts with "> " is a command, the lines after it are what it
// printed; "#" is a comment. Commands:
//
//	gateway NAME DOMAIN              start a gateway
//	link DIALLER OTHER ROLE          connect them, with transit; ROLE is what OTHER is to DIALLER
//	own NAME LABEL…                  replace its own digests
//	run DURATION                     let time pass
//	tables NAME                      print what it holds
//	neighbours NAME                  print how its neighbours stand
//	cut, heal, silence A B           break a link loudly, mend it, break it silently
//	restart, kill NAME               start it anew, with or without GOODBYE
//	hide, show NAME ORIGIN           its key of ORIGIN goes and comes back
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got, "\n")); diff != "" && !*update {
				t.Errorf("(-file +now):\n%s", diff)
			}
		})
	}
}

// script is one run.
type script struct {
	t   *testing.T
	net *cdsptest.Network
	out strings.Builder
}

func runScript(t *testing.T, text string) string {
	s := &script{t: t, net: cdsptest.NewNetwork(1)}
	s.net.Trace = func(node *cdsptest.Node, event string) {
		fmt.Fprintf(&s.out, "%8.3f %s %s\n", s.net.Now.Sub(cdsptest.Epoch).Seconds(), node.Name, event)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		command, ok := strings.CutPrefix(line, "> ")
		if ok {
			fmt.Fprintln(&s.out, line)
			s.do(strings.Fields(command))
		} else if strings.HasPrefix(line, "#") {
			fmt.Fprintln(&s.out, line)
		}
	}
	return s.out.String()
}

func (s *script) do(f []string) {
	switch f[0] {
	case "gateway":
		s.net.AddNode(f[1], f[2])
	case "link":
		s.link(f[1], f[2], f[3])
	case "own":
		s.net.Node(f[1]).SetOwn(f[2:]...)
	case "run":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.net.Run(d)
	case "tables":
		s.tables(f[1])
	case "neighbours":
		s.neighbours(f[1])
	case "cut":
		s.net.Cut(f[1], f[2])
	case "heal":
		s.net.Heal(f[1], f[2])
	case "silence":
		s.net.Silence(f[1], f[2])
	case "restart", "kill":
		s.net.Restart(f[1], f[0] == "restart")
	case "hide", "show":
		s.net.Node(f[1]).Unknown[f[2]] = f[0] == "hide"
		s.net.Node(f[1]).KeysChanged()
	default:
		s.t.Fatalf("unknown command %q", f[0])
	}
}

func (s *script) link(dialler, other, role string) {
	r, ok := wire.ParseRole(role)
	if !ok {
		s.t.Fatalf("unknown role %q", role)
	}
	a, b := s.net.Node(dialler), s.net.Node(other)
	row := replica.Neighbour{ExportTransit: true, ImportTransit: true, Level: wire.LevelCoarse}
	row.Domain, row.Role = b.Domain, r
	a.SetRows(append(a.Rows, row)...)
	row.Domain, row.Role = a.Domain, r.Opposite()
	b.SetRows(append(b.Rows, row)...)
	s.net.Link(dialler, other)
}

func (s *script) tables(name string) {
	for _, e := range s.net.Node(name).Replica.Snapshot().Entries {
		stale := ""
		if e.Stale {
			stale = " stale"
		}
		if e.Own {
			e.Via = "-"
		}
		fmt.Fprintf(&s.out, "    %s %s seq %d via %s path %v%s\n", e.Origin, e.Item.Label, e.Item.OSeq, e.Via, e.Path, stale)
	}
}

func (s *script) neighbours(name string) {
	for _, n := range s.net.Node(name).Replica.Snapshot().Neighbours {
		fmt.Fprintf(&s.out, "    %s %v %v acked %v synced %v sent %d received %d refused %d (%v) nacked %d\n", n.Gateway, n.Role, n.State,
			n.Acked, n.Synced, n.Sent, n.Received, n.Refused, n.LastRefusal, n.Nacked)
	}
}
