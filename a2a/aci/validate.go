package aci

import (
	"math"
	"strings"

	"agentgw/internal/frame"
)

var agentOptional = []string{"LastUpdated", "CompressionPolicy"}

var agentRequired = []string{
	"AgentID", "AgentName", "SubTaskID", "SubTaskName", "Dependencies", "ContextItems", "todoItems", "ItemStateUpdates",
	"KeyInformation", "EvaluationPolicy", "EvaluationResult",
}

// Validate holds the rules of the schema: ids are there, agree and do not repeat; states are 0 or 1; ratios lie in 0 to 1.
func (c *AgentContext) Validate() error {
	for name, id := range map[string]string{"AgentID": c.AgentID, "SubTaskID": c.SubTaskID} {
		if id == "" || len(id) > MaxID {
			return malformed("%s of 1 to %d bytes is due", name, MaxID)
		}
	}
	if len(c.Dependencies) > MaxEntries {
		return malformed("Dependencies has %d entries", len(c.Dependencies))
	}
	todo, err := ids("todoItems", c.TodoItems, func(t TodoItem) string { return t.ItemID })
	if err != nil {
		return err
	}
	if err := agree("ItemStateUpdates", c.ItemStateUpdates, func(s ItemState) string { return s.ItemID }, todo); err != nil {
		return err
	}
	for _, s := range c.ItemStateUpdates {
		if s.State != 0 && s.State != 1 {
			return malformed("ItemStateUpdates: state %d of item %s is neither 0 nor 1", s.State, s.ItemID)
		}
	}
	if err := agree("KeyInformation", c.KeyInformation, func(k KeyInformation) string { return k.ItemID }, todo); err != nil {
		return err
	}
	if err := c.validateItems(); err != nil {
		return err
	}
	if err := c.validateEvaluation(); err != nil {
		return err
	}
	if p := c.CompressionPolicy; p != nil {
		if p.Strategy == "" || p.LossTolerance == "" || !ratio(p.TargetRatio) {
			return malformed("CompressionPolicy: Strategy and LossTolerance are due, and a TargetRatio of 0 to 1")
		}
	}
	if err := checkTime(c.LastUpdated); err != nil {
		return err
	}
	return checkOptional(c.Optional, agentOptional, agentRequired)
}

func (c *AgentContext) validateItems() error {
	if _, err := ids("ContextItems", c.ContextItems, func(i ContextItem) string { return i.ContextID }); err != nil {
		return err
	}
	total := 0
	for _, item := range c.ContextItems {
		if item.ContextURI == "" || item.ContextType == "" || item.Priority == "" {
			return malformed("ContextItem %s: ContextURI, ContextType and Priority are due", item.ContextID)
		}
		if !strings.HasPrefix(item.ContextURI, dataScheme) {
			continue
		}
		_, content, err := OpenInline(item.ContextURI)
		if err != nil {
			return within("ContextItem "+item.ContextID, err)
		}
		if total += len(content); total > MaxAllInline {
			return frame.Errorf(frame.LimitExceeded, "more than %d bytes of inline content: offload some", MaxAllInline)
		}
	}
	return nil
}

func (c *AgentContext) validateEvaluation() error {
	criteria, err := ids("SuccessCriteria", c.EvaluationPolicy.SuccessCriteria, func(c Criterion) string { return c.CriterionID })
	if err != nil {
		return err
	}
	r := c.EvaluationResult
	if err := agree("CriterionResults", r.CriterionResults, func(c CriterionResult) string { return c.CriterionID }, criteria); err != nil {
		return err
	}
	for _, cr := range r.CriterionResults {
		if cr.Status == "" {
			return malformed("CriterionResults: %s has no Status", cr.CriterionID)
		}
	}
	if r.Status == "" {
		return malformed("EvaluationResult.Status is empty")
	}
	if !ratio(c.EvaluationPolicy.ConfidenceThreshold) || !ratio(r.Confidence) {
		return malformed("ConfidenceThreshold and Confidence lie in 0 to 1")
	}
	return nil
}

func ratio(f float64) bool { return !math.IsNaN(f) && f >= 0 && f <= 1 }

// ids are the ids of an array, which must be there and not repeat.
func ids[T any](array string, list []T, id func(T) string) (map[string]bool, error) {
	if len(list) > MaxEntries {
		return nil, malformed("%s has %d entries, at most %d are allowed", array, len(list), MaxEntries)
	}
	seen := make(map[string]bool, len(list))
	for i, v := range list {
		switch s := id(v); {
		case s == "" || len(s) > MaxID:
			return nil, malformed("%s[%d]: an id of 1 to %d bytes is due", array, i, MaxID)
		case seen[s]:
			return nil, malformed("%s: id %s is there twice", array, s)
		default:
			seen[s] = true
		}
	}
	return seen, nil
}

// agree holds that each id of an array names something that is there.
func agree[T any](array string, list []T, id func(T) string, known map[string]bool) error {
	named, err := ids(array, list, id)
	if err != nil {
		return err
	}
	for s := range named {
		if !known[s] {
			return malformed("%s: nothing has the id %s", array, s)
		}
	}
	return nil
}
