package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// familyPolicy has room for three facets in every language.
const familyPolicy = `policy = 1
name = "family"
include = ["agent"]
[limits]
memory = "2GiB"
pids = 256
`

// haveFacets lets the agent in a directory have facets.
func haveFacets(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "agent.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "[capabilities]",
		"policy = \"policy.toml\"\n[capabilities]\nfacets = true", 1)
	changed = strings.Replace(changed, `deadline = "60s"`, `deadline = "10m"`, 1)
	for path, text := range map[string]string{path: changed,
		filepath.Join(dir, "policy.toml"): familyPolicy} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// An agent in each language has three facets at one time, each with a database of its own and without
// the bindings that it was not given; it aborts and deletes them, and sees one fail.
func TestFacets(t *testing.T) {
	for language := range mains {
		t.Run(language, func(t *testing.T) {
			h := cmdtest.New(t)
			a := startAgentd(t, h)
			dir := agentDir(t, language, "family")
			haveFacets(t, dir.Dir)
			h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
			for _, want := range []string{"1 1 1, 2 left, 2 1 2, failed, 42",
				// What was deleted begins anew, and what was not goes on.
				"1 2 3, 2 left, 2 1 4, failed, 42"} {
				o := h.Jail("agent", "send", "--wait", "--timeout", "10m", dir.Name, "go")
				if o.Code != 0 || o.Out != want+"\n" {
					t.Fatalf("%+v, want %s\n%+v", o, want, a.instance(dir.Name))
				}
			}
			left := 0
			entries, err := os.ReadDir(filepath.Join(h.State, "agentd", "state"))
			for _, e := range entries {
				if strings.Contains(e.Name(), ".F") {
					left++
				}
			}
			if err != nil || left != 2 {
				t.Errorf("%v: %d directories of facets, want 2", err, left)
			}
			h.Wants(h.Jail("agent", "delete", "--yes", dir.Name), 0, "")
			if entries, err := os.ReadDir(filepath.Join(h.State, "agentd", "state")); err != nil ||
				len(entries) > 0 {
				t.Errorf("after the agent was deleted: %v %v", entries, err)
			}
		})
	}
}

// A loaded program is what load returned.
type loaded struct {
	ExecutionID, Stdout, Stderr, Limit, Trap, Error, Message string
	ExitCode                                                 int
	Usage                                                    struct {
		MemoryPeak int64 `json:"memory_peak"`
	}
}

// Programs that an agent loads run once each, with their own modules and variables, and have nothing
// else: no file of another execution, no socket, no network, no binding, and no more output and time
// than their bounds.
func TestLoad(t *testing.T) {
	h := cmdtest.New(t)
	a := startAgentd(t, h)
	dir := agentDir(t, "python", "loader")
	haveFacets(t, dir.Dir)
	n := 0
	load := func(programs ...map[string]any) []loaded {
		t.Helper()
		n++
		for i, p := range programs {
			p["executionId"] = fmt.Sprintf("x%d-%d", n, i)
		}
		sent := a.send(dir.Name, fmt.Sprint("load-", n), 10*time.Minute,
			map[string]any{"programs": programs})
		if sent.State != "committed" || len(sent.Published) != 1 {
			t.Fatalf("%+v", sent)
		}
		var all []loaded
		if err := json.Unmarshal(sent.Published[0].Data, &all); err != nil {
			t.Fatalf("%v: %s", err, sent.Published[0].Data)
		}
		return all
	}
	one := func(main, text string, more ...string) map[string]any {
		modules := map[string]any{main: text}
		for i := 0; i+1 < len(more); i += 2 {
			modules[more[i]] = more[i+1]
		}
		return map[string]any{"mainModule": main, "modules": modules,
			"env": map[string]string{"ANSWER": "42"}}
	}
	guestModule, err := os.ReadFile(cmdtest.Must(guest())(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir.Dir, "guest.wasm"), guestModule, 0o644); err != nil {
		t.Fatal(err)
	}
	h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
	// It leaves a file wherever it can, and says what it finds.
	const traces = `
import os, socket
said = []
for d in ("/", "/tmp", "/agent", "/workspace", "."):
    try:
        said += [d + "/" + f for f in os.listdir(d) if f == "trace"]
        open(d + "/trace", "w").write("x")
    except OSError:
        pass
said += [e for e in os.environ if e.startswith(("JAIL", "AGENT"))]
try:
    socket.create_connection(("127.0.0.1", 3129), 1)
    said.append("a socket")
except (OSError, AttributeError):
    pass
print("found", said)
`
	got := load(
		one("main.py", "import os, other\nprint(other.f(), os.environ['ANSWER'])", "other.py",
			"def f(): return 'from another module'"),
		one("a/main.js", "print(1 + 1)"),
		one("main.py", traces), one("main.py", traces), one("main.py", traces),
		one("main.py", "print('x' * 200000)"),
		one("main.py", "raise SystemExit(7)"),
		one("m.wasm", "no module"),
		map[string]any{"mainModule": "m.wasm",
			"modules": map[string]any{"m.wasm": map[string]string{"file": "guest.wasm"}}},
		one("main.txt", "x"),
		map[string]any{"mainModule": "m.js", "modules": map[string]any{"m.js": "print('large')",
			"large.txt": map[string]int{"repeat": 5 << 20}}},
		map[string]any{"mainModule": "m.js", "modules": map[string]any{"m.js": "print('large')",
			"large.txt": map[string]int{"repeat": 17 << 20}}},
		map[string]any{"mainModule": "m.js", "modules": map[string]string{"m.js": "1"},
			"globalOutbound": "https://example.com"},
	)
	for i, want := range []func(l loaded) bool{
		func(l loaded) bool { return l.Stdout == "from another module 42\n" && l.ExitCode == 0 },
		func(l loaded) bool { return l.Stdout == "2\n" && l.Usage.MemoryPeak > 0 },
		func(l loaded) bool { return l.Stdout == "found []\n" },
		func(l loaded) bool { return l.Stdout == "found []\n" },
		func(l loaded) bool { return l.Stdout == "found []\n" },
		func(l loaded) bool { return len(l.Stdout) <= 64<<10 && l.Limit == "output" },
		func(l loaded) bool { return l.ExitCode == 7 },
		func(l loaded) bool { return l.Error == "failed" && l.Message != "" },
		// The module of an agent imports bindings, which no loaded program has.
		func(l loaded) bool { return strings.Contains(l.Message, "jail_agent_") },
		func(l loaded) bool { return l.Error == "bad_params" },
		func(l loaded) bool { return l.Stdout == "large\n" },
		func(l loaded) bool { return l.Error == "too_large" },
		func(l loaded) bool { return l.Error == "bad_params" },
	} {
		if i >= len(got) || !want(got[i]) {
			t.Errorf("program %d: %+v", i, got)
			break
		}
	}
	// Nothing is left of them.
	entries, err := os.ReadDir(filepath.Join(h.State, "agentd", "state"))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
	if os.Getenv("JAIL_TEST_LONG") == "" {
		return
	}
	for range 50 {
		var programs []map[string]any
		for range 20 {
			programs = append(programs, one("main.py", traces))
		}
		for _, l := range load(programs...) {
			if l.Stdout != "found []\n" {
				t.Fatalf("%+v", l)
			}
		}
	}
}
