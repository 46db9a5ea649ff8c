// Package integration_test runs the project's README as its readers would: every command that stands in it.
//
// Each fenced block says in its info string what becomes of it:
//
//	sh run              is run, in order, in one bash, in a copy of the tree
//	sh norun REASON     is not run, for the reason that it gives
//	text output         is what the block before prints: … is anything, the phrases between appear in this order
//	text                is prose
//
// A block of commands without a mark fails the test. The commands use the loopback only and need no root; blocks wait for
// readiness with commands of their own, and the last one stops what was started.
package integration_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	readme     = "../README.md"
	runLimit   = 5 * time.Minute // all blocks together; a first build takes most of it
	copiedFile = 4 << 20         // bytes that a file of the tree may have
)

// block is one fenced block.
type block struct {
	line int    // of its fence
	info string // such as "sh run"
	text string
}

func (b block) runs() bool { return b.info == "sh run" }

// blocks are the fenced blocks of a Markdown text, in order.
func blocks(markdown string) (out []block, err error) {
	var open *block
	for i, line := range strings.Split(markdown, "\n") {
		info, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{line: i + 1, info: strings.TrimSpace(info)}
		case fence:
			out, open = append(out, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block does not end", open.line)
	}
	return out, nil
}

var notRun = regexp.MustCompile(`^sh norun \S.+`)

// misuse says what is wrong with a block's mark, "" for nothing. before is the block before it.
func misuse(b block, before *block) string {
	lang, _, _ := strings.Cut(b.info, " ")
	switch {
	case b.runs(), notRun.MatchString(b.info), b.info == "text", b.info == "":
		return ""
	case lang == "sh":
		return "commands are marked `sh run`, or `sh norun` and the reason"
	case b.info == "text output":
		if before == nil || !before.runs() {
			return "an output follows the block that prints it, which is marked `sh run`"
		}
		return ""
	case slices.Contains([]string{"bash", "shell", "console", "shell-session", "zsh", "text"}, lang):
		return "write `sh run`, `sh norun REASON`, `text output` or `text`"
	}
	return ""
}

// lacks is the first phrase of want that got does not have in its place, "" for none.
func lacks(got, want string) string {
	for _, phrase := range strings.Split(want, "…") {
		phrase = strings.TrimSpace(phrase)
		at := strings.Index(got, phrase)
		if at < 0 {
			return phrase
		}
		got = got[at+len(phrase):]
	}
	return ""
}

func readmeBlocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	all, err := blocks(string(text))
	if err != nil {
		t.Fatalf("README.md: %v", err)
	}
	return all
}

func TestREADMEBlocksAreMarked(t *testing.T) {
	var before *block
	run := 0
	for _, b := range readmeBlocks(t) {
		if what := misuse(b, before); what != "" {
			t.Errorf("README.md:%d: block %q: %s", b.line, b.info, what)
		}
		if b.runs() {
			run++
		}
		before = &b
	}
	if run == 0 {
		t.Error("README.md has no block that is run")
	}
}

func TestREADMERuns(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("CI_ROOT") == "1" {
			t.Fatal("bash is needed to run README.md:", err)
		}
		t.Skip("bash is needed to run README.md:", err)
	}
	tree, work := shortTemp(t), shortTemp(t)
	copyTree(t, "..", tree)
	all := readmeBlocks(t)
	script := writeScript(t, work, all)
	began := time.Now()
	failure := runScript(t, bash, script, tree)
	t.Logf("README.md ran for %v", time.Since(began).Round(time.Millisecond))
	for i, b := range all {
		if !b.runs() {
			continue
		}
		got, err := os.ReadFile(outputOf(work, i))
		if _, done := os.Stat(doneOf(work, i)); err != nil || done != nil {
			t.Fatalf("README.md:%d: this block failed (%v):\n%s\nIt printed:\n%s%s", b.line, failure, b.text, got, logs(tree))
		}
		if i+1 == len(all) || all[i+1].info != "text output" {
			continue
		}
		if phrase := lacks(string(got), all[i+1].text); phrase != "" {
			t.Errorf("README.md:%d: the output does not have %q in its place:\n%s", all[i+1].line, phrase, got)
		}
	}
	if failure != nil {
		t.Errorf("README.md: every block succeeded, but what they started did not stop: %v%s", failure, logs(tree))
	}
}

