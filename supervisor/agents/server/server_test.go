package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/jail-sandbox/jail/supervisor/agents"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
	"github.com/jail-sandbox/jail/supervisor/agents/store"
)

// noJails cannot run anything.
type noJails struct{ agents.Jails }

func (noJails) Run(context.Context, agents.Launch, agents.Orders) (agents.End, error) {
	return agents.End{}, errors.New("there are no jails here")
}

func (noJails) Limits(context.Context, agents.Launch) (agents.Share, error) {
	return agents.Share{}, nil
}

func (noJails) Usage(context.Context) (map[string]agents.Usage, error) { return nil, nil }

// serve returns the address of a server with an agent of the name a.
func serve(t *testing.T) (*httptest.Server, *Server) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(filepath.Join(dir, "agentd.db"), "ann", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	a, err := agents.New(agents.Options{Store: s, Jails: noJails{}, Now: time.Now, Log: log,
		Folder: filepath.Join(dir, "agents"), State: filepath.Join(dir, "state"),
		FirstPause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(dir, "source")
	for file, text := range map[string]string{
		"agent.toml": "agent = 1\ntype = \"agent\"\nname = \"a\"\nmodule = \"python/python3\"\n" +
			"args = [\"main.py\"]\n",
		"main.py": "print(1)\n"} {
		if err := errors.Join(os.MkdirAll(source, 0o755),
			os.WriteFile(filepath.Join(source, file), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Add(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	server := New(t.Context(), a, log)
	h := httptest.NewServer(server)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		a.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, server
}

// ask makes a request and returns its status and body.
func ask(t *testing.T, method, url, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if req.Header.Get("Host") != "" {
		req.Host = req.Header.Get("Host")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Bad requests get one sentence and a fitting status, good ones what package agentapi says.
func TestRequests(t *testing.T) {
	h, _ := serve(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "", "", 200, `"name":"a"`},
		{"GET", "/a", "", 200, `"manifest":{`},
		{"GET", "/b", "", 404, `agent \"b\": there is none`},
		{"POST", "", `{"dir":"/nowhere"}`, 404, `/nowhere`},
		{"POST", "", `{"dir":"/nowhere","more":1}`, 400, `more`},
		{"POST", "", `{"dir":"/nowhere"} x`, 400, `body`},
		{"POST", "/a/send", `{"content":"hi","id":"one"}`, 200, `"seq":1`},
		{"POST", "/a/send", `{"content":"hi","id":"one"}`, 200, `"seq":1`},
		{"POST", "/a/send", `{"content":"hi","channel":"x"}`, 404, `not on channel`},
		{"POST", "/a/send", `{}`, 400, `content is missing`},
		{"POST", "/a/send", `{"content":"hi @a"}`, 200, `"seq":2`},
		{"GET", "/a/events", "", 200, `"type":"mention"`},
		{"POST", "/a/events/1/retry", "", 404, `no dead letter`},
		{"POST", "/a/events/x/retry", "", 400, `want a number`},
		{"POST", "/a/do/tick", "", 200, `"seq":3`},
		{"POST", "/a/send", `{"content":"hi","wait_ms":200}`, 200, `"error":"there are no jails here"`},
		{"POST", "/a/do/goals", `{"id"`, 400, `no JSON`},
		{"POST", "/a/pause", "", 200, ``},
		{"GET", "/a/do/status", "", 200, `"paused":true`},
		{"POST", "/a/send", `{"content":"hi","wait_ms":1}`, 200, `"error":"the agent is paused: `},
		{"GET", "/a/log?after=x", "", 400, `want a number`},
		{"POST", "/a/spawn", `{"channel":"other"}`, 400, `its manifest has`},
		{"POST", "/a/spawn", `{"channel":"main","handle":"x"}`, 400, `those of its manifest`},
		{"POST", "/a/spawn", `{"channel":"main"}`, 200, `"waiting":6`},
		{"POST", "/a/spawn", `{}`, 200, `"waiting":7`},
		{"GET", "/a/nothing", "", 404, `nothing at this path`},
		{"DELETE", "/a", "", 200, ``},
		{"GET", "/a", "", 404, `there is none`},
		{"GET", "", "", 200, `"state":"available"`},
		{"GET", "/codex-responder", "", 200, `"builtin":true`},
		{"POST", "/codex-responder/spawn", `{"channel":"main","config":{"x":1}}`, 400, `unknown field`},
		{"POST", "/codex-responder/spawn", `{"channel":"main","config":{"program":"/nowhere"}}`, 404,
			`/nowhere`},
		{"POST", "/codex-responder/spawn", `{"channel":"../x","config":{"program":"/bin/true"}}`, 400,
			`no name`},
		{"POST", "/a/spawn", `{"channel":"main"}`, 404, `there is none`},
	} {
		status, text := ask(t, c.method, h.URL+agentapi.Path+c.path, c.body)
		if status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %s: %d %s, want %d and %s", c.method, c.path, c.body, status, text,
				c.status, c.says)
		}
	}
}

// On loopback only who names the token gets in, at the address itself, and from no page of another
// origin. The control: without the guard each of them gets in.
func TestGuarded(t *testing.T) {
	h, s := serve(t)
	token, err := Token(filepath.Join(t.TempDir(), "token"))
	if err != nil || len(token) < 20 {
		t.Fatalf("token %q, %v", token, err)
	}
	guarded := httptest.NewUnstartedServer(nil)
	address := guarded.Listener.Addr().String()
	guarded.Config.Handler = s.Guarded(address, token)
	guarded.Start()
	defer guarded.Close()
	with := []string{"Authorization", "Bearer " + token}
	for _, c := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"the token", with, 200},
		{"no token", nil, 401},
		{"another token", []string{"Authorization", "Bearer " + token + "x"}, 401},
		{"another host", append([]string{"Host", "evil.example"}, with...), 403},
		{"another origin", append([]string{"Origin", "http://evil.example"}, with...), 403},
		{"its own origin", append([]string{"Origin", "http://" + address}, with...), 200},
	} {
		if status, text := ask(t, "GET", guarded.URL+agentapi.Path, "",
			c.headers...); status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, status, text, c.status)
		}
		if status, _ := ask(t, "GET", h.URL+agentapi.Path, "", c.headers...); status != 200 {
			t.Errorf("%s, without the guard: %d", c.name, status)
		}
	}
	for _, address := range []string{"0.0.0.0:0", "localhost:0", "10.0.0.1:80", "x", "[::]:0"} {
		if l, err := Listen(address); err == nil {
			l.Close()
			t.Errorf("it listens on %s", address)
		}
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// What an agent logs or publishes comes over the stream as it happens.
func TestStreams(t *testing.T) {
	h, s := serve(t)
	conn, _, err := websocket.Dial(t.Context(), h.URL+agentapi.Path+"/a/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	all, err := s.agents.Of(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.agents.Note(all[0], "info", "here I am"); err != nil {
		t.Fatal(err)
	}
	_, text, err := conn.Read(t.Context())
	var p agentapi.Publication
	if err != nil || json.Unmarshal(text, &p) != nil || p.Kind != store.LogKind ||
		string(p.Data) != `{"message":"here I am"}` {
		t.Errorf("the stream has %s, %v", text, err)
	}
	status, lines := ask(t, "GET", h.URL+agentapi.Path+"/a/log", "")
	if status != 200 || strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "here I am") {
		t.Errorf("%d %s", status, lines)
	}
}
