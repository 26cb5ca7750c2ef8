package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jail-sandbox/jail/cmd/cmdtest"
	"github.com/jail-sandbox/jail/runners/agent"
	"github.com/jail-sandbox/jail/supervisor/agents/agentapi"
)

// TestMemory: a memory that is imported is merged into the agent's own, of two forms of one thing the
// better one stays, a memory that is imported twice is there once, and what one agent exports
// another has.
func TestMemory(t *testing.T) {
	h := cmdtest.New(t)
	a := startAgentd(t, h)
	for _, name := range []string{"mem", "other"} {
		a.install(name, cmdtest.Must(guest())(t), "")
	}
	write := func(file string, m agent.Memory) {
		t.Helper()
		text, err := json.Marshal(m)
		if err == nil {
			err = os.WriteFile(filepath.Join(h.Work, file), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	exported := func(name string) (m agent.Memory) {
		t.Helper()
		o := h.Jail("agent", "export", name)
		h.Says(o, 0, "")
		if err := json.Unmarshal([]byte(o.Out), &m); err != nil {
			t.Fatal(err)
		}
		m.Agent = ""
		return m
	}
	first := agent.Memory{
		Conversations: []agent.Conversation{{ID: "c1", StartedAt: 10, Summary: "old", TokensUsed: 5,
			Messages: []agent.Message{{ID: "m1", Role: "user", Content: "hi", CreatedAt: 11}}},
			{ID: "c2", StartedAt: 30, Summary: "mine", Messages: []agent.Message{}}},
		Patterns: []agent.Pattern{{ID: "p1", PatternType: "x", Description: "sure", Confidence: 0.9}},
		Goals:    []agent.Goal{{ID: "g1", Description: "build", Priority: 2, Status: "open", Progress: 0.5}},
		Peers:    []agent.Peer{{NPub: "n1", Name: "ann", Relationship: "friend", TrustScore: 1}}}
	second := agent.Memory{
		Conversations: []agent.Conversation{{ID: "c1", StartedAt: 20, Summary: "new", TokensUsed: 7,
			Messages: []agent.Message{{ID: "m2", Role: "user", Content: "yo", CreatedAt: 12}}},
			{ID: "c2", StartedAt: 3, Summary: "older", Messages: []agent.Message{}}},
		Patterns: []agent.Pattern{{ID: "p1", PatternType: "x", Description: "guess", Confidence: 0.2}},
		Goals:    []agent.Goal{{ID: "g1", Description: "build", Priority: 2, Status: "done", Progress: 1}}}
	write("first.json", first)
	write("second.json", second)
	for range 2 {
		h.Wants(h.Jail("agent", "import", "mem", "first.json"), 0, "")
		if got := exported("mem"); !reflect.DeepEqual(got, first) {
			t.Fatalf("%+v\nwant %+v", got, first)
		}
	}
	merged := first
	merged.Conversations = []agent.Conversation{{ID: "c1", StartedAt: 20, Summary: "new", TokensUsed: 7,
		Messages: append(first.Conversations[0].Messages, second.Conversations[0].Messages...)},
		first.Conversations[1]}
	merged.Goals = second.Goals
	for range 2 {
		h.Wants(h.Jail("agent", "import", "mem", "second.json"), 0, "")
		if got := exported("mem"); !reflect.DeepEqual(got, merged) {
			t.Fatalf("%+v\nwant %+v", got, merged)
		}
	}
	write("merged.json", exported("mem"))
	h.Wants(h.Jail("agent", "import", "other", "merged.json"), 0, "")
	if got := exported("other"); !reflect.DeepEqual(got, merged) {
		t.Errorf("%+v\nwant %+v", got, merged)
	}
	// Over HTTP its owner lists goals, and adds one or replaces it.
	goals := func(body string) string {
		t.Helper()
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequest(method, "http://agentd"+agentapi.Path+"/other/do/goals",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return net.Dial("unix", filepath.Join(h.State, "agentd.sock"))
			}}}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s, %v", resp.StatusCode, text, err)
		}
		return string(text)
	}
	for _, progress := range []string{"0.1", "0.2"} {
		if got := goals(`{"id": "g2", "description": "rest", "priority": 9, "status": "open", ` +
			`"progress": ` + progress + `}`); strings.TrimSpace(got) != "{}" {
			t.Errorf("a goal is added: %q", got)
		}
	}
	want := `[{"description":"rest","id":"g2","priority":9,"progress":0.2,"status":"open"},` +
		`{"description":"build","id":"g1","priority":2,"progress":1,"status":"done"}]`
	if got := compact(goals("")); got != want {
		t.Errorf("goals %s\nwant %s", got, want)
	}
	for text, why := range map[string]string{`{"goals": 3}`: "memory: ",
		`{"goals": [{"id": "g3", "title": "x"}]}`: `memory: unknown field "title"`} {
		if err := os.WriteFile(filepath.Join(h.Work, "wrong.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		h.Wants(h.Jail("agent", "import", "mem", "wrong.json"), 2, why)
	}
	h.Wants(h.Jail("agent", "import", "mem", "nowhere.json"), 127, "nowhere.json")
}
