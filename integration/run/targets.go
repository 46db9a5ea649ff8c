package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const allCases = 70 // rows of the table of failure cases

var caseName = regexp.MustCompile(`\.TestCase(\d\d)[^/]*$`)

// cases counts the rows whose tests pass. A row with several tests passes when all of them do.
func cases(need int) error {
	r, err := goTest(nil, "-count=1", "-run", "^TestCase", "./...")
	if err != nil {
		return err
	}
	rows := map[int]string{}
	for test, action := range r.outcome {
		m := caseName.FindStringSubmatch(test)
		if m == nil {
			continue
		}
		n, _ := strconv.Atoi(m[1])
		if before := rows[n]; before == "" || action == "fail" || action == "skip" && before == "pass" {
			rows[n] = action
		}
	}
	by := map[string][]int{}
	for n, action := range rows {
		by[action] = append(by[action], n)
	}
	for _, l := range by {
		slices.Sort(l)
	}
	fmt.Printf("passed rows: %v\n", by["pass"])
	fmt.Printf("cases: %d of %d passed, failed %v, skipped %v\n", len(by["pass"]), allCases, list(by["fail"]), list(by["skip"]))
	switch {
	case r.failed():
		return errors.New("a case failed")
	case len(by["pass"]) < need:
		return fmt.Errorf("%d rows pass, %d were asked for", len(by["pass"]), need)
	case rootPromised() && len(by["skip"]) > 0:
		return errors.New("a case was skipped although CI_ROOT=1 promises what it needs")
	}
	return nil
}

func list(l []int) []int {
	if l == nil {
		return []int{}
	}
	return l
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)

// fuzz runs every fuzz target of the tree in turn.
func fuzz(each time.Duration) error {
	type target struct{ pkg, name string }
	var targets []target
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range fuzzFunc.FindAllSubmatch(src, -1) {
			targets = append(targets, target{"./" + filepath.ToSlash(filepath.Dir(path)), string(m[1])})
		}
		return err
	})
	if err != nil {
		return err
	}
	failed := 0
	for _, t := range targets {
		run := func() ([]byte, error) {
			return exec.Command("go", "test", "-run=^$", "-fuzz=^"+t.name+"$", "-fuzztime="+each.String(), "-fuzzminimizetime=10x", t.pkg).CombinedOutput()
		}
		out, err := run()
		if err != nil && stopRace(out) {
			fmt.Printf("%s %s: go.dev/issue/75804 at its end, once more\n", t.pkg, t.name)
			out, err = run()
		}
		last := out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:]
		fmt.Printf("%s %s: %s\n", t.pkg, t.name, bytes.TrimSpace(last))
		if err != nil {
			failed++
			fmt.Printf("%s\n", out)
		}
	}
	fmt.Printf("fuzz: %d targets of %s, %d failed\n", len(targets), each, failed)
	if failed > 0 || len(targets) == 0 {
		return errors.New("fuzzing found something, or no target")
	}
	return nil
}

// stopRace says that a fuzz target failed by the coordinator of Go 1.26, which now and then reports the end of its own time
// as a failure (go.dev/issue/75804). What is found, a crash or a hang, leaves its input.
func stopRace(out []byte) bool {
	return bytes.Contains(out, []byte("\n    context deadline exceeded\n")) && !bytes.Contains(out, []byte("Failing input written to"))
}

// netns runs the scenarios that need a kernel.
func netns(known int) error {
	r, err := goTest([]string{"SCENARIOS=all"}, "-count=1", "-timeout=15m", "-run", "^Test(Scenario|Case)", "./integration/topo")
	if err != nil {
		return err
	}
	for test := range r.outcome { // steps of a scenario are not scenarios
		if strings.Contains(test, "/") && strings.Contains(test[strings.LastIndex(test, "topo."):], "/") {
			delete(r.outcome, test)
		}
	}
	passed, failed, skipped := r.count("pass"), r.count("fail")+len(r.broken), r.count("skip")
	fmt.Printf("integration: %d passed, %d failed, %d skipped\n", passed, failed, skipped)
	switch {
	case failed > 0:
		return errors.New("a scenario failed")
	case rootPromised() && (skipped > 0 || passed < known):
		return fmt.Errorf("CI_ROOT=1 promises root: %d scenarios must run, none may be skipped", known)
	}
	return nil
}

// ci runs every step in turn, the cheap and telling ones first, and counts the tests.
func ci() error {
	began := time.Now()
	passed, failed, skipped := 0, 0, 0
	tests := func(env []string, args ...string) func() error {
		return func() error {
			r, err := goTest(env, args...)
			if err != nil {
				return err
			}
			passed, skipped = passed+r.count("pass"), skipped+r.count("skip")
			failed += r.count("fail") + len(r.broken)
			if r.failed() {
				return errors.New("tests failed")
			}
			return nil
		}
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"go test ./...", tests(nil, "-count=1", "./...")},
		{"make check", command("make", "check")},
		{"race", tests([]string{"CGO_ENABLED=1"}, "-race", "-short", "./...")},
		{"make cases", command("make", "cases", "N="+knownCases)},
		{"make integration", command("make", "integration")},
		{"make fuzz", command("make", "fuzz", "FUZZTIME=2s")},
		{"systemd units", command("systemd-analyze", "verify", "systemd/gatewayd.service", "systemd/agentd.service")},
	}
	var failures []string
	for _, s := range steps {
		at := time.Now()
		fmt.Printf("=== %s\n", s.name)
		err := s.run()
		fmt.Printf("=== %s: %v in %s\n", s.name, verdict(err), time.Since(at).Round(time.Second))
		if err != nil {
			failures = append(failures, s.name)
		}
	}
	fmt.Printf("ci took %s; failed steps: %v\n", time.Since(began).Round(time.Second), failures)
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if len(failures) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failures, ", "))
	}
	return nil
}

// knownCases is how many rows of the table pass today; it only ever grows.
const knownCases = "63"

func verdict(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}

func command(name string, args ...string) func() error {
	return func() error {
		cmd := exec.Command(name, args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	}
}
