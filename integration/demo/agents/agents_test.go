package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"agentgw/a2a/aci"
	"agentgw/a2a/task"
)

func quiet([]aci.ItemState, string) {}

// nowhere is a store that keeps nothing.
type nowhere struct{}

func (nowhere) Save(string, []byte) error   { return nil }
func (nowhere) Load(string) ([]byte, error) { return nil, fmt.Errorf("nothing is kept") }

// local has the role named like the subtask do the work, without any network; cut takes what upstream found away.
type local struct{ cut bool }

func (l local) Invoke(_ context.Context, r task.Request) (task.Result, error) {
	to := aci.Target{AIC: "agent-" + r.SubtaskID, Name: r.SubtaskID}
	raw, err := r.Context(to)
	if err != nil {
		return task.Result{}, err
	}
	c, err := aci.ParseAgentContext(raw)
	if err != nil {
		return task.Result{}, err
	}
	whole := c.ContextItems
	if l.cut {
		c.ContextItems = nil
		for _, item := range whole {
			if !strings.HasPrefix(item.ContextID, "upstream-") {
				c.ContextItems = append(c.ContextItems, item)
			}
		}
	}
	perform(c, roles[r.SubtaskID], quiet)
	c.ContextItems = whole
	out, err := c.Encode()
	return task.Result{Context: out, Target: to}, err
}

