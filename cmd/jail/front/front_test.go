package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/jail/jailtest/built"
	"github.com/jail-sandbox/jail/supervisor/config"
	"github.com/jail-sandbox/jail/supervisor/message"
)

// The command lines that the front carries, and those that it leaves to the whole program.
func TestParse(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	run := func(tool string, args ...string) ask {
		return ask{path: "/v1/runs", request: request{Tool: tool, Args: args, Profile: "default"}}
	}
	exec := func(tool string, args ...string) ask {
		return ask{path: "/v1/sessions/s1/exec", request: request{Tool: tool, Args: args}}
	}
	with := func(a ask, change func(*ask)) *ask { change(&a); return &a }
	same := func(*ask) {}
	quietDiscard := func(a *ask) { a.quiet, a.request.Fate = true, "discard" }
	readonly := func(a *ask) { a.request.Profile, a.explain = "readonly", "--profile readonly " }
	elsewhere := func(a *ask) { a.request.Workspace = "/w" }
	nowhere := func(a *ask) { a.request.NoWorkspace = true }
	for line, want := range map[string]*ask{
		"run":                                  nil,
		"run --":                               nil,
		"run -":                                nil,
		"run true":                             with(run("true"), same),
		"run -- true":                          with(run("true"), same),
		"run -- true -- --json":                with(run("true", "--", "--json"), same),
		"run true --json":                      with(run("true", "--json"), same),
		"run -- --help":                        with(run("--help"), same),
		"run --help true":                      nil,
		"run -h":                               nil,
		"run --json -- true":                   nil,
		"run -t -- true":                       nil,
		"run --detach true":                    nil,
		"run --limit wall=1s -- true":          nil,
		"run --quiet --discard true":           with(run("true"), quietDiscard),
		"run --keep --keep true":               with(run("true"), func(a *ask) { a.request.Fate = "keep" }),
		"run --keep --discard true":            nil,
		"run --keep=true true":                 nil,
		"run --id x true":                      with(run("true"), func(a *ask) { a.request.ID = "x" }),
		"run --id=x -- true":                   with(run("true"), func(a *ask) { a.request.ID = "x" }),
		"run --id ../x true":                   nil,
		"run --id":                             nil,
		"run --profile readonly -- ls":         with(run("ls"), readonly),
		"run --workspace /w ls":                with(run("ls"), elsewhere),
		"run --workspace w ls":                 nil,
		"run --workspace /w --no-workspace ls": nil,
		"run --no-workspace ls":                with(run("ls"), nowhere),
		"run --=x ls":                          nil,
		"run --\xff ls":                        nil,
		"run ls \xff":                          nil,
		"session exec s1 true":                 with(exec("true"), same),
		"session exec s1 -- true a":            with(exec("true", "a"), same),
		"session exec --quiet s1 -- true":      with(exec("true"), func(a *ask) { a.quiet = true }),
		"session exec s1 --id i -- true":       with(exec("true"), func(a *ask) { a.request.ID = "i" }),
		"session exec s1 --json -- true":       nil,
		"session exec s1 --discard -- true":    nil,
		"session exec -- s1 true":              nil,
		"session exec a/b -- true":             nil,
		"session exec s1 --":                   nil,
		"session exec s1":                      nil,
		"session start":                        nil,
		"session list":                         nil,
		"sh -c true":                           nil,
		"ps":                                   nil,
		"":                                     nil,
	} {
		got, ok := parse(strings.Fields(line))
		if ok != (want != nil) {
			t.Errorf("%q: carried %v", line, ok)
			continue
		}
		if want == nil {
			continue
		}
		if want.request.ID == "" {
			if len(got.request.ID) != 26 {
				t.Errorf("%q: id %q", line, got.request.ID)
			}
			want.request.ID = got.request.ID
		}
		if len(want.request.Args) == 0 {
			want.request.Args = got.request.Args
		}
		// Under go test both outputs are one pipe.
		want.request.Dir, want.request.Inherit, want.query = dir, got.request.Inherit, got.query
		if !reflect.DeepEqual(got, *want) {
			t.Errorf("%q: %+v\nwant %+v", line, got, *want)
		}
	}
}

