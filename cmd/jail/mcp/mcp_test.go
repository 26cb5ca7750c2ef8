package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/policy"
	"github.com/jail-sandbox/jail/supervisor/api"
	"github.com/jail-sandbox/jail/supervisor/shadows"
)

// versions are those of the protocol that coding agents speak.
var versions = []string{"2025-06-18", "2025-11-25", "2026-07-28"}

// names are those of the tools.
var names = []string{"approvals", "bash", "commit", "diff", "edit", "fetch", "glob", "grep", "read",
	"revert", "todo", "write"}

// An agent is a client of one server.
type agent struct {
	t *testing.T
	h *cmdtest.Host
	*mcp.ClientSession
}

// connect starts jail mcp and speaks to it. answer is what its person answers, nil where it cannot
// be asked.
func connect(t *testing.T, h *cmdtest.Host, version string,
	answer func(question string) *mcp.ElicitResult, flags ...string) agent {
	t.Helper()
	o := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
	if answer != nil {
		o.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return answer(r.Params.Message), nil
		}
	}
	return connectBy(t, h, &mcp.CommandTransport{
		Command: h.Command(append([]string{"mcp"}, flags...)...)}, version, o)
}

// connectBy speaks to a server that a transport reaches.
func connectBy(t *testing.T, h *cmdtest.Host, by mcp.Transport, version string,
	o *mcp.ClientOptions) agent {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	s, err := c.Connect(t.Context(), by, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return agent{t, h, s}
}

// call calls a tool and returns its text and what it says in structure.
func (a agent) call(name string, args map[string]any) (string, map[string]any, bool) {
	a.t.Helper()
	r, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	structure, _ := r.StructuredContent.(map[string]any)
	return b.String(), structure, r.IsError
}

// works checks the text of a call that works.
func (a agent) works(want, name string, args map[string]any) map[string]any {
	a.t.Helper()
	got, structure, failed := a.call(name, args)
	if failed || !strings.Contains(got, want) {
		a.t.Errorf("%s %v: %q, failed %v; want %q", name, args, got, failed, want)
	}
	return structure
}

// fails checks the sentence of a call that does not work.
func (a agent) fails(want, name string, args map[string]any) {
	a.t.Helper()
	if got, _, failed := a.call(name, args); !failed || !strings.Contains(got, want) {
		a.t.Errorf("%s %v: %q, failed %v; want a failure with %q", name, args, got, failed, want)
	}
}

// stop ends what a server leaves: its session, which the next one would work in.
func stop(h *cmdtest.Host) {
	h.T.Helper()
	for _, s := range h.Sessions() {
		h.Wants(h.Jail("session", "stop", "--discard", s.ID), 0, "")
	}
}

func real(h *cmdtest.Host, name string) string {
	text, err := os.ReadFile(filepath.Join(h.Work, name))
	if err != nil {
		return ""
	}
	return string(text)
}

type object = map[string]any

// TestTools: a client of each version of the protocol works with all tools, and nothing of it reaches the
// real directory.
func TestTools(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"main.go": "package main\n\nfunc main() {}\n", "docs/a.md": "one\ntwo\n"})
	for _, version := range versions {
		a := connect(t, h, version, nil)
		if got := a.InitializeResult().ProtocolVersion; got != version {
			t.Errorf("version %s became %s", version, got)
		}
		list, err := a.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range list.Tools {
			got = append(got, tool.Name)
			reads := slices.Contains([]string{"read", "glob", "grep", "diff", "approvals"}, tool.Name)
			if tool.Annotations.ReadOnlyHint != reads || tool.OutputSchema == nil {
				t.Errorf("%s: %+v", tool.Name, tool.Annotations)
			}
			// Some models know one type for each value.
			for _, schema := range []any{tool.InputSchema, tool.OutputSchema} {
				if text, err := json.Marshal(schema); err != nil || strings.Contains(string(text), `"null"`) {
					t.Errorf("%s: %s, %v", tool.Name, text, err)
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			t.Errorf("tools %v", got)
		}

		a.works("two\n", "read", object{"file_path": filepath.Join(h.Work, "docs/a.md"), "offset": 2})
		a.fails("No such file", "read", object{"file_path": "none"})
		a.works("wrote 6 bytes", "write", object{"file_path": "new/dir/f.go", "content": "a\nb\na\n"})
		a.fails("occurs 2 times", "edit", object{"file_path": "new/dir/f.go", "old_string": "a", "new_string": "c"})
		a.fails("does not occur", "edit", object{"file_path": "new/dir/f.go", "old_string": "x", "new_string": "c"})
		a.works("replaced 2", "edit", object{"file_path": "new/dir/f.go", "old_string": "a", "new_string": "c", "replace_all": true})
		a.works("c\nb\nc\n", "read", object{"file_path": "new/dir/f.go"})
		o := a.works("main.go", "glob", object{"pattern": "**/*.go"})
		if files, _ := o["files"].([]any); len(files) != 2 {
			t.Errorf("glob %v", o)
		}
		a.works("main.go:3:func main() {}\n", "grep", object{"pattern": "^func", "glob": "*.go", "output_mode": "content"})
		a.works("", "grep", object{"pattern": "nowhere-to-be-found"})
		a.works("", "bash", object{"command": "mkdir -p sub/.git .git; echo needle | tee .git/f sub/.git/f sub/f"})
		if o := a.works("sub/f\n", "grep", object{"pattern": "needle"}); o["text"] != "sub/f\n" {
			t.Errorf("grep found %v", o)
		}
		a.works("", "bash", object{"command": "rm -r .git sub"})
		o = a.works("[exit code 3]", "bash", object{"command": "cat new/dir/f.go; echo problem >&2; exit 3"})
		if o["exitCode"] != 3.0 || o["stdout"] != "c\nb\nc\n" || o["stderr"] != "problem\n" {
			t.Errorf("bash %v", o)
		}
		a.works("[ended by the limit wall]", "bash", object{"command": "sleep 1000", "timeout": 100})
		a.works("in_progress", "todo", object{"todos": []object{{"content": "x", "status": "in_progress"}}})
		a.fails("none of", "todo", object{"todos": []object{{"content": "x", "status": "later"}}})
		o = a.works("new/dir/f.go", "diff", object{})
		if o["added"] != 3.0 || o["digest"] == "" {
			t.Errorf("diff %v", o)
		}
		a.fails("example.invalid", "fetch", object{"url": "http://example.invalid/"})
		a.fails("none of HTTP", "fetch", object{"url": "http://x/", "headers": object{"@file": "x"}})
		a.fails("has fewer lines", "read", object{"file_path": "main.go", "offset": 100})
		a.works("package main", "read", object{"file_path": "main.go", "limit": 1})

		r, err := a.ListResources(t.Context(), nil)
		if err != nil || len(r.Resources) != 2 {
			t.Fatalf("%v, %v", r, err)
		}
		for _, each := range r.Resources {
			content, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: each.URI})
			if err != nil || len(content.Contents) != 1 || content.Contents[0].Text == "" {
				t.Errorf("%s: %v, %v", each.URI, content, err)
			}
		}
		if _, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "jail://diff/other"}); err == nil {
			t.Error("the differences of another session are shown")
		}
		a.Close()
		stop(h)
	}
	if real(h, "new/dir/f.go") != "" {
		t.Error("the real directory changed")
	}
}

