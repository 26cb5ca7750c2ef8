//go:build clients

package fetch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/supervisor/fetch/fetchtest"
)

// agentCommand is what the model has an agent do. What it prints reaches the model.
const agentCommand = "echo by the agent >> notes.txt; echo x >> ~/kept; echo kept $(wc -l < ~/kept); " +
	"env; curl -sS https://example.com/"

// operatorKey is the key that only the fetch proxy and the model's host may see.
const operatorKey = "key-of-the-operator"

// A scriptedModel has the client call one tool, and ends the conversation when it has the result.
type scriptedModel struct {
	mu sync.Mutex
	// requests are the bodies that came, and keys what they were sent with.
	requests []string
	keys     map[string]bool
}

func (s *scriptedModel) note(r *http.Request) string {
	// A body that is cut off is no JSON, and is answered as a last request.
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, string(body))
	s.keys[r.Header.Get("X-Api-Key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] = true
	return string(body)
}

// took returns what came since it was asked last.
func (s *scriptedModel) took() (text string, keys map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, keys = strings.Join(s.requests, "\n"), s.keys
	s.requests, s.keys = nil, map[string]bool{}
	return text, keys
}

type object = map[string]any

// stream sends server-sent events, each named by its type.
func stream(rw http.ResponseWriter, all ...object) {
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, e := range all {
		// Every value is a text, a number or an object of those; the client may have gone.
		text, _ := json.Marshal(e)
		fmt.Fprintf(rw, "event: %s\ndata: %s\n\n", e["type"], text)
	}
}

func inJSON(v any) string {
	// Every value is a text or an object of those.
	text, _ := json.Marshal(v)
	return string(text)
}

// messages answers as Anthropic's Messages API does to Claude Code.
func (s *scriptedModel) messages(rw http.ResponseWriter, r *http.Request) {
	body := s.note(r)
	block, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": "done"}
	stop := "end_turn"
	if strings.Contains(body, `"name":"Bash"`) && !strings.Contains(body, `"tool_result"`) {
		block = object{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": inJSON(object{
			"command": agentCommand, "description": "change a file"})}
		stop = "tool_use"
	}
	stream(rw, object{"type": "message_start", "message": object{"id": "msg_1", "type": "message",
		"role": "assistant", "model": "claude-test", "content": []any{}, "stop_reason": nil,
		"stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1}}},
		object{"type": "content_block_start", "index": 0, "content_block": block},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil},
			"usage": object{"output_tokens": 1}}, object{"type": "message_stop"})
}

