package main

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"agentgw/gatewayd/internal/admin"
	"agentgw/internal/control"
	"agentgw/internal/daemon"
)

// taker is a gateway that takes every line whose entry is {"good":…}.
func taker(t *testing.T) (socket string, calls *[]admin.ImportRequest) {
	t.Helper()
	calls = new([]admin.ImportRequest)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agents/import", control.Handle(func(_ context.Context, r admin.ImportRequest) (*admin.Imported, error) {
		*calls = append(*calls, r)
		out := &admin.Imported{}
		for _, l := range r.Lines {
			if strings.Contains(string(l.Entry), "good") {
				out.Registered++
				if strings.Contains(string(l.Entry), "odd") {
					out.Warnings = append(out.Warnings, admin.WarnedLine{Line: l.Line, AIC: "B", What: "acs.skills[0].tags[0]: odd"})
				}
			} else {
				out.Rejected = append(out.Rejected, admin.RejectedLine{Line: l.Line, AIC: "A", Why: "acs: no"})
			}
		}
		return out, nil
	}))
	socket = filepath.Join(t.TempDir(), "s")
	s, err := control.Listen(socket, mux)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return socket, calls
}

// runImport runs the verb over a text.
func runImport(t *testing.T, socket, text string) (out, errs string, code int) {
	t.Helper()
	cli, root := daemon.NewCLI("gatewayd", "")
	root.AddCommand(importAgentsCmd(&options{cli}))
	var o, e bytes.Buffer
	root.SetOut(&o)
	root.SetErr(&e)
	root.SetIn(strings.NewReader(text))
	root.SetArgs([]string{"import", "-", "--control", socket})
	code = daemon.Execute(root, &cli.Output)
	return o.String(), e.String(), code
}

func TestImportReadsLines(t *testing.T) {
	socket, calls := taker(t)
	long := `{"good":"` + strings.Repeat("x", admin.MaxImportLine) + `"}`
	out, errs, code := runImport(t, socket, "{\"good\":1}\n\n  \n{\"bad\":\"<&>\"}\r\n"+long+"\nnot JSON\n{\"good\":2}")
	if code != daemon.ExitFailed || !strings.Contains(out, "5 lines in") || !strings.Contains(out, "2 registered, 0 updated, 0 unchanged, 3 rejected") {
		t.Errorf("%q, exit %d", out, code)
	}
	for _, want := range []string{"line 4: A: acs: no", "line 5: more than 196608 octets", "line 6: it is no JSON"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q has not %q", errs, want)
		}
	}
	if len(*calls) != 1 || string((*calls)[0].Lines[1].Entry) != `{"bad":"<&>"}` || (*calls)[0].Lines[2].Line != 7 {
		t.Errorf("calls %+v", *calls)
	}
	out, errs, code = runImport(t, socket, "{\"good\":\"odd\"}")
	if code != daemon.ExitDone || !strings.Contains(out, "0 rejected, 1 warnings") || errs != "line 1: B: warning: acs.skills[0].tags[0]: odd\n" {
		t.Errorf("a warning: %q, %q, exit %d", out, errs, code)
	}
	if out, _, code := runImport(t, socket, ""); code != daemon.ExitDone || !strings.Contains(out, "0 lines") {
		t.Errorf("nothing: %q, exit %d", out, code)
	}
}

// Calls have bounded sizes, whatever the file has.
func TestImportCallsAreBounded(t *testing.T) {
	socket, calls := taker(t)
	line := `{"good":"` + strings.Repeat("<", 100<<10) + "\"}\n"
	if out, errs, code := runImport(t, socket, strings.Repeat(line, 20)+strings.Repeat("{\"good\":1}\n", 1500)); code != daemon.ExitDone || !strings.Contains(out, "1520 registered") {
		t.Errorf("%q, %q, exit %d", out, errs, code)
	}
	for _, c := range *calls {
		size := 0
		for _, l := range c.Lines {
			size += len(l.Entry)
		}
		if size > admin.ImportBatch || len(c.Lines) > admin.MaxImportBatch {
			t.Errorf("%d lines of %d octets in one call", len(c.Lines), size)
		}
	}
	if len(*calls) < 5 {
		t.Errorf("%d calls", len(*calls))
	}
}

func TestImportThatBreaksOffSaysWhatToDo(t *testing.T) {
	_, errs, code := runImport(t, filepath.Join(t.TempDir(), "nobody"), "{\"good\":1}\n")
	if code != daemon.ExitUnreachable {
		t.Errorf("%q, exit %d", errs, code)
	}
}
