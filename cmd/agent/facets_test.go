package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// familyPolicy is that of docs/agents/facets.md, enough for three facets at one time in each language.
const familyPolicy = `policy = 1
name = "family"
include = ["agent"]
[limits]
memory = "512MiB"
pids = 64
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
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "python", "js")
	a := startAgentd(t, h)
	for language := range mains {
		t.Run(language, func(t *testing.T) {
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
			states := func(of string) []string {
				t.Helper()
				left, err := filepath.Glob(filepath.Join(h.State, "agentd", "state",
					"agent-"+dir.Name+of))
				if err != nil {
					t.Fatal(err)
				}
				return left
			}
			if left := states("-*.F*"); len(left) != 2 {
				t.Errorf("directories of facets, want 2: %q", left)
			}
			h.Wants(h.Jail("agent", "delete", "--yes", dir.Name), 0, "")
			if left := states("-*"); len(left) > 0 {
				t.Errorf("after the agent was deleted: %q", left)
			}
		})
	}
}

// Somebody else's code runs in a facet, as docs/agents/facets.md shows: each version in the place of
// the one before, without a network, and with the bindings alone that the facet was given.
func TestPlugin(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "python")
	a := startAgentd(t, h)
	dir := agentDir(t, "python", "plugin")
	haveFacets(t, dir.Dir)
	const class = "class Plugin(jail_agent.Agent):"
	shown, err := os.ReadFile(cmdtest.Tree("docs/agents/facets.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(shown), class)
	text, _, _ = strings.Cut(text, "```")
	if main, err := os.ReadFile(filepath.Join(dir.Dir, "main.py")); err != nil || text == "" ||
		!strings.Contains(string(main), class+text) {
		t.Errorf("docs/agents/facets.md shows another plug-in, %v: %s", err, text)
	}
	h.Wants(h.Jail("agent", "add", dir.Dir), 0, "")
	const look = `
import jail_agent, socket
def run(n):
    said = []
    for binding, method, sql in (("STORAGE", "exec", "SELECT 1"), ("PUBSUB", "roster", None),
                                 ("AI", "listRoles", None)):
        try:
            jail_agent.call(binding, method, sql=sql)
            said.append("")
        except jail_agent.Error as e:
            said.append(e.code)
    try:
        socket.create_connection(("192.0.2.1", 80), 1)
        said.append("a network")
    except (OSError, AttributeError):
        said.append("no network")
    return said
`
	for i, c := range []struct {
		bindings []string
		want     string
	}{{[]string{}, `[4,30,["no_binding","no_binding","no_binding","no network"]]`},
		{[]string{"STORAGE"}, `[4,30,["","no_binding","no_binding","no network"]]`}} {
		sent := a.send(dir.Name, fmt.Sprint("look-", i), 10*time.Minute, map[string]any{
			"bindings": c.bindings, "texts": []string{"def run(n): return n + 1",
				"def run(n): return n * 10", look}})
		if len(sent.Published) != 1 || string(sent.Published[0].Data) != c.want {
			t.Errorf("%v: %+v, want %s", c.bindings, sent, c.want)
		}
	}
}

// A loaded program is what load returned.
type loaded struct {
	ExecutionID, Stdout, Stderr, Limit, Trap, Error, Message string
	ExitCode                                                 int
	Usage                                                    struct {
		CPUMS      int64 `json:"cpu_ms"`
		MemoryPeak int64 `json:"memory_peak"`
	}
}

func (l loaded) used() bool { return l.Usage.CPUMS > 0 && l.Usage.MemoryPeak > 0 }

