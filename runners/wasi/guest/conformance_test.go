package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/runners"
)

// specification is the JSON file beside a module of the suite.
type specification struct {
	Args []string          `json:"args"`
	Env  map[string]string `json:"env"`
	// The directory that is the guest's "/".
	Root     string  `json:"root"`
	ExitCode int     `json:"exit_code"`
	Stdout   *string `json:"stdout"`
}

// T-128: the suite of WASI preview 1, whose compiled modules are on the branch prod/testsuite-base:
// all 72 pass. JAIL_WASI_TESTSUITE names a copy of it.
func TestConformance(t *testing.T) {
	suite := os.Getenv("JAIL_WASI_TESTSUITE")
	if suite == "" {
		t.Skip("JAIL_WASI_TESTSUITE names no copy of github.com/WebAssembly/wasi-testsuite, " +
			"branch prod/testsuite-base")
	}
	modules, err := filepath.Glob(filepath.Join(suite, "tests", "*", "testsuite", "wasm32-wasip1",
		"*.wasm"))
	if err != nil || len(modules) < 72 {
		t.Fatalf("%d modules, %v", len(modules), err)
	}
	passed := 0
	for _, path := range modules {
		problem := conforms(t, path)
		if problem != "" {
			t.Errorf("%s: %s", path, problem)
		}
		if problem == "" {
			passed++
		}
	}
	t.Logf("%d of %d pass", passed, len(modules))
}

// conforms runs one test of the suite and says what is wrong.
func conforms(t *testing.T, path string) string {
	t.Helper()
	var spec specification
	if text, err := os.ReadFile(strings.TrimSuffix(path, ".wasm") + ".json"); err == nil {
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
	}
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inv := runners.Invocation{Args: runners.Texts{filepath.Base(path)},
		Layout: runners.LayoutRooted}
	inv.Args = append(inv.Args, spec.Args...)
	for name, value := range spec.Env {
		inv.Env = append(inv.Env, name+"="+value)
	}
	slices.Sort(inv.Env)
	if spec.Root != "" {
		root := filepath.Join(t.TempDir(), "root")
		if err := os.CopyFS(root,
			os.DirFS(filepath.Join(filepath.Dir(path), spec.Root))); err != nil {
			t.Fatal(err)
		}
		inv.Mounts = []runners.Mount{{Path: "/", Source: root, Write: true}}
	}
	r := runModule(t, inv, module, "")
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.ExitCode != spec.ExitCode:
		return fmt.Sprintf("exit code %d: ", r.ExitCode) + strings.TrimSpace(lastLines(r.stderr))
	case spec.Stdout != nil && *spec.Stdout != r.stdout:
		return "stdout: " + r.stdout
	}
	return ""
}

func lastLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-2):], " | ")
}
