package history_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"agentgw/directory/aic"
	"agentgw/internal/frame"
)

const (
	writers    = 4
	longestRun = 60 * time.Millisecond // of a round, from the gateway's first answer to its kill
)

// known is one AIC as its writer knows it: what was acknowledged last, and what was asked for and not answered.
type known struct {
	aic     string
	version int // of its text; 0 before the first
	ended   bool
	asked   *known // nil: everything is answered
}

// directoryWriter puts, updates and withdraws entries of its own.
type directoryWriter struct {
	g       *gateway
	codes   codes
	n       int
	random  *rand.Rand
	entries []*known
	answers int
}

// codes are those of the gateway's AICs.
type codes struct {
	prefix, arsp string
	salt         []byte
}

func (g *gateway) codes() codes {
	g.t.Helper()
	raw, err := os.ReadFile(g.config())
	if err != nil {
		g.t.Fatal(err)
	}
	var c struct {
		AIC struct{ Prefix, ARSP, Salt string } `yaml:"aic"`
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		g.t.Fatal(err)
	}
	salt, err := hex.DecodeString(c.AIC.Salt)
	if err != nil {
		g.t.Fatal(err)
	}
	return codes{c.AIC.Prefix, c.AIC.ARSP, salt}
}

// TestCase46KillAtAnyInstant: the gateway is killed again and again (DIRECTORY_ROUNDS) while entries are put, updated and withdrawn, now and then while
// it starts, or while it stops cleanly. Nothing acknowledged is lost, nothing withdrawn is back, and what is at hand is what is on the disk.
func TestCase46KillAtAnyInstant(t *testing.T) {
	rounds := int(number("DIRECTORY_ROUNDS", 12))
	seed := number("DIRECTORY_SEED", rand.Uint64())
	t.Logf("%d rounds; DIRECTORY_SEED=%d repeats the random choices", rounds, seed)
	g := newGateway(t)
	c := g.codes()
	var all []*directoryWriter
	for i := range writers {
		all = append(all, &directoryWriter{g: g, codes: c, n: i, random: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	r := rand.New(rand.NewPCG(seed, 1000))
	from := map[string]int{}
	for round := range rounds {
		g.writeUntilKilled(all, time.Duration(r.Int64N(int64(longestRun))), r.IntN(4) == 0, r)
		clean := false
		switch r.IntN(5) {
		case 0: // killed while it starts
			g.startAndKill(time.Duration(r.Int64N(int64(longestRun))))
		case 1: // a clean stop between, and a start from its snapshot
			g.start()
			g.terminate(0)
			clean = true
		}
		g.start()
		loaded := g.holds(all)
		if from[loaded]++; clean && loaded != "snapshot" {
			t.Errorf("round %d: after a clean stop it has started from %s", round, loaded)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	entries, answers := 0, 0
	for _, w := range all {
		entries, answers = entries+len(w.entries), answers+w.answers
	}
	t.Logf("%d starts, %v; %d AICs, %d answers", g.starts, from, entries, answers)
	if answers < rounds || from["snapshot"] == 0 && rounds >= 12 {
		t.Errorf("too little happened: %d answers, loaded from %v", answers, from)
	}
}

// writeUntilKilled lets all writers write until the gateway is killed; stopping first asks it to end, and kills it in the midst of that.
func (g *gateway) writeUntilKilled(all []*directoryWriter, after time.Duration, stopping bool, r *rand.Rand) {
	var writing sync.WaitGroup
	for _, w := range all {
		writing.Go(func() {
			for w.step() {
			}
		})
	}
	time.Sleep(after)
	if stopping {
		g.terminate(time.Duration(1 + r.Int64N(int64(longestRun))))
	} else {
		g.kill()
	}
	writing.Wait()
}

// terminate asks the gateway to end, and kills it if it has not after a time; with 0 it waits for the end.
func (g *gateway) terminate(patience time.Duration) {
	g.t.Helper()
	g.mu.Lock()
	p, end := g.now, g.end
	g.mu.Unlock()
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		g.t.Error(err)
	}
	for at := time.Now(); !p.Ended(); time.Sleep(time.Millisecond) {
		if patience > 0 && time.Since(at) > patience {
			syscall.Kill(-p.PID(), syscall.SIGKILL)
		}
	}
	end()
}

// step does one thing, and says whether it was answered.
func (w *directoryWriter) step() bool {
	var e *known
	if alive := w.alive(); len(alive) == 0 || w.random.IntN(5) < 2 {
		id, err := aic.New(w.codes.prefix, w.codes.arsp, "1", fmt.Sprint(w.n+1), fmt.Sprint(len(w.entries)+1), w.codes.salt)
		if err != nil {
			w.g.t.Error(err)
			return false
		}
		e = &known{aic: string(id)}
		w.entries = append(w.entries, e)
	} else {
		e = alive[w.random.IntN(len(alive))]
	}
	next := known{aic: e.aic, version: e.version + 1}
	if e.version > 0 && w.random.IntN(3) == 0 {
		next = known{aic: e.aic, version: e.version, ended: true}
	}
	e.asked = &next
	err := w.ask(next)
	if err != nil {
		if code := frame.CodeOf(err); code != frame.UpstreamFailed && code != frame.Deadline && code != frame.Cancelled && code != frame.Internal {
			w.g.t.Errorf("%+v: %v", next, err)
		}
		return false
	}
	*e = next
	w.answers++
	return true
}

func (w *directoryWriter) alive() (out []*known) {
	for _, e := range w.entries {
		if !e.ended {
			out = append(out, e)
		}
	}
	return out
}

func (w *directoryWriter) ask(k known) error {
	if k.ended {
		return w.g.call("/v1/agents/withdraw", map[string]any{"aic": k.aic}, &struct{}{})
	}
	var done struct{ Registered, Updated, Unchanged int }
	line := fmt.Sprintf(`{"acs":{"aic":%q,"protocolVersion":"02.02","name":"Agent %d","description":"Text %d.","version":"1.0.0","provider":{"organization":"Provider"},
"securitySchemes":{"mtls":{"type":"mutualTLS"}},"endPoints":[],"capabilities":{"streaming":false,"notification":false,"messageQueue":[]},
"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
"skills":[{"id":"a","name":"Sell kites of kind %d","description":"Text %d.","version":"1.0.0","tags":["kite"]}]},"entry":{"visibility":"public"}}`, k.aic, w.n, k.version, k.version, k.version)
	in := map[string]any{"file": "x", "update": true, "lines": []any{map[string]any{"line": 1, "entry": json.RawMessage(line)}}}
	if err := w.g.call("/v1/agents/import", in, &done); err != nil {
		return err
	}
	if k.version == 1 && done.Registered != 1 || k.version > 1 && done.Updated != 1 {
		return fmt.Errorf("%s at %d: %+v", k.aic, k.version, done)
	}
	return nil
}

// startAndKill kills a process that has just been started.
func (g *gateway) startAndKill(after time.Duration) {
	g.t.Helper()
	g.starts++
	p, err := g.launch()
	if err != nil {
		g.t.Fatal(err)
	}
	time.Sleep(after)
	syscall.Kill(-p.PID(), syscall.SIGKILL)
	for !p.Ended() {
		time.Sleep(time.Millisecond)
	}
}

// holds compares what a gateway that was started again has with what every writer knows, and takes over what nobody could know.
func (g *gateway) holds(all []*directoryWriter) (loaded string) {
	g.t.Helper()
	var check struct {
		Problems []string
		Loaded   string
	}
	if err := g.call("/v1/agents/check", struct{}{}, &check); err != nil || len(check.Problems) > 0 {
		g.t.Errorf("index and store: %v, %v", check.Problems, err)
	}
	texts := g.texts()
	for _, w := range all {
		for _, e := range w.entries {
			got := known{aic: e.aic, version: texts[e.aic]}
			if got.version == 0 && e.version > 0 {
				got = known{aic: e.aic, version: e.version, ended: true}
			}
			delete(texts, e.aic)
			switch {
			case got == known{e.aic, e.version, e.ended, nil}:
			case e.asked != nil && got == *e.asked:
			default:
				g.t.Errorf("%s is %+v, acknowledged was %+v, asked for %+v", e.aic, got, *e, e.asked)
			}
			*e = got
		}
	}
	if len(texts) > 0 {
		g.t.Errorf("entries that nobody has put: %v", texts)
	}
	return check.Loaded
}

// texts are the versions of the texts of all entries.
func (g *gateway) texts() map[string]int {
	g.t.Helper()
	out := map[string]int{}
	for after := ""; ; {
		var page struct {
			Entries []struct {
				ACS struct{ AIC, Description string }
			}
			Next string
		}
		if err := g.call("/v1/agents/export", map[string]any{"after": after}, &page); err != nil {
			g.t.Fatal(err)
		}
		for _, e := range page.Entries {
			var version int
			if _, err := fmt.Sscanf(e.ACS.Description, "Text %d.", &version); err != nil {
				g.t.Errorf("%s has the text %q", e.ACS.AIC, e.ACS.Description)
			}
			out[e.ACS.AIC] = version
		}
		if after = page.Next; after == "" {
			return out
		}
	}
}
