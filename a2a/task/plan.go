package task

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"agentgw/a2a/aci"

	"github.com/goccy/go-yaml"
)

// Bounds of a plan.
const (
	MaxPlanSize     = 1 << 20
	MaxSubtasks     = 64
	MaxTodo         = 64
	MaxContextItems = 16
	MaxQueryText    = 1024 // text of one semantic request, in bytes
	MaxID           = 64
	MaxDeadline     = time.Hour
	DefaultDeadline = 30 * time.Second // of one subtask
	defaultTrust    = 0.5              // confidence threshold where the plan names none
)

// Plan is a task decomposed into subtasks.
type Plan struct {
	Name        string    `yaml:"name" json:"name"`
	Query       string    `yaml:"query" json:"query"` // what the user said
	Description string    `yaml:"description" json:"description,omitempty"`
	Subtasks    []Subtask `yaml:"subtasks" json:"subtasks"`
}

// Subtask is one step of a plan, done by one agent.
type Subtask struct {
	ID                  string        `yaml:"id" json:"id"`
	Name                string        `yaml:"name" json:"name"`
	Goal                string        `yaml:"goal" json:"goal,omitempty"` // several subtasks may serve one goal; default: its name
	Request             Query         `yaml:"request" json:"request"`
	DependsOn           []string      `yaml:"depends_on" json:"depends_on,omitempty"`
	Context             []ContextText `yaml:"context" json:"context,omitempty"`
	Todo                []Todo        `yaml:"todo" json:"todo"`
	SuccessCriteria     []Criterion   `yaml:"success_criteria" json:"success_criteria,omitempty"`
	ConfidenceThreshold *float64      `yaml:"confidence_threshold" json:"confidence_threshold,omitempty"`
	Deadline            string        `yaml:"deadline" json:"deadline,omitempty"` // as in 30s or 2m; default [DefaultDeadline]
}

// Query is what a subtask asks of the gateways: the parts of a semantic request.
type Query struct {
	Text    string   `yaml:"text" json:"text"`
	Caps    []string `yaml:"capabilities" json:"capabilities,omitempty"`
	Classes []string `yaml:"classes" json:"classes,omitempty"`
	Tags    []string `yaml:"tags" json:"tags,omitempty"`
	In      []string `yaml:"input_modes" json:"input_modes,omitempty"`
	Out     []string `yaml:"output_modes" json:"output_modes,omitempty"`
	Lang    string   `yaml:"lang" json:"lang,omitempty"`
}

// ContextText is a piece of context that stands in the plan itself.
type ContextText struct {
	ID          string          `yaml:"id" json:"id"`
	Text        string          `yaml:"text" json:"text"`
	Type        aci.ContextType `yaml:"type" json:"type,omitempty"`   // default text
	Media       string          `yaml:"media" json:"media,omitempty"` // default text/plain
	Description string          `yaml:"description" json:"description,omitempty"`
	Priority    aci.Priority    `yaml:"priority" json:"priority,omitempty"` // default must_preserve
}

// Todo is one item of work.
type Todo struct {
	ID          string `yaml:"id" json:"id"`
	Description string `yaml:"description" json:"description"`
}

// Criterion is one condition of success.
type Criterion struct {
	ID          string `yaml:"id" json:"id"`
	Description string `yaml:"description" json:"description"`
	Required    bool   `yaml:"required" json:"required"`
}

