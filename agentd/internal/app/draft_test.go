package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/directory/acs"
)

// serveOnce answers every HTTP request on a loopback address with a body.
func serveOnce(t *testing.T, body string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
			c.Close()
		}
	}()
	return "http://" + l.Addr().String() + "/acs.json"
}

func TestReadDraft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.json")
	if err := os.WriteFile(file, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadDraft(t.Context(), file, false); err != nil || string(got) != `{"a":1}` {
		t.Errorf("a file: %q %v", got, err)
	}
	if got, err := ReadDraft(t.Context(), serveOnce(t, `{"b":2}`), true); err != nil || string(got) != `{"b":2}` {
		t.Errorf("an address of one's own: %q %v", got, err)
	}
	for name, c := range map[string]struct {
		source  string
		private bool
	}{
		"a file that is not there":           {file + "x", false},
		"an address behind the border":       {serveOnce(t, "{}"), false},
		"https to one":                       {strings.Replace(serveOnce(t, "{}"), "http://", "https://", 1), false},
		"more than a specification may be":   {serveOnce(t, strings.Repeat("x", acs.MaxSize+1)), true},
		"another scheme":                     {"file:///etc/passwd", true},
		"where a cloud keeps its secrets":    {"http://169.254.169.254/latest", true},
		"a name and password in the address": {"https://user:secret@example.com/", true},
	} {
		if got, err := ReadDraft(t.Context(), c.source, c.private); err == nil || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
}
