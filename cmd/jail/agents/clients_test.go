//go:build clients

package agents_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
)

// The tests here run real coding agents against a model server of their own: make clients-test, which
// installs the agents and names their programs in JAIL_CLIENTS.

// A step is what the scripted model says next: a call of a tool, or a text.
type step struct {
	tool  string
	input any
}

// A model is the server of a scripted conversation. It notes what the client answers.
type model struct {
	t      *testing.T
	script []step

	mu sync.Mutex
	// results are those of the calls, and tools the names of what the client offers.
	results []string
	tools   map[string]bool
}

// result returns what the client answered to a call.
func (m *model) result(call int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if call >= len(m.results) {
		return ""
	}
	return m.results[call]
}

// next notes what came of the calls, and returns the step that follows.
func (m *model) next(tools []string, results []string) (n int, s step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range tools {
		m.tools[t] = true
	}
	if len(results) > len(m.results) {
		m.results = results
	}
	if n = len(results); n < len(m.script) {
		return n, m.script[n]
	}
	return n, step{}
}

// start serves the scripted model in the protocol of a client.
func start(t *testing.T, script []step, serve func(m *model, r *http.Request, body []byte) []any) (*model,
	string) {
	m := &model{t: t, script: script, tools: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		events := serve(m, r, body)
		if events == nil {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"input_tokens":1,"data":[],"models":[]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			b, err := json.Marshal(e)
			if err != nil {
				t.Error(err)
			}
			kind, _ := e.(object)["type"].(string)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
		}
	}))
	t.Cleanup(server.Close)
	return m, server.URL
}

// messages answers in the protocol of Anthropic: https://docs.anthropic.com/en/api/messages-streaming
func messages(m *model, r *http.Request, body []byte) []any {
	var in struct {
		Model string
		Tools []struct{ Name string }
		// Content is a text, or a list of blocks.
		Messages []struct{ Content json.RawMessage }
	}
	if r.URL.Path != "/v1/messages" || json.Unmarshal(body, &in) != nil {
		return nil
	}
	var tools, results []string
	for _, t := range in.Tools {
		tools = append(tools, t.Name)
	}
	for _, each := range in.Messages {
		var blocks []struct {
			Type    string
			Content json.RawMessage
		}
		// A text has no results.
		_ = json.Unmarshal(each.Content, &blocks)
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, string(b.Content))
			}
		}
	}
	var s step
	n := len(results)
	// The client asks smaller questions beside, without tools.
	if len(tools) > 2 {
		n, s = m.next(tools, results)
	}
	id := strconv.Itoa(n)
	block, delta, end := object{"type": "text", "text": ""},
		object{"type": "text_delta", "text": "done"}, "end_turn"
	if s.tool != "" {
		block = object{"type": "tool_use", "id": "toolu_" + id, "name": s.tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": text(m.t, s.input)}
		end = "tool_use"
	}
	return []any{
		object{"type": "message_start", "message": object{"id": "msg_" + id, "type": "message",
			"role": "assistant", "model": in.Model, "content": []any{},
			"usage": object{"input_tokens": 1, "output_tokens": 1}}},
		object{"type": "content_block_start", "index": 0, "content_block": block},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": end},
			"usage": object{"output_tokens": 1}},
		object{"type": "message_stop"},
	}
}

