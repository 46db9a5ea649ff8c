package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentgw/a2a/aci"
	"agentgw/internal/frame"
)

// DefaultParallel is how many subtasks run at a time.
const DefaultParallel = 8

// Invoker finds an agent for a subtask, opens a session with it and has it do the work.
type Invoker interface {
	// Invoke returns when the agent's result is there, when ctx ends, or with the error that prevented it; an error should carry
	// a frame.Code. It must not use the Request after it returned.
	Invoke(ctx context.Context, r Request) (Result, error)
}

// Request is one subtask to be done.
type Request struct {
	TaskID, SubtaskID string
	Query             Query
	// Context builds the AgentContext for the agent that was found. It may be called again for another agent; the result is
	// held against the last one.
	Context func(to aci.Target) ([]byte, error)
	// Progress reports what the agent says before its result.
	Progress func(items []aci.ItemState, note string)
}

// Result is what came back, from whom, and how.
type Result struct {
	Context    []byte // the returned AgentContext
	Target     aci.Target
	Capability string
	Sid        string
	Hops       int
	Gateways   []string
	Resolve    time.Duration // semantic request to answer
	Setup      time.Duration // dial to SESSION_ACCEPT
}

// Store keeps the states of tasks. Save returns when the state is durable; both may be called from one goroutine at a time.
type Store interface {
	Save(taskID string, state []byte) error
	Load(taskID string) ([]byte, error)
}

// Event tells how a task goes on.
type Event struct {
	Kind    EventKind
	TaskID  string
	Subtask SubtaskState    // as it is now
	Items   []aci.ItemState // Progress only
	Note    string          // Progress only
}

// EventKind is what an event tells.
type EventKind uint8

// Kinds of events.
const (
	Started  EventKind = 1
	Progress EventKind = 2
	Ended    EventKind = 3
)

// Engine runs tasks. Its fields are set before the first use; it may run several tasks at a time.
type Engine struct {
	Invoker  Invoker
	Store    Store
	Parallel int         // subtasks at a time; 0 means [DefaultParallel]
	Events   func(Event) // may be nil
}

// Run runs a plan as the task taskID and returns its last state. The error is that of the store or of the plan; failures of
// subtasks stand in the state. When ctx ends, what runs is cancelled and the task ends as cancelled.
func (e *Engine) Run(ctx context.Context, taskID string, p *Plan) (*State, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return e.run(ctx, newState(taskID, p, time.Now()))
}

// Resume goes on with a saved task: what ended stays as it is, what was running is invoked again.
func (e *Engine) Resume(ctx context.Context, taskID string) (*State, error) {
	b, err := e.Store.Load(taskID)
	if err != nil {
		return nil, fmt.Errorf("load task %s: %w", taskID, err)
	}
	s, err := load(b)
	if err != nil {
		return nil, err
	}
	return e.run(ctx, s)
}

// run is the scheduler: the one goroutine that owns the state. Workers report to it.
func (e *Engine) run(ctx context.Context, s *State) (*State, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &running{engine: e, state: s, reports: make(chan report), ctx: ctx}
	defer r.wait()
	if err := r.save(); err != nil {
		return s, err
	}
	for {
		if err := r.startReady(); err != nil {
			cancel()
			return s, err
		}
		if r.workers == 0 {
			break
		}
		if err := r.take(<-r.reports); err != nil {
			cancel()
			return s, err
		}
	}
	s.TaskContext.EndTime = time.Now().UTC().Format(time.RFC3339)
	return s, r.save()
}

// running is one task while it runs; all fields belong to the scheduler.
type running struct {
	engine  *Engine
	state   *State
	ctx     context.Context // of this run; ends when the task is cancelled
	reports chan report
	workers int
}

// report is what a worker says: progress, or its end.
type report struct {
	id       string
	progress bool
	items    []aci.ItemState
	note     string
	result   Result
	sent     *aci.AgentContext
	elapsed  time.Duration
	err      error
}

// wait takes the last reports of the workers, whose context has ended or who have ended already.
func (r *running) wait() {
	for r.workers > 0 {
		if rep := <-r.reports; !rep.progress {
			r.workers--
		}
	}
}

func (r *running) save() error {
	b, err := json.Marshal(r.state)
	if err != nil {
		return fmt.Errorf("encode task: %w", err)
	}
	if err := r.engine.Store.Save(r.state.TaskContext.TaskID, b); err != nil {
		return fmt.Errorf("save task %s: %w", r.state.TaskContext.TaskID, err)
	}
	return nil
}

func (r *running) tell(ev Event, st *SubtaskState) {
	if r.engine.Events != nil {
		ev.TaskID, ev.Subtask = r.state.TaskContext.TaskID, *st
		r.engine.Events(ev)
	}
}

