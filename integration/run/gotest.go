package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// event is one line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
}

// report is what one run of `go test` came to.
type report struct {
	outcome map[string]string // package + "." + test -> pass, fail, skip; subtests included
	broken  []string          // packages that failed without a failing test: they do not build, or panicked
}

func (r *report) count(action string) (n int) {
	for _, a := range r.outcome {
		if a == action {
			n++
		}
	}
	return n
}

func (r *report) failed() bool { return r.count("fail") > 0 || len(r.broken) > 0 }

// goTest runs `go test -json` with args. It shows the output of what fails, the reason of what skips, and a line for each
// package.
func goTest(env []string, args ...string) (*report, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &report{outcome: map[string]string{}}
	said := map[string]*strings.Builder{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // build errors of older toolchains come as text
			continue
		}
		r.take(e, said)
	}
	cmd.Wait() // its failures are in the events
	if len(r.outcome) == 0 && len(r.broken) == 0 {
		return r, fmt.Errorf("go test %s ran no test", strings.Join(args, " "))
	}
	return r, nil
}

func (r *report) take(e event, said map[string]*strings.Builder) {
	key := e.Package + "." + e.Test
	switch e.Action {
	case "output", "build-output":
		if said[key] == nil {
			said[key] = &strings.Builder{}
		}
		said[key].WriteString(e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Test != "" {
		r.outcome[key] = e.Action
		if e.Action != "pass" && said[key] != nil {
			fmt.Print(said[key].String())
		}
		delete(said, key)
		return
	}
	fmt.Printf("%-5s %s\n", e.Action, e.Package)
	if e.Action == "fail" {
		r.packageFailed(e.Package, said[key])
	}
}

func (r *report) packageFailed(pkg string, said *strings.Builder) {
	if said != nil {
		fmt.Print(said.String())
	}
	for k, a := range r.outcome {
		if a == "fail" && strings.HasPrefix(k, pkg+".") {
			return
		}
	}
	r.broken = append(r.broken, pkg)
}
