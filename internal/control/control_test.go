package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/frame"
)

type ask struct {
	Name string `json:"name"`
}

func serve(t *testing.T, calls map[string]http.HandlerFunc) (*Client, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sub", "c.sock")
	mux := http.NewServeMux()
	for p, h := range calls {
		mux.HandleFunc("POST "+p, h)
	}
	s, err := Listen(path, mux)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(ctx)
	})
	return NewClient(path), path
}

func TestCalls(t *testing.T) {
	c, path := serve(t, map[string]http.HandlerFunc{
		"/hello": Handle(func(_ context.Context, in ask) (map[string]string, error) {
			if in.Name == "" {
				return nil, frame.Errorf(frame.PolicyDenied, "nobody is greeted")
			}
			return map[string]string{"hello": in.Name}, nil
		}),
		"/broken": Handle(func(context.Context, struct{}) (int, error) { return 0, errors.New("disk on fire") }),
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", info.Mode(), err)
	}
	var out map[string]string
	if err := c.Call(t.Context(), "/hello", ask{"you"}, &out); err != nil || out["hello"] != "you" {
		t.Error(out, err)
	}
	if err := c.Call(t.Context(), "/hello", ask{}, &out); frame.CodeOf(err) != frame.PolicyDenied || !strings.Contains(err.Error(), "nobody is greeted") {
		t.Errorf("the code must come through: %v", err)
	}
	if err := c.Call(t.Context(), "/broken", struct{}{}, &out); frame.CodeOf(err) != frame.Internal || !strings.Contains(err.Error(), "disk on fire") {
		t.Error(err)
	}
	if err := c.Call(t.Context(), "/hello", map[string]int{"nmae": 1}, &out); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("unknown member: %v", err)
	}
	if err := c.Call(t.Context(), "/nothing", ask{}, &out); err == nil {
		t.Error("a call that is not there")
	}
	if err := c.Call(t.Context(), "/hello", ask{strings.Repeat("x", maxBody)}, &out); frame.CodeOf(err) != frame.ReqInvalid {
		t.Errorf("body over its limit: %v", err)
	}
}

func TestNobodyAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.sock")
	err := NewClient(path).Call(t.Context(), "/x", struct{}{}, nil)
	if frame.CodeOf(err) != frame.UpstreamFailed || !strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}

func TestOneDaemonASocket(t *testing.T) {
	_, path := serve(t, nil)
	if _, err := Listen(path, http.NewServeMux()); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a live daemon's socket was taken: %v", err)
	}
	dead := filepath.Join(t.TempDir(), "dead.sock")
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(dead, http.NewServeMux())
	if err != nil {
		t.Fatalf("what a dead daemon left is in the way: %v", err)
	}
	s.Close(t.Context())
}

func TestStreamAndAwait(t *testing.T) {
	n := 0
	c, _ := serve(t, map[string]http.HandlerFunc{
		"/count": func(w http.ResponseWriter, _ *http.Request) {
			for i := range 3 {
				json.NewEncoder(w).Encode(i)
			}
		},
		"/ready": Handle(func(context.Context, struct{}) (int, error) { n++; return n, nil }),
	})
	var got []string
	if err := c.Stream(t.Context(), "/count", struct{}{}, func(m json.RawMessage) error { got = append(got, string(m)); return nil }); err != nil || len(got) != 3 {
		t.Error(got, err)
	}
	missing := func(v int) string {
		if v < 3 {
			return "more"
		}
		return ""
	}
	if v, err := Await(t.Context(), c, "/ready", 10*time.Second, missing); err != nil || v != 3 {
		t.Error(v, err)
	}
	if _, err := Await(t.Context(), c, "/ready", time.Millisecond, func(int) string { return "the moon" }); err == nil || !strings.Contains(err.Error(), "the moon") {
		t.Error(err)
	}
}
