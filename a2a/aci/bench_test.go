package aci

import (
	"bytes"
	"testing"
)

// twoKilobytes is a context as a master sends it.
func twoKilobytes(tb testing.TB) *AgentContext {
	tb.Helper()
	uri, err := MakeInline("text/plain", bytes.Repeat([]byte("two tablets of 500 mg each evening. "), 24))
	if err != nil {
		tb.Fatal(err)
	}
	return Outbound(Target{AIC: "1.2.156.3088.2.B.AGENT", Name: "Pharmacy"}, Subtask{
		ID: "buy", Name: "Medicine purchase", Dependencies: []string{"prescription"},
		Items: []ContextItem{{ContextID: "prescription-1", ContextType: TypeText, MediaType: "text/plain", ContextURI: uri,
			Description: "What the doctor prescribed.", Priority: MustPreserve}},
		Todo: []TodoItem{{ItemID: "order", Description: "Order it."}, {ItemID: "deliver", Description: "Have it delivered."}},
		Evaluation: EvaluationPolicy{ConfidenceThreshold: .8,
			SuccessCriteria: []Criterion{{CriterionID: "price", Description: "The price is within the budget.", Required: true}}},
	}, "2026-10-25T08:00:00Z")
}

func BenchmarkEncodeAgentContext(b *testing.B) {
	c := twoKilobytes(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseAgentContext(b *testing.B) {
	text, err := twoKilobytes(b).Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := ParseAgentContext(text); err != nil {
			b.Fatal(err)
		}
	}
}
