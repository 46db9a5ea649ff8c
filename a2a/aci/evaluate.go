package aci

import (
	"fmt"
	"strings"
)

// Verdict is the outcome of an evaluation.
type Verdict struct {
	Done   bool
	Asks   bool   // the agent wants input before it goes on
	Reason string // why not done, for people
}

// EvaluateFirstLayer is the master's evaluation by structured fields alone (seed 000, section 4.1): done when every item's
// state is 1, every required criterion passed, the confidence is at least the threshold, and the agent itself says passed.
// An item or criterion without a state counts as not done.
func EvaluateFirstLayer(c *AgentContext) Verdict {
	if c.EvaluationResult.Status.Known() == InputRequired {
		return Verdict{Asks: true, Reason: reason("the agent asks for input", c)}
	}
	if open := openItems(c); len(open) > 0 {
		return Verdict{Reason: reason("not completed: "+strings.Join(open, ", "), c)}
	}
	if missed := missedCriteria(c); len(missed) > 0 {
		return Verdict{Reason: reason("required criteria not passed: "+strings.Join(missed, ", "), c)}
	}
	if r, p := c.EvaluationResult, c.EvaluationPolicy; r.Confidence < p.ConfidenceThreshold {
		return Verdict{Reason: reason(fmt.Sprintf("confidence %.2f is below the threshold of %.2f", r.Confidence, p.ConfidenceThreshold), c)}
	}
	if s := c.EvaluationResult.Status; s.Known() != Passed {
		return Verdict{Reason: reason(fmt.Sprintf("the agent evaluates its result as %s", s), c)}
	}
	return Verdict{Done: true}
}

func openItems(c *AgentContext) (open []string) {
	done := make(map[string]bool)
	for _, s := range c.ItemStateUpdates {
		done[s.ItemID] = s.State == 1
	}
	for _, t := range c.TodoItems {
		if !done[t.ItemID] {
			open = append(open, t.ItemID)
		}
	}
	return open
}

func missedCriteria(c *AgentContext) (missed []string) {
	passed := make(map[string]bool)
	for _, r := range c.EvaluationResult.CriterionResults {
		passed[r.CriterionID] = r.Status.Known() == Passed
	}
	for _, sc := range c.EvaluationPolicy.SuccessCriteria {
		if sc.Required && !passed[sc.CriterionID] {
			missed = append(missed, sc.CriterionID)
		}
	}
	return missed
}

func reason(what string, c *AgentContext) string {
	if said := c.EvaluationResult.FailureReason; said != "" {
		return what + ": " + said
	}
	return what
}