// TestCommit: the real directory changes when a person approves, in the client or outside.
func TestCommit(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for _, version := range versions {
		h.Files(map[string]string{"f": "old\n"})
		var asked []string
		var answer *mcp.ElicitResult
		a := connect(t, h, version, func(question string) *mcp.ElicitResult {
			asked = append(asked, question)
			return answer
		})
		a.works("", "bash", object{"command": "echo new > f"})

		answer = &mcp.ElicitResult{Action: "decline"}
		a.works("rejected", "commit", object{"message": "please"})
		answer = &mcp.ElicitResult{Action: "cancel"}
		o := a.works("waits for a person", "commit", object{})
		if o["state"] != "pending" || real(h, "f") != "old\n" {
			t.Errorf("after no answer: %v, %q", o, real(h, "f"))
		}
		answer = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"approve": true}}
		if o = a.works("applied", "commit", object{"message": "I fixed f"}); real(h, "f") != "new\n" {
			t.Errorf("after the approval: %v, %q", o, real(h, "f"))
		}
		if n := len(asked); n != 3 || !strings.Contains(asked[2], "The agent says: I fixed f") {
			t.Errorf("asked %q", asked)
		}
		a.works("applied", "approvals", object{})
		a.works("done", "revert", object{})
		if real(h, "f") != "old\n" {
			t.Errorf("after the revert: %q", real(h, "f"))
		}
		if !regexp.MustCompile(`the commit [0-9a-f]{16} of session`).MatchString(asked[3]) {
			t.Errorf("the question names no commit: %q", asked[3])
		}
		a.fails("no commit", "revert", object{})
		a.Close()

		// One that is not to be asked is not, though it would answer.
		a = connect(t, h, version, func(string) *mcp.ElicitResult {
			t.Error("asked in spite of --no-ask")
			return answer
		}, "--no-ask")
		o = a.works("waits for a person", "commit", object{"message": "quiet"})
		a.works("a person has to do that", "revert", object{})
		h.Wants(h.Jail("approvals", "reject", o["approval"].(string)), 0, "")
		a.Close()

		// One that cannot be asked gets the id, and the next server for the directory the same session.
		a = connect(t, h, version, nil)
		o = a.works("waits for a person", "commit", object{})
		id, _ := o["approval"].(string)
		if o = a.works("waits for a person", "commit", object{}); o["approval"] != id {
			t.Errorf("the same proposal has the ids %s and %v", id, o["approval"])
		}
		if o = a.works("waits for a person", "commit", object{"message": "x"}); o["approval"] == id {
			t.Error("a proposal in other words is the same one")
		}
		a.works("a person has to do that", "revert", object{})
		if real(h, "f") != "old\n" || id == "" {
			t.Errorf("%v, %q", o, real(h, "f"))
		}
		h.Wants(h.Jail("approvals", "approve", id), 0, "")
		if o = a.works("applied", "approvals", object{"id": id, "wait_seconds": 60}); real(h, "f") != "new\n" {
			t.Errorf("%v, %q", o, real(h, "f"))
		}
		a.Close()
		stop(h)
	}
}

