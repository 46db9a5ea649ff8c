package session

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentgw/a2a/token"
	"agentgw/a2a/wire"
	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the scenarios give into testdata")

// A scenario is lines `> [+duration] event [key=value…]`, each followed by what came of it; `#` begins a comment. The first
// event may be `session role=… max_msgs=…`; until counts minutes from the beginning, and sat=1 stands for a new SAT of two hours. -update writes the answers; review them as a diff.
func TestScenarios(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txt")
	if len(files) == 0 {
		t.Fatal("no scenario in testdata")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if d := cmp.Diff(string(want), got); d != "" {
				t.Error(d)
			}
		})
	}
}

func play(t *testing.T, script string) string {
	var out strings.Builder
	s, now := New(config(Leader)), t0
	for _, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			fmt.Fprintln(&out, line)
			continue
		}
		if words[0] != ">" {
			continue
		}
		fmt.Fprintln(&out, line)
		words = words[1:]
		if d, ok := strings.CutPrefix(words[0], "+"); ok {
			step, err := time.ParseDuration(d)
			if err != nil {
				t.Fatal(err)
			}
			now, words = now.Add(step), words[1:]
		}
		args := arguments(t, words[1:])
		if words[0] == "session" {
			c := config(Role(args["role"]))
			if args["higher"] == 1 {
				c.Self, c.Peer = c.Peer, c.Self
			}
			c.Renewable = args["upd"] == 1
			c.Limits.MaxMessages, c.Limits.MaxBytes, c.Limits.MaxStreams, c.Limits.IdleSeconds = args["max_msgs"], args["max_bytes"], args["max_streams"], args["idle_s"]
			s, now = New(c), t0
			continue
		}
		effects, err := s.Step(parseEvent(t, words[0], args), now)
		for _, e := range effects {
			fmt.Fprintf(&out, "  %s\n", describe(e))
		}
		if err != nil {
			fmt.Fprintf(&out, "  error %s\n", err)
		}
		fmt.Fprintf(&out, "  %v%s\n", s.State(), due(s))
	}
	return out.String()
}

func due(s *Session) string {
	if next := s.NextDeadline(); !next.IsZero() {
		terms := ""
		if s.State().Live() && s.Until != t0.Add(time.Hour) {
			terms = fmt.Sprintf(" until=+%v", s.Until.Sub(t0))
		}
		if s.State().Live() && s.Params.MaxContext != wire.MaxContext {
			terms += fmt.Sprintf(" max_ctx=%d", s.Params.MaxContext)
		}
		return fmt.Sprintf(" running=%d next=+%v%s", s.Running(), next.Sub(t0), terms)
	}
	return ""
}

func describe(e Effect) string {
	switch e := e.(type) {
	case SendTerminate:
		return "SendTerminate " + e.Code.Hex()
	case SendReject:
		return "SendReject " + e.Code.Hex()
	case SendUpdate:
		return fmt.Sprintf("SendUpdate %d", e.Seq)
	case SendUpdateAck:
		return fmt.Sprintf("SendUpdateAck %d %s", e.Seq, e.Code.Hex())
	case Updated:
		return "Updated " + e.Code.Hex()
	case Left:
		return fmt.Sprintf("Left until +%v", e.Until.Sub(t0))
	case SendAccept:
		return fmt.Sprintf("SendAccept until +%v resumed=%v", e.Until.Sub(t0), e.Resumed)
	case StopData:
		return "StopData " + e.Code.Hex()
	case SendKeepalive:
		return fmt.Sprintf("SendKeepalive echo=%d", e.EchoMS)
	case Released:
		return fmt.Sprintf("Released %s, tombstone until +%v", e.Code.Hex(), e.Until.Sub(t0))
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", e), "session.")
}

func arguments(t *testing.T, words []string) map[string]uint64 {
	args := make(map[string]uint64)
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil {
			t.Fatalf("%s: %v", w, err)
		}
		args[k] = n
	}
	return args
}

func parseEvent(t *testing.T, name string, args map[string]uint64) Event {
	switch name {
	case "start":
		return Start{}
	case "recv-init":
		return RecvInit{}
	case "admit":
		return Admit{Params: DefaultParams(), Until: t0.Add(time.Hour)}
	case "refuse":
		return Refuse{Code: frame.Code(args["code"])}
	case "recv-accept":
		return RecvAccept{Params: DefaultParams(), Until: t0.Add(time.Hour)}
	case "recv-resumed":
		return RecvAccept{Params: DefaultParams(), Until: minutes(args["until"]), Resumed: true}
	case "resume":
		return Resume{Grant: granted(args)}
	case "readmit":
		return Readmit{Grant: granted(args)}
	case "update":
		return Update{Change: change(args), Grant: granted(args)}
	case "recv-update":
		return RecvUpdate{Seq: args["seq"], Change: change(args)}
	case "admit-update":
		return AdmitUpdate{Seq: args["seq"], Grant: *granted(args)}
	case "refuse-update":
		return RefuseUpdate{Seq: args["seq"], Code: frame.Code(args["code"])}
	case "recv-ack":
		return RecvUpdateAck{Seq: args["seq"], Code: frame.Code(args["code"])}
	case "recv-reject":
		return RecvReject{Code: frame.Code(args["code"])}
	case "request":
		return Message{Len: args["len"], Opens: true}
	case "result":
		return Message{Len: args["len"]}
	case "ended":
		return StreamEnded{}
	case "close":
		return Close{Code: frame.Code(args["code"])}
	case "recv-terminate":
		return RecvTerminate{Code: frame.Code(args["code"])}
	case "recv-keepalive":
		return RecvKeepalive{TimestampMS: args["ts"]}
	case "lost":
		return ConnLost{Final: args["final"] == 1}
	case "tick":
		return Tick{}
	}
	t.Fatalf("no event is called %q", name)
	return nil
}

func minutes(n uint64) time.Time { return t0.Add(time.Duration(n) * time.Minute) }

func granted(args map[string]uint64) *Grant {
	if args["sat"] == 0 {
		return nil
	}
	return &Grant{Scope: []string{invoke}, Limits: token.Limits{MaxMessages: args["max_msgs"]}, Until: minutes(120), Update: true}
}

func change(args map[string]uint64) (c Change) {
	if n, ok := args["until"]; ok {
		c.Until = minutes(n)
	}
	if n, ok := args["max_ctx"]; ok {
		p := DefaultParams()
		p.MaxContext = n
		c.Params = &p
	}
	if args["sat"] == 1 {
		c.SAT = []byte{1}
	}
	return c
}
