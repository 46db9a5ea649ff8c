package history_test

import (
	"crypto"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"agentgw/directory/arp"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
	"agentgw/internal/identity/identitytest"
)

const (
	clients    = 8
	effectTime = 20 * time.Second // for a decision to show in the directory, over restarts
	pause      = 20 * time.Millisecond
	patience   = time.Minute
	checkTime  = time.Minute
)

// client is one token and what became of it.
type client struct {
	n     int
	token arp.Token
	key   crypto.Signer
	csr   []byte
	done  *arp.Enrolled // nil: refused
}

// world is one run.
type world struct {
	*gateway
	ep    *endpoint.Endpoint
	began time.Time

	registered atomic.Int64
	answers    atomic.Int64 // calls that the gateway has answered
	unsure     atomic.Int64 // tokens with a lost answer that were refused in the end

	mu      sync.Mutex // guards what follows
	history []porcupine.Operation
	known   map[string]int // AIC, token
}

func (w *world) now() int64 { return int64(time.Since(w.began)) }

// note keeps one operation. What nobody knows the outcome of may happen until the end of time.
func (w *world) note(who, token int, v verb, call int64, out output) {
	ret := w.now()
	if out.unknown {
		ret = math.MaxInt64
	} else {
		w.answers.Add(1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, porcupine.Operation{ClientId: who, Input: input{token, v}, Output: out, Call: call, Return: ret})
}

// learn holds that no AIC is given to two, and no token brings two.
func (w *world) learn(aic string, token int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, ok := w.known[aic]; ok && other != token {
		w.t.Errorf("the AIC %s was given to the tokens %d and %d", aic, other, token)
	}
	w.known[aic] = token
}

func number(name string, def uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return def
}

// TestRegistrationsSurviveKills: N registrations (HISTORY_N) by clients at the same time, with the gateway killed at random points
// (HISTORY_SEED), and one restore from a backup that is old by then.
func TestRegistrationsSurviveKills(t *testing.T) {
	n := int(number("HISTORY_N", 100))
	if testing.Short() && os.Getenv("HISTORY_N") == "" {
		n = 30
	}
	seed := number("HISTORY_SEED", rand.Uint64())
	t.Logf("%d registrations; HISTORY_SEED=%d repeats the random choices", n, seed)
	w := &world{gateway: newGateway(t), began: time.Now(), known: map[string]int{}}
	var err error
	if w.ep, err = endpoint.Open(endpoint.Config{Addr: "127.0.0.1:0", Profile: endpoint.Agent}); err != nil {
		t.Fatal(err)
	}
	defer w.ep.Close(t.Context())
	all := make([]*client, n)
	var next atomic.Int64
	var working, killing sync.WaitGroup
	for c := range clients {
		working.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				all[i] = w.live(c, i, r)
			}
		})
	}
	over := make(chan struct{})
	killing.Go(func() { w.trouble(n, rand.New(rand.NewPCG(seed, 1000)), over) })
	working.Wait()
	close(over)
	killing.Wait()
	w.final(all)
	w.check()
	w.kill()
	w.verb("audit", "verify", "--config", w.config())
	t.Logf("%d kills, %d operations, %d agents", w.starts-1, len(w.history), len(w.known))
}

// live is one agent's life: a token, a registration, and perhaps what ends or interrupts it.
func (w *world) live(who, i int, r *rand.Rand) *client {
	a := &client{n: i, key: identitytest.NewKey(w.t)}
	var err error
	if a.csr, err = identity.NewCSR(a.key); err != nil {
		w.t.Error(err)
		return a
	}
	var answer struct{ Token string }
	w.insist(func() error { return w.call("/v1/token", map[string]any{"life_s": 3600}, &answer) })
	if a.token, err = arp.ParseToken(answer.Token); err != nil {
		w.t.Error(err)
		return a
	}
	w.register(who, a)
	w.registered.Add(1)
	if a.done == nil {
		return a
	}
	w.look(who, r)
	switch what := r.IntN(10); {
	case what < 2:
		w.decide(who, a, suspend, "SUSPENDED")
	case what < 4:
		w.decide(who, a, suspend, "SUSPENDED")
		w.decide(who, a, resume, "ACTIVE")
	case what < 6:
		w.decide(who, a, revoke, "")
	case what < 7:
		w.decide(who, a, withdraw, "")
	case what < 8: // a second try after a good answer
		w.register(who, a)
	}
	w.look(who, r)
	return a
}

