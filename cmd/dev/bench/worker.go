package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/audit"
	"github.com/jail-sandbox/jail/supervisor/worker"
)

const workerPart = "worker"

const (
	// tasksAtOnce are done at one time.
	tasksAtOnce = 20
	// forgeUser and forgeToken are the credential of the forge.
	forgeUser, forgeToken = "worker", "a-token-of-the-bench"
)

// A forge is a host of git repositories over TLS that makes pull requests as Gitea does, and the host
// of a model. The model calls the tools of which the prompt has a line each, and then no more.
type forge struct {
	dir     string
	backend string
	srv     *httptest.Server
}

// newForge starts a forge with one repository, below an empty directory.
func newForge(ctx context.Context, dir string) (*forge, error) {
	f := &forge{dir: dir}
	out, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	f.backend = filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	bare, tree := filepath.Join(dir, "acme/web.git"), filepath.Join(dir, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return nil, err
	}
	for n := range 100 {
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprint("f", n)), []byte("a line\n"), 0o644); err != nil {
			return nil, err
		}
	}
	err = errors.Join(f.git(ctx, dir, "init", "-q", "--bare", bare),
		f.git(ctx, bare, "config", "http.receivepack", "true"), f.git(ctx, tree, "init", "-q"),
		f.git(ctx, tree, "add", "-A"), f.git(ctx, tree, "commit", "-qm", "first"),
		f.git(ctx, tree, "push", "-q", bare, "HEAD:refs/heads/main"))
	if err != nil {
		return nil, err
	}
	f.srv = httptest.NewTLSServer(f)
	return f, os.WriteFile(filepath.Join(dir, "roots.pem"), pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: f.srv.Certificate().Raw}), 0o644)
}

// authorization is the credential of the forge in a header.
var authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(forgeUser+":"+forgeToken))

// git calls git as people do, outside of any jail.
func (f *forge) git(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=bench",
		"-c", "user.email=bench@example.com", "-c", "init.defaultBranch=main",
		"-c", "http.extraHeader=Authorization: " + authorization}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_SSL_CAINFO="+filepath.Join(f.dir, "roots.pem"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %q: %w: %s", args, err, out)
	}
	return nil
}

