// Package local is agentd's control socket: what its verbs, and programs of the same user, ask of a running daemon, as JSON
// calls. A call names the agent that it is for; where the daemon serves one agent the name may be left out.
package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"time"

	"agentgw/directory/semreq"
	"agentgw/internal/control"
	"agentgw/internal/frame"
)

// Daemon is what the socket shows and does.
type Daemon interface {
	Status() Status
	Resolve(ctx context.Context, r ResolveRequest) (*semreq.Outcome, error)
	// RunTask runs a plan; emit is called for each event in order.
	RunTask(ctx context.Context, r TaskRequest, emit func(TaskEvent)) error
	Reload(ctx context.Context) error
	// ReKey gives an agent a new key under its AIC.
	ReKey(ctx context.Context, r AgentRequest) (AgentAnswer, error)
	// Update replaces an agent's ACS.
	Update(ctx context.Context, r UpdateRequest) (UpdateAnswer, error)
	// Deregister ends an agent's registration for good.
	Deregister(ctx context.Context, r AgentRequest) (AgentAnswer, error)
	// AuditHead is how many lines the audit log has, and the hash of the last.
	AuditHead() AuditHead
}

// AuditHead is the end of the audit log as the daemon knows it.
type AuditHead struct {
	Count uint64 `json:"count"`
	Hash  string `json:"hash"` // SHA-256, hexadecimal
}

// AgentRequest names an agent.
type AgentRequest struct {
	Agent  string `json:"agent,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// AgentAnswer is the agent that something was done with.
type AgentAnswer struct {
	Agent string `json:"agent"`
	AIC   string `json:"aic"`
}

// UpdateRequest replaces an agent's ACS by a whole new one.
type UpdateRequest struct {
	Agent      string   `json:"agent,omitempty"`
	ACS        string   `json:"acs"`                  // JSON: an ACS, or an Agent Card
	Visibility string   `json:"visibility,omitempty"` // empty: as it was
	Allow      []string `json:"allow,omitempty"`
}

// UpdateAnswer is the entry as it is now.
type UpdateAnswer struct {
	AIC          string   `json:"aic"`
	Version      uint64   `json:"version"`
	Capabilities []string `json:"capabilities"`
	Removed      []string `json:"removed,omitempty"`  // not granted
	Warnings     []string `json:"warnings,omitempty"` // of the specification: taken, and probably mistakes
}

// Status is `agentd status`.
type Status struct {
	Version string        `json:"version"`
	Listen  string        `json:"listen"`
	UptimeS int64         `json:"uptime_s"`
	Agents  []AgentStatus `json:"agents"`
	Audit   string        `json:"audit"` // ok (and perhaps when it was begun anew), or what is wrong with the log
}

// AgentStatus is one hosted agent.
type AgentStatus struct {
	Name         string   `json:"name"`
	AIC          string   `json:"aic"`
	Domain       string   `json:"domain"`
	Gateway      string   `json:"gateway"`
	Attached     bool     `json:"attached"`
	Error        string   `json:"error,omitempty"`
	Backend      string   `json:"backend"`                 // none, running, stopped
	BackendError string   `json:"backend_error,omitempty"` // why it is stopped
	Sessions     int      `json:"sessions"`
	Capabilities []string `json:"capabilities"`

	CredentialUntil time.Time `json:"credential_until"`
}

// ResolveRequest asks the gateway in an agent's name.
type ResolveRequest struct {
	Agent string `json:"agent,omitempty"`
	semreq.Ask
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

// Handler is the socket's calls.
func Handler(d Daemon) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/audit", control.Handle(func(context.Context, None) (AuditHead, error) { return d.AuditHead(), nil }))
	mux.HandleFunc("POST /v1/status", control.Handle(func(context.Context, None) (Status, error) { return d.Status(), nil }))
	mux.HandleFunc("POST /v1/resolve", control.Handle(d.Resolve))
	mux.HandleFunc("POST /v1/reload", control.Handle(func(ctx context.Context, _ None) (None, error) { return None{}, d.Reload(ctx) }))
	mux.HandleFunc("POST /v1/tasks/run", runTask(d))
	mux.HandleFunc("POST /v1/agent/rekey", control.Handle(d.ReKey))
	mux.HandleFunc("POST /v1/agent/update", control.Handle(d.Update))
	mux.HandleFunc("POST /v1/agent/deregister", control.Handle(d.Deregister))
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
