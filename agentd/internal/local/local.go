// Package local is agentd's control socket: what its verbs, and programs of the same user, ask of a running daemon, as JSON
// calls. A call names the agent that it is for; where the daemon serves one agent the name may be left out.
package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"agentgw/directory/semreq"
	"agentgw/internal/control"
	"agentgw/internal/frame"
)

// Daemon is what the socket shows and does.
type Daemon interface {
	Status() Status
	Resolve(ctx context.Context, r ResolveRequest) (*ResolveAnswer, error)
	// RunTask runs a plan; emit is called for each event in order.
	RunTask(ctx context.Context, r TaskRequest, emit func(TaskEvent)) error
	Reload(ctx context.Context) error
}

// Status is `agentd status`.
type Status struct {
	Version string        `json:"version"`
	Listen  string        `json:"listen"`
	UptimeS int64         `json:"uptime_s"`
	Agents  []AgentStatus `json:"agents"`
}

// AgentStatus is one hosted agent.
type AgentStatus struct {
	Name         string   `json:"name"`
	AIC          string   `json:"aic"`
	Domain       string   `json:"domain"`
	Gateway      string   `json:"gateway"`
	Attached     bool     `json:"attached"`
	Error        string   `json:"error,omitempty"`
	Backend      string   `json:"backend"` // none, running, stopped
	Sessions     int      `json:"sessions"`
	Capabilities []string `json:"capabilities"`
}

// ResolveRequest asks the gateway in an agent's name.
type ResolveRequest struct {
	Agent       string             `json:"agent,omitempty"`
	Query       semreq.Query       `json:"query"`
	Want        uint8              `json:"want,omitempty"`
	Breadth     uint8              `json:"breadth,omitempty"`
	Parallel    bool               `json:"parallel,omitempty"`
	LocalOnly   bool               `json:"local_only,omitempty"`
	BudgetMS    uint64             `json:"budget_ms,omitempty"`
	Constraints semreq.Constraints `json:"constraints,omitzero"`
}

// ResolveAnswer is a resolution.
type ResolveAnswer struct {
	Status    string   `json:"status"`
	Code      string   `json:"code"`
	Results   []Result `json:"results"`
	Route     []string `json:"route,omitempty"` // gateways, the resolving one first
	Hops      int      `json:"hops"`
	Reasons   []Reason `json:"reasons,omitempty"`
	ElapsedMS float64  `json:"elapsed_ms"`
}

// Result is one capability found.
type Result struct {
	AIC        string       `json:"aic"`
	Capability string       `json:"capability"`
	Gateway    string       `json:"gateway"` // that resolved it
	Score      uint16       `json:"score"`   // per ten thousand, by that gateway
	Skill      semreq.Skill `json:"skill"`
}

// Reason is why a gateway did not answer.
type Reason struct {
	Gateway string `json:"gateway,omitempty"`
	Code    string `json:"code"`
	Name    string `json:"name"`
}

// TaskRequest runs a plan, or goes on with a task that was cut short.
type TaskRequest struct {
	Agent  string `json:"agent,omitempty"`
	Plan   string `json:"plan,omitempty"`   // YAML
	Resume string `json:"resume,omitempty"` // task id
}

// TaskEvent is one line of a running task; the last one has Done and the whole state.
type TaskEvent struct {
	Event   string          `json:"event"` // started, progress, ended, done
	Task    string          `json:"task"`
	Subtask json.RawMessage `json:"subtask,omitempty"`
	Items   json.RawMessage `json:"items,omitempty"`
	Note    string          `json:"note,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
	Failed  *Failure        `json:"failed,omitempty"`
}

// Failure is why a task did not complete, or could not be run.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// None is an empty body.
type None struct{}

// NewID makes a random id of 16 bytes.
func NewID() (id [16]byte) {
	rand.Read(id[:]) // it never fails
	return id
}

// Answer reads a response as the agent's own gateway verified it.
func Answer(resp *semreq.Response, elapsed time.Duration) (*ResolveAnswer, error) {
	out := &ResolveAnswer{
		Status: resp.Status.String(), Code: resp.Status.Hex(), Results: []Result{}, Route: resp.Route,
		Hops: max(0, len(resp.Route)-1), ElapsedMS: float64(elapsed.Microseconds()) / 1000,
	}
	for _, signed := range resp.Results {
		r, err := semreq.PeekResult(signed)
		if err != nil {
			return nil, err
		}
		out.Results = append(out.Results, Result{AIC: r.AIC, Capability: r.Cap, Gateway: r.GW, Score: r.Score, Skill: r.Skill})
	}
	for _, r := range resp.Reasons {
		out.Reasons = append(out.Reasons, Reason{Gateway: r.GW, Code: r.Code.Hex(), Name: r.Code.String()})
	}
	return out, nil
}

// Unresolved is the error of a response without a result.
func Unresolved(resp *semreq.Response) error {
	what := map[frame.Code]string{
		frame.NotFound:       "no agent that fits was found",
		frame.Deadline:       "the gateways on the way did not answer within the budget",
		frame.UpstreamFailed: "a gateway or the agent itself could not be reached",
		frame.Overloaded:     "the gateways are overloaded; try again later",
		frame.ScopeDenied:    "the agent's grant or a peer's policy does not cover this request",
		frame.PolicyDenied:   "a policy forbids this request",
	}[resp.Status]
	if what == "" {
		what = "the request could not be resolved"
	}
	var why []string
	for _, r := range resp.Reasons {
		by := r.GW
		if by == "" {
			by = "a gateway further on"
		}
		why = append(why, by+": "+r.Code.String())
	}
	if len(why) > 0 {
		what += " (" + strings.Join(why, ", ") + ")"
	}
	return frame.Errorf(resp.Status, "%s", what)
}

// Handler is the socket's calls.
func Handler(d Daemon) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/status", control.Handle(func(context.Context, None) (Status, error) { return d.Status(), nil }))
	mux.HandleFunc("POST /v1/resolve", control.Handle(d.Resolve))
	mux.HandleFunc("POST /v1/reload", control.Handle(func(ctx context.Context, _ None) (None, error) { return None{}, d.Reload(ctx) }))
	mux.HandleFunc("POST /v1/tasks/run", runTask(d))
	return mux
}

func runTask(d Daemon) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in TaskRequest
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			control.WriteError(w, frame.Errorf(frame.ReqInvalid, "request body: %w", err))
			return
		}
		began := false
		enc := json.NewEncoder(w)
		err := d.RunTask(r.Context(), in, func(e TaskEvent) {
			if !began {
				w.Header().Set("Content-Type", "application/x-ndjson")
				began = true
			}
			enc.Encode(e)
			http.NewResponseController(w).Flush()
		})
		if err != nil && !began {
			control.WriteError(w, err)
		}
	}
}