// ServeHTTP is the forge.
func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != authorization:
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		f.model(w, r)
	case strings.HasPrefix(r.URL.Path, "/api/"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"html_url":"https://forge.example.com/acme/web/pulls/1"}`)
	default:
		(&cgi.Handler{Path: f.backend, Env: []string{"GIT_PROJECT_ROOT=" + f.dir,
			"GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + forgeUser, "GIT_CONFIG_NOSYSTEM=1"},
			Stderr: io.Discard}).ServeHTTP(w, r)
	}
}

// A said is a message of a conversation with the model.
type said struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// model answers a conversation.
func (f *forge) model(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Messages []said }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	prompt, answered := "", false
	for _, m := range asked.Messages {
		if m.Role == "user" {
			prompt = m.Content
		}
		answered = answered || m.Role == "assistant"
	}
	type object = map[string]any
	delta := object{"content": "done"}
	if !answered {
		var calls []object
		for i, line := range strings.Split(prompt, "\n") {
			name, input, _ := strings.Cut(line, " ")
			calls = append(calls, object{"index": i, "id": fmt.Sprint("c", i),
				"function": object{"name": name, "arguments": input}})
		}
		delta = object{"tool_calls": calls}
	}
	text, err := json.Marshal(object{"choices": []object{{"delta": delta, "finish_reason": "stop"}}})
	if err != nil {
		panic("bench: bug: " + err.Error())
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", text)
}

// post sends a request to the forge and reads its answer.
func (f *forge) post(ctx context.Context, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", f.srv.URL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", authorization)
	res, err := f.srv.Client().Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: status %d", path, res.StatusCode)
	}
	return err
}

// taskPrompt has the model write a file and run a command.
const taskPrompt = `write_file {"path":"new","content":"x\n"}` + "\n" + `run_command {"command":"true"}`

// plain does what a task does, without a jail: the same git, requests and tools.
func (f *forge) plain() once {
	n := 0
	return func(ctx context.Context) (time.Duration, error) {
		n++
		dir := filepath.Join(f.dir, fmt.Sprint("plain-", n))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		ask := func(all ...said) error {
			return f.post(ctx, "/v1/chat/completions", map[string]any{"messages": all})
		}
		user, branch := said{"user", taskPrompt}, fmt.Sprint("plain/", n)
		start := time.Now()
		for _, step := range []func() error{
			func() error {
				return f.git(ctx, dir, "clone", "-q", "--no-tags", f.srv.URL+"/acme/web.git", ".")
			},
			func() error { return f.git(ctx, dir, "checkout", "-q", "-b", branch) },
			func() error { return ask(user) },
			func() error { return os.WriteFile(filepath.Join(dir, "new"), []byte("x\n"), 0o644) },
			func() error { return exec.CommandContext(ctx, "sh", "-c", "true").Run() },
			func() error { return ask(user, said{"assistant", ""}) },
			func() error { return f.git(ctx, dir, "add", "-A") },
			func() error { return f.git(ctx, dir, "commit", "-qm", "new") },
			func() error { return f.git(ctx, dir, "push", "-q", "origin", branch) },
			func() error { return f.post(ctx, "/api/v1/repos/acme/web/pulls", struct{}{}) },
		} {
			if err := step(); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

// task writes the file of a task, and returns its name.
func (f *forge) task(id, prompt string) (string, error) {
	file := filepath.Join(f.dir, id+".toml")
	port := f.srv.Listener.Addr().(*net.TCPAddr).Port
	return file, os.WriteFile(file, fmt.Appendf(nil, "task = 1\nid = %q\n"+
		"repo = \"https://forge.example.com:%d/acme/web.git\"\ncredential = \"forge\"\n"+
		"branch = %q\nprompt = %q\n[forge]\nkind = \"gitea\"\n", id, port, "agent/"+id, prompt), 0o644)
}

// settings writes what a daemon and the commands of its user have to know of the forge.
func (f *forge) settings(state string) error {
	port := f.srv.Listener.Addr().(*net.TCPAddr).Port
	token := filepath.Join(f.dir, "token")
	return errors.Join(os.MkdirAll(state, 0o755), os.WriteFile(token, []byte(forgeToken), 0o600),
		os.WriteFile(filepath.Join(state, "models.toml"), fmt.Appendf(nil, "[roles.fast]\n"+
			"url = \"https://forge.example.com:%d\"\nmodel = \"m\"\ncredential = \"forge\"\n", port), 0o600),
		os.WriteFile(filepath.Join(state, "fetch.toml"), fmt.Appendf(nil, "roots = %q\n"+
			"[[credential]]\nname = \"forge\"\nkind = \"basic\"\nuser = %q\nfile = %q\n[[internal]]\n"+
			"host = \"forge.example.com\"\naddresses = [\"127.0.0.1\"]\nports = [%d]\nresolve = false\n",
			filepath.Join(f.dir, "roots.pem"), forgeUser, token, port), 0o600))
}

// workers measures whole tasks of jail worker beside the same work without a jail, and tasks that are
// done at one time and try to take more than their limits.
func workers(ctx context.Context, bin string, rounds int, stdout, stderr io.Writer) (err error) {
	bin, host, err := settle(bin)
	if err != nil {
		return err
	}
	b := &bed{bin: bin, state: workerPart, pool: 8}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.makeDir(); err != nil {
		return err
	}
	if err := b.plant(); err != nil {
		return err
	}
	f, err := newForge(ctx, b.path("forge"))
	if err != nil {
		return err
	}
	defer f.srv.Close()
	if err := f.settings(b.path(b.state)); err != nil {
		return err
	}
	if err := b.startDaemon(ctx); err != nil {
		return err
	}
	agents := &agentBed{bin: bin, dir: b.path(b.state),
		client: agentapi.NewClient(b.path(b.state, "agentd.sock"))}
	if _, err := agents.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agents.stop()) }()
	program := filepath.Join(bin, "jail")
	n := 0
	var wrong error
	whole := b.process(b.state, func() []string {
		n++
		file, err := f.task(fmt.Sprint("one-", n), taskPrompt)
		wrong = errors.Join(wrong, err)
		return []string{program, "worker", "run", file}
	})
	less := &subject{name: "plain git, the model and the tools", once: rested(f.plain())}
	more := &subject{name: "`jail worker run` of the same task, whole process", once: rested(whole)}
	err = measure(ctx, []*subject{less, more}, rounds, stderr)
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	if err := tellMedians(stdout, host, rounds); err != nil {
		return err
	}
	if err := medians(less, more, "what the task adds, of each pair (to reach: 500)").write(stdout); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "bench: %d tasks at one time\n", tasksAtOnce)
	t, err := b.greedyTasks(ctx, f, more.took.median())
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	return t.write(stdout)
}

// spin keeps two processors busy for two seconds, where it gets them.
const spin = "timeout 2 sh -c 'while :; do :; done' & timeout 2 sh -c 'while :; do :; done'; wait"

// greedy is the prompt of a task whose commands start more processes than the profile worker lets a
// task have, and take more of the processors. hog takes more memory, too.
func greedy(hog bool) string {
	commands := []string{"for a in 1 2 3 4 5 6 7 8 9 10; do for b in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; " +
		"do sleep 2 & done; done; wait", spin}
	if hog {
		commands = append(commands, "dd if=/dev/zero of=/dev/null bs=3G count=1 iflag=fullblock")
	}
	lines := []string{`write_file {"path":"new","content":"x\n"}`}
	for _, c := range commands {
		text, err := json.Marshal(map[string]any{"command": c, "timeout": 600})
		if err != nil {
			panic("bench: bug: " + err.Error())
		}
		lines = append(lines, "run_command "+string(text))
	}
	return strings.Join(lines, "\n")
}

// greedyTasks does tasks at one time whose commands want more than the limits. The most that one of
// their invocations had comes from the log. alone is how long a task takes by itself.
func (b *bed) greedyTasks(ctx context.Context, f *forge, alone time.Duration) (*table, error) {
	args := []string{"worker", "run", "--json", "--parallel", strconv.Itoa(tasksAtOnce)}
	for n := range tasksAtOnce {
		file, err := f.task(fmt.Sprint("many-", n), greedy(n == 0))
		if err != nil {
			return nil, err
		}
		args = append(args, file)
	}
	cmd, err := b.command(ctx, b.state, append([]string{filepath.Join(b.bin, "jail")}, args...))
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	out, err := cmd.Output()
	took := time.Since(begun)
	if err != nil && len(out) == 0 {
		return nil, fmt.Errorf("%w%s", err, b.said())
	}
	done := 0
	for line := range bytes.Lines(out) {
		var o worker.Outcome
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, err
		}
		if o.Success {
			done++
		} else {
			fmt.Fprintf(b.errors, "task %s: %v\n", o.TaskID, o.Error)
		}
	}
	var most audit.Usage
	var share float64
	hits := map[string]int{}
	// least and largest are of the processor time that the commands got which want all of it.
	least, largest := int64(0), int64(0)
	for r, err := range audit.Scan(b.path(b.state, "audit"), audit.Filter{Since: begun, Tool: "sh",
		Types: []audit.Type{audit.TypeRunStarted, audit.TypeRunFinished}}) {
		if err != nil {
			return nil, err
		}
		var end struct {
			Limit string
			Usage audit.Usage
		}
		if r.Type != audit.TypeRunFinished || !strings.HasPrefix(r.Session, "task-many-") {
			continue
		}
		if err := json.Unmarshal(r.Line, &end); err != nil {
			return nil, err
		}
		u := end.Usage
		most.MemoryPeak, most.PIDsPeak = max(most.MemoryPeak, u.MemoryPeak), max(most.PIDsPeak, u.PIDsPeak)
		if end.Limit != "" {
			hits[end.Limit]++
		}
		// What is shorter than the command that spins does not last for a share.
		if u.WallMS < 2000 {
			continue
		}
		share = max(share, float64(u.CPUMS)/float64(u.WallMS))
		least, largest = min(cmp.Or(least, u.CPUMS), u.CPUMS), max(largest, u.CPUMS)
	}
	t := &table{head: []string{fmt.Sprintf("%d tasks at one time", tasksAtOnce), "now", "limit"}}
	t.add("tasks that succeeded", strconv.Itoa(done), strconv.Itoa(tasksAtOnce))
	t.add("largest memory of an invocation, MiB", mib(most.MemoryPeak), "2048.00")
	t.add("invocations that the limit of memory ended", strconv.Itoa(hits["memory"]), "1")
	t.add("most processes of an invocation", strconv.FormatInt(most.PIDsPeak, 10), "100")
	t.add("largest share of a processor, of invocations of 2 s", fmt.Sprintf("%.2f", share), "1.00")
	t.add("least processor time of one of these, ms", strconv.FormatInt(least, 10), none)
	t.add("largest, ms", strconv.FormatInt(largest, 10), none)
	t.add("seconds until all had ended", fmt.Sprintf("%.1f", took.Seconds()), none)
	t.add(fmt.Sprintf("the same ÷ %d small tasks one after the other", tasksAtOnce),
		times(took.Seconds()/(alone.Seconds()*tasksAtOnce), true), none)
	if done != tasksAtOnce {
		return t, fmt.Errorf("%d of %d tasks succeeded%s", done, tasksAtOnce, b.said())
	}
	return t, nil
}
