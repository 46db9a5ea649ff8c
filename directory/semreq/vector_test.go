package semreq

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the vectors anew; the diff is a change of the protocol")

// checkVector holds encoded bytes against testdata/<name>.hex.
func checkVector(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(want)) != got {
		t.Errorf("%s is encoded as\n%s\nthe vector says\n%s", name, got, want)
	}
}