// What the front sends is what the whole program would send, field for field.
func TestRequest(t *testing.T) {
	mine := request{ID: "i", Tool: "t", Args: []string{"a", "b"}, Profile: "p", Dir: "/d",
		Workspace: "/w", NoWorkspace: true, Fate: "keep", Inherit: []string{"A=1"}}
	wantSame(t, mine, message.Request{ID: "i", Tool: "t", Args: []string{"a", "b"}, Profile: "p",
		Dir: "/d", Workspace: "/w", NoWorkspace: true, Fate: message.FateKeep,
		Inherit: []string{"A=1"}})
	wantSame(t, request{Tool: "t", Dir: "/"}, message.Request{Tool: "t", Dir: "/"})
	mine = request{ID: "i", Tool: "t", Args: []string{"a"}, Dir: "/d", Inherit: []string{"A=1"}}
	wantSame(t, mine, message.ExecRequest{ID: "i", Tool: "t", Args: []string{"a"}, Dir: "/d",
		Inherit: []string{"A=1"}})
}

func wantSame(t *testing.T, mine, theirs any) {
	t.Helper()
	var values [2]any
	for i, v := range []any{mine, theirs} {
		text, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(text, &values[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(values[0], values[1]) {
		t.Errorf("front %v\nwhole %v", values[0], values[1])
	}
}

// The front asks the daemon that the whole program asks, or leaves the question to it.
func TestSocket(t *testing.T) {
	for _, env := range []map[string]string{
		{}, {"JAIL_STATE": "/s"}, {"JAIL_STATE": "s"}, {"JAIL_SOCKET": "/x.sock"},
		{"JAIL_SOCKET": "x.sock"}, {"JAIL_STATE": "/s", "JAIL_SOCKET": "/x.sock"},
		{"XDG_RUNTIME_DIR": "/run/user/1"}, {"XDG_RUNTIME_DIR": "relative", "HOME": "/h"},
	} {
		for _, name := range []string{"JAIL_STATE", "JAIL_SOCKET", "XDG_RUNTIME_DIR"} {
			t.Setenv(name, env[name])
		}
		want := config.Default("/usr/bin/jail", os.Getenv).ForCaller(os.Getenv).Socket
		if got := socket(); got != want && got != "" {
			t.Errorf("%v: %s, want %s", env, got, want)
		} else if got == "" && os.Geteuid() == 0 {
			t.Errorf("%v: left to the whole program", env)
		}
	}
}

// TestFrontImports: the front links nothing that has much to initialise. Every package is here for
// a reason; a new one costs each run.
func TestFrontImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/jail-sandbox/jail/"
	want := []string{module + "cmd/jail/front", module + "cmd/jail/internal/ended",
		module + "cmd/jail/internal/inherit", module + "jail/id", module + "supervisor/wire"}
	if got := slices.Sorted(slices.Values(strings.Fields(string(out)))); !slices.Equal(got, want) {
		t.Errorf("the front links %v, want %v", got, want)
	}
	out, err = exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, heavy := range []string{"net", "net/http", "regexp", "crypto/tls", "os/exec",
		"text/template"} {
		if slices.Contains(strings.Fields(string(out)), heavy) {
			t.Errorf("the front links %s", heavy)
		}
	}
}

// Where the whole program is neither beside the front nor in libexec, the front says so.
func TestNoWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jail")
	if err := built.Program(path, []string{"CGO_ENABLED=0"}, "./cmd/jail/front"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "ps").CombinedOutput()
	want := "jail-full\" cannot be started: "
	if err == nil || !strings.Contains(string(out), want) ||
		!strings.Contains(string(out), "\njail: hint: ") {
		t.Errorf("%v: %s", err, out)
	}
}