// TestModules: the file tools work with jail's own WebAssembly tools as they do with the host's, also
// where a file is larger than what a tool may print.
func TestModules(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	a := connect(t, h, versions[1], nil, "--profile", "default", "--limit", "output=64KiB")
	a.works("wrote", "write", object{"file_path": "a/b/f.go", "content": "one\ntwo\n"})
	a.works("replaced 1", "edit", object{"file_path": "a/b/f.go", "old_string": "two", "new_string": "2"})
	a.works("one\n2\n", "read", object{"file_path": "a/b/f.go"})
	a.works("a/b/f.go", "glob", object{"pattern": "**/*.go"})
	a.works("a/b/f.go:2:2\n", "grep", object{"pattern": "^2$", "output_mode": "content"})
	a.works("wrote", "write", object{"file_path": "a/.git/f", "content": "2\n"})
	if o := a.works("a/b/f.go\n", "grep", object{"pattern": "^2$"}); o["text"] != "a/b/f.go\n" {
		t.Errorf("grep found %v", o)
	}
	large := strings.Repeat("0123456\n", 32<<10)
	a.works("wrote 262144 bytes", "write", object{"file_path": "large", "content": large})
	a.fails("larger than", "edit", object{"file_path": "large", "old_string": "x", "new_string": "y"})
	a.works("0123456\n", "read", object{"file_path": "large", "offset": 32 << 10})
	a.fails("bash", "bash", object{"command": "true"})
	a.Close()
	stop(h)
}

// TestOtherProposals: a proposal in the same words that takes more is another one.
func TestOtherProposals(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"f": "old\n"})
	a := connect(t, h, versions[1], nil)
	a.works("", "bash", object{"command": "echo new > f"})
	c, err := api.Dial(t.Context(), filepath.Join(h.State, "jail.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	more, err := c.Approvals().Propose(t.Context(), api.ProposeRequest{Type: policy.ActionCommit,
		Run: h.Sessions()[0].ID, Commit: &shadows.CommitRequest{IncludeProtected: true}})
	if err != nil {
		t.Fatal(err)
	}
	// An action that its proposer carries out needs a key, and one that only a run proposes is
	// refused by its name.
	for kind, want := range map[string]string{"git.push": "the key has 0 bytes",
		policy.ActionTool: "only a run itself proposes", "x": "is no action"} {
		_, err := c.Approvals().Propose(t.Context(), api.ProposeRequest{Type: kind,
			Run: h.Sessions()[0].ID})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kind, err, want)
		}
	}
	o := a.works("waits for a person", "commit", object{})
	if o["approval"] == more.ID {
		t.Error("a proposal that takes protected names stands for one that does not")
	}
	again := a.works("waits for a person", "commit", object{"paths": []string{}})
	if again["approval"] != o["approval"] {
		t.Errorf("the same proposal has the ids %v and %v", o["approval"], again["approval"])
	}
	a.Close()
	stop(h)
}

