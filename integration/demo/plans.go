package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentgw/a2a/aci"
	"agentgw/a2a/task"
	"agentgw/internal/control"
)

//go:embed testdata/*.yaml
var plans embed.FS

// planFiles in the order in which they are shown: dependent subtasks, then independent ones (seed 000, section 3).
var planFiles = []string{"testdata/doctor.yaml", "testdata/tour.yaml"}

// event is one line of a running task, as agentd's control socket tells it.
type event struct {
	Event   string            `json:"event"`
	Task    string            `json:"task"`
	Subtask task.SubtaskState `json:"subtask"`
	Note    string            `json:"note"`
	State   *task.State       `json:"state"`
	Failed  *reason           `json:"failed"`
}

// runPlans has the assistant run both plans, and shows both TaskContexts.
func (w *world) runPlans(ctx context.Context, r *report) error {
	var contexts []*aci.TaskContext
	for _, file := range planFiles {
		text, err := plans.ReadFile(file)
		if err != nil {
			return err
		}
		plan, err := task.LoadPlan(strings.NewReader(string(text)))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		w.out.headline(fmt.Sprintf("%s: %q", plan.Name, plan.Query))
		state, err := w.runPlan(ctx, plan, string(text), r)
		if err != nil {
			return fmt.Errorf("task %q: %w", plan.Name, err)
		}
		contexts = append(contexts, state.TaskContext)
	}
	w.out.headline("The assistant's TaskContexts at the end")
	for _, c := range contexts {
		pretty, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return err
		}
		w.out.text(string(pretty))
	}
	return nil
}

// runPlan streams one task from the assistant's agentd.
func (w *world) runPlan(ctx context.Context, plan *task.Plan, text string, r *report) (*task.State, error) {
	began := time.Now()
	var last event
	in := map[string]string{"agent": assistant.name, "plan": text}
	err := control.NewClient(w.hosts[assistantHost].control).Stream(ctx, "/v1/tasks/run", in, func(line json.RawMessage) error {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("event of the task: %w", err)
		}
		if e.Event == "done" {
			last = e
			return nil
		}
		w.tell(plan, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if last.State == nil || last.State.TaskContext == nil {
		return nil, fmt.Errorf("agentd ended the task without its state")
	}
	elapsed := time.Since(began)
	t := w.record(plan, last, elapsed, r)
	w.out.say(fmt.Sprintf("%s: %s in %d ms", plan.Name, t.Status, elapsed.Milliseconds()))
	return last.State, nil
}

// tell shows one event of a task.
func (w *world) tell(plan *task.Plan, e event) {
	s := e.Subtask
	switch e.Event {
	case "started":
		w.out.say(fmt.Sprintf("%s: assistant asks AG1 for %q", s.Name, queryOf(plan, s.ID)))
	case "progress":
		w.out.say(fmt.Sprintf("%s: the agent reports: %s", s.Name, e.Note))
	case "ended":
		w.out.say(fmt.Sprintf("%s: %s after %d ms", s.Name, s.Status, s.ElapsedMS), w.details(s)...)
	}
}

// details say who spoke to whom for a subtask, and how long it took.
func (w *world) details(s task.SubtaskState) (lines []string) {
	if s.Capability != "" {
		path := w.path(s.Gateways)
		lines = append(lines, fmt.Sprintf("request: assistant > %s, %s, %d ms; %s answered with %s",
			strings.Join(path, " > "), count(s.Hops, "hop"), s.ResolveMS, path[len(path)-1], s.Capability))
	}
	if s.Sid != "" && s.SetupMS >= 0 && s.AgentID != "" {
		lines = append(lines, fmt.Sprintf("session: %s between assistant and %s, opened in %d ms; only this subtask's AgentContext went there",
			s.Sid, w.name(s.AgentID), s.SetupMS))
	}
	if c := s.AgentContext; c != nil {
		lines = append(lines, fmt.Sprintf("result: the agent says %s with confidence %.2f; the assistant's own evaluation: %s",
			c.EvaluationResult.Status, c.EvaluationResult.Confidence, s.Status))
	}
	if s.Failure != nil {
		lines = append(lines, fmt.Sprintf("reason: %s (code %s)", w.named(s.Failure.Message), s.Failure.Code.Hex()))
	}
	return lines
}

// named puts names in the place of the AICs of a message.
func (w *world) named(message string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for aic, name := range w.names {
		message = strings.ReplaceAll(message, aic, name)
	}
	return message
}

// path is the names of the gateways that a request passed, the asker's first.
func (w *world) path(route []string) []string {
	out := []string{}
	for _, aic := range slices.Backward(route) {
		out = append(out, w.name(aic))
	}
	if len(out) == 0 {
		out = []string{"AG1"}
	}
	return out
}

func queryOf(plan *task.Plan, subtask string) string {
	for _, s := range plan.Subtasks {
		if s.ID == subtask {
			return s.Request.Text
		}
	}
	return ""
}

// record adds a task that has ended to the report.
func (w *world) record(plan *task.Plan, e event, elapsed time.Duration, r *report) taskReport {
	t := taskReport{Name: plan.Name, TaskID: e.Task, Status: e.State.TaskContext.OverallStatus, ElapsedMS: elapsed.Milliseconds(), Reason: e.Failed}
	for _, s := range e.State.Subtasks {
		sub := subtaskReport{ID: s.ID, Name: s.Name, Status: s.Status, Hops: s.Hops, ElapsedMS: s.ElapsedMS}
		if s.Failure != nil {
			sub.Reason = &reason{s.Failure.Code.Hex(), s.Failure.Message}
		}
		if s.AgentID != "" {
			sub.Agent = w.name(s.AgentID)
		}
		t.Subtasks = append(t.Subtasks, sub)
		if s.Capability != "" {
			r.Resolutions = append(r.Resolutions, resolution{queryOf(plan, s.ID), s.Hops, w.path(s.Gateways), s.Capability, s.ResolveMS})
		}
		if s.Sid != "" && s.AgentContext != nil {
			r.Sessions = append(r.Sessions, session{s.Sid, w.aicOf(assistant.name), s.AgentID, s.SetupMS})
		}
	}
	r.Tasks = append(r.Tasks, t)
	return t
}

// aicOf is the AIC of whom people call name.
func (w *world) aicOf(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for aic, n := range w.names {
		if n == name {
			return aic
		}
	}
	return ""
}
