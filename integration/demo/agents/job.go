package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentgw/a2a/aci"
)

//go:embed data/*.json
var data embed.FS

// table reads one embedded file; a mistake in it is found by the first test.
func table[T any](name string) (T, error) {
	var v T
	raw, err := data.ReadFile("data/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		return v, fmt.Errorf("own data %s: %w", name, err)
	}
	return v, nil
}

// job is one AgentContext while an agent works on it.
type job struct {
	context    *aci.AgentContext
	tell       func([]aci.ItemState, string)
	confidence float64
	used       []string // ContextIDs that the work stands on
	judged     map[string]bool
}

// perform has a role do its work on c and completes c: states, findings, evaluation.
func perform(c *aci.AgentContext, work role, tell func([]aci.ItemState, string)) {
	j := &job{context: c, tell: tell, judged: map[string]bool{}}
	err := work(j)
	c.EvaluationResult = j.evaluate(err)
	c.LastUpdated = time.Now().UTC().Format(time.RFC3339)
}

// text is the content of the context item id.
func (j *job) text(id string) (string, error) {
	for _, item := range j.context.ContextItems {
		if item.ContextID == id {
			return j.open(item)
		}
	}
	return "", fmt.Errorf("context item %q is missing: it must be handed over with the subtask", id)
}

func (j *job) open(item aci.ContextItem) (string, error) {
	_, content, err := aci.OpenInline(item.ContextURI)
	if err != nil {
		return "", fmt.Errorf("context item %q: %w", item.ContextID, err)
	}
	j.used = append(j.used, item.ContextID)
	return string(content), nil
}

// read decodes the context item id, a JSON object with exactly the members of v.
func (j *job) read(id string, v any) error {
	text, err := j.text(id)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("context item %q: %w", id, err)
	}
	return nil
}

// upstream is what an earlier subtask found for its item id, as the master hands it on.
func (j *job) upstream(id string) (string, error) {
	for _, item := range j.context.ContextItems {
		if !strings.HasPrefix(item.ContextID, "upstream-") {
			continue
		}
		text, err := j.open(item)
		if err != nil {
			return "", err
		}
		var found []aci.KeyInformation
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			return "", fmt.Errorf("context item %q: %w", item.ContextID, err)
		}
		for _, k := range found {
			if k.ItemID == id {
				return k.OutputAbstract, nil
			}
		}
	}
	return "", fmt.Errorf("the outcome %q of an earlier subtask is missing: it must be handed on as KeyInformation", id)
}

// found records the outcome of a todo item and tells the master. An item that the master did not ask for is left out.
func (j *job) found(item, outcome string) {
	for i, s := range j.context.ItemStateUpdates {
		if s.ItemID == item {
			j.context.ItemStateUpdates[i].State = 1
			j.context.KeyInformation = append(j.context.KeyInformation, aci.KeyInformation{ItemID: item, OutputAbstract: outcome})
			j.tell([]aci.ItemState{{ItemID: item, State: 1}}, outcome)
		}
	}
}

// judge records whether a criterion of success is met.
func (j *job) judge(criterion string, met bool) { j.judged[criterion] = met }

// evaluate makes the agent's own evaluation out of what was really done and judged. A criterion that this agent does not know
// is not evaluated, and never passed.
func (j *job) evaluate(failed error) aci.EvaluationResult {
	r := aci.EvaluationResult{Status: aci.Passed, Confidence: min(max(j.confidence, 0), 1)}
	var why []string
	if failed != nil {
		why = append(why, failed.Error())
	}
	for _, c := range j.context.EvaluationPolicy.SuccessCriteria {
		status := aci.NotEvaluated
		if met, known := j.judged[c.CriterionID]; known {
			status = map[bool]aci.EvaluationState{true: aci.Passed, false: aci.NotPassed}[met]
		}
		if status != aci.Passed && c.Required && failed == nil {
			why = append(why, fmt.Sprintf("criterion %s: %s", c.CriterionID, status))
		}
		r.CriterionResults = append(r.CriterionResults, aci.CriterionResult{CriterionID: c.CriterionID, Status: status, EvidenceRefs: j.used})
	}
	done := 0
	for _, s := range j.context.ItemStateUpdates {
		done += s.State
		if s.State == 0 && failed == nil {
			why = append(why, "nothing was found for item "+s.ItemID)
		}
	}
	if len(why) > 0 {
		r.Status, r.FailureReason = aci.NotPassed, strings.Join(why, "; ")
		if done > 0 {
			r.Status = aci.Partial
		}
	}
	return r
}

// day reads a date such as 2027-05-07.
func day(what, s string) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return t, fmt.Errorf("%s %q is no date such as 2027-05-07", what, s)
	}
	return t, nil
}

var errNothing = errors.New("nothing fits")
