package main

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"agentgw/gatewayd/internal/admin"
)

// The table that people read, of the explanations that the daemon's own golden test holds.
func TestExplainTable(t *testing.T) {
	raw, err := os.ReadFile("internal/app/testdata/explain.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []admin.Match
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, m := range list {
		printMatch(&got, m)
		got.WriteString("\n")
	}
	const file = "testdata/explain.txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the table has changed:\n%s", got.String())
	}
}