// insist repeats a call until it is answered, over restarts.
func (w *world) insist(call func() error) {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		err := call()
		if err == nil {
			w.answers.Add(1)
			return
		}
		if time.Now().After(end) {
			w.t.Errorf("never answered: %v", err)
			return
		}
	}
}

// register presents the token until there is an answer. Of the tries whose answers were lost the first stands for all: a second one could do
// nothing that the first has not done, and porcupine's search doubles with each.
func (w *world) register(who int, a *client) {
	first := int64(-1)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		call := w.now()
		done, sent, err := w.enrol(w.ep, a.token, a.key, a.csr)
		code := frame.CodeOf(err)
		switch {
		case err != nil && (sent != answered || code == frame.Internal || code == frame.Shutdown):
			if sent != nothing && first < 0 {
				first = call
			}
			continue
		case err != nil:
			w.note(who, a.n, register, call, output{refused: true})
			if first >= 0 && a.done == nil {
				w.unsure.Add(1)
			}
		default:
			a.done = done
			w.learn(done.AIC, a.n)
			w.note(who, a.n, register, call, output{aic: done.AIC})
		}
		if first >= 0 {
			w.note(who, a.n, register, first, output{unknown: true})
		}
		return
	}
	w.t.Errorf("token %d was never answered", a.n)
}

// row is what `gatewayd agents` shows of one agent.
type row struct {
	AIC     string
	Name    string
	State   string
	Version uint64
	Skills  []string
}

// list asks for all agents, and holds that none of them is there by half.
func (w *world) list() (map[string]row, error) {
	var page struct {
		Agents []struct {
			AIC, Name, State string
			Version          uint64
			Skills           []string
		}
		Next string
	}
	if err := w.call("/v1/agents", struct{}{}, &page); err != nil {
		return nil, err
	}
	if page.Next != "" {
		return nil, fmt.Errorf("more agents than a page holds: ask for the next one")
	}
	out := map[string]row{}
	for _, r := range page.Agents {
		out[r.AIC] = row{r.AIC, r.Name, r.State, r.Version, r.Skills}
		if r.Name == "" || len(r.Skills) != 1 || r.Version == 0 {
			w.t.Errorf("a registration is there by half: %+v", r)
		}
	}
	return out, nil
}

// look asks how some of the known agents stand.
func (w *world) look(who int, r *rand.Rand) {
	w.mu.Lock()
	var some []string
	for aic := range w.known {
		if some = append(some, aic); len(some) == 8 { // the map's order is random
			break
		}
	}
	w.mu.Unlock()
	call := w.now()
	rows, err := w.list()
	if err != nil {
		return // it says nothing
	}
	for _, aic := range some {
		w.mu.Lock()
		token := w.known[aic]
		w.mu.Unlock()
		w.note(who, token, query, call, output{state: rows[aic].State})
	}
}

// decide changes an agent's standing, and returns when the directory shows it.
func (w *world) decide(who int, a *client, v verb, shows string) {
	call := w.now()
	refused := false
	w.insist(func() error {
		err := w.order(a.done.AIC, v)
		switch frame.CodeOf(err) {
		case frame.NotFound:
			refused = true
			return nil
		case frame.State: // so already, by a try whose answer was lost; or it is revoked for good
			refused = strings.Contains(err.Error(), "for good")
			return nil
		}
		return err
	})
	if refused {
		w.note(who, a.n, v, call, output{refused: true})
		return
	}
	for end := time.Now().Add(effectTime); ; time.Sleep(pause / 4) {
		rows, err := w.list()
		if state := rows[a.done.AIC].State; err == nil && (state == shows || state == "") { // none: a restore has come between
			break
		}
		if time.Now().After(end) {
			w.t.Errorf("token %d: %s is answered, and does not show", a.n, v)
			break
		}
	}
	w.note(who, a.n, v, call, output{})
}