// TestForgedAnswers: an answer to a question that was not asked, or was asked about something else,
// decides nothing.
func TestForgedAnswers(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"f": "old\n"})
	yes := mcp.InputResponseMap{"decision": &mcp.ElicitResult{Action: "accept",
		Content: map[string]any{"approve": true}}}
	a := connect(t, h, versions[2], nil)
	a.works("", "bash", object{"command": "echo new > f"})
	o := a.works("waits for a person", "commit", object{})
	for _, state := range []string{"", "revert", o["approval"].(string)} {
		for _, tool := range []string{"commit", "revert"} {
			r, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: object{},
				InputResponses: yes, RequestState: state})
			if err == nil && !r.IsError {
				t.Errorf("%s with the state %q: %+v", tool, state, r.StructuredContent)
			}
		}
	}
	if real(h, "f") != "old\n" {
		t.Errorf("the real file has %q", real(h, "f"))
	}
	a.Close()
	stop(h)
}

// TestSameSession: the directory and the policy name the session, not where in the directory the agent
// stands; and a name stands for one policy.
func TestSameSession(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Files(map[string]string{"sub/f": "deep\n", "f": "top\n"})
	a := connect(t, h, versions[1], nil, "--id", "work", "--workspace", h.Work)
	a.works("top", "read", object{"file_path": filepath.Join(h.Work, "f")})
	// Two edits of one file at one time.
	a.works("", "write", object{"file_path": "both", "content": "a\nb\n"})
	ended := make(chan bool)
	for _, letter := range []string{"a", "b"} {
		go func() {
			_, _, failed := a.call("edit", object{"file_path": "both", "old_string": letter,
				"new_string": letter + letter})
			ended <- failed
		}()
	}
	for range 2 {
		if <-ended {
			t.Error("an edit failed")
		}
	}
	a.works("aa\nbb\n", "read", object{"file_path": "both"})
	a.Close()
	h.Wants(h.Jail("mcp", "--id", "work", "--profile", "readonly", "--workspace", h.Work), 2, "in use")
	o := h.From(filepath.Join(h.Work, "sub"), "mcp", "--id", "work", "--workspace", h.Work)
	if o.Code != 0 || o.Err != "" {
		t.Errorf("from below: %+v", o)
	}
	h.Wants(h.Jail("session", "stop", "work"), 0, "")
	h.Wants(h.Jail("mcp", "--id", "work", "--workspace", h.Work), 2, "wait for a review")
	h.Discard("work")
}

// serve starts jail mcp over HTTP.
func serve(t *testing.T, h *cmdtest.Host) (cmd *exec.Cmd, url, token string) {
	t.Helper()
	cmd = h.Command("mcp", "--http", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	line := func(prefix string) string {
		t.Helper()
		l, err := said.ReadString('\n')
		_, value, ok := strings.Cut(strings.TrimSpace(l), prefix)
		if err != nil || !ok {
			t.Fatalf("it said %q, %v", l, err)
		}
		return value
	}
	url, token = line("url: "), line("token: ")
	go io.Copy(io.Discard, said)
	return cmd, url, token
}

// interrupt ends a server as every command ends that is interrupted.
func interrupt(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "interrupt") {
		t.Errorf("it ended with %v", err)
	}
}

