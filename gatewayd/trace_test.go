package main

import (
	"bytes"
	"testing"

	"agentgw/directory/semreq"
)

func TestTraceAsPeopleReadIt(t *testing.T) {
	var got bytes.Buffer
	printTrace(&got, []traced{
		{0, semreq.Outcome{Status: "NOT_FOUND", ElapsedMS: .21, Reasons: []semreq.Why{{Gateway: "AG1", Name: "HOP_LIMIT"}}}},
		{1, semreq.Outcome{Status: "NOT_FOUND", ElapsedMS: 1.5, Reasons: []semreq.Why{{Name: "HOP_LIMIT"}, {Gateway: "AG3", Name: "NOT_FOUND"}}}},
		{2, semreq.Outcome{Status: "OK", ElapsedMS: 3.14, Route: []string{"AG2", "AG3", "AG1"}, Results: []semreq.Found{
			{Score: 7250, Capability: "acps://x/y", Domain: "pharmacy.example", Skill: semreq.Skill{Name: "Sell medicine"}}}}},
	})
	printTrace(&got, []traced{{0, semreq.Outcome{Status: "NOT_FOUND", Definitive: true}}})
	const want = `HOPS  STATUS     TIME    WHY
0     NOT_FOUND  0.2 ms  AG1 HOP_LIMIT
1     NOT_FOUND  1.5 ms  beyond HOP_LIMIT, AG3 NOT_FOUND
2     OK         3.1 ms  
 0  AG1
 1  AG3
 2  AG2
72.50 %  Sell medicine  (pharmacy.example)
         acps://x/y
HOPS  STATUS     TIME    WHY
0     NOT_FOUND  0.0 ms  
nobody that is known of has it: all whose digests fit were asked
`
	if got.String() != want {
		t.Errorf("%s", got.String())
	}
}