// startReady starts each subtask whose dependencies completed, and ends those that can no longer be done.
func (r *running) startReady() error {
	limit := r.engine.Parallel
	if limit <= 0 {
		limit = DefaultParallel
	}
	for again := true; again; {
		again = false
		for i, sub := range r.state.Plan.Subtasks {
			st := r.state.Subtasks[i]
			if st.Status != aci.Pending {
				continue
			}
			blocker, ready := r.blockedBy(sub)
			switch {
			case r.ctx.Err() != nil:
				if err := r.end(st, aci.Cancelled, cancelled(r.ctx)); err != nil {
					return err
				}
			case blocker != nil:
				again = true // its own dependents may stand before it in the plan
				if err := r.end(st, blocker.Status, inherited(blocker)); err != nil {
					return err
				}
			case ready && r.workers < limit:
				if err := r.start(sub, st); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// blockedBy is the dependency that ended without completing, if any; ready says that all completed.
func (r *running) blockedBy(sub Subtask) (blocker *SubtaskState, ready bool) {
	ready = true
	for _, dep := range sub.DependsOn {
		switch st := r.state.subtask(dep); st.Status {
		case aci.Completed:
		case aci.Failed, aci.Cancelled:
			return st, false
		default:
			ready = false
		}
	}
	return nil, ready
}

func inherited(blocker *SubtaskState) *Failure {
	f := &Failure{Code: frame.UpstreamFailed, Message: "depends on " + blocker.Name + ", which did not complete"}
	if blocker.Failure != nil {
		f.Code = blocker.Failure.Code
		f.Message = fmt.Sprintf("depends on %s: %s", blocker.Name, blocker.Failure.Message)
	}
	return f
}

func cancelled(ctx context.Context) *Failure {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return &Failure{Code: frame.Deadline, Message: "the task's time is up"}
	}
	return &Failure{Code: frame.Cancelled, Message: "the task was cancelled"}
}

// start saves that the subtask runs, then starts its worker.
func (r *running) start(sub Subtask, st *SubtaskState) error {
	r.state.set(st, aci.InProgress)
	if err := r.save(); err != nil {
		return err
	}
	r.tell(Event{Kind: Started}, st)
	var from []upstream
	for _, dep := range sub.DependsOn {
		if done := r.state.subtask(dep); done.AgentContext != nil {
			from = append(from, upstream{id: dep, name: done.Name, found: done.AgentContext.KeyInformation})
		}
	}
	r.workers++
	go r.work(r.state.TaskContext.TaskID, sub, from)
	return nil
}

// work invokes one subtask; it touches nothing of the task but the reports.
func (r *running) work(taskID string, sub Subtask, from []upstream) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, sub.deadline(), frame.Errorf(frame.Deadline, "no result within %v", sub.deadline()))
	defer cancel()
	rep := report{id: sub.ID}
	begin := time.Now()
	rep.result, rep.err = r.engine.Invoker.Invoke(ctx, Request{
		TaskID: taskID, SubtaskID: sub.ID, Query: sub.Request,
		Context: func(to aci.Target) ([]byte, error) {
			sent, err := sub.outbound(to, from, time.Now())
			if err != nil {
				return nil, err
			}
			rep.sent = sent
			return sent.Encode()
		},
		Progress: func(items []aci.ItemState, note string) {
			select {
			case r.reports <- report{id: sub.ID, progress: true, items: items, note: note}:
			case <-ctx.Done():
			}
		},
	})
	rep.elapsed = time.Since(begin)
	if rep.err != nil && ctx.Err() != nil {
		rep.err = late(ctx, rep.err)
	}
	r.reports <- rep
}

// late prefers the reason why the context ended over what the invoker made of it.
func late(ctx context.Context, err error) error {
	var deadline *frame.Error
	if cause := context.Cause(ctx); errors.As(cause, &deadline) {
		return deadline
	}
	return err
}

// take applies one report to the state.
func (r *running) take(rep report) error {
	st := r.state.subtask(rep.id)
	if rep.progress {
		r.tell(Event{Kind: Progress, Items: rep.items, Note: rep.note}, st)
		return nil
	}
	r.workers--
	st.fill(rep)
	switch {
	case rep.err != nil && r.ctx.Err() != nil:
		return r.end(st, aci.Cancelled, cancelled(r.ctx))
	case rep.err != nil:
		return r.end(st, aci.Failed, failure(rep.err))
	}
	returned, err := judge(rep.sent, rep.result.Context)
	st.AgentContext = returned
	if err != nil {
		return r.end(st, aci.Failed, failure(err))
	}
	return r.end(st, aci.Completed, nil)
}

func (st *SubtaskState) fill(rep report) {
	res := rep.result
	st.AgentID, st.AgentName, st.Capability, st.Sid = res.Target.AIC, res.Target.Name, res.Capability, res.Sid
	st.Hops, st.Gateways = res.Hops, res.Gateways
	st.ResolveMS, st.SetupMS, st.ElapsedMS = res.Resolve.Milliseconds(), res.Setup.Milliseconds(), rep.elapsed.Milliseconds()
}

// judge reads what an agent returned, holds it against what it was sent, and evaluates it. A context that breaks the schema or
// the isolation is not kept.
func judge(sent *aci.AgentContext, b []byte) (*aci.AgentContext, error) {
	if sent == nil {
		return nil, frame.Errorf(frame.Internal, "a result came back for a context that was never built")
	}
	returned, err := aci.ParseAgentContext(b)
	if err != nil {
		return nil, err
	}
	if err := aci.CheckReturn(sent, returned, aci.OwnsInline); err != nil {
		return nil, err
	}
	if v := aci.EvaluateFirstLayer(returned); !v.Done {
		return returned, frame.Errorf(frame.PolicyDenied, "the result is not accepted: %s", v.Reason)
	}
	return returned, nil
}

// end gives a subtask its last status, saves it, then tells.
func (r *running) end(st *SubtaskState, status aci.GoalState, f *Failure) error {
	st.Failure = f
	r.state.set(st, status)
	if err := r.save(); err != nil {
		return err
	}
	r.tell(Event{Kind: Ended}, st)
	return nil
}