func runPlan(t *testing.T, file string, invoker task.Invoker) *task.State {
	t.Helper()
	f, err := os.Open("../testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plan, err := task.LoadPlan(f)
	if err != nil {
		t.Fatal(err)
	}
	state, err := (&task.Engine{Invoker: invoker, Store: nowhere{}}).Run(t.Context(), "t", plan)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func outcome(s *task.State, subtask, item string) string {
	for _, st := range s.Subtasks {
		if st.ID != subtask || st.AgentContext == nil {
			continue
		}
		for _, k := range st.AgentContext.KeyInformation {
			if k.ItemID == item {
				return k.OutputAbstract
			}
		}
	}
	return ""
}

func TestPlansAreDone(t *testing.T) {
	doctor, tour := runPlan(t, "doctor.yaml", local{}), runPlan(t, "tour.yaml", local{})
	for _, s := range []*task.State{doctor, tour} {
		if why := s.Reason(); why != nil {
			t.Fatalf("%s: %s", s.Plan.Name, why.Message)
		}
	}
	for _, want := range []struct {
		state         *task.State
		subtask, item string
		begins        string
	}{
		{doctor, "diagnosis", "symptoms", "fever, painful swallowing, sore throat, swollen glands; not: cough"},
		{doctor, "diagnosis", "diagnosis", "bacterial tonsillitis (fit 0.92"},
		{doctor, "prescription", "safety", "Penivox ruled out: allergy to penicillin"},
		{doctor, "prescription", "prescription", "Macrolan 250 mg, 2 a day for 5 days"},
		{doctor, "medicine", "order", "Market Square Pharmacy: 1 x Macrolan 250 mg, pack of 6 and 1 x Macrolan 250 mg, pack of 4, together 14.50"},
		{tour, "hotel", "room", "Hotel Azulejo in Lisbon, rated 8.9"},
		{tour, "hotel", "room-price", "316 for the stay"},
		{tour, "flight", "outbound", "DX103 Vienna 07:00 to Munich 08:05, then DX210 Munich 08:55 to Lisbon 12:10"},
		{tour, "flight", "return", "DX211 Lisbon 14:30 to Munich 17:35, then DX104"},
		{tour, "flight", "fare", "468 for 2 passengers"},
		{tour, "weather", "packing", "a light jacket"},
	} {
		if got := outcome(want.state, want.subtask, want.item); !strings.HasPrefix(got, want.begins) {
			t.Errorf("%s, %s: %q, want %q", want.subtask, want.item, got, want.begins)
		}
	}
}

func TestDependentAgentsNeedWhatWasFoundBefore(t *testing.T) {
	s := runPlan(t, "doctor.yaml", local{cut: true})
	if s.Subtasks[0].Status != aci.Completed || s.Subtasks[1].Status != aci.Failed || s.Subtasks[2].Status != aci.Failed {
		t.Fatalf("statuses %v %v %v", s.Subtasks[0].Status, s.Subtasks[1].Status, s.Subtasks[2].Status)
	}
	if why := s.Reason(); !strings.Contains(why.Message, `"diagnosis"`) {
		t.Errorf("reason %q does not name what is missing", why.Message)
	}
}

// asked is a context with one text item, and all that the role may be asked for.
func asked(t *testing.T, itemID, content string, todo, criteria []string) *aci.AgentContext {
	t.Helper()
	uri, err := aci.MakeInline("application/json", []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	s := aci.Subtask{ID: "s", Name: "s", Items: []aci.ContextItem{{
		ContextID: itemID, ContextType: aci.TypeDataset, MediaType: "application/json", ContextURI: uri, Priority: aci.MustPreserve,
	}}}
	for _, id := range todo {
		s.Todo = append(s.Todo, aci.TodoItem{ItemID: id, Description: id})
	}
	for _, id := range criteria {
		s.Evaluation.SuccessCriteria = append(s.Evaluation.SuccessCriteria, aci.Criterion{CriterionID: id, Required: true})
	}
	return aci.Outbound(aci.Target{AIC: "a", Name: "a"}, s, "")
}

func TestBadInputIsAnHonestFailure(t *testing.T) {
	for _, c := range []struct {
		role, item, content string
		todo, criteria      []string
		status              aci.EvaluationState
		says                string
	}{
		{"diagnosis", "complaint", "my bicycle is broken", []string{"diagnosis"}, nil, aci.NotPassed, "no sign"},
		{"diagnosis", "complaint", "I am tired", []string{"symptoms", "diagnosis"}, nil, aci.Partial, "no known disease"},
		{"diagnosis", "other", "fever", []string{"diagnosis"}, nil, aci.NotPassed, `"complaint" is missing`},
		{"hotel", "stay", `{"city":"Atlantis","arrive":"2027-05-07","nights":2,"guests":2,"max_price":900}`, []string{"room"}, nil, aci.NotPassed, "Atlantis"},
		{"hotel", "stay", `{"city":"Lisbon","arrive":"soon","nights":2,"guests":2,"max_price":900}`, []string{"room"}, nil, aci.NotPassed, "soon"},
		{"hotel", "stay", `not JSON`, []string{"room"}, nil, aci.NotPassed, "stay"},
		{"flight", "trip", `{"from":"Vienna","to":"Lisbon","depart":"2027-05-07","return":"2027-05-10","passengers":2,"max_price":10}`,
			[]string{"fare"}, []string{"within-budget"}, aci.Partial, "within-budget"},
		{"flight", "trip", `{"from":"Vienna","to":"Oslo","depart":"2027-05-09","return":"2027-05-10","passengers":1,"max_price":900}`,
			[]string{"outbound"}, nil, aci.NotPassed, "no flight"},
		{"weather", "visit", `{"city":"Lisbon","from":"2027-05-10","to":"2027-05-07"}`, []string{"forecast"}, nil, aci.NotPassed, "days"},
		{"weather", "visit", `{"city":"Lisbon","from":"2027-05-07","to":"2027-05-08"}`, []string{"forecast", "tides"}, []string{"beautiful"},
			aci.Partial, "criterion beautiful: not_evaluated; nothing was found for item tides"},
	} {
		ctx := asked(t, c.item, c.content, c.todo, c.criteria)
		perform(ctx, roles[c.role], quiet)
		r := ctx.EvaluationResult
		if r.Status != c.status || !strings.Contains(r.FailureReason, c.says) {
			t.Errorf("%s of %q: %s, %q; want %s, %q", c.role, c.content, r.Status, r.FailureReason, c.status, c.says)
		}
		if aci.EvaluateFirstLayer(ctx).Done {
			t.Errorf("%s of %q would be accepted", c.role, c.content)
		}
		if err := ctx.Validate(); err != nil {
			t.Errorf("%s of %q: %v", c.role, c.content, err)
		}
	}
}

// next reads the next message of the agent.
func next(t *testing.T, r *bufio.Scanner) map[string]any {
	t.Helper()
	if !r.Scan() {
		t.Fatalf("the agent said nothing more: %v", r.Err())
	}
	var m map[string]any
	if err := json.Unmarshal(r.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStdioProtocol(t *testing.T) {
	in, toAgent := io.Pipe()
	fromAgent, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(in, out, diagnose)
		out.Close()
	}()
	raw, err := asked(t, "complaint", "sneezing and a runny nose", []string{"diagnosis"}, nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(fromAgent)
	fmt.Fprintf(toAgent, `{"jsonrpc":"2.0","id":7,"method":"aci/deliver","params":{"sid":"s","msgId":"m","deadlineMs":1,"context":%s}}`+"\n", raw)
	if m := next(t, answers); m["method"] != "aci/progress" || m["params"].(map[string]any)["id"] != 7. {
		t.Errorf("progress was due: %v", m)
	}
	if m := next(t, answers); m["id"] != 7. || m["result"] == nil {
		t.Errorf("a result was due: %v", m)
	}
	fmt.Fprintln(toAgent, `{"jsonrpc":"2.0","id":8,"method":"aci/deliver","params":{"context":{"AgentID":"a"}}}`)
	if m := next(t, answers); m["id"] != 8. || m["error"] == nil {
		t.Errorf("an error was due: %v", m)
	}
	fmt.Fprintln(toAgent, `{"jsonrpc":"2.0","id":9,"method":"aci/unknown"}`)
	if m := next(t, answers); m["id"] != 9. || m["error"] == nil {
		t.Errorf("an error was due: %v", m)
	}
	toAgent.Close()
	if err := <-ended; err != nil {
		t.Errorf("the agent ended with %v", err)
	}
}

func TestCancelledDeliveryIsNotAnswered(t *testing.T) {
	began, goOn := make(chan bool), make(chan bool)
	slow := func(j *job) error {
		close(began)
		<-goOn
		j.found("diagnosis", "late")
		return nil
	}
	in, toAgent := io.Pipe()
	var out strings.Builder
	ended := make(chan error, 1)
	go func() { ended <- serve(in, &out, slow) }()
	raw, err := asked(t, "complaint", "x", []string{"diagnosis"}, nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(toAgent, `{"jsonrpc":"2.0","id":1,"method":"aci/deliver","params":{"context":%s}}`+"\n", raw)
	<-began
	fmt.Fprintln(toAgent, `{"jsonrpc":"2.0","method":"aci/cancel","params":{"id":1}}`)
	fmt.Fprintln(toAgent, `{}`) // once this is read, the line before has been worked on
	toAgent.Close()
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 {
		t.Errorf("a cancelled delivery was answered: %s", out.String())
	}
}
