package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentgw/agentd/internal/attach"
	"agentgw/agentd/internal/local"
	"agentgw/config"
	"agentgw/directory"
	"agentgw/internal/endpoint"
	"agentgw/internal/frame"
	"agentgw/internal/identity"
)

// serving is an agentd in this process that serves one agent of the counter, whose program writes its process id into pid.
func serving(t *testing.T, c *counter) (a *app, o EnrolOptions, pid string) {
	t.Helper()
	o = c.options(t.TempDir())
	pid = filepath.Join(o.Dir, "pid")
	o.Program, o.Args = "sh", []string{"-c", "echo $$ > " + pid + ".new && mv " + pid + ".new " + pid + " && exec cat > /dev/null"}
	if _, err := Enrol(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadAgent(filepath.Join(o.Dir, "agentd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a, stop := running(t, cfg)
	t.Cleanup(func() {
		stop()
		a.running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		a.ep.Close(ctx)
	})
	if a.ep, err = endpoint.Open(endpoint.Config{Addr: cfg.Listen, Profile: endpoint.Agent, Faces: []endpoint.Face{a.host.Face()}}); err != nil {
		t.Fatal(err)
	}
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	attached(t, a)
	return a, o, pid
}

func attached(t *testing.T, a *app) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, ag := range a.list() {
		if err := ag.client.WaitAttached(ctx); err != nil {
			_, why := ag.client.Attached()
			t.Fatal(err, why)
		}
	}
}

// program waits for a program to say its process id, and forgets what it said.
func program(t *testing.T, file string) int {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if raw, err := os.ReadFile(file); err == nil {
			os.Remove(file)
			pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatal("the program does not run")
	return 0
}

// The running daemon serves an agent that was enrolled again under its new identity, and leaves one alone that was not.
func TestReloadStartsAReplacedAgentAnew(t *testing.T) {
	c := newCounter(t)
	a, o, file := serving(t, c)
	before, old := program(t, file), a.list()[0]
	if err := a.Reload(t.Context()); err != nil || a.list()[0] != old {
		t.Fatalf("an agent that has not changed was started anew, %v", err)
	}
	o.Replace = true
	again, err := Enrol(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := a.Status()
	if len(s.Agents) != 1 || s.Agents[0].AIC != again.AIC {
		t.Fatalf("it serves %+v, enrolled is %s", s.Agents, again.AIC)
	}
	attached(t, a)
	if syscall.Kill(before, 0) == nil {
		t.Error("the program of the one before still runs")
	}
	if program(t, file) == before {
		t.Error("the program was not started anew")
	}
}

// An agent that is registered no more is gone from the daemon, with its program, and its name is free.
func TestDeregisteredAgentIsGone(t *testing.T) {
	c := newCounter(t)
	a, o, file := serving(t, c)
	pid, ag := program(t, file), a.list()[0]
	if done, err := a.Deregister(t.Context(), local.AgentRequest{}); err != nil || done.Agent != "pharmacy" || done.AIC != ag.cred.AIC {
		t.Fatal(done, err)
	}
	if s := a.Status(); len(s.Agents) != 0 {
		t.Errorf("it still serves %+v", s.Agents)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("its program still runs")
	}
	if up, _ := ag.client.Attached(); up {
		t.Error("it is still attached")
	}
	if err := a.Reload(t.Context()); err != nil || len(a.list()) != 0 {
		t.Errorf("after a reload: %d agents, %v", len(a.list()), err)
	}
	if err := a.RunTask(t.Context(), local.TaskRequest{Agent: "pharmacy"}, nil); frame.CodeOf(err) != frame.NotFound {
		t.Errorf("a task: %v", err)
	}
	if _, err := Enrol(t.Context(), o); err != nil {
		t.Errorf("the name is not free: %v", err)
	}
}

// While a new enrolment under its name waits, the agent of before has its folder; once it has ended, it writes nothing into the folder that
// is the new one's.
func TestAgentOfBeforeLeavesTheFolderAlone(t *testing.T) {
	c := newCounter(t)
	a, o, _ := serving(t, c)
	ag := a.list()[0]
	dir := agentDir(a.cfg.StateDir, "pharmacy")
	key, err := identity.NewLeafKey()
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]func() error{
		"a renewal": func() error {
			return ag.cred.keep(dir)(attach.Renewal{Key: key, Chain: ag.cred.certificate.Certificate})
		},
		"a re-key": func() error { return ag.cred.keepNext(dir)(key) },
		"a bundle": func() error { return ag.cred.keepBundle(dir)(c.domain.Raw) },
	}
	o.Replace, o.Wait = true, 0 // it stays pending
	if _, err := Enrol(t.Context(), o); frame.CodeOf(err) != frame.Pending {
		t.Fatal(err)
	}
	if err := a.Reload(t.Context()); err != nil || a.list()[0] != ag {
		t.Fatalf("the agent of before does not go on: %v", err)
	}
	for name, write := range writes {
		if err := write(); err != nil {
			t.Errorf("%s while the new enrolment waits: %v", name, err)
		}
	}
	o.Wait = 10 * time.Second
	if _, err := Enrol(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	for name, write := range writes {
		if write() == nil {
			t.Errorf("%s was kept in the new one's folder", name)
		}
	}
	if after := tree(t, dir); !slices.Equal(before, after) {
		t.Errorf("the folder had %v and has %v", before, after)
	}
}

// An update that names no visibility leaves it as the last one made it, in a daemon that runs on as in one that is started anew.
func TestUpdateKeepsTheVisibility(t *testing.T) {
	c := newCounter(t)
	a, o, _ := serving(t, c)
	update := func(visibility string, allow ...string) error {
		_, err := a.Update(t.Context(), local.UpdateRequest{ACS: draft, Visibility: visibility, Allow: allow})
		return err
	}
	for _, step := range []struct {
		visibility string
		allow      []string
		want       directory.Visibility
	}{
		{"", nil, directory.VisiblePublic}, {"private", nil, directory.VisiblePrivate}, {"", nil, directory.VisiblePrivate},
		{"listed", []string{"partner.example"}, directory.VisibleListed}, {"", nil, directory.VisibleListed}, {"domain", nil, directory.VisibleDomain}, {"", nil, directory.VisibleDomain},
	} {
		if err := update(step.visibility, step.allow...); err != nil {
			t.Fatal(err)
		}
		got := c.put.Load()
		if directory.Visibility(got.Visibility) != step.want || (step.want == directory.VisibleListed) != (len(got.Allow) == 1) {
			t.Errorf("an update with visibility %q asks for %v of %v", step.visibility, directory.Visibility(got.Visibility), got.Allow)
		}
	}
	if err := update("", "partner.example"); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("domains without a visibility: %v", err)
	}
	if e, err := loadEnrolment(o.Dir+"/state", "pharmacy"); err != nil || e.Visibility != "domain" {
		t.Errorf("a daemon that starts knows %q: %v", e.Visibility, err)
	}
}

// Whoever enrols or updates an agent under a class that is not known hears of it, whatever the gateway is.
func TestUnknownClassesAreTold(t *testing.T) {
	c := newCounter(t)
	misspelt := strings.Replace(draft, `"tags":["medicine"]`, `"tags":["medicine","oasf:language_procesing"]`, 1)
	const want = `skills[0].tags[1]: oasf/1.1.0 has no class "language_procesing", and the tag is kept; did you mean "language_processing"?`
	o := c.options(t.TempDir())
	if err := os.WriteFile(o.ACS, []byte(misspelt), 0o600); err != nil {
		t.Fatal(err)
	}
	if done, err := Enrol(t.Context(), o); err != nil || !slices.Equal(done.Warnings, []string{want}) {
		t.Errorf("enrolled: %+v, %v", done, err)
	}
	a, _, _ := serving(t, c)
	if done, err := a.Update(t.Context(), local.UpdateRequest{ACS: misspelt}); err != nil || !slices.Equal(done.Warnings, []string{want}) {
		t.Errorf("updated: %+v, %v", done, err)
	}
	if done, err := a.Update(t.Context(), local.UpdateRequest{ACS: draft}); err != nil || done.Warnings != nil {
		t.Errorf("updated: %+v, %v", done, err)
	}
	card := `{"url":"https://x.example","skills":[{"id":"a","tags":["oasf:language_procesing"]}]}`
	if got := draftWarnings([]byte(card)); len(got) != 1 || !strings.HasPrefix(got[0], "skills[0].tags[0]: ") {
		t.Errorf("a card: %q", got)
	}
}

// onceHandler is a log that fails the test when a key is given to its lines twice.
type onceHandler struct {
	slog.Handler
	t    *testing.T
	keys []string
}

func (h onceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if slices.Contains(h.keys, a.Key) {
			h.t.Errorf("%s stands twice in the lines of a log: %s", a.Key, a)
		}
		h.keys = append(slices.Clone(h.keys), a.Key)
	}
	return h
}

// A line of the log says once which agent it is about.
func TestLogNamesAnAgentOnce(t *testing.T) {
	a, _, _ := serving(t, newCounter(t))
	ag := a.list()[0]
	log := slog.New(onceHandler{slog.DiscardHandler, t, nil})
	if _, err := newAgent(ag.cfg, ag.cred, a.cfg.StateDir, a.ep, a.db, a.finder, a.listening, a.record, log); err != nil {
		t.Fatal(err)
	}
}
