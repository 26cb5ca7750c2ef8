package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/manifest"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/fetchrun"
	"github.com/jail-sandbox/jail/supervisor/message"
	"github.com/jail-sandbox/jail/supervisor/models"
	"github.com/jail-sandbox/jail/supervisor/toolsession"
	"github.com/jail-sandbox/jail/supervisor/transcript"
)

// A world is all that a task works with: a session whose tools run in a directory of the test's,
// with a git that only says what a task wants to hear, and a model's host and a forge that answer
// with scripts.
type world struct {
	t    *testing.T
	root string
	task manifest.Task
	// steps are the model's replies by how many there were: a text, lines of NAME {INPUT} for calls,
	// "hold" for none, or NNN!TEXT for a status.
	steps []string
	asked int
	// git has the exit codes of scripts that fail; push is that of the push.
	git  map[string]int
	push int
	// id is that of the session, broken the error of its invocations.
	id     string
	broken error
	// decision is the state of a proposal, and decided that after a wait; empty for no decision.
	decision, decided approvals.State
	// answer is what the forge says, with its status.
	status int
	answer string
	deaf   bool

	mu        sync.Mutex
	commits   []string
	pushes    []message.Request
	proposals []api.ProposeRequest
	withdrawn int
	discarded bool
	sent      []fetchrun.Request
	said      []Progress
	events    []transcript.Event
	during    func(call int)
	runs      int
}

// hash is the name of a commit that consists of one character.
func hash(c string) string { return strings.Repeat(c, 40) }

func newWorld(t *testing.T, steps ...string) *world {
	t.Helper()
	at := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: filepath.Join(dir, "workspace"), steps: steps, git: map[string]int{}, id: "one",
		decision: approvals.Approved, status: 201,
		answer: `{"html_url":"https://forge.example.com/acme/web/pull/1"}`}
	if err := os.Mkdir(w.root, 0o755); err != nil {
		t.Fatal(err)
	}
	w.task = manifest.Task{ID: "task-1", Repo: at("https://forge.example.com/acme/web.git"),
		Credential: "forge", Branch: "agent/task-1", Prompt: "mend the sum\nplease", Profile: "worker",
		Timeout: 30 * time.Minute,
		Model:   manifest.TaskModel{Name: "fast", Role: manifest.Role{Form: "chat", Model: "m"}},
		Forge: manifest.Forge{Kind: manifest.Gitea, API: at("https://forge.example.com"),
			Credential: "forge-api"},
		Coordinator: manifest.Coordinator{URL: at("https://coordinator.example.com"),
			Credential: "coordinator"}}
	return w
}

// do does the task.
func (w *world) do(ctx context.Context) Outcome {
	o := Options{Task: w.task, Sender: w, Asker: w, Log: w, Session: "abcdefghijklmnop",
		Say: func(p Progress) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.said = append(w.said, p)
		}}
	worker := newWorker(o, w)
	worker.root = w.root
	return worker.do(ctx)
}

// statuses are those that were told, each once in a row.
func (w *world) statuses() (all []string) {
	for _, p := range w.said {
		all = append(all, p.Status)
	}
	return slices.Compact(all)
}

// told are the bodies that the coordinator got at a path below /internal/.
func (w *world) told(path string) (all []map[string]any) {
	w.t.Helper()
	for _, r := range w.sent {
		if r.URL.String() != "https://coordinator.example.com/internal/"+path {
			continue
		}
		var body map[string]any
		if err := json.Unmarshal(r.Body, &body); err != nil || r.Method != "POST" ||
			r.Credential != "coordinator" {
			w.t.Errorf("%s %s with %q: %q, %v", r.Method, r.URL, r.Credential, r.Body, err)
		}
		all = append(all, body)
	}
	return all
}

func (w *world) open(context.Context, message.SessionRequest) (session, error) { return w, nil }
func (w *world) approvals() queue                                              { return w }
func (w *world) ID() string                                                    { return w.id }
func (w *world) Name() string                                                  { return "task-task-1-abcdefgh" }

func (w *world) discard(context.Context, string) error {
	w.discarded = true
	return nil
}

func (w *world) run(_ context.Context, r message.Request, in io.Reader, _,
	errOut io.Writer) (message.Result, error) {
	w.pushes = append(w.pushes, r)
	if w.push != 0 {
		fmt.Fprint(errOut, "the server refused it")
	}
	_, err := io.Copy(io.Discard, in)
	return message.Result{ExitCode: w.push}, err
}

