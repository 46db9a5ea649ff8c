package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentgw/a2a/aci"
	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
)

func doctor(t *testing.T) *Plan {
	t.Helper()
	f, err := os.Open("testdata/doctor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := LoadPlan(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// independent is a plan of n subtasks that do not depend on each other.
func independent(n int) *Plan {
	p := &Plan{Name: "Plan a tour", Query: "a weekend in Vienna"}
	for i := range n {
		p.Subtasks = append(p.Subtasks, Subtask{
			ID: fmt.Sprintf("s%d", i), Name: fmt.Sprintf("Part %d", i), Request: Query{Text: "x"}, Todo: []Todo{{ID: "t", Description: "do it"}},
		})
	}
	return p
}

// memory is a Store; it fails from the save numbered failAt on, and keeps every state that was saved.
type memory struct {
	saved  [][]byte
	failAt int
}

func (m *memory) Save(_ string, b []byte) error {
	if m.failAt > 0 && len(m.saved)+1 >= m.failAt {
		return errors.New("disk full")
	}
	m.saved = append(m.saved, slices.Clone(b))
	return nil
}

func (m *memory) Load(id string) ([]byte, error) {
	if len(m.saved) == 0 {
		return nil, fmt.Errorf("no task %s", id)
	}
	return m.saved[len(m.saved)-1], nil
}

// fake is an Invoker that takes a second for each subtask and does it well, but for those named in behave.
type fake struct {
	mu       sync.Mutex
	now, top int // running, most at a time
	order    []string
	sent     map[string]*aci.AgentContext
	behave   map[string]func(ctx context.Context, c *aci.AgentContext) error
}

func (f *fake) Invoke(ctx context.Context, r Request) (Result, error) {
	f.mu.Lock()
	f.now++
	f.top = max(f.top, f.now)
	f.order = append(f.order, r.SubtaskID)
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.now--; f.mu.Unlock() }()
	res := Result{Target: aci.Target{AIC: "1.2.AGENT." + strings.ToUpper(r.SubtaskID), Name: "agent of " + r.SubtaskID}, Hops: 2, Gateways: []string{"AG1", "AG3", "AG2"}, Sid: "ab", Resolve: time.Millisecond, Setup: 2 * time.Millisecond}
	b, err := r.Context(res.Target)
	if err != nil {
		return res, err
	}
	c, err := aci.ParseAgentContext(b)
	if err != nil {
		return res, err
	}
	f.mu.Lock()
	if f.sent == nil {
		f.sent = make(map[string]*aci.AgentContext)
	}
	f.sent[r.SubtaskID], _ = aci.ParseAgentContext(b)
	f.mu.Unlock()
	r.Progress([]aci.ItemState{{ItemID: c.TodoItems[0].ItemID, State: 1}}, "half way")
	if err := pause(ctx, time.Second); err != nil {
		return res, err
	}
	done(c)
	if do := f.behave[r.SubtaskID]; do != nil {
		if err := do(ctx, c); err != nil {
			return res, err
		}
	}
	res.Context, err = json.Marshal(c)
	return res, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func done(c *aci.AgentContext) {
	for i, it := range c.TodoItems {
		c.ItemStateUpdates[i].State = 1
		c.KeyInformation = append(c.KeyInformation, aci.KeyInformation{ItemID: it.ItemID, OutputAbstract: "result of " + it.ItemID})
	}
	c.EvaluationResult.Status, c.EvaluationResult.Confidence = aci.Passed, 0.9
	for _, cr := range c.EvaluationPolicy.SuccessCriteria {
		c.EvaluationResult.CriterionResults = append(c.EvaluationResult.CriterionResults, aci.CriterionResult{CriterionID: cr.CriterionID, Status: aci.Passed})
	}
}

func statuses(s *State) string {
	var out []string
	for _, st := range s.Subtasks {
		text := st.ID + " " + string(st.Status)
		if st.Failure != nil {
			text += " " + st.Failure.Code.Hex()
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestDependentSubtasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, store, begin := &fake{}, &memory{}, time.Now()
		var events []string
		e := &Engine{Invoker: f, Store: store, Events: func(ev Event) {
			events = append(events, fmt.Sprintf("%d %s %s", ev.Kind, ev.Subtask.ID, ev.Subtask.Status))
		}}
		s, err := e.Run(t.Context(), "task-1", doctor(t))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := statuses(s), "diagnose completed, prescribe completed, buy completed"; got != want {
			t.Error(got)
		}
		if got := time.Since(begin); got != 3*time.Second || f.top != 1 {
			t.Errorf("three dependent seconds took %v, %d at a time", got, f.top)
		}
		want := []string{"1 diagnose in_progress", "2 diagnose in_progress", "3 diagnose completed", "1 prescribe in_progress", "2 prescribe in_progress",
			"3 prescribe completed", "1 buy in_progress", "2 buy in_progress", "3 buy completed"}
		if d := cmp.Diff(want, events); d != "" {
			t.Error(d)
		}
		if st := s.Subtasks[1]; st.AgentID != "1.2.AGENT.PRESCRIBE" || st.Hops != 2 || st.ElapsedMS != 1000 || st.SetupMS != 2 {
			t.Errorf("%+v", st)
		}
		goals := []aci.GoalStatus{{Goal: "Disease diagnosis", Status: aci.Completed}, {Goal: "Prescription", Status: aci.Completed}, {Goal: "Medicine at home", Status: aci.Completed}}
		if d := cmp.Diff(goals, s.TaskContext.GoalStatus); d != "" || s.TaskContext.OverallStatus != aci.Completed || s.TaskContext.EndTime == "" {
			t.Error(d, s.TaskContext)
		}
		if err := s.TaskContext.Validate(); err != nil {
			t.Error(err)
		}
	})
}

// What a dependency found goes on as one inline item; nothing of the grandparent, nothing of the task's own query.
func TestUpstreamKeyInformation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		if _, err := (&Engine{Invoker: f, Store: &memory{}}).Run(t.Context(), "task-1", doctor(t)); err != nil {
			t.Fatal(err)
		}
		items := f.sent["prescribe"].ContextItems
		if len(items) != 1 || items[0].ContextID != "upstream-diagnose" || items[0].Priority != aci.MustPreserve || items[0].MediaType != "application/json" {
			t.Fatalf("%+v", items)
		}
		_, content, err := aci.OpenInline(items[0].ContextURI)
		want := `[{"itemID":"findings","outputabstract":"result of findings"},{"itemID":"disease","outputabstract":"result of disease"}]`
		if err != nil || string(content) != want {
			t.Errorf("%s %v", content, err)
		}
		if items := f.sent["buy"].ContextItems; len(items) != 1 || items[0].ContextID != "upstream-prescribe" {
			t.Errorf("%+v", items)
		}
	})
}

func TestIndependentSubtasksRunAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, begin := &fake{}, time.Now()
		if _, err := (&Engine{Invoker: f, Store: &memory{}}).Run(t.Context(), "tour", independent(3)); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begin); got != time.Second || f.top != 3 {
			t.Errorf("three independent seconds took %v, %d at a time", got, f.top)
		}
		f, begin = &fake{}, time.Now()
		if _, err := (&Engine{Invoker: f, Store: &memory{}, Parallel: 2}).Run(t.Context(), "tour", independent(5)); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begin); got != 3*time.Second || f.top != 2 {
			t.Errorf("five seconds by two took %v, %d at a time", got, f.top)
		}
	})
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name   string
		behave func(context.Context, *aci.AgentContext) error
		code   frame.Code
		says   string
	}{
		{"no way there", func(context.Context, *aci.AgentContext) error {
			return frame.Errorf(frame.UpstreamFailed, "AG3 does not answer")
		}, frame.UpstreamFailed, "AG3 does not answer"},
		{"error without a code", func(context.Context, *aci.AgentContext) error { return errors.New("boom") }, frame.Internal, "boom"},
		{"not done", func(_ context.Context, c *aci.AgentContext) error { c.ItemStateUpdates[0].State = 0; return nil }, frame.PolicyDenied, "findings"},
		{"not sure", func(_ context.Context, c *aci.AgentContext) error { c.EvaluationResult.Confidence = 0.6; return nil }, frame.PolicyDenied, "confidence"},
		{"changes what is not its own", func(_ context.Context, c *aci.AgentContext) error {
			c.TodoItems = c.TodoItems[:1]
			c.KeyInformation = nil
			c.ItemStateUpdates = nil
			return nil
		}, frame.Scope, "todoItems"},
		{"breaks the schema", func(_ context.Context, c *aci.AgentContext) error { c.ItemStateUpdates[0].State = 7; return nil }, frame.Malformed, "state 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{behave: map[string]func(context.Context, *aci.AgentContext) error{"diagnose": tt.behave}}
				s, err := (&Engine{Invoker: f, Store: &memory{}}).Run(t.Context(), "task-1", doctor(t))
				if err != nil {
					t.Fatal(err)
				}
				c := tt.code.Hex()
				if got, want := statuses(s), fmt.Sprintf("diagnose failed %s, prescribe failed %s, buy failed %s", c, c, c); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				if r := s.Reason(); r == nil || r.Code != tt.code || !strings.Contains(r.Message, tt.says) {
					t.Errorf("reason %+v, want one that says %q", r, tt.says)
				}
				if got := s.Subtasks[2].Failure.Message; !strings.Contains(got, "depends on Prescription: depends on Disease diagnosis: ") {
					t.Errorf("dependent says %q", got)
				}
				if len(f.order) != 1 || s.TaskContext.OverallStatus != aci.Failed {
					t.Errorf("invoked %v; task %s", f.order, s.TaskContext.OverallStatus)
				}
			})
		})
	}
}

