package topo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// slowly lets a program see each line of its input only when a file is there, and notes before that what has come.
const slowly = `while IFS= read -r line; do
	printf '%%s\n' "$line" >> %[1]s/delivered
	while [ ! -e %[1]s/go ]; do sleep 0.05; done
	printf '%%s\n' "$line"
done | exec %[2]s medicine`

// TestScenarioReKeyMovesARunningSession: both agents get new keys while a context is worked on in their session, two hops from each
// other. After the initiator's re-key the session goes on over another connection under the new key, with a new token that came the same
// way as the first one; the target's leaves it where it is. The context is worked on once, and its result arrives.
func TestScenarioReKeyMovesARunningSession(t *testing.T) {
	t.Parallel()
	dir := prepare(t)
	w := newWorldBehind(t, dir, "", "/bin/sh", "-c", fmt.Sprintf(slowly, dir, filepath.Join(binaries, "agents")))
	done := make(chan taskResult, 1)
	go func() {
		r, _, _ := w.runTask()
		done <- r
	}()
	until(t, 10*time.Second, "the context is worked on", func() bool { return delivered(t, dir) == 1 })
	until(t, 5*time.Second, "the session is recorded", func() bool { return len(w.b.recorded("session.opened")) == 1 })
	opened := w.b.recorded("session.opened")
	w.a.must("rekey")
	until(t, 10*time.Second, "the session goes on under the new key", func() bool {
		return len(w.a.recorded("session.resumed")) == 1 && len(w.b.recorded("session.resumed")) == 1
	})
	w.b.must("rekey")
	until(t, 10*time.Second, "the target has attached under its new key", func() bool { return w.b.agents()[0].Attached && w.ag2.status().Attached == 1 })
	if got := w.b.recorded("session.resumed"); len(got) != 1 || got[0] != opened[0] {
		t.Errorf("resumed: %q, opened: %q", got, opened)
	}
	if a, b := w.a.agents()[0], w.b.agents()[0]; a.Sessions != 1 || b.Sessions != 1 {
		t.Errorf("%d and %d sessions", a.Sessions, b.Sessions)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-done:
		if r.State.TaskContext.OverallStatus != "completed" {
			t.Errorf("the task: %+v, failed %+v", r, r.Failed)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the task does not end")
	}
	if got := delivered(t, dir); got != 1 {
		t.Errorf("the context was worked on %d times", got)
	}
	w.mustComplete() // and with both new keys from the beginning
	for _, n := range []*node{w.a, w.b} {
		n.must("audit", "verify")
	}
}

// delivered is how many contexts the program has been given.
func delivered(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "delivered"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), `"aci/deliver"`)
}

// recorded are the session ids of an agentd's audit records of a kind.
func (n *node) recorded(kind string) (sids []string) {
	n.t.Helper()
	files, _ := filepath.Glob(filepath.Join(n.dir, "state", "audit", "audit*.jsonl")) // the pattern is well-formed
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			n.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var r struct {
				Kind string
				Data struct{ Sid string }
			}
			if json.Unmarshal([]byte(line), &r) == nil && r.Kind == kind { // the last line may not be whole yet
				sids = append(sids, r.Data.Sid)
			}
		}
	}
	return sids
}
