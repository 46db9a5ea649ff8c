package audit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// TestMain is the test binary again, as a process that records until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("AUDIT_TEST_CHILD"); dir != "" {
		recordForEver(dir)
		return
	}
	os.Exit(m.Run())
}

func recordForEver(dir string) {
	l, err := Open(Config{Dir: dir, Signer: SignBy(signer(1)), MaxBytes: 50_000, Every: 20})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var said sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				data := map[string]int{"w": w, "i": i}
				l.RecordSoon("soon", data)
				if err := l.Record(context.Background(), "now", data); err != nil {
					os.Exit(1)
				}
				said.Lock()
				fmt.Println(w, i)
				said.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestWhatWasRecordedSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	recorded := 0
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "AUDIT_TEST_CHILD="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 50 + 37*round {
			if !lines.Scan() {
				break
			}
			recorded++
		}
		cmd.Process.Kill()
		for lines.Scan() { // acknowledged before it died
			recorded++
		}
		cmd.Wait() // killed: its error is what we did
		found := 0
		if err := Read(dir, 0, func(r Record) error {
			if r.Kind == "now" {
				found++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if recorded < 50 || found < recorded {
			t.Fatalf("round %d: %d were acknowledged, %d are there", round, recorded, found)
		}
		recorded = found // some were written and not said
	}
	l := open(t, Config{Dir: dir})
	record(t, l, 1)
	shut(t, l)
	if r := whole(t, dir, nil); r.Files < 2 || r.Checkpoints == 0 {
		t.Errorf("%+v", r)
	}
}