func (w *world) order(aic string, v verb) error {
	if v == withdraw {
		return w.call("/v1/agents/withdraw", map[string]any{"aic": aic}, &struct{}{})
	}
	state := map[verb]string{suspend: "suspended", resume: "good", revoke: "revoked"}[v]
	return w.call("/v1/agents/standing", map[string]any{"aic": aic, "state": state}, &struct{}{})
}

// aWhile waits for a random time, and until some answers have been given in it: on a slow disk a gateway that is killed too early brings nobody
// forward. It is false when the run is over.
func (w *world) aWhile(r *rand.Rand, over <-chan struct{}) bool {
	want := w.answers.Load() + int64(r.IntN(32))
	end := time.Now().Add(2 * time.Second)
	wait := time.Duration(1+r.IntN(60)) * time.Millisecond
	for {
		select {
		case <-time.After(wait):
		case <-over:
			return false
		}
		if w.answers.Load() >= want || time.Now().After(end) {
			return true
		}
		wait = time.Millisecond
	}
}

// trouble kills the gateway at random points. At two fifths of the registrations it makes a backup, at three fifths it restores it.
func (w *world) trouble(n int, r *rand.Rand, over <-chan struct{}) {
	var file string
	restored := false
	for {
		if !w.aWhile(r, over) {
			if !restored {
				w.t.Error("the run ended before the restore: it is too short")
			}
			return
		}
		done := int(w.registered.Load())
		if file == "" && done >= n*2/5 {
			file = w.backup(n)
		}
		call := w.now()
		w.kill()
		if file != "" && !restored && done >= n*3/5 {
			w.verb("restore", file, "--config", w.config())
			w.start()
			w.everybody(n, restore, call)
			restored = true
			continue
		}
		w.start()
	}
}

func (w *world) backup(n int) string {
	file := filepath.Join(w.dir, "backup")
	call := w.now()
	if err := w.call("/v1/backup", map[string]any{"file": file}, &struct{}{}); err != nil {
		w.t.Fatalf("backup: %v", err)
	}
	w.everybody(n, backup, call)
	return file
}

// everybody notes what happened to all agents at once.
func (w *world) everybody(n int, v verb, call int64) {
	for i := range n {
		w.note(clients+1, i, v, call, output{})
	}
}

// final asks once more for everybody, and has everybody attach who may.
func (w *world) final(all []*client) {
	call := w.now()
	rows, err := w.list()
	if err != nil {
		w.t.Fatal(err)
	}
	strangers := len(rows)
	for _, a := range all {
		if a == nil || a.done == nil {
			continue
		}
		state := rows[a.done.AIC].State
		w.note(clients+2, a.n, query, call, output{state: state})
		if state != "" {
			strangers--
		}
		if err := w.attach(w.ep, a); (err == nil) != (state == "ACTIVE") {
			w.t.Errorf("token %d, state %q: attach: %v", a.n, state, err)
		}
	}
	if strangers > int(w.unsure.Load()) {
		w.t.Errorf("%d agents are registered that nobody was told of, and %d answers were lost", strangers, w.unsure.Load())
	}
}

// check looks for an order of everything that explains every answer.
func (w *world) check() {
	result, info := porcupine.CheckOperationsVerbose(model, w.history, checkTime)
	if result == porcupine.Ok {
		return
	}
	file := filepath.Join(os.TempDir(), fmt.Sprintf("history-%d.html", os.Getpid()))
	if err := porcupine.VisualizePath(model, info, file); err != nil {
		w.t.Error(err)
	}
	w.t.Errorf("no order of the history explains it (%s); it is drawn in %s", result, file)
}
