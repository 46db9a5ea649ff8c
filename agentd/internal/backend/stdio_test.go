package backend

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"agentgw/internal/frame"
)

// The test binary again, as a local agent: what it does is in the context that it gets.
func TestMain(m *testing.M) {
	switch how := os.Getenv("AGENT_TEST_CHILD"); how {
	case "":
		os.Exit(m.Run())
	case "1":
	default:
		misbehave(how)
		return
	}
	if os.Getenv("SECRET") != "" {
		fmt.Fprintln(os.Stderr, "the daemon's environment leaked")
		os.Exit(3)
	}
	lines := bufio.NewScanner(os.Stdin)
	cancelled := map[uint64]bool{}
	for lines.Scan() {
		var m struct {
			ID     uint64
			Method string
			Params struct {
				ID      uint64
				Context struct{ Do string }
			}
		}
		json.Unmarshal(lines.Bytes(), &m)
		if m.Method == "aci/cancel" {
			cancelled[m.Params.ID] = true
			fmt.Fprintln(os.Stderr, "cancelled")
			continue
		}
		switch m.Params.Context.Do {
		case "echo":
			fmt.Printf(`{"jsonrpc":"2.0","method":"aci/progress","params":{"id":%d,"ItemStateUpdates":[{"itemID":"a","state":1}],"note":"half"}}`+"\n", m.ID)
			fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":{"done":true}}`+"\n", m.ID)
		case "echo and die":
			fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":{"done":true}}`+"\n", m.ID)
			os.Exit(7)
		case "fail":
			fmt.Printf(`{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"cannot"}}`+"\n", m.ID)
		case "die":
			os.Exit(7)
		case "babble":
			fmt.Println("this is no JSON")
		case "how many cancelled":
			fmt.Printf(`{"jsonrpc":"2.0","id":%d,"result":%d}`+"\n", m.ID, len(cancelled))
		}
	}
}

func start(t *testing.T, maxRun int) *Stdio {
	t.Helper()
	t.Setenv("SECRET", "of the daemon")
	b := New(Config{
		Command: []string{os.Args[0]}, Env: map[string]string{"AGENT_TEST_CHILD": "1"}, MaxRun: maxRun, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	awaitRunning(t, b)
	return b
}

func awaitRunning(t *testing.T, b *Stdio) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); b.State() != "running"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the agent does not start")
		}
	}
}

func deliver(ctx context.Context, b *Stdio, do string, progress func(Progress)) (string, error) {
	out, err := b.Deliver(ctx, Delivery{Context: json.RawMessage(`{"do":"` + do + `"}`)}, progress)
	return string(out), err
}

func TestDeliver(t *testing.T) {
	b := start(t, 4)
	var said []Progress
	out, err := deliver(t.Context(), b, "echo", func(p Progress) { said = append(said, p) })
	if err != nil || out != `{"done":true}` {
		t.Fatal(out, err)
	}
	if len(said) != 1 || said[0].Note != "half" || said[0].ItemStateUpdates[0] != (ItemState{"a", 1}) {
		t.Errorf("progress %+v", said)
	}
	if _, err := deliver(t.Context(), b, "fail", nil); frame.CodeOf(err) != frame.Internal || !strings.Contains(err.Error(), "cannot") {
		t.Error(err)
	}
}

func TestDeadlineCancelsTheWork(t *testing.T) {
	b := start(t, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := deliver(ctx, b, "sleep", nil); frame.CodeOf(err) != frame.Deadline {
		t.Error(err)
	}
	if out, err := deliver(t.Context(), b, "how many cancelled", nil); err != nil || out != "1" {
		t.Errorf("the agent was not told: %s %v", out, err)
	}
}

func TestLimit(t *testing.T) {
	b := start(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := deliver(ctx, b, "sleep", nil)
		ended <- err
	}()
	for end := time.Now().Add(10 * time.Second); b.find(1) == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if _, err := deliver(t.Context(), b, "echo", nil); frame.CodeOf(err) != frame.Overloaded {
		t.Errorf("a second delivery at a limit of one: %v", err)
	}
	cancel()
	if err := <-ended; frame.CodeOf(err) != frame.Cancelled {
		t.Error(err)
	}
}

func TestAgentThatDiesIsStartedAgain(t *testing.T) {
	for _, do := range []string{"die", "babble"} {
		b := start(t, 4)
		if _, err := deliver(t.Context(), b, do, nil); frame.CodeOf(err) != frame.UpstreamFailed {
			t.Errorf("%s: %v", do, err)
		}
		awaitRunning(t, b)
		if out, err := deliver(t.Context(), b, "echo", nil); err != nil || out == "" {
			t.Errorf("after %s: %s %v", do, out, err)
		}
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	b := New(Config{Command: []string{"/nonexistent/agent"}, MaxRun: 1, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.Run(ctx)
	if _, err := deliver(t.Context(), b, "echo", nil); frame.CodeOf(err) != frame.UpstreamFailed || !strings.Contains(err.Error(), "/nonexistent/agent") {
		t.Error(err)
	}
}

// Whoever asks why a program is stopped is told how it ended, not that it did.
func TestStoppedProgramSaysWhy(t *testing.T) {
	b := New(Config{Command: []string{"sh", "-c", "exit 3"}, MaxRun: 1, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := b.Why(); err != nil && strings.Contains(err.Error(), "exit status 3") {
			return
		} else if time.Now().After(end) {
			t.Fatalf("it says %v", err)
		}
	}
}
