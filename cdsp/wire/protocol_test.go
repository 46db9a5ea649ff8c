package wire

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The examples in PROTOCOL.md are the vectors, and every vector is shown there.
func TestProtocolDocumentShowsTheVectors(t *testing.T) {
	doc, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)```hex (\\w+)\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		shown[m[1]] = strings.Join(strings.Fields(m[2]), "")
	}
	file, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")
	for _, line := range lines {
		name, hex, _ := strings.Cut(line, " ")
		if shown[name] != hex {
			t.Errorf("%s: PROTOCOL.md shows\n%s\nwant\n%s", name, shown[name], hex)
		}
	}
	if len(shown) != len(lines) || len(lines) < 10 {
		t.Errorf("%d examples, %d vectors", len(shown), len(lines))
	}
}
