package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/jail/agent"
	"github.com/jail-sandbox/jail/cmd/jail/internal/cli"
	runner "github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/problem"
)

// fake is a jail-agentd that notes what it is asked, and answers as it is told.
type fake struct {
	state string
	asked []string
	body  []byte
	// answers by method and path; those not named are {}.
	answers map[string]any
}

func start(t *testing.T) *fake {
	t.Helper()
	// The path of a socket has few bytes.
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fake{state: dir, answers: map[string]any{}}
	l, err := net.Listen("unix", filepath.Join(dir, "agentd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	b.ReadFrom(r.Body)
	request := r.Method + " " + r.URL.RequestURI()
	f.asked, f.body = append(f.asked, request), b.Bytes()
	switch answer := f.answers[request].(type) {
	case nil:
		fmt.Fprint(w, "{}")
	case *problem.Error:
		w.WriteHeader(http.StatusNotFound)
		json.NewEncoder(w).Encode(agentapi.Problem{Error: answer})
	case string:
		fmt.Fprint(w, answer)
	default:
		json.NewEncoder(w).Encode(answer)
	}
}

// outcome is how a command ended.
type outcome struct {
	code     int
	out, err string
}

func (f *fake) run(stdin string, args ...string) outcome {
	var out, errs bytes.Buffer
	env := &cli.Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Environ: []string{"JAIL_STATE=" + f.state}, Exe: filepath.Join(f.state, "jail")}
	cmd := agent.New(env)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code := env.Exit(cmd.ExecuteContext(context.Background()))
	return outcome{code, out.String(), errs.String()}
}

func (f *fake) last() string {
	if len(f.asked) == 0 {
		return ""
	}
	return f.asked[len(f.asked)-1]
}

// Each command makes its request, and prints the answer.
func TestCommands(t *testing.T) {
	f := start(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := agentapi.Agent{Name: "a", ID: "agent:u:a", State: agentapi.Dormant, Dir: "/d",
		Digest: "sha256:1", Manifest: json.RawMessage(`{"module":"a.wasm","profile":"agent",` +
			`"handle":"a","capabilities":{"storage":true,"tools":["search/*"]},` +
			`"tools":{"workspace":"/srv"}}`), Tokens: agentapi.Tokens{Input: 5, Limit: 9},
		Instances: []agentapi.Instance{{Instance: "agent-a-main", Agent: "a", Channel: "main",
			State: agentapi.Dormant, Committed: 7, Waiting: 1, Dead: 2, Note: "\x1b[2Jwell",
			Alarms: []agentapi.Alarm{{Name: "x", At: at}, {EveryMS: 1000, Pending: 8}}}}}
	f.answers["GET /api/agents"] = []agentapi.Agent{one}
	f.answers["GET /api/agents/a"], f.answers["GET /api/agents/a/do/status"] = one, one
	f.answers["POST /api/agents/a/send"] = agentapi.Sent{ID: "i1", Seq: 8, State: agentapi.Committed,
		Published: []agentapi.Publication{{Data: json.RawMessage(`"hello\u001b[31m"`)},
			{Data: json.RawMessage(`{"text":"two"}`)}, {Data: json.RawMessage(`{"n": 3}`)}}}
	f.answers["POST /api/agents/a/do/tick"] = agentapi.Sent{ID: "i2"}
	f.answers["GET /api/agents/a/log?after=0"] = `{"n":1,"time":"2026-01-02T03:04:05Z","channel":` +
		`"main","kind":"new","id":"x","type":"message","data":"one\nline"}` + "\n\n" +
		`{"n":2,"channel":"main","kind":"complete","id":"x","type":"message"}` + "\n"
	f.answers["GET /api/agents/a/events"] = agentapi.Events{Waiting: []agentapi.Event{{Event: runner.Event{
		Seq: 8, Type: "message", Source: "user", Data: json.RawMessage(`"hi"`)}}},
		Dead: []agentapi.Event{{Event: runner.Event{Seq: 3, Attempt: 5}, Reason: "it raised"}}}
	f.answers["POST /api/agents/a/events/3/retry"] = agentapi.Retry{Seq: 9}
	f.answers["GET /api/agents/a/do/memory/export"] = `{"agent":"agent:u:a"}`
	memory := filepath.Join(t.TempDir(), "m.json")
	if err := os.WriteFile(memory, []byte(`{"goals":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args, request, body, out string
	}{
		{"list", "GET /api/agents", "", "a     main     dormant  1        2     -"},
		{"list --json", "GET /api/agents", "", `"channel": "main"`},
		{"show a", "GET /api/agents/a", "", "runs         a.wasm"},
		{"show a", "GET /api/agents/a", "", "may use      storage"},
		{"show a", "GET /api/agents/a", "", "may use      tools search/* on a shadow of /srv\n"},
		{"status a", "GET /api/agents/a/do/status", "", `\x1b[2Jwell`},
		{"status a", "GET /api/agents/a/do/status", "", "tokens today 5 in, 0 out of 9"},
		{"status a", "GET /api/agents/a/do/status", "", "waits as event 8, every 1s"},
		{"send a hi", "POST /api/agents/a/send", `{"content":"hi"}`, "i1\n"},
		{"send --data --type t --channel c --id x a [1]", "POST /api/agents/a/send",
			`{"content":[1],"channel":"c","type":"t","id":"x"}`, "i1\n"},
		{"send --wait --timeout 3s a hi", "POST /api/agents/a/send",
			`{"content":"hi","wait_ms":3000}`, "hello\\x1b[31m\ntwo\n{\"n\":3}\n"},
		{"send a -", "POST /api/agents/a/send", `{"content":"from stdin"}`, "i1\n"},
		{"tick a", "POST /api/agents/a/do/tick", "", "i2\n"},
		{"log a", "GET /api/agents/a/log?after=0", "", "main  one\nline\n"},
		{"log a", "GET /api/agents/a/log?after=0", "", "main (complete)\n"},
		{"log --json a", "GET /api/agents/a/log?after=0", "", `"data":"one\nline"`},
		{"events a", "GET /api/agents/a/events", "", `8    waiting`},
		{"events a", "GET /api/agents/a/events", "", `it raised`},
		{"retry a 3", "POST /api/agents/a/events/3/retry", "", "9\n"},
		{"pause a", "POST /api/agents/a/pause", "", ""},
		{"resume a", "POST /api/agents/a/resume", "", ""},
		{"delete --yes a", "DELETE /api/agents/a", "", ""},
		{"export a", "GET /api/agents/a/do/memory/export", "", `"agent": "agent:u:a"`},
		{"import --channel c a " + memory, "POST /api/agents/a/do/memory/import?channel=c",
			`{"goals":[]}`, ""},
	} {
		got := f.run("from stdin\n", strings.Fields(tt.args)...)
		if got.code != 0 || f.last() != tt.request || !strings.Contains(got.out, tt.out) ||
			tt.body != "" && string(f.body) != tt.body {
			t.Errorf("%s: %+v\nasked %s %s", tt.args, got, f.last(), f.body)
		}
	}
}

// Names of agents are completed, and directories where one is wanted.
func TestCompletion(t *testing.T) {
	f := start(t)
	f.answers["GET /api/agents"] = []agentapi.Agent{{Name: "one", State: "dormant"}, {Name: "two"}}
	for args, want := range map[string]string{"send ": "one\tdormant\ntwo", "status ": "one\tdormant",
		"add ": ":16", "new --lang ": "python\njs\ngo"} {
		got := f.run("", append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// What is wrong is said in one sentence before anything is asked.
func TestWrong(t *testing.T) {
	f := start(t)
	f.answers["GET /api/agents/gone"] = &problem.Error{Code: problem.NotFound,
		Message: `there is no agent "gone"`, Hint: "jail agent list"}
	f.answers["POST /api/agents/a/send"] = agentapi.Sent{ID: "i", Seq: 4, State: agentapi.Dead,
		Error: "it raised ValueError"}
	f.answers["POST /api/agents/b/send"] = agentapi.Sent{ID: "i", Seq: 4, State: agentapi.Waiting}
	empty, taken := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"main.py": "print(1)\n", "agent.toml": "agent = 1\n" +
		"type = \"agent\"\nname = \"codex-responder\"\nmodule = \"python/python3\"\n"} {
		if err := os.WriteFile(filepath.Join(taken, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args string
		code int
		err  string
	}{
		{"show gone", 127, `there is no agent "gone"`},
		{"show Gone", 2, `"Gone" is no name of 1 to 63 lower-case letters`},
		{"show", 2, "NAME is missing"},
		{"send a", 2, "TEXT is missing"},
		{"send --data a {", 2, `"{" is no JSON`},
		{"send --wait --timeout 1h a x", 2, "--timeout 1h0m0s: want 0s to 10m0s"},
		{"send --wait a x", 1, `could not handle event 4: it raised ValueError`},
		{"send --wait b x", 1, `event 4 of agent "b" is not handled yet: it is still in the inbox`},
		{"retry a x", 2, `"x" is no number of an event`},
		{"delete a", 2, "there is nobody to ask"},
		{"import a " + empty + "/none", 127, "no such file"},
		{"check " + empty, 127, "holds no agent: there is no agent.toml"},
		{"check " + taken + "/main.py", 127, "main.py is no directory"},
		{"check " + empty + "/none", 127, "there is no directory"},
		{"check " + taken, 1, `"codex-responder" is the name of a built-in agent`},
		{"add " + taken, 2, `"codex-responder" is the name of a built-in agent`},
		{"add " + empty, 127, "holds no agent"},
		{"new --lang perl x", 2, "--lang perl: want python, js, go, rust, c"},
		{"new A", 2, "is no name"},
		{"nosuch", 2, `has no command "nosuch"`},
	} {
		if got := f.run("", strings.Fields(tt.args)...); got.code != tt.code ||
			!strings.Contains(got.err, tt.err) {
			t.Errorf("%s: %+v", tt.args, got)
		}
	}
	// Without one that answers, and without the program.
	f.state = t.TempDir()
	if got := f.run("", "list"); got.code != 125 ||
		!strings.Contains(got.err, "build or install jail-agentd beside jail") {
		t.Errorf("without jail-agentd: %+v", got)
	}
}

// A new agent in each language passes the check, or asks to be built.
func TestNew(t *testing.T) {
	f := start(t)
	t.Chdir(t.TempDir())
	for language, built := range map[string]bool{"python": true, "js": true, "go": false,
		"rust": false, "c": false} {
		got := f.run("", "new", "--lang", language, language)
		if got.code != 0 || !strings.Contains(got.out, "jail agent add "+language) {
			t.Errorf("new %s: %+v", language, got)
		}
		got = f.run("", "check", language)
		if built && (got.code != 0 || !strings.Contains(got.out, "bindings PUBSUB, STORAGE, HOST")) ||
			!built && (got.code != 1 || !strings.Contains(got.err, "make -C "+language+" builds it")) {
			t.Errorf("check %s: %+v", language, got)
		}
	}
	if got := f.run("", "new", "python"); got.code != 2 ||
		!strings.Contains(got.err, "python is there already") {
		t.Errorf("twice: %+v", got)
	}
	if got := f.run("", "add", "python"); got.code != 0 || f.last() != "POST /api/agents" ||
		!strings.Contains(string(f.body), `/python"}`) {
		t.Errorf("add: %+v, %s", got, f.body)
	}
}

// TestReach: check, add and show name all that an agent reaches by its bindings.
func TestReach(t *testing.T) {
	f := start(t)
	t.Chdir(t.TempDir())
	if got := f.run("", "new", "all"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	text := `agent = 1
type = "agent"
name = "all"
module = "python/python3"
args = ["main.py"]
tools = { workspace = "/srv/web" }
capabilities = { ai = true, facets = true, tools = ["search/*", "js/*"], gatekeepers = ["crm"] }
ai.roles = { fast = "anthropic/m1", own = { url = "http://10.0.0.1", form = "chat", model = "m2" } }
`
	if err := os.WriteFile("all/agent.toml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := `channels main; bindings PUBSUB, AI, HOST; no network; profile agent
may use model m1 of https://api.anthropic.com as fast, with your credential anthropic
may use model m2 of http://10.0.0.1 as own
may use facets
may use tools search/*, js/* on a shadow of /srv/web
may use gatekeepers crm
`
	for _, command := range []string{"check", "add"} {
		if got := f.run("", command, "all"); got.code != 0 || !strings.HasSuffix(got.out, want) {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
