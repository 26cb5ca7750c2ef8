package run_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/runnertest"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// TestRunners: a module and a program of the host, built from the same source, are the same to who
// runs them.
func TestRunners(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	wasm, program := runnertest.Build(t, h.Root, "wasip1", "wasm"), runnertest.Build(t, h.Root,
		"linux", runtime.GOARCH)
	policy := filepath.Join(h.Root, "program.toml")
	text := "policy = 1\nname = \"program\"\ninclude = [\"base\"]\n[workspace]\naccess = \"shadow\"\ncommit = \"ask\"\n[[mount]]\nsource = \"" + program + "\"\ntarget = \"/opt/tool\"\naccess = \"read+exec\"\n" +
		"[tools]\nnative = [\"/opt/tool\"]\n[syscalls]\ngroups = [\"native\"]\n"
	if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// The module is compiled once, which has a limit of its own that a busy machine may reach.
	for n := 0; ; n++ {
		o := h.Jail("run", "--no-workspace", "--", wasm, "exit", "0")
		if o.Code == 0 {
			break
		}
		if n == 4 || !strings.Contains(o.Err, "compiling it takes more than") {
			t.Fatalf("first run: %+v", o)
		}
	}
	t.Run("wasi", func(t *testing.T) {
		runnertest.Suite(t, runner(h, "--profile", "default", "--", wasm))
	})
	t.Run("native", func(t *testing.T) {
		runnertest.Suite(t, runner(h, "--policy", policy, "--", "/opt/tool"))
	})
}

// runner runs what the flags end with.
func runner(h *cmdtest.Host, flags ...string) runnertest.Runner {
	return func(t testing.TB, r runnertest.Run) runnertest.Result {
		dir, err := os.MkdirTemp(h.Root, "workspace-")
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range r.Files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		args := []string{"run", "--json", "--discard", "--workspace", dir}
		for _, l := range r.Limits {
			args = append(args, "--limit", l)
		}
		for _, e := range r.Env {
			args = append(args, "--env", e)
		}
		cmd := exec.Command(filepath.Join(h.Bin, "jail"),
			append(append(args, flags...), r.Args...)...)
		cmd.Dir, cmd.Env, cmd.Stdin = h.Root, append(h.Env, "SECRET="+os.Getenv("SECRET")),
			strings.NewReader(r.Stdin)
		out, err := cmd.Output()
		var got struct {
			ExitCode       int `json:"exit_code"`
			Signal         string
			Stdout, Stderr message.Output
			Truncated      bool
			Limit          *struct{ Name string }
			Changes        struct{ Added, Modified, Deleted int }
			Error          *struct{ Message string }
		}
		if jsonErr := json.Unmarshal(out, &got); jsonErr != nil {
			t.Fatalf("%v, %v: %s", jsonErr, err, out)
		}
		if got.Error != nil {
			t.Errorf("%q: %s", r.Args, got.Error.Message)
		}
		result := runnertest.Result{Code: got.ExitCode, Signal: got.Signal,
			Truncated: got.Truncated, Stdout: string(got.Stdout), Stderr: string(got.Stderr),
			Added: got.Changes.Added, Modified: got.Changes.Modified, Deleted: got.Changes.Deleted}
		if got.Limit != nil {
			result.Limit = got.Limit.Name
		}
		return result
	}
}