// LoadPlan reads and validates a plan. An unknown key is an error that names its line and column.
func LoadPlan(r io.Reader) (*Plan, error) {
	b, err := io.ReadAll(io.LimitReader(r, MaxPlanSize+1))
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	if len(b) > MaxPlanSize {
		return nil, fmt.Errorf("plan is larger than %d bytes", MaxPlanSize)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	p := &Plan{}
	if err := dec.Decode(p); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("plan is empty: name, query and subtasks are due")
		}
		return nil, fmt.Errorf("plan: %s", strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if err := dec.Decode(&Plan{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("plan: one document is due, a second follows")
	}
	return p, p.Validate()
}

// Validate holds the bounds of a plan: ids are unique and known, and no subtask waits for itself.
func (p *Plan) Validate() error {
	if p.Name == "" || p.Query == "" {
		return errors.New("plan: name and query must be set")
	}
	if len(p.Subtasks) == 0 || len(p.Subtasks) > MaxSubtasks {
		return fmt.Errorf("plan has %d subtasks, 1 to %d are due", len(p.Subtasks), MaxSubtasks)
	}
	seen := make(map[string]bool)
	for i, s := range p.Subtasks {
		if !validID(s.ID) {
			return fmt.Errorf("subtasks[%d]: id %q is not 1 to %d letters, digits, - or _", i, s.ID, MaxID)
		}
		if seen[s.ID] {
			return fmt.Errorf("subtask %s is there twice", s.ID)
		}
		seen[s.ID] = true
		if err := s.validate(); err != nil {
			return fmt.Errorf("subtask %s: %w", s.ID, err)
		}
	}
	for _, s := range p.Subtasks {
		for _, dep := range s.DependsOn {
			if !seen[dep] {
				return fmt.Errorf("subtask %s depends on %s, which is not in the plan", s.ID, dep)
			}
		}
	}
	if cycle := p.cycle(); cycle != nil {
		return fmt.Errorf("subtasks wait for each other: %s", strings.Join(cycle, " -> "))
	}
	return nil
}

func (s Subtask) validate() error {
	switch {
	case s.Name == "":
		return errors.New("name is not set")
	case s.Request.Text == "" || len(s.Request.Text) > MaxQueryText:
		return fmt.Errorf("request.text of 1 to %d bytes is due", MaxQueryText)
	case len(s.Todo) == 0 || len(s.Todo) > MaxTodo:
		return fmt.Errorf("%d todo items, 1 to %d are due", len(s.Todo), MaxTodo)
	case len(s.Context) > MaxContextItems:
		return fmt.Errorf("%d context items, at most %d are allowed", len(s.Context), MaxContextItems)
	}
	if d, err := time.ParseDuration(or(s.Deadline, "1s")); err != nil || d <= 0 || d > MaxDeadline {
		return fmt.Errorf("deadline %q is not a duration such as 30s or 2m of at most %v", s.Deadline, MaxDeadline)
	}
	for _, c := range s.Context {
		if strings.HasPrefix(c.ID, upstreamPrefix) {
			return fmt.Errorf("context item %s: ids that begin with %s are for what other subtasks found", c.ID, upstreamPrefix)
		}
	}
	// The rest are the rules of an AgentContext: hold a draft of it against them now, not at the first invocation.
	draft, err := s.outbound(aci.Target{AIC: "draft", Name: "draft"}, nil, time.Time{})
	if err != nil {
		return err
	}
	return draft.Validate()
}

func validID(id string) bool {
	return id != "" && len(id) <= MaxID && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}

// cycle is the ids of subtasks that wait for each other, the first again at the end; nil when there are none.
func (p *Plan) cycle() []string {
	const visiting, done = 1, 2
	mark := make(map[string]int)
	var path []string
	var visit func(id string) []string
	visit = func(id string) []string {
		switch mark[id] {
		case done:
			return nil
		case visiting:
			return append(path[slices.Index(path, id):], id)
		}
		mark[id] = visiting
		path = append(path, id)
		for _, dep := range p.subtask(id).DependsOn {
			if c := visit(dep); c != nil {
				return c
			}
		}
		path = path[:len(path)-1]
		mark[id] = done
		return nil
	}
	for _, s := range p.Subtasks {
		if c := visit(s.ID); c != nil {
			return c
		}
	}
	return nil
}

func (p *Plan) subtask(id string) *Subtask {
	i := slices.IndexFunc(p.Subtasks, func(s Subtask) bool { return s.ID == id })
	return &p.Subtasks[i]
}

// goal is the goal that the subtask serves.
func (s Subtask) goal() string {
	if s.Goal != "" {
		return s.Goal
	}
	return s.Name
}

func (s Subtask) deadline() time.Duration {
	if d, err := time.ParseDuration(s.Deadline); err == nil && d > 0 {
		return d
	}
	return DefaultDeadline
}
