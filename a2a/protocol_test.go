package a2a

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"agentgw/internal/frame"
)

// Each example of PROTOCOL.md is a vector that a codec's own test makes, and each vector is an example.
func TestExamplesOfTheSpecification(t *testing.T) {
	doc, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	vectors := make(map[string]string)
	for _, file := range []string{"wire/testdata/vectors.txt", "token/testdata/vectors.txt"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if !strings.HasSuffix(name, "key seed") {
				vectors[name] = value
			}
		}
	}
	examples := regexp.MustCompile("(?s)```hex ([^\n]*)\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(examples) != len(vectors) || len(examples) == 0 {
		t.Errorf("%d examples, %d vectors", len(examples), len(vectors))
	}
	for _, ex := range examples {
		if got := strings.Join(strings.Fields(ex[2]), ""); got != vectors[ex[1]] || got == "" {
			t.Errorf("%s: the specification shows %s, the codec makes %s", ex[1], got, vectors[ex[1]])
		}
	}
}

// Each code that the specification lists has the name that the code gives it.
func TestCodesOfTheSpecification(t *testing.T) {
	doc, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(doc), "## Codes")
	codes := regexp.MustCompile(`\| ([0-9A-F]{2}) ([A-Z_]+)`).FindAllStringSubmatch(table, -1)
	if !ok || len(codes) < 30 {
		t.Fatalf("%d codes", len(codes))
	}
	for _, c := range codes {
		n, err := strconv.ParseUint(c[1], 16, 8)
		if err != nil || frame.Code(n).String() != c[2] {
			t.Errorf("%s %s is called %v in the code", c[1], c[2], frame.Code(n))
		}
	}
}
