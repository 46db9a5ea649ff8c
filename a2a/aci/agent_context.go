package aci

import "agentgw/internal/frame"

// AgentContext is the state of one subtask at one agent (seed 000, section 5.2): what the master sends, and what comes back.
type AgentContext struct {
	AgentID           string             `json:"AgentID"`
	AgentName         string             `json:"AgentName"`
	SubTaskID         string             `json:"SubTaskID"`
	SubTaskName       string             `json:"SubTaskName"`
	Dependencies      []string           `json:"Dependencies"`
	ContextItems      []ContextItem      `json:"ContextItems"`
	CompressionPolicy *CompressionPolicy `json:"CompressionPolicy" aci:"optional"`
	TodoItems         []TodoItem         `json:"todoItems"`
	ItemStateUpdates  []ItemState        `json:"ItemStateUpdates"`
	KeyInformation    []KeyInformation   `json:"KeyInformation"`
	EvaluationPolicy  EvaluationPolicy   `json:"EvaluationPolicy"`
	EvaluationResult  EvaluationResult   `json:"EvaluationResult"`
	LastUpdated       string             `json:"LastUpdated" aci:"optional"` // RFC 3339
	Optional          []string           `json:"Optional" aci:"lenient"`
	Extra             Members            `json:"-"`
}

// ContextItem describes one piece of context and where it is.
type ContextItem struct {
	ContextID   string      `json:"ContextID"`
	ContextType ContextType `json:"ContextType"`
	MediaType   string      `json:"MediaType"`
	ContextURI  string      `json:"ContextURI"`
	Description string      `json:"Description"`
	Priority    Priority    `json:"Priority"`
	Extra       Members     `json:"-"`
}

// CompressionPolicy says how the receiver may compress the context for its own use.
type CompressionPolicy struct {
	Strategy           string    `json:"Strategy"`
	TargetRatio        float64   `json:"TargetRatio"` // 0 to 1
	LossTolerance      Tolerance `json:"LossTolerance"`
	MustPreserveFields []string  `json:"MustPreserveFields"`
	Extra              Members   `json:"-"`
}

// TodoItem is one step of the subtask.
type TodoItem struct {
	ItemID      string  `json:"itemID"`
	Description string  `json:"description"`
	Extra       Members `json:"-"`
}

// ItemState says whether a step is completed (1) or not (0).
type ItemState struct {
	ItemID string  `json:"itemID"`
	State  int     `json:"state"`
	Extra  Members `json:"-"`
}

// KeyInformation is the outcome of a step in brief.
type KeyInformation struct {
	ItemID         string  `json:"itemID"`
	OutputAbstract string  `json:"outputabstract"`
	Extra          Members `json:"-"`
}

// EvaluationPolicy says what makes the result acceptable.
type EvaluationPolicy struct {
	SuccessCriteria     []Criterion `json:"SuccessCriteria"`
	ConfidenceThreshold float64     `json:"ConfidenceThreshold"` // 0 to 1
	Extra               Members     `json:"-"`
}

// Criterion is one condition of success.
type Criterion struct {
	CriterionID string  `json:"CriterionID"`
	Description string  `json:"Description"`
	Required    bool    `json:"Required"`
	Extra       Members `json:"-"`
}

// EvaluationResult is the invoked agent's own evaluation.
type EvaluationResult struct {
	Status           EvaluationState   `json:"Status"`
	Confidence       float64           `json:"Confidence"` // 0 to 1
	CriterionResults []CriterionResult `json:"CriterionResults" aci:"lenient"`
	FailureReason    string            `json:"FailureReason" aci:"lenient"`
	Extra            Members           `json:"-"`
}

// CriterionResult is the evaluation of one criterion.
type CriterionResult struct {
	CriterionID  string          `json:"CriterionID"`
	Status       EvaluationState `json:"Status"`
	EvidenceRefs []string        `json:"EvidenceRefs" aci:"lenient"`
	TraceRefs    []string        `json:"TraceRefs" aci:"lenient"`
	Extra        Members         `json:"-"`
}

// ParseAgentContext reads and validates an AgentContext.
func ParseAgentContext(b []byte) (*AgentContext, error) {
	c := &AgentContext{}
	if err := parse(b, c); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// Encode writes a context as it travels; it refuses an invalid one and one above [MaxSize].
func (c *AgentContext) Encode() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b, err := marshal(c)
	if err == nil && len(b) > MaxSize {
		return nil, frame.Errorf(frame.LimitExceeded, "context of %d bytes, the limit is %d: put the rest behind a ContextURI", len(b), MaxSize)
	}
	return b, err
}

// parse reads an object from elsewhere.
func parse(b []byte, dst any) error {
	if err := scan(b); err != nil {
		return err
	}
	if err := unmarshal(b, dst); err != nil {
		return malformed("context: %w", err)
	}
	return nil
}
