package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"agentgw/directory/acs"
	"agentgw/gatewayd/internal/admin"
)

func TestHistoryAndDiffAsPeopleReadThem(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	var got bytes.Buffer
	printHistory(&got, admin.AgentHistory{
		Editions: []admin.EditionRow{
			{Last: 5, Since: at, State: "ACTIVE", Visibility: "domain", Skills: []string{"a"}},
			{First: 6, Last: 9, Since: at, State: "ACTIVE", Visibility: "public", Skills: []string{"a", "b"}, Changed: []string{"visibility"}},
			{First: 10, Last: 10, Since: at, State: "SUSPENDED", Visibility: "public", Changed: []string{"state"}},
		},
		Ended: &admin.Ended{State: "WITHDRAWN", At: at, Reason: "retired"},
	})
	printDiff(&got, admin.AgentDiff{From: 9, To: 10, Changes: []acs.Difference{
		{Path: "acs.skills[a].name", Old: json.RawMessage(`"A"`), New: json.RawMessage(`"B"`)}, {Path: "acs.iconUrl", Old: json.RawMessage(`"x"`)},
	}})
	printDiff(&got, admin.AgentDiff{From: 9, To: 9})
	const want = `VERSIONS  SINCE                 STATE      VISIBILITY  SKILLS  CHANGED
-5        2026-11-30T10:00:00Z  ACTIVE     domain      a       
6-9       2026-11-30T10:00:00Z  ACTIVE     public      a b     visibility
10        2026-11-30T10:00:00Z  SUSPENDED  public              state
WITHDRAWN at 2026-11-30T10:00:00Z retired
version 9 to 10
acs.skills[a].name
  - "A"
  + "B"
acs.iconUrl
  - "x"
versions 9 and 9 say the same
`
	if got.String() != want {
		t.Errorf("%s", got.String())
	}
}
