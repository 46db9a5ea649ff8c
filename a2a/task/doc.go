// Package task is the engine of a Master Agent: it runs a plan, a task decomposed into subtasks, by having each subtask
// resolved and invoked, independent ones at the same time and dependent ones in order, and keeps the TaskContext
// (seed 000, sections 2 to 5; seed 002, section 5.4; a2a/PROTOCOL.md, "Task").
//
// The contract: [LoadPlan] reads a strict YAML plan. [Engine.Run] runs it to its end and returns its [State]; every change is
// saved through the [Store] before the next step builds on it, so that [Engine.Resume] goes on after a crash: what ended stays,
// what ran then runs again. The engine speaks to agents through an [Invoker] alone; it knows no network.
//
// Run returns after every goroutine that it started has ended. Events are called from one goroutine at a time and must not
// block. A failure of a subtask is no error of Run: it stands in the state with its code. Durations are time.Duration in Go and
// milliseconds in JSON. Errors of a plan say file position, what is wrong and what is due.
package task
