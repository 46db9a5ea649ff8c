package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"agentgw/a2a/aci"
	"agentgw/internal/frame"
)

// State is a task as it is kept: its plan, its TaskContext and its subtasks in the order of the plan.
type State struct {
	Plan        *Plan            `json:"plan"`
	TaskContext *aci.TaskContext `json:"TaskContext"`
	Subtasks    []*SubtaskState  `json:"subtasks"`
}

// SubtaskState is how a subtask stands: pending, in_progress, completed, failed or cancelled.
type SubtaskState struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Status       aci.GoalState     `json:"status"`
	Failure      *Failure          `json:"reason,omitempty"` // failed and cancelled only
	AgentID      string            `json:"agent_id,omitempty"`
	AgentName    string            `json:"agent_name,omitempty"`
	Capability   string            `json:"capability,omitempty"`
	Sid          string            `json:"sid,omitempty"`
	Hops         int               `json:"hops"`
	Gateways     []string          `json:"gateways,omitempty"` // that the request passed
	ResolveMS    int64             `json:"resolve_ms"`
	SetupMS      int64             `json:"setup_ms"`
	ElapsedMS    int64             `json:"elapsed_ms"`
	AgentContext *aci.AgentContext `json:"AgentContext,omitempty"` // as it came back
}

// Failure says why a subtask did not complete.
type Failure struct {
	Code    frame.Code
	Message string
}

// MarshalJSON writes {"code":"48","message":"…"}; the code as the specification's tables write it.
func (f Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"code": f.Code.Hex(), "message": f.Message})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Failure) UnmarshalJSON(b []byte) error {
	var text struct{ Code, Message string }
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	n, err := strconv.ParseUint(text.Code, 16, 16)
	f.Code, f.Message = frame.Code(n), text.Message
	return err
}

func failure(err error) *Failure {
	f := &Failure{Code: frame.CodeOf(err), Message: err.Error()}
	var coded *frame.Error
	if errors.As(err, &coded) {
		f.Message = coded.Detail
	}
	return f
}

// Reason is the first failure of the task, nil when there is none.
func (s *State) Reason() *Failure {
	for _, st := range s.Subtasks {
		if st.Failure != nil {
			return &Failure{Code: st.Failure.Code, Message: fmt.Sprintf("%s: %s", st.Name, st.Failure.Message)}
		}
	}
	return nil
}

// newState is a task before its first step.
func newState(taskID string, p *Plan, now time.Time) *State {
	s := &State{Plan: p, TaskContext: &aci.TaskContext{
		TaskID: taskID, UserQuery: p.Query, TaskName: p.Name, TaskDescription: p.Description, OverallStatus: aci.Pending,
		StartTime: now.UTC().Format(time.RFC3339), Optional: []string{"StartTime", "EndTime"},
	}}
	goals := make(map[string]bool)
	for _, sub := range p.Subtasks {
		s.Subtasks = append(s.Subtasks, &SubtaskState{ID: sub.ID, Name: sub.Name, Status: aci.Pending})
		if g := sub.goal(); !goals[g] {
			goals[g] = true
			s.TaskContext.GoalStatus = append(s.TaskContext.GoalStatus, aci.GoalStatus{Goal: g, Status: aci.Pending})
		}
	}
	return s
}

// load reads a saved state. What was running when it was saved runs again.
func load(b []byte) (*State, error) {
	s := &State{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("saved task: %w", err)
	}
	if s.Plan == nil || s.TaskContext == nil || len(s.Subtasks) != len(s.Plan.Subtasks) {
		return nil, errors.New("saved task: plan, TaskContext or subtasks are missing")
	}
	if err := s.Plan.Validate(); err != nil {
		return nil, fmt.Errorf("saved task: %w", err)
	}
	for i, st := range s.Subtasks {
		if st == nil || st.ID != s.Plan.Subtasks[i].ID {
			return nil, fmt.Errorf("saved task: subtask %d does not belong to the plan", i)
		}
		if !st.Status.Ended() {
			s.set(st, aci.Pending)
		}
	}
	return s, nil
}

// set changes a subtask's status, and with it its goal's and the task's.
func (s *State) set(st *SubtaskState, status aci.GoalState) {
	st.Status = status
	goal := s.Plan.subtask(st.ID).goal()
	var parts []aci.GoalState
	for i, sub := range s.Plan.Subtasks {
		if sub.goal() == goal {
			parts = append(parts, s.Subtasks[i].Status)
		}
	}
	s.TaskContext.SetGoal(goal, aci.Combine(parts))
}

func (s *State) subtask(id string) *SubtaskState {
	for _, st := range s.Subtasks {
		if st.ID == id {
			return st
		}
	}
	return nil
}
