package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// After 2>&1 the tool has one pipe, so that what it wrote comes in the order in which it was
// written: to a pipe and to a file, of modules, scripts and programs of the host, in a run and in a
// session, by the front and by the whole program. Both outputs together have the limit, and --json
// keeps them apart.
func TestJoinedOutput(t *testing.T) {
	h := cmdtest.NewForEngines(t)
	h.Daemon()
	const times = 200
	id := h.Session("--discard", "--profile", "build")
	shared := h.Session("--shared-engine")
	want := strings.Repeat("to stdout\nto stderr\n", times)
	both := []string{h.Probe, "both", "200"}
	native := []string{"/bin/sh", "-c",
		`i=0; while [ $i -lt 200 ]; do echo to stdout; echo to stderr >&2; i=$((i+1)); done`}
	for name, args := range map[string][]string{
		"module": append([]string{"run", "--quiet", "--discard", "--"}, both...),
		"program": append([]string{"run", "--quiet", "--discard", "--profile", "build", "--"},
			native...),
		"script":     {"sh", "--quiet", "--discard", "-c", native[2]},
		"in session": append([]string{"session", "exec", "--quiet", id, "--"}, native...),
		"in engine":  append([]string{"session", "exec", "--quiet", shared, "--"}, both...),
	} {
		for _, program := range []string{"jail", "jail-full"} {
			var text strings.Builder
			piped := h.Program(filepath.Join(h.Bin, program), args...)
			// One writer is one pipe: os/exec.
			piped.Stdout, piped.Stderr = &text, &text
			if o := h.Run(piped); o.Code != 0 || text.String() != want {
				t.Errorf("%s by %s, a pipe: exit code %d\n%s", name, program, o.Code, text.String())
			}
			file, err := os.Create(filepath.Join(h.Root, "output"))
			if err != nil {
				t.Fatal(err)
			}
			filed := h.Program(filepath.Join(h.Bin, program), args...)
			filed.Stdout, filed.Stderr = file, file
			o := h.Run(filed)
			file.Close()
			if got, err := os.ReadFile(file.Name()); o.Code != 0 || err != nil ||
				string(got) != want {
				t.Errorf("%s by %s, a file: exit code %d, %v\n%s", name, program, o.Code, err, got)
			}
		}
		if r := h.Jail(args...); r.Code != 0 || r.Out != strings.Repeat("to stdout\n", times) ||
			r.Err != strings.Repeat("to stderr\n", times) {
			t.Errorf("%s, two pipes: %+v", name, r)
		}
	}
	h.StopSession(id, 0)
	// The control: what ran there had no jail of its own.
	h.Wants(h.Exec(shared, "--id", "joined", "--", h.Probe, "args"), 0, "")
	if h.EngineOf("joined") == "" {
		t.Error("the invocation ran in no shared engine")
	}
	h.StopSession(shared, 0)

	var text strings.Builder
	limited := h.Command("run", "--quiet", "--discard", "--limit", "output=1KiB", "--", h.Probe,
		"both", "200")
	limited.Stdout, limited.Stderr = &text, &text
	// A tool that is quick ends by itself before the limit ends it.
	if h.Run(limited); text.String() != want[:1<<10] {
		t.Errorf("the limit: %d bytes\n%s", text.Len(), text.String())
	}

	object := h.Command("run", "--discard", "--json", "--", h.Probe, "both", "1")
	text.Reset()
	object.Stdout, object.Stderr = &text, &text
	if o := h.Run(object); o.Code != 0 || !strings.Contains(text.String(),
		`"stdout":"to stdout\n","stderr":"to stderr\n"`) {
		t.Errorf("--json: %+v\n%s", o, text.String())
	}
}
