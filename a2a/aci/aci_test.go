package aci

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"agentgw/internal/frame"

	"github.com/google/go-cmp/cmp"
)

func sample(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		t.Fatal(err)
	}
	return compact.Bytes()
}

func agentContext(t testing.TB) *AgentContext {
	t.Helper()
	c, err := ParseAgentContext(sample(t, "agent_context.json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The member names and their order are those of the seed's figures 3 and 4, byte for byte.
func TestRoundTrip(t *testing.T) {
	want := sample(t, "agent_context.json")
	got, err := agentContext(t).Encode()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v\n%s\n%s", err, got, want)
	}
	want = sample(t, "task_context.json")
	task, err := ParseTaskContext(want)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(task); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v\n%s\n%s", err, got, want)
	}
}

func TestUnknownMembersAreKept(t *testing.T) {
	b := string(sample(t, "agent_context.json"))
	for _, change := range [][2]string{
		{`{"AgentID"`, `{"zeta":{"b":1,"a":[12345678901234567890]},"AgentID"`},
		{`{"itemID":"t1","description"`, `{"itemID":"t1","due":"today","description"`},
		{`{"CriterionID":"k1","Status"`, `{"CriterionID":"k1","weight":3,"Status"`},
		{`"Status":"partial"`, `"Status":"partial","evaluatedBy":"agentd"`},
	} {
		b = strings.Replace(b, change[0], change[1], 1)
	}
	c, err := ParseAgentContext([]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{`"zeta":{"b":1,"a":[12345678901234567890]}`, `"due":"today"`, `"weight":3`, `"evaluatedBy":"agentd"`} {
		if !strings.Contains(string(out), kept) {
			t.Errorf("%s is lost in %s", kept, out)
		}
	}
}

// What is written without package encoding/json has its bytes.
func TestStringsAreWrittenLikeAlways(t *testing.T) {
	check := func(s string) {
		want, _ := json.Marshal(s)
		if got, err := appendString(nil, s); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q is written as %s, not %s: %v", s, got, want, err)
		}
	}
	for c := range rune(0x2100) {
		check("a" + string(c) + "b")
	}
	for c := range 256 {
		check("a" + string([]byte{byte(c)}) + "b")
	}
	check("药 😀")
}

func TestEscapesAndSpaceAreRead(t *testing.T) {
	b := bytes.Replace(sample(t, "agent_context.json"), []byte(`{"AgentID"`), []byte("{ \"z\" : [ \"]\\\"}\" , { } ] ,\n\"\\u0041gentID\"\t"), 1)
	b = bytes.Replace(b, []byte(`"Pharmacy"`), []byte(` "Ph\u0061rmacy \ud83d\ude00 \n \" \\" `), 1)
	c, err := ParseAgentContext(b)
	if err != nil {
		t.Fatal(err)
	}
	if c.AgentID != "1.2.156.3088.2.B.AGENT" || c.AgentName != "Pharmacy 😀 \n \" \\" || string(c.Extra["z"]) != `[ "]\"}" , { } ]` {
		t.Errorf("%q, %q, %q", c.AgentID, c.AgentName, c.Extra)
	}
}

func TestRefused(t *testing.T) {
	good := string(sample(t, "agent_context.json"))
	tests := []struct {
		name, old, new string
		want           frame.Code
	}{
		{"missing member", `"SubTaskName":"Buy the medicine",`, ``, frame.Malformed},
		{"other spelling", `"todoItems"`, `"TodoItems"`, frame.Malformed},
		{"member twice", `{"AgentID"`, `{"AgentName":"x","AgentID"`, frame.Malformed},
		{"member twice, once with an escape", `{"AgentID"`, `{"\u0041gentID":null,"AgentID"`, frame.Malformed},
		{"unknown member twice", `{"AgentID"`, `{"x":1,"x":1,"AgentID"`, frame.Malformed},
		{"long name", `{"AgentID"`, `{"` + strings.Repeat("x", MaxID+1) + `":1,"AgentID"`, frame.Malformed},
		{"null for what is required", `"SubTaskName":"Buy the medicine"`, `"SubTaskName":null`, frame.Malformed},
		{"null among strings", `"Optional":[`, `"Optional":[null,`, frame.Malformed},
		{"null among objects", `"todoItems":[`, `"todoItems":[null,`, frame.Malformed},
		{"object for an array", `"Optional":[`, `"Optional":{},"x":[`, frame.Malformed},
		{"not JSON in an unknown member", `{"AgentID"`, `{"x":[01],"AgentID"`, frame.Malformed},
		{"empty AgentID", `"AgentID":"1.2.156.3088.2.B.AGENT"`, `"AgentID":""`, frame.Malformed},
		{"state 2", `"state":1`, `"state":2`, frame.Malformed},
		{"state of nothing", `"itemID":"t1","state"`, `"itemID":"t9","state"`, frame.Malformed},
		{"two todo items of one id", `"itemID":"t2","description"`, `"itemID":"t1","description"`, frame.Malformed},
		{"key information of nothing", `"itemID":"t2","outputabstract"`, `"itemID":"t9","outputabstract"`, frame.Malformed},
		{"result of no criterion", `"CriterionID":"k1","Status"`, `"CriterionID":"k9","Status"`, frame.Malformed},
		{"ratio", `0.3`, `1.5`, frame.Malformed},
		{"threshold", `0.8`, `-0.1`, frame.Malformed},
		{"time", `2026-10-25T08:00:00Z`, `yesterday`, frame.Malformed},
		{"optional lists a required one", `["LastUpdated",`, `["todoItems",`, frame.Malformed},
		{"not a number", `"Confidence":0.5`, `"Confidence":"high"`, frame.Malformed},
		{"bytes behind", `"Optional":["LastUpdated","CompressionPolicy"]}`, `"Optional":[]} {}`, frame.Malformed},
		{"not UTF-8", `Pharmacy`, "\xff", frame.Malformed},
		{"bad inline", `W10=`, `W1*=`, frame.Malformed},
		{"inline not padded", `W10=`, `W10`, frame.Malformed},
		{"inline in another spelling", `;base64,W10=`, `,[]`, frame.Malformed},
		{"too deep", `{"AgentID"`, `{"x":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + `,"AgentID"`, frame.LimitExceeded},
		{"too large", `Pharmacy`, strings.Repeat("x", MaxSize), frame.LimitExceeded},
		{"no optional members", `"LastUpdated":"2026-10-25T08:00:00Z","Optional":["LastUpdated","CompressionPolicy"]`, `"Optional":null`, frame.OK},
	}
	for _, tt := range tests {
		_, err := ParseAgentContext([]byte(strings.Replace(good, tt.old, tt.new, 1)))
		if frame.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestTaskContextRefused(t *testing.T) {
	good := string(sample(t, "task_context.json"))
	for name, change := range map[string][2]string{
		"no TaskID": {`"t-1"`, `""`}, "goal without status": {`"Status":"pending"`, `"Status":""`}, "missing query": {`"UserQuery"`, `"Query"`},
		"time": {`2026-10-25T08:00:01Z`, `soon`}, "optional": {`"Optional":["StartTime"`, `"Optional":["TaskID"`},
	} {
		if _, err := ParseTaskContext([]byte(strings.Replace(good, change[0], change[1], 1))); frame.CodeOf(err) != frame.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownWordsAreKeptAndWeakest(t *testing.T) {
	b := strings.Replace(string(sample(t, "agent_context.json")), `"partial"`, `"splendid"`, 1)
	b = strings.Replace(b, `"low"`, `"any"`, 1)
	c, err := ParseAgentContext([]byte(b))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.EvaluationResult.Status; s != "splendid" || s.Known() != NotEvaluated {
		t.Errorf("%s counts as %s", s, s.Known())
	}
	if l := c.CompressionPolicy.LossTolerance; l != "any" || l.Known() != LossNone {
		t.Errorf("%s counts as %s", l, l.Known())
	}
	if GoalState("paused").Known() != Pending || Priority("x").Known() != MustPreserve || ContextType("x").Known() != TypeOther || Completed.Known() != Completed {
		t.Error("weakest words")
	}
}

func TestOutbound(t *testing.T) {
	uri, err := MakeInline("text/plain", []byte("a sore throat"))
	if err != nil {
		t.Fatal(err)
	}
	c := Outbound(Target{AIC: "1.2.B", Name: "Doctor"}, Subtask{
		ID: "diagnose", Name: "Diagnose", Todo: []TodoItem{{ItemID: "a", Description: "x"}, {ItemID: "b", Description: "y"}},
		Items: []ContextItem{{ContextID: "c", ContextType: TypeText, MediaType: "text/plain", ContextURI: uri, Priority: MustPreserve}},
	}, "")
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ItemStateUpdates":[{"itemID":"a","state":0},{"itemID":"b","state":0}]`, `"KeyInformation":[]`, `"Dependencies":[]`,
		`"EvaluationResult":{"Status":"not_evaluated","Confidence":0,"CriterionResults":[],"FailureReason":""}`, `"Optional":["LastUpdated","CompressionPolicy"]`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	if _, err := ParseAgentContext(b); err != nil {
		t.Error(err)
	}
}

func TestIsolation(t *testing.T) {
	inline := func(id string) ContextItem {
		return ContextItem{ContextID: id, ContextType: TypeText, MediaType: "text/plain", ContextURI: "data:text/plain;base64,QQ==", Priority: Discardable}
	}
	tests := []struct {
		name   string
		change func(*AgentContext)
		want   string // member named, empty when allowed
	}{
		{"nothing", func(*AgentContext) {}, ""},
		{"its own members", func(c *AgentContext) {
			c.ItemStateUpdates[0].State = 1
			c.KeyInformation = append(c.KeyInformation, KeyInformation{ItemID: "t1", OutputAbstract: "x"})
			c.EvaluationResult = EvaluationResult{Status: Passed, Confidence: 1}
			c.LastUpdated = "2026-10-26T00:00:00Z"
		}, ""},
		{"appends what it owns", func(c *AgentContext) { c.ContextItems = append(c.ContextItems, inline("new")) }, ""},
		{"appends what it does not own", func(c *AgentContext) {
			c.ContextItems = append(c.ContextItems, ContextItem{ContextID: "n", ContextURI: "https://elsewhere.example/x"})
		}, "ContextURI"},
		{"takes an item away", func(c *AgentContext) { c.ContextItems = nil }, "ContextItems"},
		{"changes an item", func(c *AgentContext) { c.ContextItems[0].Description = "other" }, "ContextItems"},
		{"puts its own first", func(c *AgentContext) { c.ContextItems = append([]ContextItem{inline("new")}, c.ContextItems...) }, "ContextItems"},
		{"another agent", func(c *AgentContext) { c.AgentID = "1.2.C" }, "AgentID"},
		{"another subtask", func(c *AgentContext) { c.SubTaskID = "other" }, "SubTaskID"},
		{"fewer todo items", func(c *AgentContext) { c.TodoItems = c.TodoItems[:1] }, "todoItems"},
		{"an easier threshold", func(c *AgentContext) { c.EvaluationPolicy.ConfidenceThreshold = 0 }, "EvaluationPolicy"},
		{"an easier criterion", func(c *AgentContext) { c.EvaluationPolicy.SuccessCriteria[0].Required = false }, "EvaluationPolicy"},
		{"no compression policy", func(c *AgentContext) { c.CompressionPolicy = nil }, "CompressionPolicy"},
		{"a member of its own", func(c *AgentContext) { c.Extra = Members{"x": json.RawMessage(`1`)} }, "x"},
	}
	for _, tt := range tests {
		returned := agentContext(t)
		tt.change(returned)
		err := CheckReturn(agentContext(t), returned, OwnsInline)
		if tt.want == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want != "" && (frame.CodeOf(err) != frame.Scope || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want 66 naming %s", tt.name, err, tt.want)
		}
	}
}

func TestInline(t *testing.T) {
	uri, err := MakeInline("application/json", []byte(`{"a":1}`))
	if err != nil || uri != "data:application/json;base64,eyJhIjoxfQ==" {
		t.Fatal(uri, err)
	}
	media, content, err := OpenInline(uri)
	if err != nil || media != "application/json" || string(content) != `{"a":1}` {
		t.Error(media, string(content), err)
	}
	if _, err := MakeInline("text/plain", make([]byte, MaxInline+1)); frame.CodeOf(err) != frame.LimitExceeded {
		t.Error(err)
	}
	if _, err := MakeInline("a,b", nil); frame.CodeOf(err) != frame.Malformed {
		t.Error(err)
	}
	big, _ := MakeInline("text/plain", make([]byte, MaxInline))
	c := agentContext(t)
	for _, id := range []string{"1", "2", "3"} {
		c.ContextItems = append(c.ContextItems, ContextItem{ContextID: id, ContextType: TypeText, MediaType: "text/plain", ContextURI: big, Priority: Discardable})
	}
	if err := c.Validate(); err != nil {
		t.Errorf("96 KiB together: %v", err)
	}
	c.ContextItems = append(c.ContextItems, ContextItem{ContextID: "4", ContextType: TypeText, MediaType: "text/plain", ContextURI: big, Priority: Discardable})
	if err := c.Validate(); frame.CodeOf(err) != frame.LimitExceeded {
		t.Errorf("more than 128 KiB together: %v", err)
	}
	c = agentContext(t)
	c.ContextItems[0].ContextURI = big + "AAAA"
	if err := c.Validate(); frame.CodeOf(err) != frame.LimitExceeded && frame.CodeOf(err) != frame.Malformed {
		t.Errorf("one of more than 32 KiB: %v", err)
	}
}

func TestEvaluateFirstLayer(t *testing.T) {
	done := func(c *AgentContext) {
		c.ItemStateUpdates[0].State = 1
		c.EvaluationResult.Status, c.EvaluationResult.Confidence = Passed, 0.8
	}
	tests := []struct {
		name   string
		change func(*AgentContext)
		want   Verdict
	}{
		{"done", func(*AgentContext) {}, Verdict{Done: true}},
		{"item open", func(c *AgentContext) { c.ItemStateUpdates[1].State = 0 }, Verdict{Reason: "not completed: t2"}},
		{"item without state", func(c *AgentContext) { c.ItemStateUpdates = c.ItemStateUpdates[:1] }, Verdict{Reason: "not completed: t2"}},
		{"criterion failed", func(c *AgentContext) { c.EvaluationResult.CriterionResults[0].Status = NotPassed }, Verdict{Reason: "required criteria not passed: k1"}},
		{"criterion not there", func(c *AgentContext) { c.EvaluationResult.CriterionResults = nil }, Verdict{Reason: "required criteria not passed: k1"}},
		{"criterion not required", func(c *AgentContext) {
			c.EvaluationResult.CriterionResults = nil
			c.EvaluationPolicy.SuccessCriteria[0].Required = false
		}, Verdict{Done: true}},
		{"not sure enough", func(c *AgentContext) { c.EvaluationResult.Confidence = 0.79 }, Verdict{Reason: "confidence 0.79 is below the threshold of 0.80"}},
		{"says failed", func(c *AgentContext) {
			c.EvaluationResult.Status, c.EvaluationResult.FailureReason = NotPassed, "no stock"
		}, Verdict{Reason: "the agent evaluates its result as failed: no stock"}},
		{"unknown word", func(c *AgentContext) { c.EvaluationResult.Status = "superb" }, Verdict{Reason: "the agent evaluates its result as superb"}},
		{"asks", func(c *AgentContext) { c.EvaluationResult.Status = InputRequired }, Verdict{Asks: true, Reason: "the agent asks for input"}},
	}
	for _, tt := range tests {
		c := agentContext(t)
		done(c)
		tt.change(c)
		if d := cmp.Diff(tt.want, EvaluateFirstLayer(c)); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
	}
}

func TestOverallStatus(t *testing.T) {
	tests := []struct {
		goals []GoalState
		want  GoalState
	}{
		{[]GoalState{Pending, Pending}, Pending}, {[]GoalState{InProgress, Pending}, InProgress}, {[]GoalState{Completed, Pending}, InProgress},
		{[]GoalState{Completed, Completed}, Completed}, {[]GoalState{Completed, Failed}, Failed}, {[]GoalState{Failed, InProgress}, InProgress},
		{[]GoalState{Completed, Cancelled}, Cancelled}, {[]GoalState{Failed, Cancelled}, Failed},
	}
	for _, tt := range tests {
		c := &TaskContext{GoalStatus: []GoalStatus{{Goal: "a", Status: tt.goals[0]}, {Goal: "b"}}}
		if c.SetGoal("b", tt.goals[1]); c.OverallStatus != tt.want {
			t.Errorf("%v: %s, want %s", tt.goals, c.OverallStatus, tt.want)
		}
	}
}

func FuzzAgentContext(f *testing.F) {
	f.Add(sample(f, "agent_context.json"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseAgentContext(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseAgentContext(out)
		if err != nil && frame.CodeOf(err) != frame.LimitExceeded { // escapes may make it longer
			t.Fatalf("own encoding is refused: %v\n%s", err, out)
		}
		if err == nil {
			second, _ := json.Marshal(again)
			if !bytes.Equal(out, second) {
				t.Fatalf("two encodings:\n%s\n%s", out, second)
			}
		}
		EvaluateFirstLayer(c)
		if err := CheckReturn(c, c, OwnsInline); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzTaskContext(f *testing.F) {
	f.Add(sample(f, "task_context.json"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseTaskContext(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseTaskContext(out)
		if err != nil {
			if frame.CodeOf(err) == frame.LimitExceeded {
				return
			}
			t.Fatalf("own encoding is refused: %v\n%s", err, out)
		}
		if second, _ := json.Marshal(again); !bytes.Equal(out, second) {
			t.Fatalf("two encodings:\n%s\n%s", out, second)
		}
	})
}
