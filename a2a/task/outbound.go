package task

import (
	"encoding/json"
	"fmt"
	"time"

	"agentgw/a2a/aci"
)

// upstreamPrefix begins the ContextID of what a dependency found.
const upstreamPrefix = "upstream-"

// upstream is what a dependency found, for the subtask that waits for it.
type upstream struct {
	id, name string
	found    []aci.KeyInformation
}

// outbound builds the AgentContext that starts the subtask at an agent: the plan's own context, then the KeyInformation of each
// direct dependency as a `data:` item. Nothing else of other subtasks goes to an agent (seed 000, section 4.2).
func (s Subtask) outbound(to aci.Target, from []upstream, now time.Time) (*aci.AgentContext, error) {
	sub := aci.Subtask{ID: s.ID, Name: s.Name, Dependencies: s.DependsOn, Evaluation: s.policy()}
	for _, t := range s.Todo {
		sub.Todo = append(sub.Todo, aci.TodoItem{ItemID: t.ID, Description: t.Description})
	}
	for _, c := range s.Context {
		item, err := c.item()
		if err != nil {
			return nil, fmt.Errorf("context item %s: %w", c.ID, err)
		}
		sub.Items = append(sub.Items, item)
	}
	for _, u := range from {
		item, err := u.item()
		if err != nil {
			return nil, fmt.Errorf("key information of %s: %w", u.id, err)
		}
		sub.Items = append(sub.Items, item)
	}
	return aci.Outbound(to, sub, now.UTC().Format(time.RFC3339)), nil
}

func (s Subtask) policy() aci.EvaluationPolicy {
	p := aci.EvaluationPolicy{ConfidenceThreshold: defaultTrust}
	if s.ConfidenceThreshold != nil {
		p.ConfidenceThreshold = *s.ConfidenceThreshold
	}
	for _, c := range s.SuccessCriteria {
		p.SuccessCriteria = append(p.SuccessCriteria, aci.Criterion{CriterionID: c.ID, Description: c.Description, Required: c.Required})
	}
	return p
}

func (c ContextText) item() (aci.ContextItem, error) {
	media := or(c.Media, "text/plain")
	uri, err := aci.MakeInline(media, []byte(c.Text))
	return aci.ContextItem{
		ContextID: c.ID, ContextType: or(c.Type, aci.TypeText), MediaType: media, ContextURI: uri, Description: c.Description,
		Priority: or(c.Priority, aci.MustPreserve),
	}, err
}

func (u upstream) item() (aci.ContextItem, error) {
	b, err := json.Marshal(u.found)
	if err != nil {
		return aci.ContextItem{}, err
	}
	uri, err := aci.MakeInline("application/json", b)
	return aci.ContextItem{
		ContextID: upstreamPrefix + u.id, ContextType: aci.TypeDataset, MediaType: "application/json", ContextURI: uri,
		Description: "KeyInformation of " + u.name, Priority: aci.MustPreserve,
	}, err
}

func or[T ~string](v, otherwise T) T {
	if v == "" {
		return otherwise
	}
	return v
}
