package semreq

import (
	"crypto/rand"
	"strings"
	"time"

	"agentgw/internal/frame"
)

// Ask is a semantic request as people and programs state it, in JSON: what is left out takes its default.
type Ask struct {
	Query       Query       `json:"query"`
	Want        uint8       `json:"want,omitempty"`
	Breadth     uint8       `json:"breadth,omitempty"`
	Parallel    bool        `json:"parallel,omitempty"`
	LocalOnly   bool        `json:"local_only,omitempty"` // ask the own gateway only
	NoCache     bool        `json:"no_cache,omitempty"`   // ask also who has said a moment ago that it found nothing
	Hops        *uint8      `json:"hops,omitempty"`       // gateways behind the own one; absent: 6
	BudgetMS    uint64      `json:"budget_ms,omitempty"`
	Constraints Constraints `json:"constraints,omitzero"`
}

// Request builds the SREQ of an agent: normalised, with a new id. Errors say what is wrong with the ask, with
// [frame.ReqInvalid].
func (a Ask) Request() (*Request, error) {
	q := a.Query.Normalise()
	if err := q.Validate(); err != nil {
		return nil, err
	}
	raw, err := q.Encode()
	if err != nil {
		return nil, err
	}
	hash := Hash(raw)
	r := &Request{
		ReqID: make([]byte, 16), Query: raw, QHash: hash[:], HopLimit: DefaultHops,
		BudgetMS: or(a.BudgetMS, DefaultBudgetMS), Breadth: or(a.Breadth, DefaultBreadth), Want: or(a.Want, DefaultWant),
	}
	rand.Read(r.ReqID) // it never fails
	if a.Parallel {
		r.Flags |= FlagParallel
	}
	if a.LocalOnly {
		r.Flags |= FlagNoForward
	}
	if a.NoCache {
		r.Flags |= FlagNoCache
	}
	if a.Hops != nil {
		r.HopLimit = *a.Hops
	}
	if !a.Constraints.Empty() {
		if r.Constraints, err = frame.Marshal(a.Constraints); err != nil {
			return nil, err
		}
	}
	if _, err := r.ParsedConstraints(); err != nil {
		return nil, err
	}
	return r, r.Validate()
}

func or[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Outcome is a response as people and programs read it, in JSON.
type Outcome struct {
	Status     string   `json:"status"` // the code's name
	Code       string   `json:"code"`   // two hexadecimal digits
	Results    []Found  `json:"results"`
	Route      []string `json:"route,omitempty"` // gateways, the resolving one first
	Hops       int      `json:"hops"`
	Reasons    []Why    `json:"reasons,omitempty"`
	ElapsedMS  float64  `json:"elapsed_ms"`
	Definitive bool     `json:"definitive,omitempty"` // nothing was found, and nobody that might know was left out
}

// Found is one capability found.
type Found struct {
	AIC        string `json:"aic"`
	Capability string `json:"capability"`
	Domain     string `json:"domain,omitempty"` // where the reader knows the domains
	Gateway    string `json:"gateway"`          // that resolved it
	Score      uint16 `json:"score"`            // per ten thousand, by that gateway
	Skill      Skill  `json:"skill"`
}

// Why is why one gateway did not answer.
type Why struct {
	Gateway string `json:"gateway,omitempty"`
	Code    string `json:"code"`
	Name    string `json:"name"`
}

// Outcome reads a response whose results were verified, by this gateway or by the agent's own. domainOf may be nil.
func (r *Response) Outcome(elapsed time.Duration, domainOf func(aic string) string) (*Outcome, error) {
	out := &Outcome{
		Status: r.Status.String(), Code: r.Status.Hex(), Results: []Found{}, Route: r.Route, Hops: max(0, len(r.Route)-1),
		ElapsedMS: float64(elapsed.Microseconds()) / 1000, Definitive: r.Definitive,
	}
	for _, signed := range r.Results {
		res, err := PeekResult(signed)
		if err != nil {
			return nil, err
		}
		f := Found{AIC: res.AIC, Capability: res.Cap, Gateway: res.GW, Score: res.Score, Skill: res.Skill}
		if domainOf != nil {
			f.Domain = domainOf(res.AIC)
		}
		out.Results = append(out.Results, f)
	}
	for _, reason := range r.Reasons {
		out.Reasons = append(out.Reasons, Why{Gateway: reason.GW, Code: reason.Code.Hex(), Name: reason.Code.String()})
	}
	return out, nil
}

var unresolved = map[frame.Code]string{
	frame.NotFound:       "no agent that fits was found",
	frame.Deadline:       "the gateways on the way did not answer within the budget",
	frame.UpstreamFailed: "a gateway or the agent itself could not be reached",
	frame.Overloaded:     "the gateways are overloaded; try again later",
	frame.ScopeDenied:    "the agent's grant or a peer's policy does not cover this request",
	frame.PolicyDenied:   "a policy forbids this request",
	frame.Shutdown:       "the gateway is stopping",
}

// Err is the error of a response without a result, nil for one with results: what happened, and who did not answer.
func (r *Response) Err() error {
	if r.Status == frame.OK {
		return nil
	}
	what := unresolved[r.Status]
	if what == "" {
		what = "the request could not be resolved"
	}
	var why []string
	for _, reason := range r.Reasons {
		why = append(why, or(reason.GW, "a gateway further on")+": "+reason.Code.String())
	}
	if len(why) > 0 {
		what += " (" + strings.Join(why, ", ") + ")"
	}
	return frame.Errorf(r.Status, "%s", what)
}
