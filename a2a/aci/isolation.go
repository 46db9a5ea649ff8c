package aci

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"agentgw/internal/frame"
)

// CheckReturn holds the isolation of contexts (seed 000, section 4.2): an invoked agent may change only ItemStateUpdates,
// KeyInformation, EvaluationResult and LastUpdated of what it was sent, and may append ContextItems whose ContextURI it owns.
// The error, 66 SCOPE, names the member.
func CheckReturn(sent, returned *AgentContext, ownsURI func(uri string) bool) error {
	n := len(sent.ContextItems)
	if len(returned.ContextItems) < n {
		return frame.Errorf(frame.Scope, "agent took %d ContextItems away", n-len(returned.ContextItems))
	}
	for _, item := range returned.ContextItems[n:] {
		if !ownsURI(item.ContextURI) {
			return frame.Errorf(frame.Scope, "agent appended ContextItem %s, whose ContextURI is not its own", item.ContextID)
		}
	}
	before, err := fixedPart(sent, n)
	if err != nil {
		return err
	}
	after, err := fixedPart(returned, n)
	if err != nil {
		return err
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !reflect.DeepEqual(before[name], after[name]) {
			return frame.Errorf(frame.Scope, "agent changed %s, which is not its to change", name)
		}
	}
	return nil
}

// fixedPart is a context without what an invoked agent may change, as plain values.
func fixedPart(c *AgentContext, items int) (map[string]any, error) {
	fixed := *c
	fixed.ContextItems = c.ContextItems[:items]
	fixed.ItemStateUpdates, fixed.KeyInformation, fixed.EvaluationResult, fixed.LastUpdated = nil, nil, EvaluationResult{}, ""
	b, err := json.Marshal(fixed)
	if err != nil {
		return nil, malformed("context: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // 64-bit numbers of unknown members must not meet in one float
	var v map[string]any
	return v, dec.Decode(&v)
}
