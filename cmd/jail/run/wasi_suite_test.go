package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// suitePolicy is what a module of the suite may have: a shadow of a directory, no variable but
// those that it is given, and nothing else.
const suitePolicy = `policy = 1
name = "suite"
[workspace]
access = "shadow"
[tools]
modules = ["**"]
[limits]
wall = "2m"
cpu_time = "20s"
cpus = 1.0
memory = "128MiB"
pids = 16
open_files = 64
output = "1MiB"
workspace = "16MiB"
workspace_files = 1000
file_size = "16MiB"
[env]
allow = ["*"]
[syscalls]
groups = ["wasi"]
`

// suiteExplained says of each module of the suite that does not pass in a jail why it does not;
// docs/conformance.md says it at length.
var suiteExplained = map[string]string{}

// suiteCase is the JSON file beside a module.
type suiteCase struct {
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"`
	Root     string            `json:"root"`
	ExitCode int               `json:"exit_code"`
	Stdout   *string           `json:"stdout"`
}

// T-128: the suite of WASI preview 1 by the installed program in real jails, over a real shadow,
// beside the stock engine with its own preview 1 on the same modules. JAIL_WASI_TESTSUITE names a
// copy of github.com/WebAssembly/wasi-testsuite, branch prod/testsuite-base. Its modules want their
// directory as "/", so each is given a custom section that asks for that layout.
func TestSuiteInJails(t *testing.T) {
	suite := os.Getenv("JAIL_WASI_TESTSUITE")
	if suite == "" {
		t.Skip("JAIL_WASI_TESTSUITE names no copy of github.com/WebAssembly/wasi-testsuite, branch prod/testsuite-base")
	}
	h := cmdtest.New(t)
	modules, err := filepath.Glob(filepath.Join(suite, "tests", "*", "testsuite", "wasm32-wasip1",
		"*.wasm"))
	if err != nil || len(modules) < 72 {
		t.Fatalf("%d modules, %v", len(modules), err)
	}
	policy, engine := filepath.Join(h.Root, "suite.toml"), filepath.Join(h.Root, "wazero")
	if err := os.WriteFile(policy, []byte(suitePolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", engine,
		"github.com/tetratelabs/wazero/cmd/wazero")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	table := "| module | jail run | plain wazero |\n|---|---|---|\n"
	ours, theirs := 0, 0
	for _, path := range modules {
		name := strings.TrimSuffix(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(path))))+
			"/"+filepath.Base(path), ".wasm")
		var c suiteCase
		if text, err := os.ReadFile(strings.TrimSuffix(path, ".wasm") + ".json"); err == nil {
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
		}
		code, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		module := filepath.Join(h.Root, "m", filepath.Base(path))
		dirs := [2]string{filepath.Join(h.Root, "in", name), filepath.Join(h.Root, "plain", name)}
		for _, dir := range append(dirs[:], filepath.Dir(module)) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if c.Root != "" {
			for _, dir := range dirs {
				if out, err := exec.Command("cp", "-a", filepath.Join(filepath.Dir(path), c.Root)+
					"/.", dir).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
		}
		if err := os.WriteFile(module, append(code, section("jail.layout", "working")...),
			0o644); err != nil {
			t.Fatal(err)
		}
		jail := []string{"run", "--quiet", "--discard", "--policy", policy}
		if c.Root == "" {
			jail = append(jail, "--no-workspace")
		} else {
			jail = append(jail, "--workspace", dirs[0])
		}
		stock := []string{"run"}
		if c.Root != "" {
			stock = append(stock, "-mount="+dirs[1]+":/")
		}
		names := []string{}
		for k := range c.Env {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			jail, stock = append(jail, "--env", k+"="+c.Env[k]), append(stock, "-env="+k+"="+
				c.Env[k])
		}
		said := c.judge(h.Command(append(append(jail, "--", module), c.Args...)...))
		plain := c.judge(exec.Command(engine, append(append(stock, path), c.Args...)...))
		if said == "" {
			ours++
		}
		if plain == "" {
			theirs++
		}
		if said != "" || plain != "" {
			table += fmt.Sprintf("| %s | %s | %s |\n", name, verdict(said), verdict(plain))
		}
		if _, known := suiteExplained[name]; (said != "") != known {
			t.Errorf("%s: %s; explained: %v", name, verdict(said), known)
		}
	}
	t.Logf("%d of %d pass in jails, %d by plain wazero; those that do not pass somewhere:\n%s",
		ours, len(modules), theirs, table)
	if ours <= theirs {
		t.Errorf("%d pass in jails, and %d by plain wazero", ours, theirs)
	}
}

func verdict(problem string) string {
	if problem == "" {
		return "passes"
	}
	return strings.ReplaceAll(problem, "|", "\\|")
}

// judge runs one test and says what is wrong, "" for nothing.
func (c suiteCase) judge(cmd *exec.Cmd) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	code := 0
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return err.Error()
		}
		code = exit.ExitCode()
	}
	switch {
	case code != c.ExitCode:
		var telling []string
		// Of Rust's panics the lines after the place say what.
		for l := range strings.Lines(said.String()) {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "note: ") &&
				!strings.HasPrefix(l, "jail: ") {
				telling = append(telling, l)
			}
		}
		return fmt.Sprintf("exit %d: %.200s", code, strings.Join(telling, " "))
	case c.Stdout != nil && *c.Stdout != out.String():
		return fmt.Sprintf("prints %.60q", out.String())
	}
	return ""
}

// section is a custom section of a module.
func section(name, content string) []byte {
	body := append([]byte{byte(len(name))}, name...)
	body = append(body, content...)
	return append([]byte{0, byte(len(body))}, body...)
}