// shortTemp is a temporary folder with a path that leaves room for the names of sockets.
func shortTemp(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "readme-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// made are folders of the tree that its users' commands make.
var made = []string{"bin", "out", "lab"}

// copyTree copies the sources. Reading them here also tells `go test` that its kept result depends on them.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains(made, rel)):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > copiedFile {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func outputOf(work string, i int) string { return filepath.Join(work, fmt.Sprintf("%d.out", i)) }
func doneOf(work string, i int) string   { return filepath.Join(work, fmt.Sprintf("%d.done", i)) }

// writeScript makes one script that sources each block, so that exports and jobs carry over. It leaves a block's output, and
// a mark when the block is through. In the end it waits for what the blocks have started and told to stop.
func writeScript(t *testing.T, work string, all []block) string {
	t.Helper()
	var s strings.Builder
	s.WriteString("set -euo pipefail\n")
	for i, b := range all {
		if !b.runs() {
			continue
		}
		file := filepath.Join(work, fmt.Sprintf("%d.sh", i))
		if err := os.WriteFile(file, []byte(b.text), 0o644); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&s, "source %q >%q 2>&1 </dev/null\n: >%q\n", file, outputOf(work, i), doneOf(work, i))
	}
	s.WriteString("wait\n")
	script := filepath.Join(work, "all.sh")
	if err := os.WriteFile(script, []byte(s.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return script
}

// runScript runs the script in the tree, and kills its process group in the end. It builds with the flags of the environment,
// so that what `go test` or make has built already is not built again.
func runScript(t *testing.T, bash, script, tree string) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), runLimit, fmt.Errorf("still running after %v", runLimit))
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, "--noprofile", "--norc", script)
	cmd.Dir = tree
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	if err := cmd.Start(); err != nil {
		return err
	}
	defer kill() // what a failed block left running
	err := cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// logs are what the daemons wrote to the files that README.md has them write to.
func logs(tree string) string {
	var out strings.Builder
	files, _ := filepath.Glob(filepath.Join(tree, "lab", "*", "log")) // the pattern is well-formed
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil {
			fmt.Fprintf(&out, "\n%s:\n%s", f, text)
		}
	}
	return out.String()
}

func TestREADMEMarksAreChecked(t *testing.T) {
	run := &block{info: "sh run"}
	for _, c := range []struct {
		info   string
		before *block
		ok     bool
	}{
		{"sh run", nil, true},
		{"sh norun it needs two machines", nil, true},
		{"text output", run, true},
		{"text", nil, true},
		{"yaml", nil, true},
		{"", nil, true},
		{"sh", nil, false},
		{"sh norun", nil, false},
		{"sh ran", nil, false},
		{"bash", nil, false},
		{"console", nil, false},
		{"text output", nil, false},
		{"text output", &block{info: "text"}, false},
		{"text outputs", run, false},
	} {
		if what := misuse(block{info: c.info}, c.before); (what == "") != c.ok {
			t.Errorf("block %q after %v: %q", c.info, c.before, what)
		}
	}
	if _, err := blocks("```sh run\ntrue\n"); err == nil {
		t.Error("a block without an end was taken")
	}
}

func TestREADMEOutputIsCompared(t *testing.T) {
	const got = "97.00 %  Sell medicine\n  acps://x\nOK over 2 hop(s) in 12 ms\n"
	for want, missing := range map[string]string{
		"… Sell medicine\n… OK over 2 hop(s) in …": "",
		"97.00 %  Sell medicine\n…":                "",
		"… OK over 2 … Sell medicine":              "Sell medicine", // the order counts
		"… over 3 hop(s) …":                        "over 3 hop(s)",
		"Sell medicine\nOK over":                   "Sell medicine\nOK over", // adjacent lines without …
	} {
		if phrase := lacks(got, want); phrase != missing {
			t.Errorf("%q: lacks %q, want %q", want, phrase, missing)
		}
	}
}