// A bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// TestVersionsHTTP: over HTTP, too, a client of each version of the protocol works, and is asked if it can
// be.
func TestVersionsHTTP(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	cmd, url, token := serve(t, h)
	for _, version := range versions {
		for _, asked := range []int{1, 0} {
			questions := 0
			o := &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}}
			if asked > 0 {
				o.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					questions++
					return &mcp.ElicitResult{Action: "accept", Content: object{"approve": true}}, nil
				}
			}
			a := connectBy(t, h, &mcp.StreamableClientTransport{Endpoint: url,
				HTTPClient: &http.Client{Transport: bearer(token)}}, version, o)
			if got := a.InitializeResult().ProtocolVersion; got != version {
				t.Errorf("version %s became %s", version, got)
			}
			file, state, want := fmt.Sprint(version, asked), "applied", "new\n"
			if asked == 0 {
				state, want = "waits for a person", ""
			}
			a.works("", "bash", object{"command": "echo new > " + file})
			a.works("+new", "diff", object{})
			a.works(state, "commit", object{"paths": []string{file}})
			if real(h, file) != want || questions != asked {
				t.Errorf("%s has %q after %d questions", file, real(h, file), questions)
			}
			if r, err := a.ListResources(t.Context(), nil); err != nil || len(r.Resources) != 2 {
				t.Errorf("%s: %v, %v", version, r, err)
			}
			a.Close()
		}
	}
	interrupt(t, cmd)
	stop(h)
}

// TestHTTP: only who has the token, and names the address itself, reaches the server.
func TestHTTP(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	h.Wants(h.Jail("mcp", "--http", "0.0.0.0:0"), 2, "must be a number of the loopback")
	cmd, url, token := serve(t, h)
	const body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	post := func(change func(*http.Request)) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+token)
		change(r)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if text, _ := io.ReadAll(res.Body); res.StatusCode == 200 && !strings.Contains(string(text), `"jail"`) {
			t.Errorf("it answers %s", text)
		}
		return res.StatusCode
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"the right one":    {func(*http.Request) {}, 200},
		"no token":         {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"another token":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
		"another origin":   {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
		"an opaque origin": {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
		"a rebound name":   {func(r *http.Request) { r.Host = "evil.example" }, 403},
		"localhost":        {func(r *http.Request) { r.Host = "localhost" }, 403},
		"another path":     {func(r *http.Request) { r.URL.Path = "/" }, 404},
	} {
		if got := post(c.change); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	interrupt(t, cmd)
	stop(h)
}

// TestHostile: what is no request of the protocol is answered or ends the server, and nothing hangs.
func TestHostile(t *testing.T) {
	h := cmdtest.New(t)
	h.Daemon()
	for name, input := range map[string]string{
		"no JSON":           "hello\n",
		"an unknown method": `{"jsonrpc":"2.0","id":1,"method":"drop","params":{}}` + "\n",
		"half a request":    `{"jsonrpc":"2.0","id":1,"meth`,
		"deep nesting":      strings.Repeat("[", 1<<20) + "\n",
		"a huge name":       `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 4<<20) + "\"}\n",
		"nothing":           "",
	} {
		cmd := h.Command("mcp")
		cmd.Stdin = strings.NewReader(input)
		o := h.Run(cmd)
		for l := range strings.Lines(o.Out) {
			if !json.Valid([]byte(l)) {
				t.Errorf("%s: it writes %q", name, l)
			}
		}
		if wrong := o.Code == 2 && strings.Contains(o.Err,
			"jail: error: standard input: it is no JSON-RPC message\n"); wrong !=
			slices.Contains([]string{"no JSON", "half a request", "deep nesting"}, name) {
			t.Errorf("%s: %+v", name, o)
		}
		if strings.Contains(o.Err, "panic") || strings.Contains(o.Err, "goroutine") {
			t.Errorf("%s: %s", name, o.Err)
		}
	}
	// Fifty calls at one time, one of which is cancelled.
	a := connect(t, h, versions[1], nil)
	ended := make(chan error)
	for n := range 50 {
		go func() {
			r, err := a.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash",
				Arguments: object{"command": "echo $((" + strings.Repeat("1+", n) + "0))"}})
			if err == nil && r.IsError {
				err = io.ErrUnexpectedEOF
			}
			ended <- err
		}()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	a.CallTool(ctx, &mcp.CallToolParams{Name: "bash", Arguments: object{"command": "sleep 1000"}})
	for range 50 {
		if err := <-ended; err != nil {
			t.Errorf("one of fifty: %v", err)
		}
	}
	a.works("on", "bash", object{"command": "echo on"})
	a.Close()
	stop(h)
}