// responses answers as OpenAI's Responses API does to Codex.
func (s *scriptedModel) responses(rw http.ResponseWriter, r *http.Request) {
	body := s.note(r)
	item := object{"type": "message", "role": "assistant", "id": "msg_1",
		"content": []object{{"type": "output_text", "text": "done"}}}
	if !strings.Contains(body, `"function_call_output"`) {
		name, args := "exec_command", object{"cmd": agentCommand}
		if strings.Contains(body, `"name":"shell_command"`) {
			name, args = "shell_command", object{"command": agentCommand}
		}
		item = object{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name,
			"arguments": inJSON(args)}
	}
	stream(rw, object{"type": "response.created", "response": object{"id": "resp_1"}},
		object{"type": "response.output_item.done", "item": item},
		object{"type": "response.completed", "response": object{"id": "resp_1",
			"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}})
}

// TestAgentInside: whole agents run in a jail under the shipped profiles. They change a shadow and
// not the directory, keep a home, reach their model's host alone, and never see the key. The
// programs are those of make clients-test, whose names are in the directory JAIL_CLIENTS.
func TestAgentInside(t *testing.T) {
	if !onTestInternet(t, "15m") {
		return
	}
	installed := filepath.Dir(os.Getenv("JAIL_CLIENTS"))
	cmdtest.Have(t, "/usr/bin/curl", installed)
	h := cmdtest.New(t)
	h.Daemon()
	model := &scriptedModel{keys: map[string]bool{}}
	agentSettings(t, h, model)
	for name, c := range map[string]struct {
		dir, program string
		args         []string
	}{
		"claude-code": {"@anthropic-ai/claude-code-linux-x64", "claude",
			[]string{"-p", "--dangerously-skip-permissions"}},
		"codex": {"@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl", "bin/codex",
			[]string{"exec", "--sandbox", "danger-full-access", "--skip-git-repo-check"}},
	} {
		t.Run(name, func(t *testing.T) {
			h.Write(map[string]string{"notes.txt": "mine\n"})
			mine := filepath.Join(h.Root, name+".toml")
			if err := os.WriteFile(mine, fmt.Appendf(nil, "policy = 1\nname = \"mine\"\n"+
				"include = [%q]\n[[mount]]\nsource = %q\ntarget = \"/opt/agent\"\n"+
				"access = \"read+exec\"\n[tools]\nnative = [\"/opt/agent/**\"]\n", name,
				filepath.Join(installed, c.dir)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, kept := range []string{"kept 1", "kept 2"} {
				o := h.Jail(append(append([]string{"run", "--policy", mine, "--id", name, "--keep",
					"--", "/opt/agent/" + c.program}, c.args...), "add a line to notes.txt")...)
				said, keys := model.took()
				if o.Code != 0 || !strings.Contains(o.Out, "done") {
					t.Errorf("%d\n%s\n%s\n%.3000s", o.Code, o.Out, o.Err, said)
				}
				for _, want := range []string{kept, "CONNECT tunnel failed", "attached-by-the-fetch-proxy"} {
					if !strings.Contains(said, want) {
						t.Errorf("the model was not told of %q: %.20000s", want, said)
					}
				}
				if len(keys) != 1 || !keys[operatorKey] || strings.Contains(said, operatorKey) {
					t.Errorf("keys %v; the agent knows it: %v", keys,
						strings.Contains(said, operatorKey))
				}
				h.Holds("notes.txt", "mine\n")
				diff := h.Jail("diff", name)
				if h.Wants(diff, 0, ""); !strings.Contains(diff.Out, "+by the agent") ||
					!strings.Contains(diff.Out, "# 1 change (+0 ~1 -0)") {
					t.Errorf("the differences: %s", diff.Out)
				}
				log := h.Jail("audit", "query", "--run", name, "--json").Out
				for _, want := range []string{`"credential.used"`, `"host":"example.com"`} {
					if !strings.Contains(log, want) {
						t.Errorf("the log has no %s: %s", want, log)
					}
				}
				h.Discard(name)
			}
		})
	}
	var caches []struct{ ID, Name string }
	if err := json.Unmarshal([]byte(h.Jail("cache", "list", "--json").Out), &caches); err != nil ||
		len(caches) != 2 {
		t.Errorf("caches: %v, %v", caches, err)
	}
	for _, cache := range caches {
		h.Wants(h.Jail("cache", "rm", cache.ID), 0, "")
	}
}

// agentSettings has a scripted model answer for the hosts of the shipped profiles.
func agentSettings(t *testing.T, h *cmdtest.Host, model *scriptedModel) {
	t.Helper()
	names, ca := fetchtest.StartNames(t), fetchtest.NewAuthority(t)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", model.messages)
	mux.HandleFunc("POST /v1/responses", model.responses)
	mux.HandleFunc("GET /api/hello", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/oauth/hello", func(http.ResponseWriter, *http.Request) {})
	for host, address := range map[string]string{"api.anthropic.com": "93.184.216.34",
		"api.openai.com": "93.184.216.35", "platform.claude.com": "93.184.216.36"} {
		names.Set(host, []string{address})
		fetchtest.StartHost(t, address+":443", ca.Config(t, time.Now().Add(time.Hour), host),
			fetchtest.HTTP(t, mux.ServeHTTP))
	}
	fetchSettings(h, names, ca)
	key := filepath.Join(h.State, "key")
	h.Foreign["key"] = true
	settings, err := os.OpenFile(filepath.Join(h.State, "fetch.toml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(settings, "[[credential]]\nname = \"anthropic\"\nkind = \"header\"\n"+
		"header = \"x-api-key\"\nfile = %[1]q\n[[credential]]\nname = \"openai\"\n"+
		"kind = \"bearer\"\nfile = %[1]q\n", key)
	if err := errors.Join(err, settings.Close(),
		os.WriteFile(key, []byte(operatorKey+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
}