// Run is an invocation of the session.
func (w *world) Run(ctx context.Context, c toolsession.Call) (o toolsession.Outcome, err error) {
	w.runs++
	script := ""
	if c.Tool == "sh" && strings.HasPrefix(c.Args[1], hardenedGit) {
		script = c.Args[1]
	} else if w.during != nil {
		w.during(w.runs)
	}
	// Where git fetches there is a network, and nowhere else.
	if fetches := script == cloneScript || script == submoduleScript; fetches ==
		slices.Contains(c.Limits, noNetwork) {
		w.t.Errorf("fetches %v under the limits %q: %q", fetches, c.Limits, c.Args)
	}
	if err := errors.Join(w.broken, ctx.Err()); err != nil {
		return o, err
	}
	o.Out.Most, o.ErrOut.Most = c.Most, c.Most
	if c.Most == 0 {
		o.Out.Most, o.ErrOut.Most = toolsession.MaxShown, toolsession.MaxShown
	}
	if script != "" {
		o.ExitCode = w.gitSays(&o.Out, script, c.Args[3:])
		return o, nil
	}
	if wall, ok := strings.CutPrefix(c.Limits[0], "wall="); ok {
		d, err := time.ParseDuration(wall)
		if err != nil {
			return o, err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, c.Tool, c.Args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Cwd, strings.NewReader(string(c.In)), &o.Out,
		&o.ErrOut
	// The pipes of what outlives the shell do not hold it up.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); cmd.ProcessState == nil {
		return o, err
	}
	o.ExitCode = cmd.ProcessState.ExitCode()
	if ctx.Err() != nil {
		o.Limit = &message.LimitHit{Name: "wall"}
	}
	return o, nil
}

// gitSays is what a script of git's commands says, and its exit code.
func (w *world) gitSays(out io.Writer, script string, args []string) int {
	name := map[string]string{cloneScript: "clone", submoduleScript: "submodule",
		commitScript: "commit"}[script]
	if code := w.git[name]; code != 0 {
		return code
	}
	switch name {
	case "clone":
		fmt.Fprintf(out, "commit %s refs/remotes/origin/HEAD refs/remotes/origin/main\n", hash("a"))
	case "commit":
		if args[0] != hash("a") {
			w.t.Errorf("a commit of %q", args)
		}
		names := ""
		err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				names += strings.TrimPrefix(path, w.root+"/") + "\x00"
			}
			return err
		})
		if err != nil {
			w.t.Error(err)
		}
		if names != "" {
			w.commits = append(w.commits, args[1])
			fmt.Fprintf(out, "%s\n%s\x00packs", hash("c"), names)
		}
	case "submodule":
	default:
		w.t.Errorf("script %q", script)
	}
	return 0
}

func (w *world) Propose(_ context.Context, r api.ProposeRequest) (approvals.Action, error) {
	w.proposals = append(w.proposals, r)
	return approvals.Action{ID: "one", State: w.decision, Summary: r.Type}, nil
}

func (w *world) Wait(ctx context.Context, id string) (approvals.Action, error) {
	if w.decided == "" {
		<-ctx.Done()
		return approvals.Action{}, ctx.Err()
	}
	return approvals.Action{ID: id, State: w.decided, Summary: "it"}, nil
}

func (w *world) Withdraw(context.Context, string) (approvals.Action, error) {
	w.withdrawn++
	return approvals.Action{}, nil
}

func (w *world) Carry(_ context.Context, id, _ string,
	do func(approvals.Action) (string, error)) (approvals.Action, error) {
	outcome, err := do(approvals.Action{ID: id})
	return approvals.Action{ID: id, Outcome: outcome}, err
}

// Send is the forge and the coordinator.
func (w *world) Send(_ context.Context, r fetchrun.Request) (*fetchrun.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, r)
	status, answer := w.status, w.answer
	if strings.HasPrefix(r.URL.Path, "/internal/") {
		if w.deaf {
			return nil, errors.New("connection refused")
		}
		status, answer = 200, ""
	}
	return &fetchrun.Response{Status: status, Body: io.NopCloser(strings.NewReader(answer))}, nil
}

// Ask is the model's host.
func (w *world) Ask(ctx context.Context, _ manifest.Role, _ string,
	body []byte) (*models.Response, error) {
	var asked struct {
		Messages  []struct{ Role string }
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	if asked.MaxTokens != 8192 {
		w.t.Errorf("max_tokens is %d", asked.MaxTokens)
	}
	n := 0
	for _, m := range asked.Messages {
		if m.Role == "assistant" {
			n++
		}
	}
	w.asked++
	step := w.steps[min(n, len(w.steps)-1)]
	if step == "hold" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	status := 200
	if number, text, ok := strings.Cut(step, "!"); ok {
		if _, err := fmt.Sscan(number, &status); err != nil {
			return nil, err
		}
		return &models.Response{Status: status, Body: io.NopCloser(strings.NewReader(text))}, nil
	}
	type o = map[string]any
	var delta o
	if !strings.Contains(step, " {") {
		delta = o{"content": step}
	} else {
		var calls []o
		for i, line := range strings.Split(step, "\n") {
			name, input, _ := strings.Cut(line, " ")
			calls = append(calls, o{"index": i, "id": fmt.Sprint("c", n, "-", i),
				"function": o{"name": name, "arguments": input}})
		}
		delta = o{"tool_calls": calls}
	}
	text, err := json.Marshal(o{"choices": []o{{"delta": delta, "finish_reason": "stop"}}})
	return &models.Response{Status: status,
		Body: io.NopCloser(strings.NewReader("data: " + string(text) + "\n\ndata: [DONE]\n\n"))}, err
}

// Append is the log.
func (w *world) Append(_ context.Context, events ...transcript.Event) error {
	w.events = append(w.events, events...)
	return nil
}

// write puts a file where the repository is.
func (w *world) write(name, text string) {
	w.t.Helper()
	at := filepath.Join(w.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755),
		os.WriteFile(at, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}