// Programs that an agent loads run once each, with their own modules and variables, and have nothing
// else: no file of another execution, no socket, no network, no binding but those that they are
// given, and no more output and time than their bounds.
func TestLoad(t *testing.T) {
	h := cmdtest.New(t)
	cmdtest.CompiledBundles(h, "python", "js")
	crm := gatekeeper(t, h, "askpython")
	a := startAgentd(t, h)
	dir := agentDir(t, "python", "loader")
	haveFacets(t, dir.Dir)
	mayUse(t, dir.Dir, "crm")
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
		if bytes.Contains(sent.Published[0].Data, []byte(h.Root)) {
			t.Errorf("the agent sees a path of the host: %s", sent.Published[0].Data)
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
	compiled(t, h, cmdtest.Must(guest())(t))
	guestModule, err := os.ReadFile(cmdtest.Must(guest())(t))
	if err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile(cmdtest.Tree("runners/wasi/guestlib/agentlib/js/jail_agent.js"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"guest.wasm": guestModule, "jail_agent.js": library}
	bombs := map[string]cmdtest.Bomb{}
	for name, b := range cmdtest.Bombs() {
		// Only the last one is compiled, for as long as that may take.
		if name == "nested blocks" || name == "br_table" ||
			name == "branches" && os.Getenv("JAIL_TEST_LONG") != "" {
			file := strings.ReplaceAll(name, " ", "-") + ".wasm"
			bombs[file], files[file] = b, b.Code(b.Size).Encode()
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir.Dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
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
	other := one("main.py", traces+"import other\nprint(other.f(), os.environ['ANSWER'])\n"+
		"raise SystemExit(7)", "other.py", "def f(): return 'from another module'")
	large := one("a/main.js", "print(1 + 1)")
	large["modules"].(map[string]any)["large.txt"] = map[string]int{"repeat": 5 << 20}
	got := load(other,
		one("main.py", traces+"print('x' * 200000)"),
		large,
		map[string]any{"mainModule": "m.wasm",
			"modules": map[string]any{"m.wasm": map[string]string{"file": "guest.wasm"}}},
	)
	for i, want := range []func(l loaded) bool{
		func(l loaded) bool {
			return l.Stdout == "found []\nfrom another module 42\n" && l.ExitCode == 7
		},
		func(l loaded) bool {
			return strings.HasPrefix(l.Stdout, "found []\nx") && len(l.Stdout) <= 64<<10 &&
				l.Limit == "output" && l.used()
		},
		func(l loaded) bool { return l.Stdout == "2\n" && l.used() },
		// The module of an agent imports bindings, which no loaded program has.
		func(l loaded) bool { return strings.Contains(l.Message, "jail_agent_") },
	} {
		if i >= len(got) || !want(got[i]) {
			t.Errorf("program %d: %+v", i, got)
			break
		}
	}
	for name, b := range bombs {
		got := load(map[string]any{"mainModule": "m.wasm",
			"modules": map[string]any{"m.wasm": map[string]string{"file": name}}})
		if !regexp.MustCompile(b.Words).MatchString(got[0].Message) {
			t.Errorf("%s: %+v, want %q", name, got[0], b.Words)
		}
	}
	const others = `
import jail_agent, os
print(jail_agent.call("NOTES", "add", text="from Python"))
for other in ("HOST", "STORAGE", "PUBSUB", "AI", "OTHER"):
    try:
        print(jail_agent.call(other, "listRoles"))
    except jail_agent.Error as e:
        print(other, e.code)
print(os.environ["ANSWER"], [e for e in os.environ if e.startswith("AGENT")])
`
	const gated = `
import jail_agent
read = {"table": "customers", "where": {"id": 1}}
row = jail_agent.call("CRM", "read", method="rows", args=read)["rows"][0]
change = {"table": "customers", "key": {"id": 1}, "set": {"city": "Zug"}}
made = jail_agent.call("CRM", "propose", action="update", args=change, words="a program says so")
print(row["city"], made["state"], made["id"])
`
	bound := func(main, text, library string) map[string]any {
		p := one(main, text)
		p["modules"].(map[string]any)[library] = map[string]string{"file": library}
		p["env"] = map[string]any{"ANSWER": "42", "NOTES": map[string]string{"facet": "notes"},
			"CRM": map[string]string{"gatekeeper": "crm"}}
		return p
	}
	got = load(bound("main.py", others, "jail_agent.py"),
		bound("main.js", "import { call } from \"./jail_agent.js\";\n"+
			"print(JSON.stringify(call(\"NOTES\", \"add\", { text: \"from JavaScript\" })));",
			"jail_agent.js"),
		bound("main.py", gated, "jail_agent.py"),
		bound("main.py", "print('x' * 200000)", "jail_agent.py"))
	if got[0].Stdout != "['from Python']\nHOST no_binding\nSTORAGE no_binding\nPUBSUB no_binding\n"+
		"AI no_binding\nOTHER no_binding\n42 []\n" ||
		got[1].Stdout != "[\"from Python\",\"from JavaScript\"]\n" {
		t.Errorf("%+v", got)
	}
	if got[3].Limit != "output" || len(got[3].Stdout) != 64<<10 || !got[3].used() {
		t.Errorf("a program with bindings that writes too much: %d bytes, limit %q, %+v",
			len(got[3].Stdout), got[3].Limit, got[3].Usage)
	}
	// The program read the row, and what it proposed waits for a person.
	action, ok := strings.CutPrefix(strings.TrimSpace(got[2].Stdout), "Bern pending ")
	if !ok || city(t, crm) != "Bern" {
		t.Fatalf("%+v, and the row has %s", got[2], city(t, crm))
	}
	h.Wants(h.Jail("approvals", "approve", action), 0, "")
	cmdtest.Eventually(t, "the agent knows that the action of its program is applied", func() bool {
		i, ok := a.look(dir.Name)
		return ok && i.Note == "applied Zug"
	})
	// Nothing is left of them but what the agent and its facet have.
	entries, err := os.ReadDir(filepath.Join(h.State, "agentd", "state"))
	if err != nil || len(entries) != 2 {
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
