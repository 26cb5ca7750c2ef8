package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// After 2>&1 the tool has one pipe, so that what it wrote comes in the order in which it was
// written: to a pipe and to a file, of modules, scripts and programs of the host, in a run and in a
// session, by the front and by the whole program. Both outputs together have the limit, and --json
// keeps them apart.
func TestJoinedOutput(t *testing.T) {
	h := newHost(t)
	h.daemon()
	const times = 200
	id := h.session("--discard", "--profile", "build")
	shared := h.session("--shared-engine")
	want := strings.Repeat("to stdout\nto stderr\n", times)
	both := []string{h.probe, "both", "200"}
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
			piped := h.program(filepath.Join(h.bin, program), args...)
			// One writer is one pipe: os/exec.
			piped.Stdout, piped.Stderr = &text, &text
			if o := h.run(piped); o.code != 0 || text.String() != want {
				t.Errorf("%s by %s, a pipe: exit code %d\n%s", name, program, o.code, text.String())
			}
			file, err := os.Create(filepath.Join(h.root, "output"))
			if err != nil {
				t.Fatal(err)
			}
			filed := h.program(filepath.Join(h.bin, program), args...)
			filed.Stdout, filed.Stderr = file, file
			o := h.run(filed)
			file.Close()
			if got, err := os.ReadFile(file.Name()); o.code != 0 || err != nil ||
				string(got) != want {
				t.Errorf("%s by %s, a file: exit code %d, %v\n%s", name, program, o.code, err, got)
			}
		}
		if r := h.jail(args...); r.code != 0 || r.out != strings.Repeat("to stdout\n", times) ||
			r.err != strings.Repeat("to stderr\n", times) {
			t.Errorf("%s, two pipes: %+v", name, r)
		}
	}
	h.stopSession(id, 0)
	// The control: what ran there had no jail of its own.
	h.wants(h.exec(shared, "--id", "joined", "--", h.probe, "args"), 0, "")
	if h.engineOf("joined") == "" {
		t.Error("the invocation ran in no shared engine")
	}
	h.stopSession(shared, 0)

	var text strings.Builder
	limited := h.command("run", "--quiet", "--discard", "--limit", "output=1KiB", "--", h.probe,
		"both", "200")
	limited.Stdout, limited.Stderr = &text, &text
	// A tool that is quick ends by itself before the limit ends it.
	if h.run(limited); text.String() != want[:1<<10] {
		t.Errorf("the limit: %d bytes\n%s", text.Len(), text.String())
	}

	object := h.command("run", "--discard", "--json", "--", h.probe, "both", "1")
	text.Reset()
	object.Stdout, object.Stderr = &text, &text
	if o := h.run(object); o.code != 0 || !strings.Contains(text.String(),
		`"stdout":"to stdout\n","stderr":"to stderr\n"`) {
		t.Errorf("--json: %+v\n%s", o, text.String())
	}
}