// responses answers in the protocol of OpenAI: https://platform.openai.com/docs/api-reference/responses
func responses(m *model, r *http.Request, body []byte) []any {
	var in struct {
		Tools []struct{ Type, Name string }
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if !strings.HasSuffix(r.URL.Path, "/responses") || json.Unmarshal(body, &in) != nil {
		return nil
	}
	var tools, results []string
	for _, t := range in.Tools {
		tools = append(tools, t.Type, t.Name)
	}
	for _, i := range in.Input {
		if strings.HasSuffix(i.Type, "_call_output") {
			results = append(results, string(i.Output))
		}
	}
	n, s := m.next(tools, results)
	id := strconv.Itoa(n)
	item := object{"type": "message", "id": "msg_" + id, "role": "assistant",
		"content": []any{object{"type": "output_text", "text": "done"}}}
	if s.tool != "" {
		item = object{"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id}
		if name, ok := strings.CutPrefix(s.tool, "mcp__jail__"); ok {
			item["name"], item["namespace"] = name, "mcp__jail"
		} else {
			item["name"] = s.tool
		}
		if raw, ok := s.input.(string); ok {
			item["type"], item["input"] = "custom_tool_call", raw
		} else {
			item["arguments"] = text(m.t, s.input)
		}
	}
	return []any{
		object{"type": "response.created", "response": object{"id": "resp_" + id}},
		object{"type": "response.output_item.done", "output_index": 0, "item": item},
		object{"type": "response.completed", "response": object{"id": "resp_" + id,
			"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}},
	}
}

// An agent is a real client with a home of its own.
type agent struct {
	*cmdtest.Host
	client, home string
	args         []string
	serve        func(m *model, r *http.Request, body []byte) []any
	// native are calls of the client's own shell and editor, which make the files native1 and native2.
	native []step
	// configure lets the client reach a model, as its person who trusts the directory.
	configure func(url string) map[string]string
}

func newAgent(t *testing.T, client string) *agent {
	h, dir := home(t)
	bin := os.Getenv("JAIL_CLIENTS")
	if bin == "" {
		t.Fatal("JAIL_CLIENTS names no directory with the programs of the clients: make clients-test")
	}
	h.Daemon()
	h.Write(map[string]string{"f": "old\n", "test.sh": "grep -q new f && echo PASSED\n"})
	a := &agent{Host: h, client: client, home: dir}
	patch := "*** Begin Patch\n*** Add File: native2\n+x\n*** End Patch\n"
	switch client {
	case "claude-code":
		a.serve = messages
		a.args = []string{filepath.Join(bin, "claude"), "-p", "do it", "--output-format", "stream-json",
			"--verbose"}
		a.native = []step{{"Bash", object{"command": "echo x > native1", "description": "x"}},
			{"Write", object{"file_path": filepath.Join(h.Work, "native2"), "content": "x"}}}
		a.configure = func(url string) map[string]string {
			a.Env = append(a.Env, "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_API_KEY=none",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1",
				"MCP_TIMEOUT=120000")
			return map[string]string{".claude.json": text(t, object{"projects": object{
				h.Work: object{"hasTrustDialogAccepted": true}}})}
		}
	case "codex":
		a.serve = responses
		a.args = []string{filepath.Join(bin, "codex"), "exec", "--json", "--skip-git-repo-check", "do it"}
		a.native = []step{{"exec_command", object{"cmd": "echo x > native1"}}, {"apply_patch", patch}}
		a.configure = func(url string) map[string]string {
			a.Env = append(a.Env, "TEST_KEY=none")
			return map[string]string{".codex/config.toml": fmt.Sprintf(`model = "gpt-5.5"
model_provider = "test"

[model_providers.test]
name = "test"
base_url = %q
wire_api = "responses"
env_key = "TEST_KEY"

[projects.%q]
trust_level = "trusted"
`, url+"/v1", h.Work)}
		}
	}
	return a
}

// converse runs the client once with a scripted model.
func (a *agent) converse(script []step, flags ...string) *model {
	a.T.Helper()
	m, url := start(a.T, script, a.serve)
	for name, content := range a.configure(url) {
		path := filepath.Join(a.home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			a.T.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			a.T.Fatal(err)
		}
	}
	cmd := a.Program(a.args[0], slices.Concat(a.args[1:], flags)...)
	o := a.Run(cmd)
	if o.Code != 0 || len(m.results) != len(script) {
		a.T.Errorf("%s ended with %d after %d of %d calls: %s%s", a.client, o.Code, len(m.results),
			len(script), o.Err, o.Out)
	}
	return m
}

func (a *agent) has(name string) bool {
	_, err := os.Stat(filepath.Join(a.Work, name))
	return err == nil
}

// TestClients: a real client with the configuration of jail setup edits a file, runs the tests, sees
// the difference and asks for a commit. The real directory changes with the approval, and not by the
// client's own tools.
func TestClients(t *testing.T) {
	for _, client := range []string{"claude-code", "codex"} {
		t.Run(client, func(t *testing.T) {
			a := newAgent(t, client)
			a.Wants(a.Jail("setup", "--yes", client), 0, "")
			work := []step{
				{"mcp__jail__edit", object{"file_path": "f", "old_string": "old", "new_string": "new"}},
				{"mcp__jail__bash", object{"command": "sh test.sh"}},
				{"mcp__jail__diff", object{}},
				{"mcp__jail__commit", object{"message": "f is new"}},
			}
			m := a.converse(slices.Concat(work[:3], a.native, work[3:]))
			for call, want := range map[int]string{0: "replacements", 1: "PASSED", 2: "+new",
				5: "pending"} {
				if !strings.Contains(m.result(call), want) {
					t.Errorf("call %d: %s, want %s", call, m.result(call), want)
				}
			}
			for _, tool := range []string{"Bash", "Write", "Edit", "exec_command", "shell"} {
				if m.tools[tool] {
					t.Errorf("the model has the tool %s of %v", tool, slices.Sorted(maps.Keys(m.tools)))
				}
			}
			if a.has("native1") || a.has("native2") {
				t.Error("a tool of the client's own changed the real directory")
			}
			a.Holds("f", "old\n")
			var waiting []struct{ ID, Words string }
			if err := json.Unmarshal([]byte(a.Jail("approvals", "--json").Out), &waiting); err != nil ||
				len(waiting) != 1 || waiting[0].Words != "f is new" {
				t.Fatalf("%v, %+v", err, waiting)
			}
			a.Wants(a.Jail("approvals", "approve", waiting[0].ID), 0, "")
			a.Holds("f", "new\n")
			stop(a.Host)
		})
	}
}

// TestClientsHook: with the hook alone the client's own shell works in the session, and its editor is
// denied.
func TestClientsHook(t *testing.T) {
	for client, flags := range map[string][]string{"claude-code": {"--allowedTools", "Bash,Write"},
		"codex": {"--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"}} {
		t.Run(client, func(t *testing.T) {
			a := newAgent(t, client)
			a.Wants(a.Jail("setup", "--yes", client), 0, "")
			// The denial goes, and the hook stays.
			switch client {
			case "codex":
				os.Remove(filepath.Join(a.Work, ".codex/config.toml"))
			default:
				path := filepath.Join(a.Work, ".claude/settings.json")
				var settings object
				b, err := os.ReadFile(path)
				if err == nil {
					err = json.Unmarshal(b, &settings)
				}
				delete(settings, "permissions")
				if err == nil {
					err = os.WriteFile(path, []byte(text(t, settings)), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			m := a.converse(a.native, flags...)
			if a.has("native1") || a.has("native2") {
				t.Error("the real directory changed")
			}
			if !strings.Contains(m.result(1), "would work on the host") {
				t.Errorf("the editor: %s", m.result(1))
			}
			all := a.Sessions()
			if len(all) != 1 {
				t.Fatalf("%d sessions", len(all))
			}
			a.Wants(a.Jail("session", "exec", all[0].ID, "--", "cat", "native1"), 0, "")
			stop(a.Host)
		})
	}
}

// TestClientsExecServer: Codex whose processes run by jail exec-server works on the shadow with its own
// shell and its own editor, over both transports. TestClientsControl sees the same calls change the real
// directory without it.
func TestClientsExecServer(t *testing.T) {
	for _, transport := range []string{"stdio", "ws"} {
		t.Run(transport, func(t *testing.T) {
			a := newAgent(t, "codex")
			where := fmt.Sprintf("program = %q\nargs = [\"exec-server\"]", a.Command("exec-server").Path)
			if transport == "ws" {
				cmd := a.Command("exec-server", "--listen", "ws://127.0.0.1:0")
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				url, err := bufio.NewReader(out).ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() })
				where = fmt.Sprintf("url = %q", strings.TrimSpace(url))
			}
			configure := a.configure
			a.configure = func(url string) map[string]string {
				files := configure(url)
				files[".codex/environments.toml"] = "default = \"jail\"\ninclude_local = false\n\n" +
					"[[environments]]\nid = \"jail\"\ninitialize_timeout_sec = 120\n" + where + "\n"
				return files
			}
			m := a.converse(slices.Concat(a.native, []step{
				{"exec_command", object{"cmd": "cat native1 native2; echo new >f; sh test.sh; pwd"}},
				{"exec_command", object{"cmd": "tty; exit 3", "tty": true}}}))
			for call, want := range map[int]string{1: "Success", 2: "PASSED", 3: "/dev/pts/"} {
				if !strings.Contains(m.result(call), want) {
					t.Errorf("call %d: %s, want %s", call, m.result(call), want)
				}
			}
			if !strings.Contains(m.result(2), a.Work) {
				t.Errorf("it works elsewhere: %s", m.result(2))
			}
			if a.has("native1") || a.has("native2") {
				t.Error("a tool of the client's own changed the real directory")
			}
			a.Holds("f", "old\n")
			all := a.Sessions()
			if len(all) != 1 {
				t.Fatalf("%d sessions", len(all))
			}
			o := a.Jail("commit", "--propose", all[0].ID)
			a.Wants(o, 0, "")
			a.Wants(a.Jail("approvals", "approve", strings.TrimSpace(o.Out)), 0, "")
			a.Holds("f", "new\n")
			a.Holds("native2", "x\n")
			stop(a.Host)
		})
	}
}

// TestClientsControl: without the configuration of jail the same calls change the real directory.
func TestClientsControl(t *testing.T) {
	for client, flags := range map[string][]string{"claude-code": {"--allowedTools", "Bash,Write"},
		"codex": {"--dangerously-bypass-approvals-and-sandbox"}} {
		t.Run(client, func(t *testing.T) {
			a := newAgent(t, client)
			m := a.converse(a.native, flags...)
			if !a.has("native1") || !a.has("native2") {
				t.Errorf("the client's own tools changed nothing: %v", m.results)
			}
		})
	}
}

// TestClientsAdd: the command lines of docs/mcp.md make the clients know the server.
func TestClientsAdd(t *testing.T) {
	h, dir := home(t)
	bin := os.Getenv("JAIL_CLIENTS")
	h.Wants(h.Run(h.Program(filepath.Join(bin, "codex"), "mcp", "add", "jail", "--", "jail", "mcp",
		"--no-ask")), 0, "")
	h.Wants(h.Run(h.Program(filepath.Join(bin, "claude"), "mcp", "add", "jail", "--", "jail", "mcp")), 0,
		"")
	got := files(t, dir)
	if s := got[".codex/config.toml"]; !strings.Contains(s, "[mcp_servers.jail]\ncommand = \"jail\"\n") {
		t.Errorf("codex: %s", s)
	}
	if s := got[".claude.json"]; !strings.Contains(s, `"mcp"`) || !strings.Contains(s, `"jail"`) {
		t.Errorf("claude: %s", s)
	}
}
