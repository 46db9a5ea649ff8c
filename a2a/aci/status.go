package aci

import "slices"

// GoalState is a word of GoalStatus[].Status and OverallStatus.
type GoalState string

// Goal states. An unknown one counts as pending.
const (
	Pending    GoalState = "pending"
	InProgress GoalState = "in_progress"
	Completed  GoalState = "completed"
	Failed     GoalState = "failed"
	Cancelled  GoalState = "cancelled"
)

// Known is the state itself, or the weakest where this version does not know the word.
func (s GoalState) Known() GoalState {
	return knownOr(s, Pending, InProgress, Completed, Failed, Cancelled)
}

// Ended says that nothing more will happen to the goal.
func (s GoalState) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// EvaluationState is a word of EvaluationResult.Status and CriterionResults[].Status.
type EvaluationState string

// Evaluation states. An unknown one counts as not evaluated.
const (
	NotEvaluated  EvaluationState = "not_evaluated"
	Passed        EvaluationState = "passed"
	NotPassed     EvaluationState = "failed"
	Partial       EvaluationState = "partial"
	InputRequired EvaluationState = "input_required"
)

// Known is the state itself, or the weakest where this version does not know the word.
func (s EvaluationState) Known() EvaluationState {
	return knownOr(s, NotEvaluated, Passed, NotPassed, Partial, InputRequired)
}

// Tolerance is a word of CompressionPolicy.LossTolerance.
type Tolerance string

// Tolerances. An unknown one counts as none.
const (
	LossNone   Tolerance = "none"
	LossLow    Tolerance = "low"
	LossMedium Tolerance = "medium"
	LossHigh   Tolerance = "high"
)

// Known is the tolerance itself, or the weakest where this version does not know the word.
func (t Tolerance) Known() Tolerance { return knownOr(t, LossNone, LossLow, LossMedium, LossHigh) }

// Priority says how far a receiver may reduce a ContextItem.
type Priority string

// Priorities. An unknown one counts as must_preserve: it allows nothing.
const (
	MustPreserve  Priority = "must_preserve"
	Compressible  Priority = "compressible"
	ReferenceOnly Priority = "reference_only"
	Discardable   Priority = "discardable"
)

// Known is the priority itself, or the weakest where this version does not know the word.
func (p Priority) Known() Priority {
	return knownOr(p, MustPreserve, Compressible, ReferenceOnly, Discardable)
}

// ContextType classifies what a ContextItem holds.
type ContextType string

// Context types. An unknown one counts as other.
const (
	TypeDocument ContextType = "document"
	TypeGraph    ContextType = "graph"
	TypeVideo    ContextType = "video"
	TypeImage    ContextType = "image"
	TypeAudio    ContextType = "audio"
	TypeCode     ContextType = "code"
	TypeTable    ContextType = "table"
	TypeDataset  ContextType = "dataset"
	TypeText     ContextType = "text"
	TypeOther    ContextType = "other"
)

// Known is the type itself, or other where this version does not know the word.
func (t ContextType) Known() ContextType {
	return knownOr(t, TypeOther, TypeDocument, TypeGraph, TypeVideo, TypeImage, TypeAudio, TypeCode, TypeTable, TypeDataset, TypeText)
}

func knownOr[T ~string](v, weakest T, others ...T) T {
	if slices.Contains(others, v) {
		return v
	}
	return weakest
}
