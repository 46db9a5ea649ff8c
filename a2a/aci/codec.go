package aci

// The codecs read by exact names, keep unknown members, and write the members in the order of the seed.

// MarshalJSON writes the object.
func (v AgentContext) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *AgentContext) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v ContextItem) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *ContextItem) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v CompressionPolicy) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *CompressionPolicy) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v TodoItem) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *TodoItem) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v ItemState) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *ItemState) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v KeyInformation) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *KeyInformation) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v EvaluationPolicy) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *EvaluationPolicy) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v Criterion) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *Criterion) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v EvaluationResult) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *EvaluationResult) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v CriterionResult) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *CriterionResult) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v TaskContext) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *TaskContext) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }

// MarshalJSON writes the object.
func (v GoalStatus) MarshalJSON() ([]byte, error) { return marshal(v) }

// UnmarshalJSON reads the object.
func (v *GoalStatus) UnmarshalJSON(b []byte) error { return unmarshal(b, v) }