// Row 28 of the failure cases, at the master: the deadline of a subtask passes; it fails with 44 on time, what waits for it is
// not begun, and what does not goes on.
func TestCase28SubtaskDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := independent(3)
		p.Subtasks[0].Deadline = "2s"
		p.Subtasks[1].DependsOn = []string{"s0"}
		f := &fake{behave: map[string]func(context.Context, *aci.AgentContext) error{
			"s0": func(ctx context.Context, _ *aci.AgentContext) error { return pause(ctx, time.Hour) },
		}}
		begin := time.Now()
		s, err := (&Engine{Invoker: f, Store: &memory{}}).Run(t.Context(), "late", p)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := statuses(s), "s0 failed 44, s1 failed 44, s2 completed"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got := time.Since(begin); got != 2*time.Second {
			t.Errorf("failed after %v, the deadline is 2s", got)
		}
		if slices.Contains(f.order, "s1") || f.now != 0 {
			t.Errorf("late work: invoked %v, %d still run", f.order, f.now)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		f := &fake{}
		s, err := (&Engine{Invoker: f, Store: &memory{}}).Run(ctx, "task-1", doctor(t))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := statuses(s), "diagnose completed, prescribe cancelled 49, buy cancelled 49"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if s.TaskContext.OverallStatus != aci.Cancelled || f.now != 0 {
			t.Errorf("task %s, %d still run", s.TaskContext.OverallStatus, f.now)
		}
	})
}

// A crash at any save: the task goes on from what was saved, and ends as if nothing had happened.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := &memory{}
		if _, err := (&Engine{Invoker: &fake{}, Store: whole}).Run(t.Context(), "task-1", doctor(t)); err != nil {
			t.Fatal(err)
		}
		for n := range whole.saved {
			f, store := &fake{}, &memory{saved: slices.Clip(whole.saved[:n+1])}
			s, err := (&Engine{Invoker: f, Store: store}).Resume(t.Context(), "task-1")
			if err != nil {
				t.Fatalf("after save %d: %v", n, err)
			}
			if s.TaskContext.OverallStatus != aci.Completed {
				t.Errorf("after save %d: %s", n, statuses(s))
			}
			if want := []int{3, 3, 2, 2, 1, 1, 0, 0}[n]; len(f.order) != want {
				t.Errorf("after save %d: invoked %v, want the last %d", n, f.order, want)
			}
			if slices.Contains(f.order, "buy") && f.sent["buy"].ContextItems[0].ContextID != "upstream-prescribe" {
				t.Errorf("after save %d: upstream is lost", n)
			}
		}
	})
}

