package cmd_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/runners/wasi/wasitest"
)

// TestScripts runs what a user could have typed, each script with a state directory of its own and
// a private daemon for each command.
func TestScripts(t *testing.T) {
	cmdtest.NeedBuilt(t)
	modules := buildModules(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			bin, err := filepath.Abs(cmdtest.Built)
			if err != nil {
				return err
			}
			e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			// Not below the workspaces: a directory that holds jail's own state can have no shadow.
			state, err := os.MkdirTemp("", "jail-state-")
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(state) })
			if err := cmdtest.CompileSlowly(state); err != nil {
				return err
			}
			compiled := []string{modules["PROBE"], cmdtest.Tree("bin/bundles/core-utils/toybox.wasm")}
			// These run Python.
			if name := filepath.Base(e.WorkDir); name == "script-devices" || name == "script-refused" {
				compiled = append(compiled, cmdtest.Tree("bin/bundles/python/python.wasm"))
			}
			if err := cmdtest.Compiled(state, compiled...); err != nil {
				return err
			}
			e.Setenv("JAIL_STATE", state)
			for name, path := range modules {
				e.Setenv(name, path)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and wants an exact exit code: exits CODE COMMAND ARG….
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		got = strconv.Itoa(e.ExitCode())
	} else if err != nil {
		got = err.Error()
	}
	if got != args[0] {
		ts.Fatalf("%v: exit %s, want %s", args[1:], got, args[0])
	}
}

// buildModules makes the modules that the scripts run, and returns their paths by the names of
// variables.
func buildModules(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	probe := filepath.Join(dir, "probe.wasm")
	if err := built.Program(probe, []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"},
		"-ldflags=-s -w", "github.com/jail-sandbox/jail/cmd/testdata/probe"); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(probe)
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{"PROBE": probe}
	for name, content := range map[string][]byte{
		"SOCKET": wasitest.Module{
			Types: []wasitest.Type{{Params: []byte{wasitest.I32, wasitest.I32, wasitest.I32},
				Results: []byte{wasitest.I32}}, {}},
			Imports: []wasitest.Import{{Module: "wasi_snapshot_preview1", Name: "sock_open"}},
			Funcs:   []wasitest.Func{{Type: 1}},
			Memory:  []byte{0, 1},
			Exports: []wasitest.Export{{Name: "_start", Index: 1}, {Name: "memory", Kind: 2}},
		}.Encode(),
		"TRAP":      wasitest.Command([]byte{0x00}).Encode(), // unreachable
		"COMPONENT": {0, 'a', 's', 'm', 0x0d, 0, 1, 0},
		"TRUNCATED": whole[:1000],
	} {
		modules[name] = filepath.Join(dir, name+".wasm")
		if err := os.WriteFile(modules[name], content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return modules
}
