package aci

// Target is the agent that a context goes to.
type Target struct {
	AIC  string // AgentID
	Name string // AgentName
}

// Subtask is what the master wants of an agent.
type Subtask struct {
	ID, Name     string
	Dependencies []string
	Items        []ContextItem
	Todo         []TodoItem
	Compression  *CompressionPolicy
	Evaluation   EvaluationPolicy
}

// Outbound builds the context that starts a subtask: nothing done, nothing known, nothing evaluated.
func Outbound(to Target, s Subtask, lastUpdated string) *AgentContext {
	c := &AgentContext{
		AgentID: to.AIC, AgentName: to.Name, SubTaskID: s.ID, SubTaskName: s.Name, Dependencies: s.Dependencies,
		ContextItems: s.Items, CompressionPolicy: s.Compression, TodoItems: s.Todo, EvaluationPolicy: s.Evaluation,
		EvaluationResult: EvaluationResult{Status: NotEvaluated}, LastUpdated: lastUpdated, Optional: agentOptional,
	}
	for _, t := range s.Todo {
		c.ItemStateUpdates = append(c.ItemStateUpdates, ItemState{ItemID: t.ItemID})
	}
	return c
}