func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n <= 6; n++ {
			f := &fake{}
			_, err := (&Engine{Invoker: f, Store: &memory{failAt: n}}).Run(t.Context(), "task-1", independent(2))
			if err == nil || !strings.Contains(err.Error(), "disk full") {
				t.Errorf("save %d fails: %v", n, err)
			}
			if f.now != 0 {
				t.Errorf("save %d fails: %d invocations outlive Run", n, f.now)
			}
		}
	})
	if _, err := (&Engine{Store: &memory{}}).Resume(t.Context(), "none"); err == nil {
		t.Error("a task that was never saved resumes")
	}
	if _, err := (&Engine{Store: &memory{saved: [][]byte{[]byte(`{"plan":null}`)}}}).Resume(t.Context(), "broken"); err == nil {
		t.Error("a broken state resumes")
	}
}

func TestGoalOfSeveralSubtasks(t *testing.T) {
	p := independent(3)
	p.Subtasks[0].Goal, p.Subtasks[1].Goal = "Stay", "Stay"
	s := newState("x", p, time.Unix(0, 0))
	if len(s.TaskContext.GoalStatus) != 2 {
		t.Fatal(s.TaskContext.GoalStatus)
	}
	s.set(s.Subtasks[0], aci.Completed)
	if got := s.TaskContext.GoalStatus[0].Status; got != aci.InProgress {
		t.Errorf("half of a goal: %s", got)
	}
	s.set(s.Subtasks[1], aci.Completed)
	if got := s.TaskContext.GoalStatus[0].Status; got != aci.Completed {
		t.Errorf("whole goal: %s", got)
	}
}

func TestPlanRefused(t *testing.T) {
	good, err := os.ReadFile("testdata/doctor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, old, new, says string }{
		{"unknown key", "    depends_on: [diagnose]", "    dependson: [diagnose]", "[23:5] unknown field \"dependson\""},
		{"empty", string(good), "", "plan is empty"},
		{"no query", "query: I have had a sore throat for three days. What do I need, and where do I get it?\n", "", "name and query"},
		{"cycle", "    context:\n", "    depends_on: [buy]\n    context:\n", "wait for each other: diagnose -> buy -> prescribe -> diagnose"},
		{"itself", "depends_on: [diagnose]", "depends_on: [prescribe]", "prescribe -> prescribe"},
		{"unknown dependency", "depends_on: [diagnose]", "depends_on: [nobody]", "nobody, which is not in the plan"},
		{"same id", "id: buy", "id: prescribe", "there twice"},
		{"bad id", "id: buy", "id: b/y", "is not 1 to 64"},
		{"no todo", "todo: [{id: order, description: order it}]", "todo: []", "0 todo items"},
		{"same todo id", "id: disease,", "id: findings,", "id findings is there twice"},
		{"threshold", "0.7", "7", "0 to 1"},
		{"deadline", "10s", "25h", "at most 1h0m0s"},
		{"not a duration", "10s", "soon", "subtask buy: deadline"},
		{"reserved context id", "id: symptoms", "id: upstream-x", "ids that begin with"},
		{"long text", "buy medicine", strings.Repeat("x", MaxQueryText+1), "request.text"},
		{"two documents", "todo: [{id: order, description: order it}]", "todo: [{id: order, description: order it}]\n---\nname: x", "second"},
	}
	for _, tt := range tests {
		text := strings.Replace(string(good), tt.old, tt.new, 1)
		if text == string(good) {
			t.Fatalf("%s changes nothing", tt.name)
		}
		if _, err := LoadPlan(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
	if err := independent(MaxSubtasks + 1).Validate(); err == nil {
		t.Error("65 subtasks pass")
	}
	if err := independent(MaxSubtasks).Validate(); err != nil {
		t.Error(err)
	}
}
