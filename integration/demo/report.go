package main

import (
	"errors"
	"time"

	"agentgw/a2a/aci"
	"agentgw/internal/frame"
)

// report is the JSON object of -o json.
type report struct {
	Tasks       []taskReport  `json:"tasks,omitempty"`
	Resolutions []resolution  `json:"resolutions,omitempty"`
	Sessions    []session     `json:"sessions,omitempty"`
	Digests     *digestReport `json:"digests,omitempty"`
	*corpusReport
	BuildMS int64       `json:"build_ms"`
	RunMS   int64       `json:"run_ms"`
	Keep    *keepReport `json:"keep,omitempty"`
	Error   *reason     `json:"error,omitempty"` // the demo itself failed

	run time.Duration
}

type taskReport struct {
	Name      string          `json:"name"`
	TaskID    string          `json:"task_id"`
	Status    aci.GoalState   `json:"status"`
	Subtasks  []subtaskReport `json:"subtasks"`
	ElapsedMS int64           `json:"elapsed_ms"`
	Reason    *reason         `json:"reason"` // null when the task is complete
}

type subtaskReport struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Status    aci.GoalState `json:"status"`
	Agent     string        `json:"agent,omitempty"`
	Hops      int           `json:"hops"`
	ElapsedMS int64         `json:"elapsed_ms"`
	Reason    *reason       `json:"reason"`
}

// reason says why something failed: a code of the specification, two hexadecimal digits, and a sentence.
type reason struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// resolution is a semantic request that found a capability.
type resolution struct {
	Query      string   `json:"query"`
	Hops       int      `json:"hops"`
	Gateways   []string `json:"gateways"` // from the asker's to the one that resolved
	Capability string   `json:"capability"`
	ElapsedMS  int64    `json:"elapsed_ms"`
}

type session struct {
	SID       string `json:"sid"`
	Initiator string `json:"initiator"` // AIC
	Target    string `json:"target"`    // AIC
	SetupMS   int64  `json:"setup_ms"`
}

type digestReport struct {
	Acked bool `json:"acked"` // every gateway's digests are with its neighbours
}

type keepReport struct {
	Bin      string        `json:"bin"`
	Gateways []keptGateway `json:"gateways"`
	PIDs     []int         `json:"pids"`
}

type keptGateway struct {
	Name    string `json:"name"`
	Control string `json:"control"`
}

// complete says that every task is, or every query was answered.
func (r *report) complete() bool {
	if r.corpusReport != nil {
		return r.Unanswered == 0
	}
	for _, t := range r.Tasks {
		if t.Status != aci.Completed {
			return false
		}
	}
	return len(r.Tasks) > 0
}

func failureOf(err error) *reason {
	out := &reason{Code: frame.CodeOf(err).Hex(), Message: err.Error()}
	var coded *frame.Error
	if errors.As(err, &coded) {
		out.Message = coded.Detail
	}
	return out
}
